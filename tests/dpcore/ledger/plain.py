"""What the plain model keeps of an account and a run, and how it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dpcore.errors import BudgetRefused, RunHeld, UsageError
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours


@dataclass(frozen=True)
class Reason:
    """Why a call is refused, with the two numbers if it is for money."""

    why: str
    requested: int | None = None
    remaining: int | None = None

    def explains(self, error: BaseException) -> bool:
        if self.requested is None:
            return type(error) in {UsageError, RunHeld}
        told = isinstance(error, BudgetRefused) and (error.requested, error.remaining)
        return told == (self.requested, self.remaining)


@dataclass(frozen=True)
class Answer:
    """What a call should lead to: a refusal for any one of the reasons, else the outcome, which `change` makes here."""

    reasons: tuple[Reason, ...]
    outcome: str = ""
    change: Callable[[], None] | None = None


@dataclass
class PlainAccount:
    currency: Currency
    cap: int
    epsilon: float
    neighbours: Neighbours
    blocks_by: str | None
    across: int | None
    sealed: dict[str, bool]
    closed: bool = False
    allowed: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def times(self) -> int:
        """How often a block pays: whoever is replaced may leave one block while another person enters a second."""
        return 2 if self.blocks_by and self.neighbours == "replace-one" else 1


@dataclass
class PlainRun:
    request: Mapping[str, Any]
    began: datetime
    touched: datetime
    fence: int = 0
    state: str = "open"
    holder: str | None = None
    seconds: int = 0
    version: str | None = None
    release: str | None = None
    prices: dict[str, list[int]] = field(default_factory=dict)
    outputs: dict[str, bytes] = field(default_factory=dict)

    @property
    def minute(self) -> datetime:
        """What the ledger states of the time of its last change."""
        return self.touched.replace(second=0, microsecond=0)

    @property
    def lapses(self) -> datetime:
        """When its lease ends: counted from the end of that minute, unless it was given back."""
        return self.minute + timedelta(seconds=self.seconds + 60) if self.seconds else self.minute

    @property
    def account(self) -> str:
        return self.request["account"]

    @property
    def blocks(self) -> frozenset[str]:
        return frozenset({"all"}) if self.request["blocks"] is None else self.request["blocks"]

    @property
    def charged(self) -> int:
        return sum(price for attempts in self.prices.values() for price in attempts)

    @property
    def granted(self) -> int:
        return {"open": self.request["amount"], "settled": self.charged, "refunded": 0}[self.state]
