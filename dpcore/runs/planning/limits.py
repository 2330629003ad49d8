"""Choose the limit on rows per unit for `max_rows_per_unit: auto`, by a public rule: compare the expected error of the workload under each limit.

A low limit loses rows, and those of persons with many rows first. A high limit adds noise to every count. A run chooses by a noisy histogram of
the rows per unit and the spec alone (docs/decisions/0041). A plan shows what each limit costs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median

from dpcore.errors import UsageError
from dpcore.marginals.measurements import LEAST_NOISE, Measurement
from dpcore.marginals.sizes import Sizes
from dpcore.privacy.accounting import Currency
from dpcore.release import ChosenLimit
from dpcore.release.statement import CLEAR
from dpcore.runs.paying import smallest_share
from dpcore.runs.planning.noise import ABSOLUTE, Terms, terms_of
from dpcore.spec import Declaration
from dpcore.spec.release import AUTO_LIMITS
from dpcore.spec.shares import Early
from dpcore.strategies import strategy_for
from dpcore.tables.ingest.tally import BUCKETS, EDGES

BEYOND = 2 * EDGES[-1]
"""The number of rows that a unit in the last bucket is taken to have. The histogram does not tell how many there are."""

ISOLATED = 6.0
"""How many standard deviations of noise a bucket above an empty one stands out by: a unit of it may have more rows than all others together."""

TYPICAL = (*EDGES, BEYOND)
"""The number of rows that a unit of each bucket is taken to have."""

UNLIKE = 0.2
"""The assumed L1 distance between the distributions of a column in lost rows and in all rows.

