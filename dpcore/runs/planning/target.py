"""Find an epsilon at which the noise in a marginal causes at most a given error."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from math import inf, prod
from typing import Any

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.runs.paying import smallest_share
from dpcore.runs.planning.changes import at
from dpcore.runs.planning.grounds import grounds_of
from dpcore.runs.planning.kept import KeptRows
from dpcore.runs.planning.noise import Terms, terms_of
from dpcore.spec import Declaration
from dpcore.strategies import Strategy, strategy_for

STEPS, DECADES = 900, 8
"""The number of three-digit epsilons in a decade, such as 1.23, and the number of decades searched up to epsilon 100."""


@dataclass(frozen=True)
class Target:
    """The smallest three-digit epsilon at which the expected L1 error of a marginal is at most `wanted`, as a share of the rows.

    This is the error of the noise alone, if the marginal is measured: in a round, or first, as all single columns are. It does not include
    the model's error where nothing was measured. If the run chooses the limit on rows per unit, it is the error for the limit in the sentence of `kept`. A column to be
    discovered is assumed to have the maximum number of cells. `error` and `noise` are those at `epsilon`. `spec_error` is the error at the
    spec's own epsilon, or None if that is too small to run. `refused` says why the account would not pay.
    """

    dataset: str
    strategy: str
    columns: tuple[str, ...]
    cells: int
    wanted: float
    rows: int
    rows_from: str
    kept: KeptRows
    epsilon: float
    delta: float
    currency: str
    amount: float
    error: float
    noise: float
    rounds: int | None
    spec_epsilon: float
    spec_error: float | None
    refused: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the target as plain JSON values."""
        return asdict(self)


def epsilon_for(  # noqa: PLR0913  the marginal with its error, and what a plan is given
    declaration: Declaration,
    *,
    error: float,
    columns: Sequence[str],
    rows: int | None,
    units: int | None = None,
    as_of: date | None = None,
) -> Target:
    """Find the smallest epsilon for an expected error in a marginal. Raise if no epsilon up to 100 is enough.

    Args:
        declaration: The declaration of the run; its epsilon is ignored.
        error: The L1 error, as a share of the rows.
        columns: The columns of the marginal.
        rows: The approximate number of rows, as for a plan.
        units: The approximate number of units, as for a plan.
        as_of: The day as of which blocks are complete, as for a plan.
    """
    if not 0 < error < 2:  # the largest L1 distance of two tables with the same number of rows
        raise UsageError(
            "the error must be above 0 and below 2: it is an L1 distance, as a share of the rows; ask for one such as 0.02"
        )
    grounds = grounds_of(declaration, rows=rows, units=units, as_of=as_of)
    declaration = grounds.limited(declaration).covering(grounds.blocks)
    counting = grounds.kept(declaration)
    axes, strategy = _axes(declaration, columns), strategy_for(declaration)
    if strategy.single_counts:
        name = declaration.strategy.name
        raise UsageError(
            f"strategy {name} measures single counts, never a whole marginal; write mwem or adaptive instead"
        )
    search = _Search(declaration, axes, strategy, currency=grounds.currency, rows=counting.rows)
    index = search.least(error)
    if index is None:
        raise UsageError(
            f"no epsilon up to 100 makes the error of {_named(columns)} so small: at 100 it is "
            f"{search.error(_LAST):.3g} of the rows; allow a larger error, fewer or coarser columns, or fewer `rounds`"
        )
    terms = search.terms(index)
    refused = grounds.refusal(at(declaration, _epsilon(index)), amount=terms.amount)
    return Target(
        dataset=declaration.spec.dataset,
        strategy=declaration.strategy.name,
        columns=tuple(columns),
        cells=search.cells,
        wanted=error,
        rows=grounds.rows,
        rows_from=grounds.rows_from,
        kept=counting,
        epsilon=_epsilon(index),
        delta=declaration.spec.privacy.delta,
        currency=grounds.currency.value,
        amount=terms.amount / AMOUNT_OF_ONE,
        error=search.error_in(terms),
        noise=search.noise_in(terms),
        rounds=terms.outline.rounds if search.joint else None,
        spec_epsilon=declaration.spec.privacy.epsilon,
        spec_error=None if search.error(None) == inf else search.error(None),
        refused=None if refused is None else str(refused),
    )


