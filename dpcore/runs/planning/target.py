"""A plan the other way round: the least epsilon at which the noise in a marginal makes no more than a certain error."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cached_property, lru_cache
from math import inf, prod
from typing import Any

from dpcore.errors import BudgetRefused, UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.runs.planning.noise import Terms, terms_of
from dpcore.runs.planning.plan import grounds_of, plan_run
from dpcore.runs.reservation import smallest_share
from dpcore.spec import Declaration
from dpcore.spec.release import PmwSpec
from dpcore.strategies import strategy_for
from dpcore.workload import Axes

MOST_EPSILON = 100.0
MOST_ERROR = 2.0
"""The L1 distance of two tables of the same number of rows, as a share of these, is never more."""
STEPS, DECADES = 900, 8
"""Epsilons of three digits, such as 1.23, in each of the powers of ten that are searched, up to the largest."""
SLACK = 0.9  # where the rounds differ, a share of the budget may also grow with epsilon, but by less than this


@dataclass(frozen=True)
class Target:
    """The least epsilon, of three digits, at which the expected L1 error of a marginal is at most `wanted`, as a share of the rows.

    It is the error of the noise alone, if the marginal is measured: in a round, or first, as all single columns are. How far the model is
    off where nothing was measured is not in it. A column whose values are to be found has as many cells as it may get. `error` and `noise` are those at `epsilon`, `spec_error` is that at the spec's own epsilon,
    None if the spec asks for too little to run. `refused` says why the account would not pay.
    """

    dataset: str
    strategy: str
    columns: tuple[str, ...]
    cells: int
    wanted: float
    rows: int
    rows_from: str
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
        """Return it as plain JSON values."""
        return asdict(self)


def epsilon_for(
    declaration: Declaration, *, error: float, columns: Sequence[str], rows: int | None, as_of: date | None = None
) -> Target:
    """Find the least epsilon for an expected error in a marginal, or refuse what none up to 100 gives.

    Args:
        declaration: What would be run, whatever its epsilon.
        error: The L1 error, as a share of the rows.
        columns: Of the marginal.
        rows: About how many rows the table has, as for a plan.
        as_of: The day as of which blocks are complete, as for a plan.
    """
    if not 0 < error < MOST_ERROR:
        raise UsageError("an error is a share of the rows above 0 and below 2; ask for one such as 0.02")
    grounds = grounds_of(declaration, rows=rows, as_of=as_of)
    search = _Search(declaration, _axes(declaration, columns), currency=grounds.currency, rows=grounds.rows)
    index = search.least(error)
    if index is None:
        raise UsageError(
            f"no epsilon up to {MOST_EPSILON:g} makes the error of {_named(columns)} so small: at {MOST_EPSILON:g} it is "
            f"{search.error(_LAST):.3g} of the rows; allow more, or take fewer columns, coarser ones or fewer `rounds`"
        )
    enough = _at(declaration, _epsilon(index))
    try:
        plan_run(enough, rows=rows, as_of=as_of)
        refused = None
    except BudgetRefused as refusal:
        refused = str(refusal)
    terms = search.terms(index)
    return Target(
        dataset=declaration.spec.dataset,
        strategy=declaration.strategy.name,
        columns=tuple(columns),
        cells=search.cells,
        wanted=error,
        rows=grounds.rows,
        rows_from=grounds.rows_from,
        epsilon=_epsilon(index),
        delta=declaration.spec.privacy.delta,
        currency=grounds.currency.value,
        amount=terms.amount / AMOUNT_OF_ONE,
        error=search.error_in(terms),
        noise=search.noise_in(terms),
        rounds=terms.outline.rounds if search.joint else None,
        spec_epsilon=declaration.spec.privacy.epsilon,
        spec_error=search.error_now,
        refused=refused,
    )


class _Search:
    """Looks through the epsilons of three digits for the least that will do.

    More epsilon does not always mean less noise: it may also mean one round more. But all else alike it does. So what a range of epsilons
    can reach at best is known from its ends: the plan of the lower one, paid for with the larger.
    """

    def __init__(self, declaration: Declaration, axes: Axes, *, currency: Currency, rows: int) -> None:
        self._declaration, self._axes, self._currency, self._rows = declaration, axes, currency, rows
        self._strategy = strategy_for(declaration)  # the same for any epsilon, and so is
        self._smallest = smallest_share(declaration, self._strategy)
        self.joint = len(axes) > 1
        self.cells = prod(declaration.universe.shape[axis] for axis in axes)
        self.terms = lru_cache(maxsize=None)(self._terms)
        if self.joint:
            self._check(self.terms(_LAST))

    def least(self, wanted: float) -> int | None:
        """Return the place of the least epsilon whose error is at most so much and no more than the strategy leaves room for."""
        room = self.terms(_LAST).outline.room
        return self._least(-1, _LAST, at_most=wanted if room is None or not self.joint else min(wanted, room))

    def error(self, index: int) -> float:
        """Return the error at an epsilon; no end of it where that is too small for any run."""
        try:
            return self.error_in(self.terms(index))
        except UsageError:
            return inf

    @cached_property
    def error_now(self) -> float | None:
        """The error at the spec's own epsilon."""
        try:
            return self.error_in(self._terms_of(self._declaration))
        except UsageError:
            return None

    def error_in(self, terms: Terms) -> float:
        """Return the error that a run on these terms makes of the marginal."""
        return terms.error(self.cells, self.noise_in(terms))

    def noise_in(self, terms: Terms) -> float:
        """Return the noise of each of its counts."""
        noise = terms.round_noise() if self.joint else terms.first_noise(self._axes[0])
        return inf if noise is None else noise

    def _least(self, low: int, high: int, *, at_most: float) -> int | None:
        """Return the least place above `low` and up to `high` that will do."""
        if self._at_best(low, high) > at_most:
            return None
        if high - low == 1:
            return high
        middle = (low + high) // 2
        found = self._least(low, middle, at_most=at_most)
        return self._least(middle, high, at_most=at_most) if found is None else found

    def _at_best(self, low: int, high: int) -> float:
        """Return an error that no epsilon above one place, and up to another, goes below; of the last one alone, its own."""
        own = self.error(high)
        if high - low == 1 or own == inf:
            return own
        if low < 0 or self.error(low) == inf:
            return 0.0
        terms, before = self.terms(high), self.terms(low).outline
        return own if before == terms.outline else SLACK * self.error_in(replace(terms, outline=before))

    def _terms(self, index: int) -> Terms:
        return self._terms_of(_at(self._declaration, _epsilon(index)))

    def _terms_of(self, declaration: Declaration) -> Terms:
        return terms_of(declaration, self._strategy, currency=self._currency, rows=self._rows, smallest=self._smallest)

    def _check(self, richest: Terms) -> None:
        """Refuse a marginal that no round would measure, whatever is spent."""
        if self._axes not in set(richest.outline.candidates):
            raise UsageError(
                "these columns are together in no marginal of the workload, so no round measures them; list them there"
            )
        most = richest.outline.model_cells
        if most is not None and self.cells > most:
            raise UsageError(
                f"these columns have {self.cells:,} cells together, more than the model may have, so no round measures them all; "
                "write a larger `max_model_mb` in `strategy`, or name fewer columns"
            )


