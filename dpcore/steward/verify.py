"""Verify the ledger, the prices of its mechanisms, and the releases that its runs have published."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from dpcore.errors import LedgerDamaged, UsageError
from dpcore.ledger import Ledger, Run, RunState, open_ledger
from dpcore.ledger.chain import is_sha256
from dpcore.ledger.verification import Verified, verify
from dpcore.mechanisms import from_description
from dpcore.object_store import AnyPath, ObjectPath, any_path, below, is_below, without_links
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.release.folder_problems import RecordedFolder, walk_releases
from dpcore.release.integrity import (
    MALFORMED,
    MANIFEST,
    access_errors,
    is_folder,
    is_there,
    one_line,
    raise_store_error,
    read_manifest,
    require_permitted,
    walk,
)
from dpcore.release.problems import problems
from dpcore.release.statement import ACCOUNTING, misstated
from dpcore.release.withdrawal import Notice, notice_of
from dpcore.reporting.lineage import Part, bound_to, ledger_parts, made_from, needed_for, published_by
from dpcore.reporting.session_claims import Claim

NAMED = 5
"""So many absent releases are named; the others are only counted."""


def verify_ledger(
    *, releases: Sequence[AnyPath] = (), complete: Sequence[AnyPath] = (), expected_head: str | None = None
) -> Verified:
    """Verify the ledger, and every file of all recorded releases that still exist.

    Args:
        releases: More folders of releases, or manifests, to verify.
        complete: Like `releases`, but a release that was published there must still exist.
        expected_head: A head of its chain that was noted elsewhere.

    Raises:
        LedgerDamaged: At the first discrepancy.
        UsageError: If a folder does not exist, or the head is not a hash.
        LedgerError: If this user may not read a release, so that it cannot be verified.
    """
    if expected_head is not None and not is_sha256(expected_head):
        raise UsageError("a head is 64 hexadecimal digits in lower case; copy it from a manifest's ledger_head")
    with access_errors(), open_ledger() as ledger:
        recorded = tuple(_recorded(ledger))
        there = sorted({record.path for record in recorded if is_there(record.path)}, key=str)
        # A ledger restored from a backup does not know its later releases. They lie beside the ones it knows.
        beside = sorted({record.beside for record in recorded if is_folder(record.beside)}, key=str)
        nearby = {folder: tuple(_found_beside(folder)) for folder in beside}
        paths = dict.fromkeys([*_found([*releases, *complete]), *chain.from_iterable(nearby.values()), *there])
        read = {path: _read(path, identity=ledger.identity()) for path in paths}
        manifests = [manifest for manifest in read.values() if manifest is not None]
        heads = {one_line(manifest.path): manifest.head for manifest in manifests}
        verified = verify(ledger, price=_price, heads=heads, expected_head=expected_head)
        for damage in chain(
            _displaced(recorded, read),
            _contradictions(ledger, manifests),
            _changes(ledger, manifests),
            _misplaced(ledger, recorded, read=read, nearby=nearby),
        ):
            raise LedgerDamaged(damage)
        gone = _withdrawals(ledger, manifests)
    absent = _absent(recorded, runs={manifest.run for manifest in manifests}, complete=complete)
    withdrawn = sum(manifest.run in gone for manifest in manifests)
    return replace(
        verified,
        others=len(read) - len(manifests),
        files=sum(2 if manifest.run in gone else manifest.files for manifest in manifests),
        absent=len(absent),
        withdrawn=withdrawn,
        first_absent=tuple(
            (f"{one_line(record.folder.parent.name)}/{one_line(record.folder.name)}", record.run)
            for record in absent[:NAMED]
        ),
    )


@dataclass(frozen=True)
class _Recorded:
    """A release as recorded in the ledger: its run, the path of its manifest, and the manifest's hash."""

    run: str
    path: AnyPath
    sha256: str
    folder: AnyPath
    """The recorded folder of the release, which may have become a link."""

    @property
    def beside(self) -> AnyPath:
        """The folder of releases in which it was published. A link left behind by a move of the release is not followed."""
        parent = self.folder.parent
        return parent if isinstance(parent, ObjectPath) else Path(os.path.realpath(parent))


