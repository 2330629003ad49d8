"""The whole ledger held against itself, against the prices of its mechanisms, and against the releases that name it."""

import hashlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpcore.accounting import UNIT, Currency
from dpcore.errors import LedgerDamaged, UsageError
from dpcore.ledger import Account, Ledger, Run, RunState, open_ledger
from dpcore.ledger.verification import Verified, verify
from dpcore.mechanisms import from_description
from dpcore.promises import release_promise
from dpcore.release.integrity import MANIFEST, damage

_HEXADECIMAL = frozenset("0123456789abcdef")


def audit(
    *, releases: Sequence[Path] = (), complete: Sequence[Path] = (), expected_head: str | None = None
) -> Verified:
    """Check the ledger, and every file of all releases that its runs have recorded and that are still there.

    Args:
        releases: Folders with more releases to check, or their manifests.
        complete: More of them; a release that was published there must still be there.
        expected_head: A head of its chain that was written down elsewhere.

    Raises:
        LedgerDamaged: At the first thing that does not fit.
        UsageError: If a folder is not there, or the head is none.
    """
    if expected_head is not None and not _is_head(expected_head):
        raise UsageError("a head is 64 hexadecimal digits in lower case; copy it from a manifest's ledger_head")
    with open_ledger() as ledger:
        recorded = tuple(_recorded(ledger))
        there = {each.path: each.run for each in recorded if _is_there(each.path)}
        # A ledger that was put back to an earlier state does not know its later releases: they lie beside the ones it knows.
        beside = sorted({path.parent.parent for path in there})
        found: dict[Path, str | None] = dict.fromkeys(_found([*releases, *complete, *beside]))
        found.update(there)
        read = [_read(path, of_run=run) for path, run in found.items()]
        identity = ledger.identity()
        manifests = [manifest for manifest in read if manifest.privacy.get("ledger", identity) == identity]
        heads = {str(manifest.path): manifest.head for manifest in manifests}
        verified = verify(ledger, price=_price, heads=heads, expected_head=expected_head)
        for manifest in manifests:
            _require_agreement(ledger, manifest)
    files = _require_published(manifests, recorded)
    absent = _absent(recorded, runs={manifest.run for manifest in manifests}, complete=complete)
    return replace(verified, others=len(read) - len(manifests), files=files, absent=absent)


@dataclass(frozen=True)
class _Recorded:
    """What the ledger says of a release: which run published it where, and the hash of its manifest."""

    run: str
    path: Path
    sha256: str


@dataclass(frozen=True)
class _Manifest:
    """What a release says of the run that it came from."""

    path: Path
    run: str
    account: str
    head: str
    privacy: Mapping[str, Any]
    content: Mapping[str, Any]
    sha256: str


def _price(mechanism: Mapping[str, Any], currency: Currency) -> int:
    return from_description(mechanism).charge(currency)