_LAST = STEPS * DECADES


def _epsilon(index: int) -> float:
    """Return the epsilon at a place in the order of all that have three digits.

    >>> [_epsilon(index) for index in (0, 1, 899, 900, _LAST - 1, _LAST)]
    [1e-06, 1.01e-06, 9.99e-06, 1e-05, 99.9, 100.0]
    """
    decade, step = divmod(index, STEPS)
    return float(f"{100 + step}e{decade - DECADES}")


def _at(declaration: Declaration, epsilon: float) -> Declaration:
    """Return what would be run with another epsilon; it is planned only, so its digest does not matter."""
    privacy = declaration.spec.privacy.model_copy(update={"epsilon": epsilon})
    return replace(declaration, spec=declaration.spec.model_copy(update={"privacy": privacy}))


def _axes(declaration: Declaration, columns: Sequence[str]) -> Axes:
    """Return the columns that tell anything, by their place; refuse what is no marginal, or measured by no strategy."""
    names, shape = declaration.universe.names, declaration.universe.shape
    unknown = [name for name in columns if name not in names]
    if unknown:
        raise UsageError(f"{_named(unknown)}: not a column of the universe; `dpflow check` lists those that are")
    if not columns or len(set(columns)) < len(columns):
        raise UsageError("name each column of the marginal once, and at least one")
    if isinstance(declaration.strategy, PmwSpec):
        raise UsageError("strategy pmw measures single counts, never a whole marginal; write mwem or adaptive instead")
    axes = tuple(sorted(names.index(name) for name in columns))
    return tuple(axis for axis in axes if shape[axis] > 1) or axes[:1]


def _named(columns: Sequence[str]) -> str:
    return " x ".join(f"`{name}`" for name in columns)