@dataclass(frozen=True)
class _Manifest:
    """A release's manifest, with its statements about its run."""

    path: AnyPath
    run: str
    account: str
    head: str
    privacy: Mapping[str, Any]
    sha256: str
    files: int
    """The number of files of the release: those that it lists, itself, `SHA256SUMS` and its signature."""


def _price(mechanism: Mapping[str, Any], currency: Currency) -> int:
    return from_description(mechanism).price(currency)


def _recorded(ledger: Ledger) -> Iterator[_Recorded]:
    """Iterate over the releases that runs have recorded.

    Unreadable records are skipped here; the verification of the chain reports them.
    """
    with ledger.scanning() as scan:
        for event in scan.publications():
            try:
                body = json.loads(event.body)
                path, run = any_path(body["manifest"]), str(event.run or body["run"])
                yield _Recorded(run, without_links(path), str(body["manifest_sha256"]), path.parent)
            except (OSError, *MALFORMED):
                continue


def _found(places: Iterable[AnyPath]) -> Iterator[AnyPath]:
    """Iterate over the manifests in and below some folders, except those of releases still being written.

    Those are in folders whose names begin with a dot. Such a folder is searched only if it directly contains `data`, which no draft does and
    a reader of `*/data` would find. A folder that this user may not list raises a PermissionError, because it could hold releases.
    """
    for place in places:
        if not is_there(place, follow=True):
            nothing = f"there is nothing at {one_line(place)}"
            raise UsageError(f"{nothing}; name a folder that holds releases, or a {MANIFEST}")
        if not is_folder(place):
            yield without_links(place)
        for folder, names, _ in walk(place):
            names[:] = [name for name in names if not name.startswith(".") or is_there(folder / name / "data")]
            yield from _found_in(folder, names)


def _found_beside(folder: AnyPath) -> Iterator[AnyPath]:
    """Iterate over the manifests in and below a dataset's folder, except those of releases still being written.

    Hidden folders are searched too, because a reader of `**` may read them.
    """
    for above, names, _ in walk_releases(folder):
        yield from _found_in(above, names)


def _found_in(folder: AnyPath, names: Iterable[str]) -> Iterator[AnyPath]:
    """Iterate over the manifests in a folder and its subfolders, some of which may be links.

    A walk does not enter links, but a reader would read a linked release like the others.
    """
    paths = (folder / MANIFEST, *(folder / name / MANIFEST for name in names))
    return (without_links(path) for path in paths if is_there(path))


def _read(path: AnyPath, *, identity: str) -> _Manifest | None:
    """Read a manifest. Return None if it names another ledger: anybody can write many large ones, which must not fill the memory.

    Raises:
        LedgerDamaged: If the manifest is invalid.
        PermissionError: If this user may not read it.
        OSError: If its store fails.
    """
    try:
        written = read_manifest(path)
        content = json.loads(written.decode("utf-8"))
        privacy, digest = content["privacy"], hashlib.sha256(written).hexdigest()
        named = (privacy["run"], privacy["account"], privacy["ledger_head"])
        files = len(content.get("files", [])) + 2 + (content.get("signed_by") is not None)
        manifest = _Manifest(path, *named, privacy, digest, files)
        # A null character or a surrogate cannot be looked up in the ledger.
        readable = is_sha256(manifest.head) and isinstance(manifest.run, str) and manifest.run.isprintable()
        readable = readable and is_sha256(privacy["ledger"])
    except PermissionError:
        raise
    except (OSError, *MALFORMED) as error:
        raise_store_error(path, error)
        readable = False
    if not readable:
        raise LedgerDamaged(f"the manifest {one_line(path)} is unreadable; restore the release from a backup")
    return manifest if privacy["ledger"] == identity else None


