"""Noisy quantiles of a numeric column, by the exponential mechanism."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self, TypeAlias

import numpy as np

from dpcore.errors import UsageError
from dpcore.mechanisms.bounded_rows import Column, kept_steps
from dpcore.mechanisms.calibration import checked_amount
from dpcore.mechanisms.exponential import ExponentialMechanism, Flavour
from dpcore.mechanisms.grid import MOST_STEPS, Step, ValueGrid
from dpcore.mechanisms.query import Exact, Query
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.universe import Attribute

MOST_CANDIDATES = 1 << 20
MOST_PARTS = 10_000
"""The largest denominator of a share: 0.9999 is the finest."""

Share: TypeAlias = Fraction | float | str


@dataclass(frozen=True, kw_only=True)
class NoisyQuantiles(Query[tuple[float, ...]]):
    """Select, for each of some shares, a value that about this share of the rows is below.

    >>> from dpcore.universe import Integer
    >>> patients = Protection(unit="patient", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
    >>> age = Integer(minimum=0, maximum=99)
    >>> median = NoisyQuantiles.for_epsilon(1.0, delta=0, attribute=age, step=1, shares=["0.5"], protection=patients)
    >>> median.sensitivity(Fraction(1, 2)), median.price(Currency.PURE)
    (2, 1000000000000)

    Guarantee:
        That of an exponential mechanism for each share, added up: pure epsilon each, epsilon^2 / 8 in zCDP with Gumbel noise, the mu^2 of
        a pure epsilon / 2 in GDP.

    Sensitivity:
        The candidates are all points of the declared grid. For a share a / b, let n be the kept rows, L those below a point and R those
        below or on it. The score is -max(0, b L - a n, a n - b R): 0 where the point is such a quantile. A row adds -a or b - a to
        b L - a n, and likewise to a n - b R. So a unit that counts m adds between -m a and m (b - a): add or remove one unit,
        m max(a, b - a); replace one, m b. All are whole numbers.

    Randomness:
        The operating system's, through `entropy`, for the selections and for which rows of a unit are kept.

    Reference:
        McSherry and Talwar 2007; Smith 2011 for quantiles by the exponential mechanism.

    Attributes:
        epsilon: The epsilon of each selection.
        flavour: The noise of the selections.
        shares: The shares, ascending.
        grid: The candidates, and the grid that values are rounded to.
        protection: The unit to protect, and the neighbouring relation.
    """

    name: ClassVar[str] = "noisy-quantiles"

    epsilon: float
    flavour: Flavour
    shares: tuple[Fraction, ...]
    grid: ValueGrid
    protection: Protection

    def __post_init__(self) -> None:
        """Validate the shares, the number of candidates and the noise before any draw."""
        super().__post_init__()
        self._normalise(shares=_checked_shares(self.shares))
        _check_size(self.grid, self.shares, self.protection)
        selection = self._selections[0]
        self._normalise(epsilon=selection.epsilon, flavour=selection.flavour)

    @classmethod
    def for_amount(  # noqa: PLR0913  a column, its shares, and who pays
        cls,
        amount: int,
        *,
        currency: Currency,
        attribute: Attribute,
        step: Step,
        shares: Iterable[Share],
        protection: Protection,
    ) -> Self:
        """Return the quantiles with the least noise that cost at most `amount` together.

        Args:
            amount: The amount to spend.
            currency: The currency of the amount.
            attribute: The declared column: an Integer or a Number.
            step: The spacing of the grid of candidates.
            shares: The shares, such as `["0.25", "0.5", "0.75"]`.
            protection: The unit to protect, and the neighbouring relation.
        """
        parts = _checked_shares(shares)
        bought = ExponentialMechanism.for_amount(checked_amount(amount) // len(parts), currency=currency, sensitivity=1)
        return cls(
            epsilon=bought.epsilon,
            flavour=bought.flavour,
            shares=parts,
            grid=ValueGrid.of(attribute, step=step),
            protection=protection,
        )

    def sensitivity(self, share: Fraction) -> int:
        """Return how far one neighbour step can move a score."""
        if self.protection.neighbours is Neighbours.REPLACE_ONE:
            return self.protection.most * share.denominator
        return self.protection.most * max(share.numerator, share.denominator - share.numerator)

    def price(self, currency: Currency) -> int:
        """Return the price of all selections, as an amount."""
        return sum(selection.price(currency) for selection in self._selections)

    def read(self, values: Column, *, ids: Column = None, weights: Column = None) -> Exact:
        """Return the exact number of kept rows at each candidate, for `answer` to select. Raise for unusable columns.

        Args:
            values: The private column. A row without a usable value is left out.
            ids: The unit id of each row. Required if the unit is a person, rejected if it is a row.
            weights: How often each row counts. Required if the protection names a weight column, rejected otherwise.
        """
        steps, times = kept_steps(values, grid=self.grid, protection=self.protection, ids=ids, weights=weights)
        counts = np.zeros(self.grid.width + 1, dtype=np.int64)
        np.add.at(counts, steps - self.grid.lowest, times)
        return Exact(counts, protection=self.protection)

    def answer(self, exact: Exact) -> tuple[float, ...]:
        """Return a noisy quantile for each share, ascending. Sorting them is post-processing."""
        at_most = np.cumsum(exact.for_noise())
        below, rows = at_most - exact.for_noise(), at_most[-1]
        chosen = []
        for share, selection in zip(self.shares, self._selections, strict=True):
            a, b = share.numerator, share.denominator
            scores = -np.maximum(0, np.maximum(b * below - a * rows, a * rows - b * at_most))
            chosen.append(selection.draw(scores))
        return tuple(self.grid.value(self.grid.lowest + place) for place in sorted(chosen))

    @cached_property
    def _selections(self) -> tuple[ExponentialMechanism, ...]:
        return tuple(
            ExponentialMechanism(epsilon=self.epsilon, sensitivity=self.sensitivity(share), flavour=self.flavour)
            for share in self.shares
        )


def _checked_shares(shares: Iterable[Share]) -> tuple[Fraction, ...]:
    if isinstance(shares, str) or not isinstance(shares, Iterable):
        raise UsageError('shares must be a list, such as ["0.25", "0.5", "0.75"]')
    try:
        exact = sorted({Fraction(str(share)) for share in shares})
    except (ValueError, ZeroDivisionError):
        raise UsageError('a share must be a number between 0 and 1, such as "0.5" for the median') from None
    if not exact or not all(0 < share < 1 and share.denominator <= MOST_PARTS for share in exact):
        raise UsageError('name at least one share, each between 0 and 1 with at most four decimals, such as "0.5"')
    return tuple(exact)


def _check_size(grid: ValueGrid, shares: tuple[Fraction, ...], protection: Protection) -> None:
    if grid.width >= MOST_CANDIDATES:
        raise UsageError(
            f"the grid has {grid.width + 1:,} points, and a quantile is selected among at most {MOST_CANDIDATES:,}; choose a coarser step"
        )
    if max(share.denominator for share in shares) * protection.row_weight > MOST_STEPS:
        raise UsageError("scores of rows with these weights could exceed 64 bits; choose shares with fewer decimals")
