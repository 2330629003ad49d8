"""Random questions with known answers, for `benchmarks.coverage`, and the three methods that fail."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from benchmarks.coverage_cells import FEWEST, cells_of_pairs, single_values
from dpcore.answers.direct import Measured
from dpcore.answers.evaluate import Prepared
from dpcore.answers.intervals import Interval, Intervals
from dpcore.answers.query import (
    All,
    Among,
    Compare,
    Condition,
    Count,
    IsNull,
    Mean,
    Not,
    Number,
    Output,
    Quantile,
    Query,
    Sum,
    Term,
)
from dpcore.answers.release import Release
from dpcore.errors import UsageError
from dpcore.models.fitting import Transcript
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Attribute, Integer
from dpcore.universe import Number as NumberAttribute
from dpcore.universe.leaves import Fine
from dpcore.universe.spread import category_values
from dpcore.universe.spreading import spread_of

KINDS = ("count", "mean", "sum", "median", "q90")
TABLES = ("cell of a measured pair", "single value at full resolution")
NORMAL = 1.96
MOST_CELLS = 1 << 20  # of the columns of a question
NUMBERS_OF_COLUMNS = (0.1, 0.3, 0.4, 0.2)  # the shares of questions over one, two, three and four columns
RANGES, SINGLE = (
    0.8,
    0.7,
)  # the shares of ranges among conditions on an ordered column, and of single values among other ones
LEAST_ROWS = 30  # of fewer rows neither mean nor median is asked
FOLDS = 5
RECTANGLES = 30
SLACK = 1e-6  # rows, for rounding errors


@dataclass(frozen=True)
class Record:
    """An interval and the truth.

    `direct` is the half width of the noisy sum, if a measurement covers the count. `within` tells a mean, sum or quantile of a column at full
    resolution under a condition on another column: it depends on how a group's values lie within cells.
    """

    name: dict[str, Any]
    kind: str
    columns: int
    basis: str
    truth: float
    value: float
    half: float
    direct: float | None
    within: bool
    covered: bool
    controls: dict[str, bool]


@dataclass(frozen=True)
class Asked:
    """All records of a release, what it cost, and the CPU milliseconds of each answer after loading, by kind."""

    name: dict[str, Any]
    records: list[Record]
    costs: dict[str, float]
    milliseconds: dict[str, list[float]]


def ask(  # noqa: PLR0913  all that a comparison depends on
    release: Release, frame: pd.DataFrame, name: dict[str, Any], *, questions: int, seed: int, left_out: bool = False
) -> Asked:
    """Ask a release random counts and other numbers, and compare them with a table.

    Args:
        release: The release.
        frame: The table that it was made from.
        name: What the release is called in the records.
        questions: The number of counts.
        seed: Of the questions.
        left_out: Whether to test the control that fits the model without some marginals, which takes a few fits.
    """
    rng, intervals = np.random.default_rng([seed, 17]), Intervals(release)
    truth, measured = Truth(release, frame), Measured(release)
    left = LeftOut.of(release, rng) if left_out else None
    records: list[Record] = []
    milliseconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    intervals.of(Query((Output("x", Count()),)), level=0.95)  # loads all models
    for kind in ["count"] * questions + [*KINDS[1:]] * (questions // 8):
        condition, kept, columns = truth.condition(rng)
        wanted = truth.number(kind, condition, kept, rng)
        if wanted is None:
            continue
        asked, expected = wanted
        query = Query((Output("x", asked),))
        begin = time.process_time()
        try:
            found = intervals.of(query, level=0.95)[1][asked]
        except UsageError:  # it joins too many cells
            continue
        milliseconds[kind].append(1000 * (time.process_time() - begin))
        low, high = float(found.low[0]), float(found.high[0])
        controls, direct = {}, None
        if kind == "count":
            prepared = intervals.ensemble.prepared(query)
            controls = _controls(intervals, prepared, asked, float(expected), left)
            sums = measured.counts(prepared, prepared.form(asked))
            direct = NORMAL * math.sqrt(sums.variances[0])
        slack = 1e-9 * max(1.0, abs(expected))
        covered = low - slack <= expected <= high + slack
        records.append(
            Record(
                name,
                kind,
                columns,
                str(found.basis),
                float(expected),
                float(found.value[0]),
                (high - low) / 2,
                direct,
                _is_within(release, intervals, query, asked),
                covered,
                controls,
            )
        )
    records += _tables(release, name, intervals, truth, seed)
    size = {each: (release.folder / f"{each}.parquet").stat().st_size for each in ("uncertainty", "measurements")}
    return Asked(
        name, records, {"uncertainty_of_measurements": size["uncertainty"] / size["measurements"]}, milliseconds
    )


def _tables(release: Release, name: dict[str, Any], intervals: Intervals, truth: "Truth", seed: int) -> list[Record]:
    """Return records of the cells of some measured pairs, and of single values."""
    found: list[Record] = []

    def add(kind: str, columns: int, interval: Interval, expected: npt.NDArray[np.float64], *, least: float) -> None:
        covered = (interval.low - SLACK <= expected) & (expected <= interval.high + SLACK)
        halves, bases = (interval.high - interval.low) / 2, interval.bases
        for at in np.flatnonzero(interval.value >= least).tolist():
            numbers = float(expected[at]), float(interval.value[at]), float(halves[at])
            found.append(
                Record(
                    name,
                    kind,
                    columns,
                    str(bases[at]),
                    *numbers,
                    None,
                    within=False,
                    covered=bool(covered[at]),
                    controls={},
                )
            )

    for query, asked, axes in cells_of_pairs(release, np.random.default_rng([seed, 19])):
        add(TABLES[0], len(axes), intervals.of(query, level=0.95)[1][asked], truth.counts(axes).ravel(), least=FEWEST)
    for query, asked, count in single_values(release, truth.frame):
        add(TABLES[1], 1, intervals.of(query, level=0.95)[1][asked], np.array([count]), least=0.0)
    return found


def _is_within(release: Release, intervals: Intervals, query: Query, asked: Number) -> bool:
    if isinstance(asked, Count) or not isinstance(asked, Mean | Sum | Quantile):
        return False
    attribute = release.universe.attributes[release.universe.names[asked.column]]
    return isinstance(attribute, Fine) and len(intervals.ensemble.prepared(query).rows(asked).axes) > 1


def _controls(
    intervals: Intervals, prepared: Prepared, asked: Number, truth: float, left: "LeftOut | None"
) -> dict[str, bool]:
    """Return whether the intervals of other methods contain the truth."""
    values, every = intervals.ensemble.evaluated(prepared)
    value, differences = float(values[asked][0]), every[asked][:, 0]
    deviation, bias = float(differences.std(ddof=1)), float(differences.mean())
    controls = {
        "standard deviation": abs(value - truth) <= NORMAL * deviation,
        "bias-corrected": abs(value - bias - truth) <= NORMAL * deviation,
    }
    if left is not None:
        controls["left out"] = abs(value - truth) <= NORMAL * left.error(value)
    return controls


class Truth:
    """The table's own answers."""

    def __init__(self, release: Release, frame: pd.DataFrame) -> None:
        self._attributes = list(release.universe.attributes.values())
        self._names = release.universe.names
        codes, kept = encode_rows(
            release.universe, pa.Table.from_pandas(frame[list(self._names)], preserve_index=False)
        )
        self._codes = [np.asarray(each) for each in codes]
        self.frame = frame[kept]
        self._numeric = [
            axis for axis, each in enumerate(self._attributes) if isinstance(each, Integer | NumberAttribute)
        ]

    def counts(self, axes: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return the true marginal of some columns."""
        found = np.zeros([self._attributes[axis].size for axis in axes])
        np.add.at(found, tuple(self._codes[axis] for axis in axes), 1.0)
        return found

    def condition(self, rng: np.random.Generator) -> tuple[Condition, npt.NDArray[np.bool_], int]:
        """Draw a condition on one to four columns. Return it, which rows satisfy it, and the number of columns."""
        sizes = [each.size for each in self._attributes]
        wanted = min(int(rng.choice(len(NUMBERS_OF_COLUMNS), p=NUMBERS_OF_COLUMNS)) + 1, len(sizes))
        while True:
            axes = sorted(rng.choice(len(sizes), wanted, replace=False).tolist())
            if math.prod(sizes[axis] for axis in axes) <= MOST_CELLS:
                break
        parts, kept = [], np.ones(len(self._codes[0]), dtype=np.bool_)
        for axis in axes:
            cells = question_cells(self._attributes[axis], rng)
            condition, cells = cells_condition(axis, self._attributes[axis], cells)
            parts.append(condition)
            kept &= cells[self._codes[axis]] > 0
        return All(tuple(parts)), kept, len(axes)

    def number(
        self, kind: str, where: Condition, kept: npt.NDArray[np.bool_], rng: np.random.Generator
    ) -> tuple[Number, float] | None:
        """Return a number of these rows, and its true value; None if there are too few rows for it."""
        if kind == "count":
            return Count(where), float(kept.sum())
        if not self._numeric:
            return None
        column = int(rng.choice(self._numeric))
        values = self._values(column)[kept]
        values = values[~np.isnan(values)]
        if len(values) < LEAST_ROWS:
            return None
        match kind:
            case "mean":
                return Mean(column, where), float(values.mean())
            case "sum":
                return Sum(column, where), float(values.sum())
        share = 0.5 if kind == "median" else 0.9
        return Quantile(column, share, where), float(np.quantile(values, share))

    def _values(self, column: int) -> npt.NDArray[np.float64]:
        """Return the true numbers of a column, clipped as declared."""
        attribute = self._attributes[column]
        edges = spread_of(attribute).edges
        values = pd.to_numeric(self.frame[self._names[column]], errors="coerce").to_numpy(dtype=np.float64)
        return np.clip(values, float(edges[0]), float(edges[-1]) - (1 if isinstance(attribute, Integer) else 0))


def question_cells(attribute: Attribute, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Choose cells as an analyst might: mostly a range of an ordered column or one value, sometimes several values. Never all of them."""
    size, cells = attribute.size, np.zeros(attribute.size)
    if attribute.ordered and rng.random() < RANGES:
        first, last = sorted(rng.integers(0, size, 2).tolist())
        cells[first : last + 1] = 1.0
    elif attribute.ordered or rng.random() < SINGLE:
        cells[rng.integers(size)] = 1.0
    else:
        cells[rng.choice(size, rng.integers(1, max(size, 2)), replace=False)] = 1.0
    if cells.all() and size > 1:
        cells[0] = 0.0
    return cells


def cells_condition(
    axis: int, attribute: Attribute, cells: npt.NDArray[np.float64]
) -> tuple[Condition, npt.NDArray[np.float64]]:
    """Return the condition that chosen cells satisfy, and the cells. Nulls are left out, since they satisfy no comparison."""
    term = Term(axis)
    values = category_values(attribute)
    if values is not None:
        chosen = [code for code, value in enumerate(values) if cells[code] and value is not None]
        mask = np.zeros(len(cells))
        mask[chosen] = 1.0
        return Among(term, tuple(values[code] for code in chosen)), mask
    mask = cells.copy()
    mask[attribute.cells :] = 0.0
    inside, edges = np.flatnonzero(mask), spread_of(attribute).edges
    if not len(inside):
        return IsNull(term), np.concatenate([np.zeros(attribute.cells), np.ones(attribute.size - attribute.cells)])
    parts: list[Condition] = [Not(IsNull(term))]
    if inside[0] > 0:
        parts.append(Compare(term, ">=", edges[inside[0]]))
    if inside[-1] < attribute.cells - 1:
        parts.append(Compare(term, "<", edges[inside[-1] + 1]))
    return All(tuple(parts)), mask


@dataclass(frozen=True)
class LeftOut:
    """A control: the error of a count, learned from how well models predict marginals that they were not fitted to.

    The squared error that the noise explains is subtracted, and the rest is taken to grow linearly with the count.
    """

    constant: float
    slope: float

    @classmethod
    def of(cls, release: Release, rng: np.random.Generator) -> "LeftOut":
        """Fit models without a fifth of the rounds' marginals each, and compare."""
        transcript, rows = release.transcript, []
        order = rng.permutation(len(transcript.later))
        for fold in range(FOLDS):
            out = set(order[fold::FOLDS].tolist())
            later = tuple(each for at, each in enumerate(transcript.later) if at not in out)
            model = release.fit(Transcript(transcript.first, later))
            for at in out:
                rows += _rectangles(transcript.later[at], model.marginal(transcript.later[at].axes), rng)
        predicted, squares = np.array(rows).T
        slope, constant = np.polyfit(predicted, squares, 1)
        return cls(float(constant), float(slope))

    def error(self, count: float) -> float:
        """Return the standard error of a count."""
        return math.sqrt(max(self.constant + self.slope * count, 0.0))


def _rectangles(
    measured: Any, expected: npt.NDArray[np.float64], rng: np.random.Generator
) -> Sequence[tuple[float, float]]:
    """Return counts that a model expects in random rectangles, and the squared error that noise does not explain."""
    found = []
    for _ in range(RECTANGLES):
        ends = [sorted(rng.integers(0, size, 2).tolist()) for size in expected.shape]
        inside = tuple(slice(first, last + 1) for first, last in ends)
        predicted = float(expected[inside].sum())
        error = float(measured.values[inside].sum()) - predicted
        found.append((predicted, error**2 - expected[inside].size * measured.noise**2))
    return found