def _displaced(recorded: Iterable[_Recorded], read: Mapping[AnyPath, _Manifest | None]) -> Iterator[str]:
    """Yield recorded places that hold something other than their run's release, whatever copies exist elsewhere."""
    for record in recorded:
        if record.path in read:
            if (manifest := read[record.path]) is None:
                yield _changed(record.folder, f"{MANIFEST} names another ledger than the one that recorded it")
            elif manifest.run != record.run:
                yield _changed(
                    record.folder, f"{one_line(record.path)} is not of run '{record.run}', which recorded it"
                )
        elif (is_there(record.folder) or is_there(record.path.parent)) and not is_there(record.path):
            require_permitted(record.path)
            yield _changed(
                record.folder, f"{MANIFEST} is missing" if is_there(record.path.parent) else "it is a broken link"
            )


def _contradictions(ledger: Ledger, manifests: Iterable[_Manifest]) -> Iterator[str]:
    """Yield manifests that contradict the ledger."""
    for manifest in manifests:
        try:
            run = ledger.run(manifest.run)
        except UsageError:
            problem: str | None = "is of a run that the ledger does not know"
        else:
            foreign = manifest.account != run.account
            problem = (
                "names another account than its run"
                if foreign
                else _misstated(manifest.privacy, run=run, ledger=ledger)
            )
        if problem:
            yield f"the manifest {one_line(manifest.path)} {problem}; restore the release, or check DPFLOW_LEDGER_URL"


def _changes(ledger: Ledger, manifests: Sequence[_Manifest]) -> Iterator[str]:
    """Yield releases that their runs have not published, or of which any byte has changed, or that were withdrawn without a record.

    A run records its manifest when it is settled. Until then, an open run may have published without a record, and its files
    are compared only with their manifest.
    """
    runs = {manifest.run: ledger.run(manifest.run) for manifest in manifests}
    published = defaultdict[str, set[str]](set)
    for record in _recorded(
        ledger
    ):  # after the states of the runs: a run that was settled meanwhile has its record by now
        published[record.run].add(record.sha256)
    withdrawals = _withdrawals(ledger, manifests)
    for manifest in manifests:
        release, run, hashes = manifest.path.parent, runs[manifest.run], published[manifest.run]
        if run.state is not RunState.OPEN and manifest.sha256 not in hashes and run.release and hashes:
            yield _changed(release, f"{MANIFEST} is not what run '{run.id}' published")
        elif run.state is not RunState.OPEN and not (run.release and hashes):
            refunded = run.state is RunState.REFUNDED
            ended = "refunded before it measured anything" if refunded else "settled without a release"
            yield (
                f"the release {one_line(release)} has no record: its run '{run.id}' was {ended}; "
                "find out where it came from, and move it away from the releases"
            )
        problem = next(problems(release, withdrawn=withdrawals.get(run.id)), None)
        if problem and run.id not in withdrawals:
            withdrawals = _withdrawals(ledger, manifests)  # it may have been withdrawn meanwhile
            problem = next(problems(release, withdrawn=withdrawals.get(run.id)), None)
        if problem:
            yield _changed(release, problem.sentence, withdrawn=run.id in withdrawals)


def _withdrawals(ledger: Ledger, manifests: Sequence[_Manifest]) -> dict[str, Notice]:
    """Return what the ledger knows of withdrawn releases, by the ids of their runs."""
    identity, accounts = ledger.identity(), {manifest.account for manifest in manifests}
    events = {run: event for account in accounts for run, event in ledger.withdrawals(account).items()}
    return {run: notice_of(event, ledger=identity) for run, event in events.items()}


def _misplaced(
    ledger: Ledger,
    recorded: Sequence[_Recorded],
    *,
    read: Mapping[AnyPath, _Manifest | None],
    nearby: Mapping[AnyPath, Collection[AnyPath]],
) -> Iterator[str]:
    """Yield the problems of folders of releases beside those of their releases.

    Args:
        ledger: The ledger.
        recorded: Its releases on record.
        read: The manifests that were read; None for those that name another ledger.
        nearby: For each folder in which its releases were published, the manifests in and below it, at any depth.
    """
    for folder, paths in nearby.items():
        runs = {release.folder.name: release.run for release in recorded if release.beside == folder}
        place, seen = RecordedFolder(ledger, folder, runs), set(read)
        foreign = [_shown_below(folder, path) for path in sorted(set(paths), key=str) if read[path] is None]
        while problem := next(place.problems(manifests=seen, foreign=foreign), None):
            if not (published_since := set(_found_beside(folder)) - seen):
                yield (
                    f"the folder of releases {one_line(folder)} was changed: {problem}; move that away, and let the newest "
                    "run write the missing files again with --resume RUN"
                )
                break
            seen |= published_since


