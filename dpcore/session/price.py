"""What a session answers: a price beforehand, and a table with what was paid. Every price is said in epsilon first."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dpcore.ledger import Account
from dpcore.ledger.rows import in_currency
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, epsilon_of
from dpcore.reporting.formatting import at_most, down


def as_epsilon(amount: int, account: Account) -> float:
    """Return the epsilon that an amount of an account's budget is by itself. Epsilons of several amounts add up to more."""
    return epsilon_of(amount, currency=account.currency, delta=account.delta)


def in_epsilon(amount: int, account: Account) -> str:
    """Return an amount as text, such as `epsilon 0.012`; an amount of another currency follows in brackets."""
    words = f"epsilon {at_most(as_epsilon(amount, account))}"
    return words if account.currency is Currency.PURE else f"{words} ({in_currency(amount, account.currency)})"


def plain_amounts(account: Account, **amounts: int) -> dict[str, Any]:
    """Return named amounts as plain JSON values: in the account's currency, and under `epsilon` each as an epsilon by itself."""
    epsilon = {name: as_epsilon(amount, account) for name, amount in amounts.items()}
    return {name: amount / AMOUNT_OF_ONE for name, amount in amounts.items()} | {"epsilon": epsilon}


@dataclass(frozen=True)
class Price:
    """What an answer costs, before data is touched.

    Attributes:
        amount: The price in the account's currency, in multiples of 1e-12; 0 if the answer is free.
        cost: The price in the account's currency.
        currency: The currency.
        epsilon: The price as an epsilon by itself, at the spec's delta. Epsilons of several answers add up to more than all of them cost.
        half_width: The largest half width of the intervals that the answer will have.
        stored: Whether the question was bought before, as accurately.
        remaining: What is left of the session's budget before this answer, or of the payer's share, in the account's currency.
        epsilon_after: What is left afterwards, as an epsilon by itself; None if that is too little for the answer.
        epsilon_of: The session's budget for purchases, or the payer's share, as an epsilon.
    """

    amount: int
    cost: float
    currency: str
    epsilon: float
    half_width: float
    stored: bool
    remaining: float
    epsilon_after: float | None
    epsilon_of: float

    @property
    def free(self) -> bool:
        """Whether the answer costs nothing."""
        return self.amount == 0

    @property
    def left_text(self) -> str:
        """What is left afterwards, in words."""
        if self.epsilon_after is None:
            return "more than remains"
        return f"remaining afterwards: {down(self.epsilon_after)} of {at_most(self.epsilon_of)}"

    def to_json(self) -> dict[str, Any]:
        """Return what drivers show of the price, as plain JSON values."""
        return {
            "free": self.free,
            "stored": self.stored,
            "cost": self.cost,
            "currency": self.currency,
            "epsilon": self.epsilon,
            "epsilon_after": self.epsilon_after,
            "epsilon_of": self.epsilon_of,
            "half_width": self.half_width if math.isfinite(self.half_width) else None,
        }


@dataclass(frozen=True)
class Payer:
    """Who pays for an answer.

    Attributes:
        analyst: The analyst whose share of the session pays; None for the session itself.
        at_most: The largest amount to pay, such as the price that was shown; None for as much as is left.
    """

    analyst: str | None = None
    at_most: int | None = None


SESSION = Payer()
"""The session itself pays."""


@dataclass(frozen=True, eq=False)
class Reply:
    """An answer: a table as `dpcore.answer` returns it, and what was paid for it."""

    table: pd.DataFrame
    price: Price
