"""Accounts that pay for functions, in a fresh folder, and what the ledger knows of them."""

from fractions import Fraction

from dpcore.ledger import Run, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.steward.verify import verify_ledger

UNIT = "patient_id"


def opened(
    name: str = "clinic",
    *,
    epsilon: float = 1.0,
    currency: Currency = Currency.PURE,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    blocks_by: str | None = None,
) -> None:
    """Open an account, in a new ledger if there is none."""
    delta = 0.0 if currency is Currency.PURE else 1e-9
    _, cap = budget_of(epsilon, delta=delta, currency=currency)
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            name,
            currency=currency,
            cap=cap,
            epsilon=epsilon,
            delta=delta,
            unit=UNIT,
            neighbours=neighbours,
            blocks_by=blocks_by,
        )


def spent(name: str = "clinic") -> Fraction:
    """Return what was spent, after the ledger was verified."""
    verify_ledger()
    with open_ledger() as ledger:
        return Fraction(ledger.balance(name).spent, AMOUNT_OF_ONE)


def remaining(name: str = "clinic") -> Fraction:
    with open_ledger() as ledger:
        return Fraction(ledger.balance(name).remaining, AMOUNT_OF_ONE)


def runs(name: str = "clinic") -> tuple[Run, ...]:
    with open_ledger() as ledger:
        return ledger.runs(name)
