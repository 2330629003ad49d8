"""Rate every column and every pair of columns of a planned run by its expected noise, with a sentence for each. No data is read."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, product
from statistics import fmean, geometric_mean, median

from dpcore.marginals.workload import Axes
from dpcore.reporting.ratings import FAIR_ERROR, GOOD_ERROR, Rating, percent, rate
from dpcore.runs.planning.noise import ABSOLUTE, Terms
from dpcore.spec import Declaration
from dpcore.spec.advice import suspected_ids
from dpcore.universe import Attribute, Categorical
from dpcore.universe.leaves import Fine

FEW_CELLS = 20
"""A column with at most this many cells need not be made coarser."""
MOST = 0.5
"""A run is warned of if more than this share of what was asked for is poor."""
UNEQUAL_CELLS = 5
"""From this many cells on, the counts of a column are taken to be unequal, unless a tree has found the cells by their counts."""
MIDDLE_SHARE = 0.1
"""The middle count of such a column, as a share of its mean count. It was 0.2 in the median of 88 columns of five public tables, and a tenth
or more in two thirds of them, whatever their number of cells."""
BEST_SHARE = Fraction(1, 2)
"""If noise would swamp every pair, so that there are no rounds, a pair's noise is stated for this share of the budget."""


@dataclass(frozen=True)
class RatedColumn:
    """A column with the expected noise of its counts, alone and in pairs.

    `noise` is the expected L1 error due to noise, as a share of the rows. For `error`, at full resolution, the share of pairs of rows that its
    cells do not tell apart is added. `middle_error` is that of the column's middle count, as a share of this count: half of the values are rarer. A value with fewer than `drowned` rows is wrong by more than half of itself.
    `pairs_error` is that of the median of its pairs in the
    workload; None if it is in no pair. `id` says why the column looks like an id; None if it does not.
    """

    name: str
    cells: int
    noise: float
    error: float
    rating: Rating
    middle_error: float
    middle_rating: Rating
    drowned: int
    pairs_error: float | None
    pairs_rating: Rating | None
    id: str | None
    sentence: str

    @property
    def worst(self) -> Rating:
        """The worse of its two ratings."""
        both = (self.rating, self.pairs_rating or self.rating)
        return max(both, key=list(Rating).index)


@dataclass(frozen=True)
class RatedPair:
    """A pair of columns in the workload, with the standard deviation of the noise of each of its counts.

    `measured` is `yes` if there are enough rounds to measure it, `perhaps` if that depends on the selections, and `no` if the noise is too
    large. `noise` and `error` are those of a measured pair, even if it may not be measured. Cells of columns at full resolution are merged
    as far as that lowers the error: they are no more than what a run finds. A pair may be measured as part of a larger
    marginal; its counts are then sums of that marginal's counts. If it is not known of which one, the median is stated.
    """

    columns: tuple[str, str]
    cells: int
    noise: float
    error: float
    measured: str
    rating: Rating
    sentence: str


@dataclass(frozen=True)
class Rated:
    """All columns and pairs with their ratings. `asked_for` says what the numbers are of: `pairs`, or `columns` if there are no pairs.

    `rounds` is the number of rounds, each of which links a few columns. `typical` is the geometric mean of the errors of what was asked for: a few very large ones do not decide it.
    """

    columns: tuple[RatedColumn, ...]
    pairs: tuple[RatedPair, ...]
    rounds: int
    asked_for: str = field(init=False)
    good: int = field(init=False)
    fair: int = field(init=False)
    poor: int = field(init=False)
    typical: float = field(init=False)

    def __post_init__(self) -> None:
        """Count the ratings."""
        asked: Sequence[RatedColumn | RatedPair] = self.pairs or self.columns
        ratings, errors = [item.rating for item in asked], [item.error for item in asked]
        figures = {
            "asked_for": "pairs" if self.pairs else "columns",
            **{rating.value: ratings.count(rating) for rating in Rating},
            "typical": geometric_mean(max(error, 1e-9) for error in errors),
        }
        for name, value in figures.items():
            object.__setattr__(self, name, value)

    @property
    def burden(self) -> float:
        """The geometric mean of the errors, as if none were smaller than a good one: less noise than that is no help."""
        return geometric_mean(max(item.error, GOOD_ERROR) for item in self.pairs or self.columns)

    @property
    def number(self) -> int:
        """The number of what was asked for."""
        return self.good + self.fair + self.poor

    @property
    def is_wide(self) -> bool:
        """Whether there are too few rounds to link all columns by pairs, so that some columns have no relation to most others."""
        return self.asked_for == "pairs" and 0 < self.rounds < len(self.columns) - 1


