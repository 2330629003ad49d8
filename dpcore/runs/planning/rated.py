"""Rate every column and every pair of columns of a planned run by its expected error, with a sentence for each. No data is read.

The noise of a measurement is known, and the error of the model that is fitted to it is not: no count is negative, most cells of a pair are
nearly empty, and a pair is also known by its columns. Releases of real tables tell how much less it is (docs/decisions/0045).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, product
from statistics import geometric_mean, median

from dpcore.marginals.workload import Axes
from dpcore.reporting.ratings import FAIR_ERROR, GOOD_ERROR, Rating, percent, rate
from dpcore.runs.planning.noise import Terms
from dpcore.spec import Declaration
from dpcore.spec.advice import suspected_ids
from dpcore.universe import Attribute, Categorical
from dpcore.universe.leaves import Fine

FEW_CELLS = 20
"""A column with at most this many cells need not be made coarser."""
MOST = 0.5
"""A run of single columns is warned of if more than this share of them is poor."""
REMAINS, LITTLE = 2 / 3, {1: 0.1, 2: 0.05}
"""The share of the noise that remains as error, and up to which noise it does, for a column and for a pair: beyond it, most cells are nearly empty."""
MOST_WRONG = 0.14
"""A run is warned of if a typical pair is expected to be wrong by more than this share of the rows."""
SHUFFLED = (0.02, 0.59)
"""By how much pairs were wrong in twenty real tables, as a share of the rows, if each column was shuffled."""
UNEQUAL_CELLS = 5
"""From this many cells on, the counts of a column are taken to be unequal, unless a tree has found the cells by their counts."""
MIDDLE_SHARE = 0.1
"""The middle count of such a column, as a share of its mean count. It was 0.2 in the median of 88 columns of five public tables, and a tenth
or more in two thirds of them, whatever their number of cells."""
BEST_SHARE = Fraction(1, 2)
"""If noise would swamp every pair, so that there are no rounds, a pair's noise is stated for this share of the budget."""


@dataclass(frozen=True)
class RatedColumn:
    """A column with the expected error of its counts, alone and in pairs, as a share of the rows.

    `error` is what remains of the noise. At full resolution, the share of pairs of rows that its cells do not tell apart is added. `middle_error` is that of the column's middle count, as a share of this count: half of the values are rarer. A value with fewer than `drowned` rows
    has noise of more than half of itself.
    `pairs_error` is that of the median of its pairs in the
    workload; None if it is in no pair. `id` says why the column looks like an id; None if it does not.
    """

    name: str
    cells: int
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
        """The geometric mean of the errors, as if none were smaller than a good one: less than that is no help."""
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
    """Return the warning that a plan gives, and a run before it charges anything: that columns drawn each by itself may be as near to the table.

    How far columns depend on each other is known to the table only. So the warning says what that was worth in real ones.
    """
    guess = ", which is a guess: declare `expect_rows`" if guessed else ""
    if ratings.pairs:
        return (
            None
            if ratings.typical <= MOST_WRONG
            else (
                f"columns drawn each by itself may be as near to the table as the release: expect a typical one of its {ratings.number:,} pairs of "
                f"columns to be wrong by {percent(ratings.typical)} of the rows, with about {rows:,} rows{guess}; shuffled columns of twenty real "
                f"tables were wrong by {percent(SHUFFLED[0])} to {percent(SHUFFLED[1])}; ask for fewer columns or wider cells, or raise epsilon"
            )
        )
    if ratings.poor <= MOST * ratings.number:
        return None
    return (
        f"{ratings.poor:,} of {ratings.number:,} columns would be {Rating.POOR}: expect an error of {percent(ratings.typical)} of a typical count "
        f"with about {rows:,} rows{guess}; the release would be mostly noise"
    )


def expected_error(noise: float, *, columns: int) -> float:
    """Return the error that a model is expected to have in a column or a pair, by the noise of its measurement; both are shares of the rows.

    Of little noise, two thirds remain. Of much noise the error grows with the root only: see docs/decisions/0045.

    >>> [round(expected_error(noise, columns=2), 3) for noise in (0.03, 0.2, 0.8)]
    [0.02, 0.067, 0.133]
    """
    return REMAINS * math.sqrt(noise * min(noise, LITTLE[columns]))


def rated(declaration: Declaration, terms: Terms, *, first: Sequence[tuple[int, float]]) -> Rated:
    """Rate the columns and the pairs of a run on these terms.

    Args:
        declaration: The declaration of the run.
        terms: The terms, for about as many rows as the table has.
        first: For each column the number of its cells and its noise, as a share of the rows; empty if the strategy measures single counts only.
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
        cells, noise = first[place] if first else (shape[place], terms.error(shape[place], single))
        pairs_error = median(errors[name]) if name in errors else None
        why = ids.get(name)
        columns.append(
            _column(name, attribute, cells=cells, noise=noise, rows=terms.rows, pairs_error=pairs_error, why=why)
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
    error = expected_error(noise, columns=1) + blurred(attribute, cells)
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
            said.append(_expected_of_column(error, pairs_error))
        if not good:
            said.append(_remedy(attribute))
        sentence = f"{name} has {_size(attribute)}: {'; '.join(said)}"
    return RatedColumn(
        name,
        cells=cells,
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


def _expected_of_column(error: float, pairs_error: float | None) -> str:
    """Say what to expect: alone and in pairs, or in pairs only if that is rated differently."""
    if pairs_error is None:
        return f"expect an error of {percent(error)}"
    alone = f"{percent(error)} alone and " if rate(error) is rate(pairs_error) else ""
    return f"expect an error of {alone}{percent(pairs_error)} in pairs"


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
                expected_error(terms.error(math.prod(merged), noise), columns=2)
                + sum(map(blurred, map(attributes.__getitem__, axes), merged)),
                math.prod(merged),
            )
            for merged in product(*(_merged(attributes[axis], shape[axis]) for axis in axes))
        )
        said = _expected(terms, error, measured, noise=terms.error(cells, noise))
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


def _expected(terms: Terms, error: float, measured: str, *, noise: float) -> str:
    """Say what to expect of a pair by its error, whether it is measured, and the noise of all of its counts."""
    said = f"expect an error of {percent(error)}"
    if measured == "no":
        return f"{said} or more, since it is not measured"
    merged = terms.outline.model_cells is not None and terms.outline.room is not None and noise > terms.outline.room
    return f"{said}, with merged cells" if merged else said


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