def _is_head(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and _HEXADECIMAL.issuperset(text)


def _recorded(ledger: Ledger) -> Iterator[_Recorded]:
    """Go through the releases that runs have recorded.

    Whatever does not read here is left for the check of the chain to find.
    """
    with ledger.scanning() as scan:
        for event in scan.publications():
            try:
                body = json.loads(event.body)
                yield _Recorded(
                    str(event.run or body["run"]), _placed(Path(body["manifest"])), str(body["manifest_sha256"])
                )
            except (KeyError, TypeError, ValueError, OSError, RecursionError):
                continue


def _placed(path: Path) -> Path:
    """Return where a manifest lies, by whatever way it was reached; if it is itself a link, that is for a check to see."""
    return path.parent.resolve() / path.name


def _is_there(path: Path) -> bool:
    """Say whether there is something, as far as this user may look."""
    try:
        return path.exists()
    except OSError:
        return False


def _found(places: Iterable[Path]) -> Iterator[Path]:
    """Go through the manifests in and below some folders; one that is still being written is not there yet."""
    for place in places:
        if not place.exists():
            raise UsageError(f"there is nothing at {place}; name a folder that holds releases, or a {MANIFEST}")
        if place.is_file():
            yield _placed(place)
        for folder, below, files in os.walk(place):
            below[:] = sorted(name for name in below if not name.startswith("."))
            if MANIFEST in files:
                yield _placed(Path(folder, MANIFEST))


def _read(path: Path, *, of_run: str | None) -> _Manifest:
    """Read a manifest, or say that it cannot be."""
    try:
        written = path.read_bytes()
        content = json.loads(written.decode("utf-8"))
        privacy, digest = content["privacy"], hashlib.sha256(written).hexdigest()
        named = (privacy["run"], privacy["account"], privacy["ledger_head"])
        manifest = _Manifest(path, *named, privacy, content, digest)
        readable = _is_head(manifest.head) and isinstance(manifest.run, str)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        readable = False
    if not readable:
        raise LedgerDamaged(f"the manifest {path} does not read; restore the release from a backup")
    if of_run not in {None, manifest.run}:
        raise LedgerDamaged(f"the manifest {path} is not of run '{of_run}', which recorded it; restore the release")
    return manifest


def _require_published(manifests: Sequence[_Manifest], recorded: Iterable[_Recorded]) -> int:
    """Refuse a release of which any byte is not as it was published; return how many files were compared.

    A run that published and was not settled has recorded no hash yet: then only the files are compared, with their manifest.
    """
    files, published = 0, defaultdict[str, set[str]](set)
    for each in recorded:
        published[each.run].add(each.sha256)
    for manifest in manifests:
        release = manifest.path.parent
        problem = None
        if manifest.sha256 not in published.get(manifest.run, {manifest.sha256}):
            problem = f"{MANIFEST} is not what run '{manifest.run}' published"
        if problem := problem or damage(release, manifest.content):
            raise LedgerDamaged(f"the release {release} was changed: {problem}; restore the release from a backup")
        files += 1 + len(manifest.content.get("files", []))
    return files


def _absent(recorded: Iterable[_Recorded], *, runs: Collection[str], complete: Sequence[Path]) -> int:
    """Count the releases that were found nowhere; refuse one that has lost its manifest, or that has to be there."""
    absent = list({each.run: each for each in recorded if each.run not in runs}.values())  # where it was made last
    whole = [place.resolve() for place in complete]
    for each in absent:
        release = each.path.parent
        if _is_there(release):
            raise LedgerDamaged(
                f"the release {release} was changed: {each.path.name} is missing; restore the release from a backup"
            )
        if any(each.path.is_relative_to(place) for place in whole):
            raise LedgerDamaged(
                f"the release {release} of run '{each.run}' is missing; restore it from a backup, "
                "or name the folder that it was moved to with --releases"
            )
    return len(absent)


def _require_agreement(ledger: Ledger, manifest: _Manifest) -> None:
    """Refuse a manifest that tells of its run something else than the ledger does."""
    problem = None
    try:
        run = ledger.run(manifest.run)
    except UsageError:
        problem = "is of a run that the ledger does not know"
    else:
        if manifest.account != run.account:
            problem = "names another account than its run"
        else:
            problem = _misstated(manifest.privacy, account=ledger.account(run.account), run=run)
    if problem:
        raise LedgerDamaged(f"the manifest {manifest.path} {problem}; restore the release, or check DPFLOW_LEDGER_URL")


def _misstated(privacy: Mapping[str, Any], *, account: Account, run: Run) -> str | None:
    """Say what a manifest states about its run otherwise than the ledger does, if anything."""
    booked = privacy.get("bookkeeping")
    spent = booked.get("spent") if isinstance(booked, dict) else None
    reserved = booked.get("reserved") if isinstance(booked, dict) else None
    if reserved != run.reserved / UNIT:
        return "states another reservation than its run has"
    # What a run has spent never falls; until it is settled it may still rise after its release was published.
    rising = run.state is RunState.OPEN and isinstance(spent, float) and 0 < spent < run.spent / UNIT
    if spent != run.spent / UNIT and not rising:
        return "states another amount than its run has spent"
    epsilon, delta = privacy.get("epsilon"), privacy.get("delta")
    pure = account.currency is Currency.PURE
    if not (isinstance(epsilon, float) and isinstance(delta, float) and 0 <= delta < 1 and (delta == 0) == pure):
        return "states no epsilon and delta that a run of its account can have"
    # Another machine's exponential function may lead to another last digit.
    if not math.isclose(epsilon, release_promise(account, run, delta=delta).epsilon, rel_tol=1e-9):
        return "states another epsilon than its run's reservation promises"
    return None