It was 0.15 to 0.21 on the table of visits that the rule was fitted to.
"""

STILL_UNLIKE = 0.05
"""Likewise, where counts are corrected by the classes of sizes: it was 0.04 to 0.1 on visits and on blood tests (docs/decisions/0077)."""

LEAST_CLASS = 0.05
"""The least share of the rows that the last class of sizes has."""

WIDEST = 2
"""The most rows of a unit in a class of sizes, in units of the fewest."""

USUAL_CLASSES = 3
"""So many classes of sizes there usually are, if none are known."""

MOST_NOISE = 0.1
"""The largest expected L1 error of a column, as a share of the rows, at which it is counted by class: noise grows with the root of the classes."""

RowsKept = Callable[[int], float]
"""Returns about how many rows a limit keeps."""


@dataclass(frozen=True)
class LimitError:
    """The expected error under a limit on the rows of a unit, as a share of the rows: of the workload, or of a column by noise alone."""

    rows_per_unit: int
    error: float


@dataclass(frozen=True)
class PlannedLimit:
    """The limit on the rows of a unit that a run chooses: the histogram's price as a share of the budget, its noise, and the cost of each limit.

    All other figures of the plan are for the limit `likely`. A limit that the budget cannot pay is left out.
    """

    unit: str
    likely: int
    share: float
    noise: float
    costs: tuple[LimitError, ...]


def planned_limit(declaration: Declaration, *, currency: Currency, rows: RowsKept, likely: int) -> PlannedLimit:
    """Return the planned choice of the limit on rows per unit. Raise if the epsilon is too small even for one row.

    Args:
        declaration: The declaration of the run.
        currency: The account's currency.
        rows: Returns about how many rows a limit keeps.
        likely: The limit that the plan's figures are for.
    """
    first = declaration.limited(AUTO_LIMITS[0])
    terms = terms_of(first, strategy_for(first), currency=currency, rows=max(1, round(rows(AUTO_LIMITS[0]))))
    share, protection = declaration.share(Early.LIMIT), declaration.protection.of_one_answer
    payable = affordable(declaration, currency=currency, rows=rows)
    return PlannedLimit(
        unit=protection.unit,
        likely=likely,
        share=float(share),
        noise=terms.early_noise(share, protection),
        costs=tuple(
            LimitError(limit, column_error(terms_of_limit, declaration.universe.shape))
            for limit, terms_of_limit in payable
        ),
    )


def affordable(declaration: Declaration, *, currency: Currency, rows: RowsKept) -> list[tuple[int, Terms]]:
    """Return each limit whose noise the budget can pay, with the terms of a run under it.

    Args:
        declaration: The declaration of the run.
        currency: The account's currency.
        rows: Returns about how many rows a limit keeps.
    """
    strategy, payable = strategy_for(declaration), []
    smallest = smallest_share(declaration, strategy)
    for limit in AUTO_LIMITS:
        about = max(1, round(rows(limit)))
        try:
            terms = terms_of(declaration.limited(limit), strategy, currency=currency, rows=about, smallest=smallest)
        except UsageError:
            break  # a larger limit needs more noise still
        payable.append((limit, terms))
    return payable


def column_error(terms: Terms, shape: Sequence[int]) -> float:
    """Return the mean expected L1 error of a column due to noise, as a share of the rows.

    A strategy that measures single counts has no such measurements: each cell is then taken to be measured as in a round.
    """
    if terms.single:
        noise = terms.round_noise() or terms.first_noise(0)
        return mean(terms.error(cells, noise) for cells in shape)
    return mean(terms.error(cells, terms.first_noise(place)) for place, cells in enumerate(shape))


def expected_errors(
    declaration: Declaration,
    rows: RowsKept,
    *,
    currency: Currency,
    classes: Callable[[int], int] = lambda _: USUAL_CLASSES,
) -> tuple[LimitError, ...]:
    """Return the expected workload error under each limit that the budget can pay. There are none if no rows are known.

    Three independent errors add up as squares, in a marginal of w columns: the noise of the first measurements of a column and the error
    from lost rows, each sqrt(w) times that of one column, and the sampling error of the kept rows in a marginal of median size.

    Args:
        declaration: The declaration.
        rows: Returns about how many rows a limit keeps.
        currency: The account's currency.
        classes: Returns how many classes of sizes correct the counts under a limit.
    """
    whole = rows(BEYOND)
    if not whole:
        return ()
    marginals, shape = declaration.workload.marginals, declaration.universe.shape
    columns = mean(len(axes) for axes in marginals)
    cells, typical = (
        median(math.prod(shape[axis] for axis in axes) for axes in sets)
        for sets in (marginals, declaration.workload.parts())
    )

    def by_norm(limit: int) -> float:
        return rows(by_norm_of(limit, cells=typical) if currency is not Currency.PURE else limit)

    corrected = dict(affordable(declaration, currency=currency, rows=by_norm)) if declaration.corrects else {}
    errors = []
    for limit, terms in affordable(declaration, currency=currency, rows=rows):
        kept, counted, unlike = terms, rows(limit), UNLIKE
        if limit in corrected and pays_for(classes(limit), terms, shape):
            kept, counted, unlike = corrected[limit], by_norm(limit), STILL_UNLIKE
        noise, lost = column_error(kept, shape), 1 - counted / whole
        squares = columns * (noise**2 + (unlike * lost) ** 2) + ABSOLUTE**2 * cells / counted
        errors.append(LimitError(limit, math.sqrt(squares)))
    return tuple(errors)


def pays_for(classes: int, terms: Terms, shape: Sequence[int]) -> bool:
    """Return whether columns can be counted by so many classes of sizes, with noise that grows with the root of their number."""
    return column_error(terms, shape) * math.sqrt(classes) <= MOST_NOISE


def by_norm_of(limit: int, *, cells: float) -> int:
    """Return about how many rows of a unit keep the norm of its counts in a marginal within a limit, if half of the cells share them evenly.

    >>> [by_norm_of(limit, cells=8) for limit in (1, 2, 8)]
    [1, 4, 16]
    """
    return math.floor(limit * min(limit, math.sqrt(max(1.0, cells / 2))))


def chosen_limit(errors: Sequence[LimitError]) -> int:
    """Return the limit with the least expected error. If two errors are equal, return the smaller limit; if there are none, return 1.

    >>> chosen_limit(())
    1
    """
    return min(errors, key=lambda candidate: (candidate.error, candidate.rows_per_unit)).rows_per_unit if errors else 1


@dataclass(frozen=True)
class NoisyUnits:
    """Noisy numbers of units by bucket of their rows, with the standard deviation of their noise.

    >>> units = NoisyUnits((900, 100, -3, 5, 0, 2, 1, *[0] * 15), noise=4.0)
    >>> units.rows(1), units.rows(2)
    (1000.0, 1100.0)
    """

    counts: tuple[int, ...]
    noise: float

    @classmethod
    def of(cls, measurement: Measurement) -> "NoisyUnits":
        """Return the measured numbers of units."""
        return cls(tuple(map(int, measurement.values.ravel())), noise=measurement.noise)

    def rows(self, limit: int) -> float:
        """Estimate the number of rows that a limit keeps. Buckets that do not stand out of the noise count as empty."""
        return float(math.fsum(count * min(typical, limit) for typical, count in self.clear()))

    def clear(self) -> Iterator[tuple[int, int]]:
        """Yield the buckets that stand out of the noise: the rows of their units, and the number of units.

        >>> list(NoisyUnits((100, 12, 11, 0, 23, 0, 24, *[0] * 15), noise=4.0).clear())
        [(1, 100), (2, 12), (64, 24)]
        """
        last: int | None = None
        for place, (typical, count) in enumerate(zip(TYPICAL, self.counts, strict=True)):
            standing = CLEAR if last in {None, place - 1} else ISOLATED
            if count >= standing * max(self.noise, LEAST_NOISE):
                last = place
                yield typical, count

    def classes(self, limit: int) -> list[list[tuple[int, int]]]:
        """Return the clear buckets in classes: units with at most `limit` rows, and others whose numbers of rows differ little.

        A last class with few of the rows is joined to the one before.

        >>> [[rows for rows, _ in own] for own in NoisyUnits((0, 90, 80, 70, 60, 50, 40, *[0] * 15), noise=1.0).classes(4)]
        [[2, 4], [8, 16], [32, 64]]
        """
        classes: list[list[tuple[int, int]]] = []
        for typical, count in self.clear():
            fits = classes and typical <= max(limit, WIDEST * classes[-1][0][0] * (classes[-1][0][0] > limit))
            if not fits:
                classes.append([])
            classes[-1].append((typical, count))
        while len(classes) > 1 and sum(map(math.prod, classes[-1])) < LEAST_CLASS * self.rows(BEYOND):
            few = classes.pop()
            classes[-1].extend(few)
        return classes

    @property
    def deviation(self) -> float:
        """The standard deviation of the estimated number of rows: by noise, by random edges, and by the first bucket that does not stand out."""
        clear = list(self.clear())
        noise = max(self.noise, LEAST_NOISE)
        squares = [(typical * noise) ** 2 + count * typical**2 / 6 * (typical > 1) for typical, count in clear]
        above = TYPICAL[min(TYPICAL.index(clear[-1][0]) + 1, len(TYPICAL) - 1)] if clear else 0
        return math.sqrt(math.fsum([*squares, (CLEAR * noise * above / 2) ** 2]))


def sizes_of(declaration: Declaration, units: NoisyUnits, *, limit: int, currency: Currency) -> Sizes | None:
    """Return the classes of sizes by which counts of kept rows become counts of all.

    There are none if no rows are lost, or if the budget cannot pay for telling the classes apart: then the release is about the kept rows.

    Args:
        declaration: The granted declaration, before discovery.
        units: The noisy histogram of the rows per unit.
        limit: The chosen limit.
        currency: The account's currency.
    """
    clear, classes = list(units.clear()), units.classes(limit)
    if not declaration.corrects or not clear or clear[-1][0] <= limit:
        return None
    limited = declaration.limited(limit)
    terms = terms_of(limited, strategy_for(limited), currency=currency, rows=max(1, round(units.rows(limit))))
    if not pays_for(len(classes), terms, declaration.universe.shape):
        return None
    rows = units.rows(BEYOND)
    return Sizes(
        ends=tuple(own[-1][0] for own in classes[:-1]),
        rows=tuple(math.fsum(map(math.prod, own)) for own in classes),
        units=tuple(math.fsum(count for _, count in own) for own in classes),
        deviation=units.deviation / rows,
    )


def rows_kept(chosen: ChosenLimit) -> int | None:
    """Return about how many rows the chosen limit keeps, by the noisy histogram; None if it tells nothing."""
    return round(NoisyUnits(tuple(chosen.units.values()), noise=chosen.noise).rows(chosen.rows)) or None


def choice_of(declaration: Declaration, units: NoisyUnits, *, currency: Currency, spent: float) -> ChosenLimit:
    """Choose the limit, and return it with what it was chosen by.

    Args:
        declaration: The granted declaration, before discovery.
        units: The noisy histogram.
        currency: The account's currency.
        spent: The price of the histogram, as a share of the run's budget.
    """
    errors = expected_errors(
        declaration, units.rows, currency=currency, classes=lambda limit: len(units.classes(limit))
    )
    limit = chosen_limit(errors)
    # Units in the last bucket have at least so many rows: the share that is lost is stated as a lower bound, not as a guess.
    whole = units.rows(EDGES[-1] + 1)
    lost = 1 - units.rows(limit) / whole if whole else None
    by_bucket = dict(zip(BUCKETS, units.counts, strict=True))
    sizes = sizes_of(declaration, units, limit=limit, currency=currency)
    return ChosenLimit(
        rows=limit,
        of=AUTO_LIMITS,
        spent=spent,
        noise=units.noise,
        units=by_bucket,
        lost=None if sizes else lost,
        sizes=sizes,
    )