class _Search:
    """Searches the three-digit epsilons for one that is enough while the next smaller one is not.

    A larger epsilon means less noise, but for the few at which it also means one more round.
    """

    def __init__(
        self, declaration: Declaration, axes: Axes, strategy: Strategy, *, currency: Currency, rows: int
    ) -> None:
        self._declaration, self._axes, self._currency, self._rows = declaration, axes, currency, rows
        self._strategy = strategy  # the same for every epsilon, like the smallest share
        self._smallest = smallest_share(declaration, strategy)
        self.joint = len(axes) > 1
        self.cells = prod(declaration.universe.shape[axis] for axis in axes)
        if self.joint:
            self._check(self.terms(_LAST))

    def least(self, most_error: float) -> int | None:
        """Return the index of an epsilon whose error is at most this and within the strategy's own limit, unlike the next smaller one's.

        A budget for one more round makes the noise of each a little larger, so near that step a smaller epsilon may do, too.
        """
        room = self.terms(_LAST).outline.room
        tolerated = most_error if room is None or not self.joint else min(most_error, room)
        index = bisect_left(range(_LAST + 1), -tolerated, key=lambda index: -self.error(index))
        return index if index <= _LAST else None

    def error(self, index: int | None) -> float:
        """Return the error at an epsilon, or at the spec's own; infinity if the epsilon is too small for any run."""
        try:
            return self.error_in(self.terms(index))
        except UsageError:
            return inf

    def error_in(self, terms: Terms) -> float:
        """Return the error of the marginal in a run on these terms."""
        return terms.error(self.cells, self.noise_in(terms))

    def noise_in(self, terms: Terms) -> float:
        """Return the noise of each count of the marginal."""
        noise = terms.round_noise() if self.joint else terms.first_noise(self._axes[0])
        return inf if noise is None else noise

    def terms(self, index: int | None) -> Terms:
        """Return the terms of a run with an epsilon, or with the spec's own."""
        declaration = self._declaration if index is None else at(self._declaration, _epsilon(index))
        return terms_of(declaration, self._strategy, currency=self._currency, rows=self._rows, smallest=self._smallest)

    def _check(self, richest: Terms) -> None:
        """Raise if no round would measure the marginal at any epsilon."""
        if self._axes not in set(richest.outline.candidates):
            raise UsageError(
                "no marginal of the workload contains all these columns, so no round measures them; add one to the workload"
            )
        most = richest.outline.model_cells
        if most is not None and self.cells > most:
            raise UsageError(
                f"these columns together have {self.cells:,} cells, more than the model may have, so no round measures them all; "
                "write a larger `max_model_mb` in `strategy`, or name fewer columns"
            )


_LAST = STEPS * DECADES


def _epsilon(index: int) -> float:
    """Return the three-digit epsilon at an index.

    >>> [_epsilon(index) for index in (0, 1, 899, 900, _LAST - 1, _LAST)]
    [1e-06, 1.01e-06, 9.99e-06, 1e-05, 99.9, 100.0]
    """
    decade, step = divmod(index, STEPS)
    return float(f"{100 + step}e{decade - DECADES}")


def _axes(declaration: Declaration, columns: Sequence[str]) -> Axes:
    """Return the axes of the columns with more than one cell. Raise if the columns are no marginal."""
    names, shape = declaration.universe.names, declaration.universe.shape
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise UsageError(f"{_named(unknown)}: not a column of the universe; `dpflow check` lists its columns")
    if not columns or len(set(columns)) < len(columns):
        raise UsageError("name each column of the marginal once, and at least one")
    axes = tuple(sorted(names.index(name) for name in columns))
    return tuple(axis for axis in axes if shape[axis] > 1) or axes[:1]


def _named(columns: Sequence[str]) -> str:
    return " x ".join(f"`{name}`" for name in columns)