def poor_warning(ratings: Rated, *, rows: int, guessed: bool) -> str | None:
    """Return the warning that a plan gives, and a run before it charges anything.

    If rounds measure most pairs for certain, or none are asked for, it warns if most of what was asked for is poor. Otherwise it warns if columns
    drawn each by itself may be as near to the table: noise in single columns then moves a pair by more than chance does (`column_noise`).
    """
    guess = ", which is a guess: declare `expect_rows`" if guessed else ""
    unsure = [pair for pair in ratings.pairs if pair.measured != "yes"]
    if len(unsure) > MOST * ratings.number:
        noise, chance = column_noise(ratings, unsure, rows=rows)
        return (
            None
            if noise <= chance
            else (
                f"columns drawn each by itself may be as near to the table as the release: {ratings.rounds:,} rounds do not measure all "
                f"{ratings.number:,} pairs of columns, and noise in single columns moves a pair by {percent(noise)} of the rows; chance moves it by "
                f"{percent(chance)} with about {rows:,} rows{guess}; ask for fewer columns, or raise epsilon"
            )
        )
    if ratings.poor <= MOST * ratings.number:
        return None
    asked = "pairs of columns" if ratings.asked_for == "pairs" else "columns"
    return (
        f"{ratings.poor:,} of {ratings.number:,} {asked} would be {Rating.POOR}: expect noise of {percent(ratings.typical)} of a typical count "
        f"with about {rows:,} rows{guess}; the release would be mostly noise"
    )


def column_noise(ratings: Rated, pairs: Sequence[RatedPair], *, rows: int) -> tuple[float, float]:
    """Return the mean L1 error that noise in its two columns causes in a pair, and that of chance: the sampling error of so many rows.

    Both are shares of the rows. A pair that no round measures has the first one at least. Errors of two columns add up as squares.
    """
    columns = {column.name: column for column in ratings.columns}
    both = [tuple(columns[name] for name in pair.columns) for pair in pairs]
    noise = fmean(math.hypot(*(column.noise for column in pair)) for pair in both)
    return noise, fmean(ABSOLUTE * math.sqrt(math.prod(column.cells for column in pair) / rows) for pair in both)


def rated(declaration: Declaration, terms: Terms, *, first: Sequence[tuple[int, float]]) -> Rated:
    """Rate the columns and the pairs of a run on these terms.

    Args:
        declaration: The declaration of the run.
        terms: The terms, for about as many rows as the table has.
        first: For each column the number of its cells and its error; empty if the strategy measures single counts only.
    """
    pairs = tuple(_pairs(declaration, terms))
    errors: defaultdict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        for name in pair.columns:
            errors[name].append(pair.error)
    ids, shape = suspected_ids(declaration, rows=terms.rows), declaration.universe.shape
    single = terms.round_noise() or terms.first_noise(0)  # of a count, if no column is measured as a whole
    columns = []
    for place, (name, attribute) in enumerate(declaration.universe.attributes.items()):
        cells, error = first[place] if first else (shape[place], terms.error(shape[place], single))
        pairs_error = median(errors[name]) if name in errors else None
        why = ids.get(name)
        columns.append(
            _column(name, attribute, cells=cells, noise=error, rows=terms.rows, pairs_error=pairs_error, why=why)
        )
    return Rated(tuple(columns), pairs, rounds=terms.outline.rounds)


def blurred(attribute: Attribute, cells: int) -> float:
    """Return the share of pairs of rows that so many equally frequent cells of a column do not tell apart, though its values would.

    Declared cells are what was asked for, so they blur nothing.
    """
    return 1 / cells if isinstance(attribute, Fine) and cells < attribute.places else 0.0


def _column(  # noqa: PLR0913  a column, alone and in pairs
    name: str, attribute: Attribute, *, cells: int, noise: float, rows: int, pairs_error: float | None, why: str | None
) -> RatedColumn:
    blur = blurred(attribute, cells)
    error = noise + blur
    equal = cells < UNEQUAL_CELLS or isinstance(attribute, Fine)
    middle_error = error if equal else error / MIDDLE_SHARE
    drowned = math.ceil(noise * rows / cells / FAIR_ERROR)
    rating, middle = rate(error), rate(middle_error)
    in_pairs = None if pairs_error is None else rate(pairs_error)
    if why is not None:
        sentence = f"{name} looks like an id: {why}; leave it out of the universe, or declare coarser cells"
    else:
        good, rare = {rating, in_pairs or rating} == {Rating.GOOD}, rating is Rating.GOOD and middle is not rating
        what = "values" if isinstance(attribute, Categorical) else "cells"
        said = (
            [f"frequent {what} are good; {what} with fewer than about {drowned:,} rows drown in noise"] if rare else []
        )
        if not (good and rare):
            said.append(_expected_of_column(error, pairs_error, what="an error" if blur else "noise"))
        if not good:
            said.append(_remedy(attribute))
        sentence = f"{name} has {_size(attribute)}: {'; '.join(said)}"
    return RatedColumn(
        name,
        cells=cells,
        noise=noise,
        error=error,
        rating=rating,
        middle_error=middle_error,
        middle_rating=middle,
        drowned=drowned,
        pairs_error=pairs_error,
        pairs_rating=in_pairs,
        id=why,
        sentence=sentence,
    )


