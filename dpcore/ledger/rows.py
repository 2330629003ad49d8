"""What a ledger remembers: accounts, runs, operations, and the events that led to them.

Every amount is a whole number of units, each 1e-12 of the account's currency, so that sums are exact on any machine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from dpcore.accounting import UNIT, Currency
from dpcore.privacy import Neighbours

_NAMES = {Currency.PURE: "epsilon", Currency.ZCDP: "rho"}


def in_currency(units: int, currency: Currency) -> str:
    """Write an amount for a person, with all its digits.

    >>> in_currency(250_000_000_000, Currency.PURE)
    '0.25 epsilon'
    >>> in_currency(1, Currency.ZCDP)
    '0.000000000001 rho'
    """
    digits = f"{Decimal(units) / UNIT:f}"
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits} {_NAMES[currency]}"


class RunState(StrEnum):
    """Whether a run still holds a reservation."""

    OPEN = "open"
    SETTLED = "settled"
    RELEASED = "released"


class OperationState(StrEnum):
    """Whether a paid operation has its result."""

    STARTED = "started"
    COMMITTED = "committed"


class EventKind(StrEnum):
    """The changes a ledger knows."""

    ACCOUNT_OPENED = "account-opened"
    RESERVED = "reserved"
    DATA_VERSION = "data-version"
    STARTED = "started"
    COMMITTED = "committed"
    SETTLED = "settled"
    RELEASED = "released"


@dataclass(frozen=True)
class Account:
    """A budget for one dataset; everything but `spent` and `reserved` is fixed when it is opened.

    `epsilon` and `delta` are the declared total in the reader's terms, `cap` is what it amounts to in the currency.
    """

    name: str
    currency: Currency
    cap: int
    epsilon: float
    delta: float
    unit: str
    neighbours: Neighbours
    spent: int
    reserved: int
    opened_at: str

    @property
    def remaining(self) -> int:
        """Units that a new run can still reserve."""
        return self.cap - self.spent - self.reserved


@dataclass(frozen=True)
class Run:
    """One run's reservation. `reserved` is what was granted and stays as it was; `spent` is what its operations took."""

    id: str
    account: str
    reserved: int
    spent: int
    state: RunState
    claim: str
    data_version: str | None
    opened_at: str
    release: str | None

    @property
    def remaining(self) -> int:
        """Units that the run's next operations can still take."""
        return self.reserved - self.spent if self.state is RunState.OPEN else 0


@dataclass(frozen=True)
class Operation:
    """One paid look at the data: who pays, for what, how much, and what came out.

    `mechanism` holds every parameter of the price, sensitivity and scale among them, so that anyone can account again.
    """

    run: str
    step: str
    attempt: int
    state: OperationState
    amount: int
    mechanism: Mapping[str, Any]
    output: bytes | None


@dataclass(frozen=True)
class Event:
    """One link of the chain; `body` is the canonical JSON text that was hashed."""

    seq: int
    at: str
    kind: EventKind
    account: str
    run: str | None
    body: str
    previous: str
    hash: str

    @property
    def details(self) -> dict[str, Any]:
        """The body as a dictionary."""
        details: dict[str, Any] = json.loads(self.body)
        return details