def _shown_below(folder: AnyPath, manifest: AnyPath) -> str:
    """Return the name of a release as seen from a dataset's folder. A manifest that is in no folder of its own is named itself."""
    release = manifest if manifest.parent == folder else manifest.parent
    if is_below(folder, release):
        return str(below(folder, release))
    links = (path.name for path in folder.iterdir() if without_links(path / MANIFEST) == manifest)
    return next(links, str(release))


def _changed(release: AnyPath, problem: str, *, withdrawn: bool = False) -> str:
    then = "" if withdrawn else "; restore the release from a backup"  # the problem of a withdrawn one says what to do
    return f"the release {one_line(release)} was changed: {problem}{then}"


def _absent(recorded: Iterable[_Recorded], *, runs: Collection[str], complete: Sequence[AnyPath]) -> list[_Recorded]:
    """Return the releases that were not found, oldest first. Raise if one of them was published below `complete`."""
    absent = list(
        {record.run: record for record in recorded if record.run not in runs}.values()
    )  # the last record of each run
    whole = [place.resolve() if isinstance(place, Path) else place for place in complete]
    for record in absent:
        if any(is_below(place, record.path) for place in whole):
            raise LedgerDamaged(
                f"the release {one_line(record.path.parent)} of run '{record.run}' is missing; restore it from a backup, "
                "or name the folder that it was moved to with --releases"
            )
    return absent


def _misstated(privacy: Mapping[str, Any], *, run: Run, ledger: Ledger) -> str | None:
    """Return a statement in which a manifest contradicts the ledger, or None."""
    account = ledger.account(run.account)
    terms = ACCOUNTING[account.currency], account.unit, account.neighbours.value
    if terms != tuple(privacy.get(name) for name in ("accounting", "unit", "neighbours")):
        return "states other terms than its account has"
    booked = privacy.get("bookkeeping")
    spent = booked.get("spent") if isinstance(booked, dict) else None
    reserved = booked.get("reserved") if isinstance(booked, dict) else None
    if reserved != run.reserved / AMOUNT_OF_ONE or privacy.get("reservation") != run.first:
        return "states another reservation than its run has"
    # A run's spending never falls. Until the run is settled, it may still rise after the release was published.
    rising = run.state is RunState.OPEN and isinstance(spent, float) and 0 < spent < run.spent / AMOUNT_OF_ONE
    if spent != run.spent / AMOUNT_OF_ONE and not rising:
        return "states another amount than its run has spent"
    return _made_otherwise(privacy, run=run, ledger=ledger) or misstated(privacy)


def _made_otherwise(privacy: Mapping[str, Any], *, run: Run, ledger: Ledger) -> str | None:
    """Return how the runs that a manifest lists contradict the claims in the ledger, or None."""
    runs = {reserved.id: reserved for reserved in ledger.runs(run.account)}
    for part in made_from(run, runs):
        if any(needed not in runs for needed in needed_for(part.claim, runs)):
            return "is made from a run that the ledger does not have"
        if published := published_by(part.claim):
            claim = Claim.read(runs[published[1]].claim)
            if claim is None or claim.first != published[0]:
                return "names another first run than its session began with"
        if bound := bound_to(part.claim):
            if bound[1] not in ledger.manifests_of(bound[0]):
                return "is made from a release that the ledger does not have"
            if runs[bound[0]].last > part.first:
                return "is made from a release that was published later"
    in_ledger = [{**asdict(part), "blocks": list(part.blocks)} for part in ledger_parts(ledger, run)]
    try:
        stated = [{field.name: part[field.name] for field in fields(Part)} for part in privacy["made_from"]]
    except (KeyError, TypeError):
        stated = []
    return None if stated == in_ledger else "lists other runs, or other reservations of them, than the ledger has"
