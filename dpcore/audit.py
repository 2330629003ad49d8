"""The whole ledger held against itself, against the prices of its mechanisms, and against the releases that name it."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpcore.accounting import UNIT, Currency
from dpcore.errors import LedgerDamaged, UsageError
from dpcore.ledger import Account, Ledger, Run, RunState, open_ledger
from dpcore.ledger.verification import Verified, verify
from dpcore.mechanisms import from_description
from dpcore.promises import release_promise

MANIFEST = "manifest.json"

_HEXADECIMAL = frozenset("0123456789abcdef")


def audit(*, releases: Sequence[Path] = (), expected_head: str | None = None) -> Verified:
    """Check the ledger, and all manifests that its runs have recorded and that are still there.

    Args:
        releases: Folders with more releases to hold it against, or their manifests.
        expected_head: A head of its chain that was written down elsewhere.

    Raises:
        LedgerDamaged: At the first thing that does not fit.
        UsageError: If a folder is not there, or the head is none.
    """
    if expected_head is not None and not _is_head(expected_head):
        raise UsageError("a head is 64 hexadecimal digits in lower case; copy it from a manifest's ledger_head")
    with open_ledger() as ledger:
        recorded = dict(_recorded(ledger))
        # A ledger that was put back to an earlier state does not know its later releases: they lie beside the ones it knows.
        beside = sorted({path.parent.parent for path in recorded})
        found: dict[Path, str | None] = dict.fromkeys(_found([*releases, *beside]))
        found.update(recorded)
        read = [_read(path, of_run=run) for path, run in found.items()]
        identity = ledger.identity()
        manifests = [manifest for manifest in read if manifest.privacy.get("ledger", identity) == identity]
        heads = {str(manifest.path): manifest.head for manifest in manifests}
        verified = verify(ledger, price=_price, heads=heads, expected_head=expected_head)
        for manifest in manifests:
            _require_agreement(ledger, manifest)
    return replace(verified, others=len(read) - len(manifests))


@dataclass(frozen=True)
class _Manifest:
    """What a release says of the run that it came from."""

    path: Path
    run: str
    account: str
    head: str
    privacy: Mapping[str, Any]


def _price(mechanism: Mapping[str, Any], currency: Currency) -> int:
    return from_description(mechanism).charge(currency)


def _is_head(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and _HEXADECIMAL.issuperset(text)


def _recorded(ledger: Ledger) -> Iterator[tuple[Path, str]]:
    """Go through the manifests that runs have recorded and that are there, each with its run.

    Whatever does not read here is left for the check of the chain to find.
    """
    with ledger.scanning() as scan:
        for event in scan.settlements():
            try:
                path = Path(json.loads(event.body)["manifest"]).resolve()
                there = path.is_file()
            except (KeyError, TypeError, ValueError, OSError, RecursionError):
                continue
            if there:
                yield path, str(event.run)


def _found(places: Iterable[Path]) -> Iterator[Path]:
    """Go through the manifests in and below some folders; one that is still being written is not there yet."""
    for place in places:
        if not place.exists():
            raise UsageError(f"there is nothing at {place}; name a folder that holds releases, or a {MANIFEST}")
        if place.is_file():
            yield place.resolve()
        for folder, below, files in os.walk(place):
            below[:] = sorted(name for name in below if not name.startswith("."))
            if MANIFEST in files:
                yield Path(folder, MANIFEST).resolve()


def _read(path: Path, *, of_run: str | None) -> _Manifest:
    """Read a manifest, or say that it cannot be."""
    try:
        privacy = json.loads(path.read_text(encoding="utf-8"))["privacy"]
        manifest = _Manifest(path, privacy["run"], privacy["account"], privacy["ledger_head"], privacy)
        readable = _is_head(manifest.head) and isinstance(manifest.run, str)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        readable = False
    if not readable:
        raise LedgerDamaged(f"the manifest {path} does not read; restore the release from a backup")
    if of_run not in {None, manifest.run}:
        raise LedgerDamaged(f"the manifest {path} is not of run '{of_run}', which recorded it; restore the release")
    return manifest


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
