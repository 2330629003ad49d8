"""What a session answers: a price beforehand, and a table with what was paid. Every price is said in epsilon first."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import ConfigDict, Field, TypeAdapter, WithJsonSchema, computed_field
from pydantic.dataclasses import dataclass as validated

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


@validated(frozen=True, config=ConfigDict(use_attribute_docstrings=True))
class Price:
    """What an answer costs, known before data is touched."""

    amount: Annotated[int, Field(exclude=True)]
    """The price in the account's currency, in multiples of 1e-12; 0 if the answer is free."""
    remaining: Annotated[float, Field(exclude=True)]
    """What is left of the session's budget before this answer, or of the payer's share, in the account's currency."""
    stored: bool
    """Whether the question was bought before, as accurately."""
    cost: float
    """The price in the account's currency; 0 if it is free."""
    currency: str
    """The account's currency."""
    epsilon: float
    """The price by itself as an epsilon, at the spec's delta. Epsilons of several answers add up to more than they cost."""
    epsilon_after: float | None
    """What is left afterwards, by itself as an epsilon; null if that is too little for the answer."""
    epsilon_of: float
    """The payer's share, or the session's budget for purchases if that has less left, as an epsilon."""
    half_width: Annotated[float, WithJsonSchema({"type": ["number", "null"]})]
    """The largest half width of the intervals that the answer will have."""
    level: float
    """The level of the intervals."""

    @computed_field  # type: ignore[prop-decorator]
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
        shown: dict[str, Any] = json.loads(_PRICE.dump_json(self))
        return shown


_PRICE = TypeAdapter(Price)


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