def _expected_of_column(error: float, pairs_error: float | None, *, what: str) -> str:
    """Say what to expect: alone and in pairs, or in pairs only if that is rated differently."""
    if pairs_error is None:
        return f"expect {what} of {percent(error)}"
    alone = f"{percent(error)} alone and " if rate(error) is rate(pairs_error) else ""
    return f"expect {what} of {alone}{percent(pairs_error)} in pairs"


def _size(attribute: Attribute) -> str:
    """Say how many values or cells a column has. Of a column at full resolution, it is the number that stands out of the noise."""
    if isinstance(attribute, Categorical):
        return f"{attribute.cells:,} value{'s' if attribute.cells > 1 else ''}"
    number = f"{attribute.size:,} cell{'s' if attribute.size > 1 else ''}"
    return f"about {number}" if isinstance(attribute, Fine) else number


def _remedy(attribute: Attribute) -> str:
    """Say what would help a column."""
    if attribute.size <= FEW_CELLS:
        return "raise epsilon, or ask for fewer columns"
    if isinstance(attribute, Categorical):
        return "group it or raise epsilon"
    return "declare wider bins or raise epsilon" if not isinstance(attribute, Fine) else "declare bins or raise epsilon"


def _pairs(declaration: Declaration, terms: Terms) -> list[RatedPair]:
    """Rate every pair in the workload of columns with more than one value."""
    names, shape = declaration.universe.names, declaration.universe.shape
    attributes = tuple(declaration.universe.attributes.values())
    several = [size > 1 or blurred(attribute, size) > 0 for attribute, size in zip(attributes, shape, strict=True)]
    asked = [axes for axes in declaration.workload.parts() if len(axes) == 2 and all(several[axis] for axis in axes)]
    if not asked:
        return []
    measuring = _Measuring(terms, shape)
    rated_pairs = []
    for axes in asked:
        (first, second), (noise, measured) = axes, measuring.of(axes)
        error, cells = min(
            (
                terms.error(math.prod(merged), noise) + sum(map(blurred, map(attributes.__getitem__, axes), merged)),
                math.prod(merged),
            )
            for merged in product(*(_merged(attributes[axis], shape[axis]) for axis in axes))
        )
        what = "an error" if any(blurred(attributes[axis], shape[axis]) for axis in axes) else "noise"
        said = _expected(terms, error, measured, what=what)
        sentence = f"{names[first]} x {names[second]} has {cells:,} cell{'s' if cells > 1 else ''}: {said}"
        rated_pairs.append(
            RatedPair((names[first], names[second]), cells, noise, error, measured, rate(error), sentence)
        )
    return rated_pairs


def _merged(attribute: Attribute, cells: int) -> list[int]:
    """Return how many cells a column may be measured with in a pair: fewer than were found, if that was not declared."""
    return (
        [max(1, cells >> halvings) for halvings in range(cells.bit_length())] if blurred(attribute, cells) else [cells]
    )


def _expected(terms: Terms, error: float, measured: str, *, what: str) -> str:
    said = f"expect {what} of {percent(error)}"
    if measured == "no":
        return f"expect {what} of {percent(error)} or more, so it is not measured"
    worth = terms.outline.room is not None and error > terms.outline.room
    return f"{said}, so it is measured with merged cells" if worth and terms.outline.model_cells is not None else said


def _most_cells(terms: Terms, noise: float) -> float:
    """Return the most cells of a marginal that is measured as it is."""
    limits = (terms.worth_cells(noise), terms.outline.model_cells)
    return min(math.inf if limit is None else limit for limit in limits)


class _Measuring:
    """Says with what noise the rounds measure a pair: by itself, or as part of a larger marginal."""

    def __init__(self, terms: Terms, shape: Sequence[int]) -> None:
        noise = terms.round_noise()
        self._noise = terms.noise_of(BEST_SHARE) if noise is None else noise
        self._single = terms.single
        # A count of a pair is the sum of so many counts of a larger marginal that contains it.
        self._surely: defaultdict[Axes, list[int]] = defaultdict(list)
        self._perhaps: defaultdict[Axes, list[int]] = defaultdict(list)
        rounds, most = terms.outline.rounds, _most_cells(terms, self._noise)
        for group in terms.outline.offered:
            sums = self._surely if len(group) <= rounds and not self._single else self._perhaps
            rounds = max(0, rounds - len(group))
            for axes in group:
                if len(axes) == 2 or math.prod(map(shape.__getitem__, axes)) <= most:  # not if cells are merged
                    for pair in combinations(axes, 2):
                        sums[pair].append(math.prod(shape[axis] for axis in axes if axis not in pair))

    def of(self, pair: Axes) -> tuple[float, str]:
        """Return the noise of a pair's counts, and whether it is measured."""
        if self._single:  # a single count of the pair, as a round measures it
            return self._noise, "perhaps"
        if pair in self._surely:  # the measurements are combined, weighted by their precision
            return self._noise / math.sqrt(sum(1 / sums for sums in self._surely[pair])), "yes"
        if pair in self._perhaps:
            return self._noise * math.sqrt(median(self._perhaps[pair])), "perhaps"
        return self._noise, "no"
