"""A ledger with a bit of everything in it, for whoever checks a ledger as a whole."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpcore.ledger import AllowanceKind, Lease, Ledger, Run, open_ledger
from dpcore.ledger.sqlite.outputs import LARGEST_IN_ROW
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism, RoundedGaussian
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Sensitivity
from dpcore.release.signing import SUMS, encode_sums
from dpcore.release.statement import ACCOUNTING, StatedPart, promised
from dpcore.reporting.lineage import ledger_parts

ONE = Sensitivity(l1=1, l2_squared=1, linf=1)
NOISE: dict[Currency, Mechanism] = {
    Currency.PURE: DiscreteLaplace(scale=20.0, sensitivity=ONE),
    Currency.ZCDP: DiscreteGaussian(scale=10.0, sensitivity=ONE),
    Currency.GDP: RoundedGaussian(scale=10.0, sensitivity=ONE),
}
LARGE = b"large" * (LARGEST_IN_ROW // 5 + 1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def price(currency: Currency) -> int:
    """What one operation of the story costs."""
    return NOISE[currency].price(currency)


def tell(url: str, manifest: Path) -> None:
    """Make the ledger, and the manifest of its one release."""
    with open_ledger(url, create=True, clock=lambda: NOON) as ledger:
        _open_accounts(ledger)
        _release_births(ledger, manifest)
        _begin_again(ledger)
        _teach(ledger)
        _measure_months(ledger)
        _close(ledger)


def measure(ledger: Ledger, lease: Lease, step: str, *, output: bytes | None, analyst: str | None = None) -> None:
    """Pay for a step, and commit what it gave, unless the worker dies first."""
    currency = ledger.account(ledger.run(lease.run).account).currency
    mechanism = NOISE[currency].describe()
    operation = ledger.charge(lease, step=step, amount=price(currency), mechanism=mechanism, analyst=analyst)
    if output is not None:
        ledger.commit(operation, output)


def reserve(ledger: Ledger, run_id: str, account: str, *, steps: int, **request: Any) -> Run:
    amount = steps * price(ledger.account(account).currency)
    return ledger.reserve(run_id, account=account, amount=amount, claim=f"claim of {run_id}", **request)


def write_manifest(ledger: Ledger, run_id: str, path: Path) -> None:
    """Write what a release says of its run, and of the ledger at this moment."""
    run = ledger.run(run_id)
    account = ledger.account(run.account)
    books = {
        "counts": account.currency.symbol,
        "reserved": run.reserved / AMOUNT_OF_ONE,
        "spent": run.spent / AMOUNT_OF_ONE,
    }
    parts = [
        StatedPart(**vars(part), delta=account.delta, draws=10, max_rows_per_unit=1)
        for part in ledger_parts(ledger, run)
    ]
    terms = {"unit": account.unit, "neighbours": account.neighbours.value}
    privacy = {
        "account": run.account,
        "run": run_id,
        "ledger": ledger.identity(),
        "ledger_head": ledger.head(),
        "accounting": ACCOUNTING[account.currency],
        **terms,
        **promised(parts, currency=account.currency, **terms),
        "made_from": [asdict(part) for part in parts],
        "bookkeeping": books,
        "reservation": run.first,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    state(path, {"privacy": privacy})


def state(manifest: Path, content: Any) -> None:
    """Write a manifest, and the list of hashes that belongs to it."""
    written = json.dumps(content).encode()
    manifest.write_bytes(written)
    hashes = {file["path"]: file["sha256"] for file in content.get("files", [])}
    manifest.with_name(SUMS).write_bytes(encode_sums({manifest.name: sha256(written).hexdigest(), **hashes}))


def recorded(manifest: Path) -> dict[str, str]:
    """What a run records of the manifest of its release."""
    return {"manifest": str(manifest), "manifest_sha256": sha256(manifest.read_bytes()).hexdigest()}


def _open_accounts(ledger: Ledger) -> None:
    common = {"unit": "person", "cap": AMOUNT_OF_ONE // 2, "epsilon": 10.0}
    pure = {"currency": Currency.PURE, "delta": 0.0, **common}
    ledger.open_account("births", **pure, neighbours=Neighbours.ADD_REMOVE, description="all births")
    ledger.raise_cap("births", cap=AMOUNT_OF_ONE, epsilon=15.0, reason="a second year")
    zcdp = {"currency": Currency.ZCDP, "delta": 1e-9, **common}
    ledger.open_account("clinic", **zcdp, neighbours=Neighbours.REPLACE_ONE)
    gdp = {"currency": Currency.GDP, "delta": 1e-6, **common}
    ledger.open_account("visits", **gdp, neighbours=Neighbours.ADD_REMOVE, blocks_by="month of visit_date")
    across = {"across": AMOUNT_OF_ONE // 4, "across_epsilon": 20.0}
    ledger.open_account("wards", **pure, **across, neighbours=Neighbours.REPLACE_ONE, blocks_by="ward")


def _release_births(ledger: Ledger, manifest: Path) -> None:
    """A run whose first worker dies in its second step."""
    reserve(ledger, "births-1", "births", steps=5, purpose="a yearbook")
    first = ledger.lease("births-1", holder="far-away 4711 99")
    ledger.record_data_version(first, "version-1")
    measure(ledger, first, "round-1", output=b"one")
    measure(ledger, first, "round-2", output=None)
    measure(ledger, first, "round-2", output=None)
    second = ledger.lease("births-1", holder="far-away 4711 99", seconds=60)
    measure(ledger, second, "round-2", output=b"two")
    write_manifest(ledger, "births-1", manifest)
    ledger.settle("births-1", release="births-2026", lease=second, **recorded(manifest))


def _begin_again(ledger: Ledger) -> None:
    """A run that was given back, taken again, and is in the middle of its work. Two analysts share what is left of it."""
    reserve(ledger, "births-2", "births", steps=3)
    ledger.record_data_version(ledger.lease("births-2", holder="night-shift"), "version-0")
    ledger.refund("births-2", lease=Lease("births-2", 1))
    reserve(ledger, "births-0", "births", steps=1)
    ledger.refund("births-0", lease=None)
    reserve(ledger, "births-2", "births", steps=3)
    lease = ledger.lease("births-2", holder="day-shift")
    measure(ledger, lease, "round-1", output=None)
    for analyst, token in (("ada", "a" * 64), ("bob", "b" * 64)):
        ledger.share("births-2", analyst=analyst, cap=price(Currency.PURE) + len(analyst), token=token)
    measure(ledger, lease, "question-1", output=None, analyst="ada")
    ledger.share("births-2", analyst="bob", cap=price(Currency.PURE), token=None)


def _teach(ledger: Ledger) -> None:
    """Runs in a name before and after it got an allowance, which was changed since."""
    lease = {"holder": "night-shift", "seconds": 5}
    reserve(ledger, "clinic-1", "clinic", steps=2, analyst="ada")
    measure(ledger, ledger.lease("clinic-1", **lease), "round-1", output=b"")
    two = {"cap": 20 * price(Currency.ZCDP), "epsilon": 5.0, "reason": "a course"}
    for kind, name in (
        (AllowanceKind.ANALYST, "ada"),
        (AllowanceKind.ANALYST, "bob"),
        (AllowanceKind.PURPOSE, "course"),
    ):
        ledger.allow("clinic", kind=kind, name=name, **two)
    reserve(ledger, "clinic-2", "clinic", steps=4, analyst="ada", purpose="course")
    ledger.allow(
        "clinic", kind=AllowanceKind.ANALYST, name="ada", cap=6 * price(Currency.ZCDP), epsilon=2.0, reason="less"
    )
    measure(ledger, ledger.lease("clinic-2", **lease), "round-1", output=b"three")
    ledger.settle("clinic-1", release=None, lease=Lease("clinic-1", 1))
    ledger.settle("clinic-2", release=None, lease=Lease("clinic-2", 1))


def _measure_months(ledger: Ledger) -> None:
    """Runs in accounts that are kept by block, one of which pays double."""
    ledger.open_blocks("visits", ["2026-01", "2026-02", "2026-03"])
    ledger.seal_blocks("visits", ["2026-01", "2026-02"])
    reserve(ledger, "visits-1", "visits", steps=2, blocks=["2026-01", "2026-02"])
    measure(ledger, ledger.lease("visits-1", holder="night-shift"), "round-1", output=LARGE)
    ledger.open_blocks("wards", ["east", "west"])
    ledger.seal_blocks("wards", ["east", "west"])
    reserve(ledger, "wards-1", "wards", steps=2, blocks=["west"])
    measure(ledger, ledger.lease("wards-1", holder="night-shift"), "round-1", output=b"four")
    ledger.settle("wards-1", release=None, lease=Lease("wards-1", 1))
    reserve(ledger, "wards-2", "wards", steps=1, blocks=["east", "west"])
    ledger.raise_across("wards", cap=AMOUNT_OF_ONE, epsilon=25.0, reason="more wards")


def _close(ledger: Ledger) -> None:
    ledger.close_account("clinic", reason="the study is over")
