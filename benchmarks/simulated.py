"""Releases without a ledger: a strategy and seeded noise, as wide as a run's. Their errors are those of releases, many times as fast."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.audit.made_up import ROW
from dpcore.curator.curator import Offer
from dpcore.marginals.measurements import Measurement, Selection
from dpcore.marginals.resolutions import Groups
from dpcore.marginals.workload import Axes
from dpcore.mechanisms.pricing import currency_for
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.strategies import Strategy
from dpcore.tables.histogram import LocalHistogram
from dpcore.universe import code_type

Codes = npt.NDArray[np.int64]
_EPSILON_OF_MU = math.sqrt(
    math.pi / 2
)  # of a selection that costs mu^2: see `accounting.exponential_gdp`, for small mu


@dataclass(frozen=True, eq=False)
class Table:
    """Rows as one array of codes for each column, with the number of values of each column."""

    name: str
    codes: tuple[Codes, ...]
    sizes: tuple[int, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.codes[0])

    def independent(self, *, seed: int) -> "Table":
        """Shuffle each column independently."""
        rng = np.random.default_rng(seed)
        return Table(self.name, tuple(rng.permutation(code) for code in self.codes), self.sizes)

    def bootstrap(self, *, seed: int) -> "Table":
        """Resample the rows with replacement."""
        chosen = np.random.default_rng(seed).integers(0, self.rows, self.rows)
        return Table(self.name, tuple(code[chosen] for code in self.codes), self.sizes)

    def error(self, made: "Table", *, order: int) -> float:
        """Return the mean over the `order`-way marginals of sum |true share - made share|."""
        every = combinations(range(len(self.sizes)), order)
        return float(np.mean([np.abs(self.shares(axes) - made.shares(axes)).sum() for axes in every]))

    def shares(self, axes: Axes) -> npt.NDArray[np.float64]:
        """Return the shares of the rows in each cell of a marginal."""
        cells = np.zeros(self.rows, dtype=np.int64)
        for axis in axes:
            cells = cells * self.sizes[axis] + self.codes[axis]
        return np.bincount(cells, minlength=math.prod(self.sizes[axis] for axis in axes)) / max(self.rows, 1)


class SeededCurator:
    """Answers as a curator does whose unit is a row that is added or removed, with seeded noise and without a ledger."""

    def __init__(self, table: Table, *, epsilon: float, delta: float, currency: Currency | None, seed: int) -> None:
        usual = currency_for(epsilon, delta=delta, unit="row", neighbours=Neighbours.ADD_REMOVE)
        self._currency, amount = budget_of(epsilon, delta=delta, currency=currency or usual)
        self._left = amount / AMOUNT_OF_ONE
        self._rng = np.random.default_rng(seed)
        codes = [code.astype(code_type(size)) for code, size in zip(table.codes, table.sizes, strict=True)]
        self._histogram = LocalHistogram([(codes, None)], shape=table.sizes, protection=ROW)

    def coarsen(self, column: int, groups: Groups) -> None:
        """Add an axis."""
        self._histogram.coarsen(column, groups)

    def expected_noise(self, share: Fraction) -> float:
        """Return the noise that a share of what is left buys."""
        amount = self._left * float(share)
        if self._currency is Currency.PURE:
            return math.sqrt(2) / amount
        return 1 / math.sqrt(amount if self._currency is Currency.GDP else 2 * amount)

    def measure_marginal(self, step: str, axes: Axes, *, share: Fraction) -> Measurement:
        """Measure a marginal."""
        noise = self.expected_noise(share)
        self._left *= 1 - float(share)
        true = self._histogram.marginal(axes)
        pure = self._currency is Currency.PURE
        drawn = (
            self._rng.laplace(0, noise / math.sqrt(2), true.shape) if pure else self._rng.normal(0, noise, true.shape)
        )
        return Measurement(step=step, axes=axes, cell=None, values=true + np.rint(drawn).astype(np.int64), noise=noise)

    def select_marginal(self, step: str, expected: Callable[[], Sequence[Offer]], *, share: Fraction) -> Selection:
        """Select by the exponential mechanism."""
        del step
        amount = self._left * float(share)
        self._left -= amount
        epsilon = {
            Currency.PURE: amount,
            Currency.ZCDP: math.sqrt(8 * amount),
            Currency.GDP: _EPSILON_OF_MU * math.sqrt(amount),
        }[self._currency]
        offered = expected()
        weight = max(offer.weight for offer in offered)
        self._histogram.prepare([offer.axes for offer in offered])
        scores = [
            offer.weight
            * (float(np.abs(self._histogram.marginal(offer.axes) - offer.expected).sum()) - offer.tolerated)
            for offer in offered
        ]
        noisy = np.array(scores) + self._rng.gumbel(0, 2 * weight / epsilon, len(scores))
        return Selection(offered[int(noisy.argmax())].axes, candidates=len(scores))


def learn(strategy: Strategy, curator: Any) -> None:
    """Run all steps of a strategy."""
    strategy.begin(curator)
    number = 0
    while number < strategy.rounds:
        number += 1
        strategy.update(number, strategy.measure(curator, number, strategy.select(curator, number)))
    strategy.conclude()


def release(strategy: Strategy, curator: Any, *, name: str = "", seed: int = 0, near: Sequence[Axes] = ()) -> Table:
    """Run all steps of a strategy, and return its rows, with the marginals of `near` as close to the model as whole rows can be."""
    learn(strategy, curator)
    chunks = list(strategy.model.row_chunks(max(1, round(strategy.total)), rng=np.random.default_rng(seed), near=near))
    columns = [np.concatenate(parts) for parts in zip(*chunks, strict=True)]
    return Table(name, tuple(each.astype(np.int64) for each in columns), strategy.resolutions.shape[: len(columns)])
