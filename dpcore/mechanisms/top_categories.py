"""The most frequent categories of a column, in order: top-k by repeated noisy maxima."""

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_rows import Column, Mask, Wholes, kept_rows
from dpcore.mechanisms.calibration import checked_amount
from dpcore.mechanisms.exponential import ExponentialMechanism, Flavour, ReportNoisyMax
from dpcore.mechanisms.query import Exact, Query
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.scalars import is_whole
from dpcore.tables.reading.encoding import encode, reads
from dpcore.universe import Attribute

MOST_CATEGORIES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TopCategories(Query[tuple[Any, ...]]):
    """Select the k declared cells of a column that have most rows: the first, then the first of the others, and so on.

    >>> from dpcore.privacy.protection import Neighbours
    >>> from dpcore.universe import Categorical
    >>> rows = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
    >>> city = Categorical(("north", "south", "west"))
    >>> TopCategories.for_epsilon(1.0, delta=0, attribute=city, k=2, protection=rows).price(Currency.PURE)
    1000000000000

    Guarantee:
        That of k noisy maxima of counts, added up. With Gumbel noise each costs epsilon^2 / 8 in zCDP, and all together have the
        distribution of one draw of Gumbel noise on all counts, of which the k largest are reported. Counts are not reported.

    Sensitivity:
        Each count moves by at most what a unit counts. If a unit is added or removed, all counts move in one direction, so the noise is
        that of monotone scores. This mechanism bounds a unit's rows itself.

    Randomness:
        The operating system's, through `entropy`, for the selections and for which rows of a unit are kept.

    Reference:
        Durfee and Rogers 2019, Practical differentially private top-k selection with pay-what-you-get composition.

    Attributes:
        k: How many categories are selected.
        epsilon: The epsilon of each selection.
        flavour: The noise of the selections.
        protection: The unit to protect, and the neighbouring relation.
        attribute: The declared column. None if the mechanism was rebuilt from a description: it then has a price but cannot draw.
    """

    name: ClassVar[str] = "top-categories"

    k: int
    epsilon: float
    flavour: Flavour
    protection: Protection
    attribute: Attribute | None = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        """Validate k, the column and the noise before any draw."""
        super().__post_init__()
        _check_k(self.k, self.attribute)
        self._normalise(epsilon=self._selection.epsilon, flavour=self._selection.flavour)

    @classmethod
    def for_amount(
        cls, amount: int, *, currency: Currency, attribute: Attribute, k: int, protection: Protection
    ) -> Self:
        """Return the selection with the least noise that costs at most `amount`.

        Args:
            amount: The amount to spend.
            currency: The currency of the amount.
            attribute: The declared column. Nulls and values outside its cells are left out.
            k: How many categories to select.
            protection: The unit to protect, and the neighbouring relation.
        """
        _check_k(k, attribute)
        bought = ExponentialMechanism.for_amount(checked_amount(amount) // k, currency=currency, sensitivity=1)
        return cls(k=k, protection=protection, epsilon=bought.epsilon, flavour=bought.flavour, attribute=attribute)

    def price(self, currency: Currency) -> int:
        """Return the price of all selections, as an amount."""
        return self.k * self._selection.price(currency)

    def read(self, values: Column, *, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact count of each category, for `answer` to select. Raise for unusable columns.

        Args:
            values: The private column.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        attribute = self._declared()

        def code(part: pa.Array) -> tuple[Wholes, Mask]:
            codes = encode(attribute, part).astype(np.int64)
            return codes, (codes >= 0) & (codes < attribute.cells)

        codes, times = kept_rows(
            values, reads=partial(reads, attribute), code=code, protection=self.protection, ids=ids, weights=weights
        )
        counts = np.zeros(attribute.cells, dtype=np.int64)
        np.add.at(counts, codes, times)
        return Exact(counts, protection=self.protection)

    def answer(self, exact: Exact) -> tuple[Any, ...]:
        """Return the selected categories, by their labels, the most frequent first."""
        counts, left = exact.for_noise(), np.arange(exact.for_noise().size)
        chosen = []
        for _ in range(self.k):
            at = self._selection.draw(counts[left])
            chosen.append(int(left[at]))
            left = np.delete(left, at)
        labels = self._declared().labels
        return tuple(labels[code] for code in chosen)

    @cached_property
    def _selection(self) -> ReportNoisyMax:
        return ReportNoisyMax.of_counts(epsilon=self.epsilon, protection=self.protection, flavour=self.flavour)

    def _declared(self) -> Attribute:
        if self.attribute is None:
            raise UsageError(
                "a selection rebuilt from its description has a price only; make it from its attribute to draw"
            )
        return self.attribute


def _check_k(k: int, attribute: Attribute | None) -> None:
    if not is_whole(k) or not 1 <= k <= MOST_CATEGORIES:
        raise UsageError("k must be a whole number of at least 1: how many categories to select")
    if attribute is None:
        return
    if not isinstance(attribute, Attribute):
        raise UsageError("attribute must be a declared column, such as Categorical(('north', 'south'))")
    if attribute.cells > MOST_CATEGORIES:
        raise UsageError(
            f"the column has {attribute.cells:,} cells, and at most {MOST_CATEGORIES:,} can be compared; declare fewer"
        )
    if k > attribute.cells:
        raise UsageError(f"the column has {attribute.cells} declared cells, so k must be at most that")
