"""What a ledger remembers: accounts and their blocks, runs, operations, and the events that led to them.

Every amount is a whole multiple of 1e-12 of the account's currency, kept as that whole number, so that sums are exact on any machine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from dpcore.errors import LedgerDamaged
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours

WHOLE = "all"
"""The one block of an account that is not kept by block."""


def in_currency(amount: int, currency: Currency) -> str:
    """Write an amount for a person, with all its digits.

    >>> in_currency(250_000_000_000, Currency.PURE)
    '0.25 epsilon'
    >>> in_currency(1, Currency.ZCDP)
    '0.000000000001 rho'
    """
    digits = f"{Decimal(amount) / AMOUNT_OF_ONE:f}"
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits} {currency.symbol}"


class AccountState(StrEnum):
    """Whether an account takes new runs."""

    OPEN = "open"
    CLOSED = "closed"


class BlockState(StrEnum):
    """Whether a block's data may still grow; only a sealed block can be charged."""

    OPEN = "open"
    SEALED = "sealed"


class AllowanceKind(StrEnum):
    """Whose part of an account an allowance bounds."""

    ANALYST = "analyst"
    PURPOSE = "purpose"


class RunState(StrEnum):
    """Whether a run still holds a reservation."""

    OPEN = "open"
    SETTLED = "settled"
    REFUNDED = "refunded"


class OperationState(StrEnum):
    """Whether a paid operation has its result."""

    CHARGED = "charged"
    COMMITTED = "committed"


class EventKind(StrEnum):
    """The changes a ledger knows."""

    ACCOUNT_OPENED = "account-opened"
    CAP_RAISED = "cap-raised"
    ACROSS_RAISED = "across-raised"
    ACCOUNT_CLOSED = "account-closed"
    ALLOWED = "allowed"
    BLOCKS_OPENED = "blocks-opened"
    BLOCKS_SEALED = "blocks-sealed"
    ADOPTED = "adopted"
    RESTORED = "restored"
    RESERVED = "reserved"
    LEASED = "leased"
    DATA_VERSION = "data-version"
    CHARGED = "charged"
    COMMITTED = "committed"
    SETTLED = "settled"
    REFUNDED = "refunded"
    REPUBLISHED = "republished"


@dataclass(frozen=True)
class Account:
    """The terms of one dataset's budget. The caps, with their epsilons, may be raised; all else is fixed when it is opened.

    `epsilon` and `delta` are the declared total in the reader's terms, `cap` is what it amounts to in the currency.
    `blocks_by` says what the blocks are, such as "month of visit_date"; None: the whole table is one block.
    `across` caps what all runs together may use, whatever their blocks; None: only each block has a cap. It stands for
    `across_epsilon` at the account's delta. `across_used` is all that runs were granted of it and did not give back.
    """

    name: str
    currency: Currency
    cap: int
    epsilon: float
    delta: float
    unit: str
    neighbours: Neighbours
    description: str
    blocks_by: str | None
    state: AccountState
    opened_at: str
    across: int | None = None
    across_epsilon: float | None = None
    across_used: int = 0

    @property
    def across_remaining(self) -> int | None:
        """The amount that a new run can still reserve of the cap across blocks; None: there is no such cap."""
        return None if self.across is None else self.across - self.across_used

    @property
    def weight(self) -> int:
        """How many blocks one neighbour step can touch, which is how often each of them pays a run's price.

        To replace a unit is to take it from one block and to put another into a second: the two blocks' sums must stay
        within the cap together, which they do if each pays double. A unit that is added or removed touches one block.
        """
        return 2 if self.blocks_by is not None and self.neighbours is Neighbours.REPLACE_ONE else 1


@dataclass(frozen=True)
class Balance:
    """What a block has spent, and what open runs hold of it. An account's balance is that of its most used block."""

    cap: int
    spent: int
    reserved: int

    @property
    def used(self) -> int:
        """The amount that is not there any more for a new run."""
        return self.spent + self.reserved

    @property
    def remaining(self) -> int:
        """The amount that a new run can still reserve."""
        return self.cap - self.used


@dataclass(frozen=True)
class Block:
    """A part of an account's data that no other block shares, with the account's cap to itself.

    `used` is all that runs were granted and did not give back.
    """

    account: str
    name: str
    state: BlockState
    cap: int
    used: int


@dataclass(frozen=True)
class Allowance:
    """What one analyst, or one purpose, may use of an account in all its runs, whatever their blocks."""

    account: str
    kind: AllowanceKind
    name: str
    cap: int
    epsilon: float
    used: int

    @property
    def remaining(self) -> int:
        """The amount that a new run can still reserve under this allowance."""
        return self.cap - self.used


@dataclass(frozen=True)
class Run:
    """One run's reservation. `reserved` is what was granted and stays as it was; `spent` is what its operations took.

    `fence` counts the leases: only the newest can change the run. `first` and `last` are the numbers of the events that
    reserved it and that changed it last.
    """

    id: str
    account: str
    reserved: int
    spent: int
    state: RunState
    claim: str
    analyst: str | None
    purpose: str | None
    data_version: str | None
    opened_at: str
    release: str | None
    fence: int
    holder: str | None
    lease_seconds: int
    first: int
    last: int

    @property
    def remaining(self) -> int:
        """The amount that the run's next operations can still take."""
        return self.reserved - self.spent if self.state is RunState.OPEN else 0


@dataclass(frozen=True)
class Lease:
    """The right to work on a run, until the lease lapses and another worker takes it: the higher fence wins."""

    run: str
    fence: int


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
    fence: int
    sha256: str | None
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
    def time(self) -> datetime:
        """The moment it was recorded."""
        try:
            return datetime.fromisoformat(self.at)
        except ValueError as error:
            raise LedgerDamaged(f"event {self.seq} does not read; restore the ledger from a backup") from error

    @property
    def details(self) -> dict[str, Any]:
        """The body as a dictionary."""
        try:
            details: dict[str, Any] = json.loads(self.body)
        except ValueError as error:
            raise LedgerDamaged(f"event {self.seq} does not read; restore the ledger from a backup") from error
        return details
