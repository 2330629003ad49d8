"""Ledgers for the tests of the steward's verbs: built with a clock that stands still, so that what is shown can be compared."""

from datetime import UTC, date, datetime
from pathlib import Path

from dpcore import Outcome, cli, synthesize
from dpcore.ledger import Ledger, open_ledger
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours

MECHANISM = {"name": "discrete-laplace", "scale": "1000000.0", "l1": 1, "l2_squared": 1, "linf": 1}
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def runner(spec: Path, _resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
    return synthesize(spec)


def dpflow(*arguments: object) -> int:
    """Run one of the steward's verbs, none of which makes a release."""
    return cli.main([str(argument) for argument in arguments], runner=runner)


def without_ledger(text: str) -> str:
    """Return what a verb said without its first line, which must name the ledger of the working folder."""
    used, _, said = text.partition("\n\n")
    assert used.startswith(f"ledger {Path.cwd()}/.dpflow/ledger.sqlite, identity "), text
    return said


def made_at_noon() -> Ledger:
    """Open the working folder's ledger, making it, with every event at the same time."""
    return open_ledger(create=True, clock=lambda: NOON)


def opened(
    ledger: Ledger,
    name: str,
    *,
    epsilon: float = 2.0,
    delta: float = 0.0,
    currency: Currency | None = None,
    unit: str = "row",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    months: int = 0,
) -> None:
    """Open an account, kept by month and with so many sealed months, if any."""
    currency, cap = budget_of(epsilon, delta=delta, currency=currency)
    ledger.open_account(
        name,
        currency=currency,
        cap=cap,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        neighbours=neighbours,
        description=f"what {name} is about",
        blocks_by="month of visit" if months else None,
    )
    if months:
        names = [f"month-{number:02}" for number in range(1, months + 1)]
        ledger.open_blocks(name, names)
        ledger.seal_blocks(name, names)


def spent(
    ledger: Ledger,
    run_id: str,
    *,
    account: str,
    amount: int,
    steps: int = 2,
    ended: bool = True,
    holder: str = "worker-7 4120 99",
    blocks: list[str] | None = None,
    analyst: str | None = None,
    purpose: str | None = None,
    release: str = "",
    claim: str = "test",
) -> None:
    """Reserve an amount, spend a tenth of it with each step, and settle, unless the run is to stay open."""
    ledger.reserve(run_id, account=account, amount=amount, claim=claim, blocks=blocks, analyst=analyst, purpose=purpose)
    lease = ledger.lease(run_id, holder=holder)
    for number in range(1, steps + 1):
        step = f"round-{number:03}/measure"
        operation = ledger.charge(lease, step=step, amount=amount // 10, mechanism=MECHANISM)
        ledger.commit(operation, b"noisy")
    if ended:
        ledger.settle(run_id, release=release or f"release-of-{run_id}", lease=lease)
