"""Fit a model to the measurements of a release: first to those made before the rounds, then to all of them.

The strategies fit their last model by these functions, and so does everybody who restores it from a release. Measurements and their order
determine the model: on one machine it is the same to the last bit.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models.dense import DenseModel
from dpcore.models.evidence import UNORDERED, Evidence, Orders
from dpcore.models.factored import FactoredModel
from dpcore.models.model import Model, Weights
from dpcore.models.refine import Functions, affordable_tries, refine
from dpcore.models.start import UNIFORM, Start
from dpcore.models.trends import keep_trends

FIRST_TRIES, LAST_TRIES = 50, 400  # evaluations of the model
FEWEST_LAST_TRIES = 60  # of a large dense model


@dataclass(frozen=True)
class Transcript:
    """The measurements that a model is fitted to, in their order.

    Attributes:
        first: The measurements made before the rounds, which make the first model.
        later: The measurement of each round.
    """

    first: tuple[Measurement, ...]
    later: tuple[Measurement, ...]

    @classmethod
    def of(cls, measurements: Iterable[Measurement]) -> "Transcript":
        """Split the measurements of a strategy by the names of their steps."""
        parts: tuple[list[Measurement], list[Measurement]] = [], []
        for measurement in measurements:
            parts[in_round(measurement.step)].append(measurement)
        return cls(*map(tuple, parts))


@dataclass(frozen=True, eq=False)
class How:
    """How a model is fitted, if otherwise than in a run.

    Attributes:
        per_cell: Parameters that the last model may fit for each cell that stands out; None as in a run. More give a rougher model.
        tries: The most evaluations for the last refinement; None as in a run.
        start: The functions from which the last refinement starts; None for those of the first model.
        smooth: Whether the counts of ordered columns are smoothed.
    """

    per_cell: float | None = None
    tries: int | None = None
    start: Functions | None = None
    smooth: bool = True

    def at_most(self, tries: int) -> int:
        """Return the number of tries, if a run takes so many."""
        return tries if self.tries is None else min(tries, self.tries)


def in_round(step: str) -> bool:
    """Return whether a step belongs to a round.

    >>> in_round("round-007/measure"), in_round("one-way/01-round-007/measure")
    (True, False)
    """
    return step.startswith("round-")


def last_tries(cells: int) -> int:
    """Return the most evaluations for the last refinement of a dense model with `cells` cells."""
    return affordable_tries(cells, most=LAST_TRIES, least=FEWEST_LAST_TRIES)


def new_model(
    columns: Sequence[int] | Resolutions,
    *,
    total: float,
    start: Functions = UNIFORM.functions,
    zeros: Zeros = NO_ZEROS,
) -> Model:
    """Return a dense model of columns with these numbers of cells, or a factored model of columns at these resolutions."""
    if isinstance(columns, Resolutions):
        return FactoredModel(columns, total=total, start=start, zeros=zeros)
    return DenseModel(tuple(columns), total=total, start=start, zeros=zeros)


def fit_first(model: Model, evidence: Evidence) -> Functions:
    """Fit the first model, and return its functions."""
    return refine(model, evidence, {}, tries=FIRST_TRIES, per_cell=model.PER_CELL)


def fit_last(  # noqa: PLR0913  all that a fit depends on
    model: Model,
    evidence: Evidence,
    base: Functions,
    *,
    orders: Orders,
    how: How | None = None,
    start: Start = UNIFORM,
) -> Functions:
    """Build the last model from the first one, so that early measurements have no more influence than late ones.

    `start` is where the model started: it tells how many parameters the measurements deserve.
    """
    how = how or How()
    per_cell = start.news * (model.PER_CELL if how.per_cell is None else how.per_cell)
    tries = last_tries(math.prod(model.shape)) if isinstance(model, DenseModel) else LAST_TRIES
    functions = refine(model, evidence, base, tries=how.at_most(tries), per_cell=per_cell)
    return keep_trends(model, evidence, functions, orders=orders)


def fit(  # noqa: PLR0913  likewise
    columns: Sequence[int] | Resolutions,
    transcript: Transcript,
    *,
    orders: Orders,
    zeros: Zeros = NO_ZEROS,
    how: How | None = None,
    model: Model | None = None,
    start: Start = UNIFORM,
) -> tuple[Model, Functions]:
    """Return the model of a transcript, and its functions.

    Args:
        columns: As for `new_model`.
        transcript: The measurements.
        orders: The ordered columns.
        zeros: What constraints exclude.
        how: How it is fitted.
        model: A model of these columns and this start, fitted to the same marginals. It is used again, which saves memory and the time of
            building its junction tree. Its distribution does not matter.
        start: Where the model starts.
    """
    how = how or How()
    evidence = Evidence.of(transcript.first, orders if how.smooth else UNORDERED)
    first = model
    if not isinstance(first, DenseModel):  # without room for the rounds, a factored model is faster
        first = new_model(columns, total=evidence.total, start=start.functions, zeros=zeros)
    first.rescale(evidence.total)
    base = fit_first(first, evidence) if how.start is None else how.start
    model = model or first
    for measurement in transcript.later:
        evidence.add(measurement)
    model.make_room_in_turn(measurement.axes for measurement in transcript.later)
    model.rescale(evidence.total)
    return model, fit_last(model, evidence, base, orders=orders, how=how, start=start)


@dataclass(frozen=True)
class SignedSteps:
    """The updates of `pmw`: a count that the model gets wrong by more than 2 alpha is multiplied by 1 + rate or 1 - rate.

    Attributes:
        rate: The size of a step, below 1.
        alpha: The target error, as a share of the rows.
    """

    rate: float
    alpha: float

    @classmethod
    def of(cls, shape: Sequence[int], *, rounds: int, alpha: float) -> "SignedSteps":
        """Return the steps for a universe and a number of rounds."""
        return cls(math.sqrt(math.log(max(math.prod(shape), 2)) / rounds), alpha)

    def take(self, model: DenseModel, functions: dict[Axes, Weights], measurement: Measurement) -> bool:
        """Correct the model and its functions by a measured count. Return False, and change nothing, if the model is accurate enough."""
        axes, cell = measurement.axes, measurement.cell or 0
        marginal = model.marginal(axes)
        error = float(marginal.ravel()[cell]) - float(measurement.values[0])
        if abs(error) <= 2 * self.alpha * model.total:
            return False
        function = functions.setdefault(axes, np.zeros(marginal.shape))
        function.ravel()[cell] += math.log1p(-math.copysign(self.rate, error))
        model.assign(functions)
        return True

    def fitted(
        self, shape: Sequence[int], transcript: Transcript, *, zeros: Zeros = NO_ZEROS
    ) -> tuple[DenseModel, Functions]:
        """Return the model of a transcript, whose first measurement is the number of rows, and its functions."""
        model = DenseModel(tuple(shape), total=counted_total(transcript.first[0]), zeros=zeros)
        functions: dict[Axes, Weights] = {}
        for measurement in transcript.later:
            self.take(model, functions, measurement)
        return model, functions


def counted_total(measurement: Measurement) -> float:
    """Return the number of rows, at least 1, by a measured total."""
    return max(1.0, float(measurement.values.sum()))
