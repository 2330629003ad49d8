"""What a session answers: a price beforehand, and a table with what was paid."""

from dataclasses import dataclass

import pandas as pd


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
        remaining: What is left of the session's budget before this answer, in the account's currency.
    """

    amount: int
    cost: float
    currency: str
    epsilon: float
    half_width: float
    stored: bool
    remaining: float

    @property
    def free(self) -> bool:
        """Whether the answer costs nothing."""
        return self.amount == 0


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
