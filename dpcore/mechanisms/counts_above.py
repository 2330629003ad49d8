"""Which of several counts reach a threshold, by the sparse vector technique."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_rows import Column
from dpcore.mechanisms.descriptions import checked_protection
from dpcore.mechanisms.noisy_count import MOST_TARGET, counts_of
from dpcore.mechanisms.query import Exact, Query
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.scalars import is_whole


@dataclass(frozen=True, kw_only=True)
class CountsAbove(Query[tuple[bool, ...]]):
    """Report for each of several properties, one after another, whether enough rows have it, until `positives` of them have.

    >>> rows = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
    >>> above = CountsAbove.for_epsilon(1.0, delta=0, threshold=100, positives=1, protection=rows)
    >>> above.price(Currency.PURE)
    1000000000000

    Guarantee:
        That of the sparse vector technique, however many properties there are. Negative answers cost nothing.

    Sensitivity:
        Each count moves by at most what a unit counts. If a unit is added or removed, all counts move in one direction, so the noise is
        that of monotone values. This mechanism bounds a unit's rows itself, for each property among the rows that have it.

    Randomness:
        The operating system's, through `entropy`, for the noise and for which rows of a unit are kept.

    Reference:
        Lyu, Su and Li 2017.

    Attributes:
        threshold: The number of rows that a count must reach.
        positives: After so many positive answers there are no more.
        epsilon: The epsilon of all answers together.
        protection: The unit to protect, and the neighbouring relation.
    """

    name: ClassVar[str] = "counts-above"

    threshold: int
    positives: int
    epsilon: float
    protection: Protection

    def __post_init__(self) -> None:
        """Validate the threshold and the noise before any draw."""
        super().__post_init__()
        if not is_whole(self.threshold) or not 0 <= self.threshold <= MOST_TARGET:
            raise UsageError("a threshold must be a whole number of rows")
        self._normalise(epsilon=self._sparse_vector.epsilon)

    @classmethod
    def for_amount(
        cls, amount: int, *, currency: Currency, threshold: int, positives: int, protection: Protection
    ) -> Self:
        """Return the answers with the least noise that cost at most `amount`.

        Args:
            amount: The amount to spend.
            currency: The currency of the amount.
            threshold: The number of rows that a count must reach.
            positives: After so many positive answers there are no more. Fewer of them need less noise.
            protection: The unit to protect, and the neighbouring relation.
        """
        bought = SparseVector.for_amount(
            amount,
            currency=currency,
            sensitivity=checked_protection(protection).count_sensitivity.linf,
            positives=positives,
            monotone=protection.neighbours is Neighbours.ADD_REMOVE,
        )
        return cls(threshold=threshold, positives=positives, protection=protection, epsilon=bought.epsilon)

    def price(self, currency: Currency) -> int:
        """Return the price of all answers together, as an amount."""
        return self._sparse_vector.price(currency)

    def read(self, *properties: Column, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact count of each property, for `answer` to compare. Raise for unusable columns.

        Args:
            properties: For each property, whether each row has it, such as `table["age"] >= 65`. A null counts as false.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        if not properties:
            raise UsageError("pass at least one property to count, such as table['age'] >= 65")
        return counts_of(properties, protection=self.protection, ids=ids, weights=weights)

    def answer(self, exact: Exact) -> tuple[bool, ...]:
        """Return whether each noisy count reaches the noisy threshold, up to the last that does. There may be fewer answers than counts."""
        return tuple(self._sparse_vector.begin(self.threshold).ask_all(exact.for_noise()).tolist())

    @cached_property
    def _sparse_vector(self) -> SparseVector:
        return SparseVector(
            epsilon=self.epsilon,
            sensitivity=self.protection.count_sensitivity.linf,
            positives=self.positives,
            monotone=self.protection.neighbours is Neighbours.ADD_REMOVE,
        )
