"""The ledger's records: accounts, blocks, allowances, runs, operations, and the events that changed them.

Every amount is an integer count of 1e-12 of the account's currency, so sums are exact on any machine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from dpcore.errors import LedgerDamaged
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours


def whole_minute(moment: datetime) -> str:
    """Return a time as the ledger and releases state it: its minute. Seconds would tell how long steps take that read private rows.

    >>> whole_minute(datetime.fromisoformat("2026-11-18T08:20:24.5+01:00"))
    '2026-11-18T07:20:00+00:00'
    """
    return moment.astimezone(UTC).replace(second=0, microsecond=0).isoformat()


WHOLE = "all"
"""The only block of an account that is not kept by block."""


def in_currency(amount: int, currency: Currency) -> str:
    """Format an amount with all its digits and its unit.

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
    """Whether a block's data may still grow. Only a sealed block can be charged."""

    OPEN = "open"
    SEALED = "sealed"


class AllowanceKind(StrEnum):
    """Whose spending an allowance limits."""

    ANALYST = "analyst"
    PURPOSE = "purpose"


class RunState(StrEnum):
    """Whether a run still holds a reservation."""

    OPEN = "open"
    SETTLED = "settled"
    REFUNDED = "refunded"


class OperationState(StrEnum):
    """Whether the output of a charged operation is stored."""

    CHARGED = "charged"
    COMMITTED = "committed"


class EventKind(StrEnum):
    """The kinds of change that a ledger records."""

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
    WITHDRAWN = "withdrawn"
    REMOVED = "removed"
    SHARED = "shared"


@dataclass(frozen=True)
class Account:
    """The terms of one dataset's budget. The caps and their epsilons may be raised; all other terms are fixed at opening.

    `epsilon` and `delta` are the declared total. `cap` is that total converted to the currency.
    `blocks_by` describes the blocks, such as "month of visit_date"; with None the whole table is one block.
    `across` caps the amounts of all runs together, whatever their blocks; with None only each block has a cap. It is
    `across_epsilon` converted at the account's delta. `across_used` is the amount reserved under it and not refunded.
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
        """The amount that a new run can still reserve under the cap across blocks; None without that cap."""
        return None if self.across is None else self.across - self.across_used

    @property
    def weight(self) -> int:
        """The number of blocks in which neighbours can differ, by which each block's charge is multiplied.

        Replacing a unit can remove it from one block and add another to a second block. The sums of the two blocks must stay
        within the cap together, so each block pays double. Adding or removing a unit touches one block.
        """
        return 2 if self.blocks_by is not None and self.neighbours is Neighbours.REPLACE_ONE else 1


@dataclass(frozen=True)
class Balance:
    """The spent and reserved amounts of a block. An account's balance is that of its most used block."""

    cap: int
    spent: int
    reserved: int

    @property
    def used(self) -> int:
        """The amount that is no longer available to a new run."""
        return self.spent + self.reserved

    @property
    def remaining(self) -> int:
        """The amount that a new run can still reserve."""
        return self.cap - self.used


@dataclass(frozen=True)
class Block:
    """A part of an account's data, disjoint from every other block. The account's cap applies to each block separately.

    `used` is the amount that runs reserved and that was not refunded.
    """

    account: str
    name: str
    state: BlockState
    cap: int
    used: int


@dataclass(frozen=True)
class Allowance:
    """A limit on what one analyst, or one purpose, may use of an account in all runs together, whatever their blocks."""

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
class Share:
    """What one analyst may spend of a run's reservation.

    Attributes:
        run: The run.
        analyst: The analyst's name.
        cap: The most that all charges in the analyst's name may add up to.
        token: The SHA-256 of the analyst's token; None if the analyst was removed.
        spent: The sum of these charges, with those whose answer was lost.
        last: The number of the event that last changed it.
    """

    run: str
    analyst: str
    cap: int
    token: str | None
    spent: int
    last: int

    @property
    def remaining(self) -> int:
        """What the analyst can still spend, as far as the run's reservation goes."""
        return 0 if self.token is None else self.cap - self.spent


@dataclass(frozen=True)
class Run:
    """One run's reservation. `reserved` is the granted amount, which never changes; `spent` is the sum of its charges.

    `fence` counts the leases: only the newest can change the run. `first` is the number of the event that reserved the run,
    `last` that of the event that last changed it.
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
        """The amount that the run's next operations can still spend."""
        return self.reserved - self.spent if self.state is RunState.OPEN else 0

    def leased_until(self, touched: datetime) -> datetime:
        """Return the end of the run's lease, by the time of its last event. That states a minute, and the lease counts from the minute's end.

        A lease of no seconds has ended: its worker has given the run back.
        """
        try:
            return touched + timedelta(seconds=self.lease_seconds, minutes=bool(self.lease_seconds))
        except OverflowError as error:
            raise LedgerDamaged(f"the lease of run '{self.id}' never ends; restore the ledger from a backup") from error


@dataclass(frozen=True)
class Lease:
    """The right to work on a run until another worker takes the run over. The higher fence wins."""

    run: str
    fence: int


@dataclass(frozen=True)
class Operation:
    """One charged access to the data: its run, mechanism, price and output.

    `mechanism` holds every parameter that determines the price, including sensitivity and scale, so that anyone can recompute it.
    `analyst` is the analyst whose share pays; None if the run itself does.
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
    analyst: str | None = None


@dataclass(frozen=True)
class Event:
    """One link of the hash chain. `body` is the canonical JSON text that was hashed."""

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
        """The minute of recording."""
        try:
            return datetime.fromisoformat(self.at)
        except ValueError as error:
            raise LedgerDamaged(f"event {self.seq} is unreadable; restore the ledger from a backup") from error

    @property
    def details(self) -> dict[str, Any]:
        """The body as a dictionary."""
        try:
            details: dict[str, Any] = json.loads(self.body)
        except ValueError as error:
            raise LedgerDamaged(f"event {self.seq} is unreadable; restore the ledger from a backup") from error
        return details
