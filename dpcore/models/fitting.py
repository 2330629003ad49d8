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
from dpcore.models.model import Weights
from dpcore.models.refine import Functions, refine
from dpcore.models.start import UNIFORM, Start
from dpcore.models.trends import keep_trends

FIRST_TRIES, LAST_TRIES = 50, 400  # evaluations of the model
LAST_CELL_TRIES = 4e8  # a large dense model gets fewer last tries, so that tries x cells stays below this
FEWEST_LAST_TRIES = 60  # but at least these
# Parameters that a model may fit for each cell that stands out of its noise
DENSE_PER_CELL, FACTORED_PER_CELL = 0.5, 0.9


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
        every = tuple(measurements)
        later = tuple(each for each in every if in_round(each.step))
        return cls(tuple(each for each in every if not in_round(each.step)), later)


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
    return max(FEWEST_LAST_TRIES, min(LAST_TRIES, int(LAST_CELL_TRIES / cells)))


def first_dense(model: DenseModel, evidence: Evidence) -> Functions:
    """Fit the first model."""
    return refine(model, evidence, {}, tries=FIRST_TRIES, per_cell=DENSE_PER_CELL)


def last_dense(  # noqa: PLR0913  all that a fit depends on
    model: DenseModel,
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
    per_cell = start.news * (DENSE_PER_CELL if how.per_cell is None else how.per_cell)
    functions = refine(model, evidence, base, tries=how.at_most(last_tries(math.prod(model.shape))), per_cell=per_cell)
    return keep_trends(model, evidence, functions, resolutions=Resolutions(model.shape), orders=orders)


def first_factored(model: FactoredModel, evidence: Evidence) -> Functions:
    """Fit the first model."""
    return refine(model, evidence, {}, tries=FIRST_TRIES, per_cell=FACTORED_PER_CELL)


def last_factored(  # noqa: PLR0913  likewise
    model: FactoredModel,
    evidence: Evidence,
    base: Functions,
    *,
    orders: Orders,
    how: How | None = None,
    start: Start = UNIFORM,
) -> Functions:
    """Build the last model from the first one, likewise."""
    how = how or How()
    per_cell = start.news * (FACTORED_PER_CELL if how.per_cell is None else how.per_cell)
    functions = refine(model, evidence, base, tries=how.at_most(LAST_TRIES), per_cell=per_cell)
    return keep_trends(model, evidence, functions, resolutions=model.resolutions, orders=orders)


def fit_dense(  # noqa: PLR0913  likewise
    shape: Sequence[int],
    transcript: Transcript,
    *,
    orders: Orders,
    zeros: Zeros = NO_ZEROS,
    how: How | None = None,
    model: DenseModel | None = None,
    start: Start = UNIFORM,
) -> tuple[DenseModel, Functions]:
    """Return the dense model of a transcript, and its functions.

    Args:
        shape: The number of cells of each column.
        transcript: The measurements.
        orders: The ordered columns.
        zeros: What constraints exclude.
        how: How it is fitted.
        model: A model of this shape and start that is used again, to save its memory. What it was before does not matter.
        start: Where the model starts.
    """
    how = how or How()
    evidence = _evidence(transcript.first, orders=orders if how.smooth else UNORDERED)
    model = model or DenseModel(tuple(shape), total=evidence.total, start=start.functions, zeros=zeros)
    if (base := how.start) is None:
        model.rescale(evidence.total)
        base = first_dense(model, evidence)
    for each in transcript.later:
        evidence.add(each)
    model.rescale(evidence.total)
    return model, last_dense(model, evidence, base, orders=orders, how=how, start=start)


def plain_dense(
    shape: tuple[int, ...], transcript: Transcript, *, orders: Orders, zeros: Zeros = NO_ZEROS
) -> tuple[DenseModel, Functions]:
    """Return the first model that starts from the uniform distribution, scaled to the rows by all measurements, and its functions."""
    model = DenseModel(shape, total=(evidence := _evidence(transcript.first, orders=orders)).total, zeros=zeros)
    base = first_dense(model, evidence)
    model.rescale(_evidence((*transcript.first, *transcript.later), orders=orders).total)
    return model, base


def fit_factored(  # noqa: PLR0913  likewise
    resolutions: Resolutions,
    transcript: Transcript,
    *,
    orders: Orders,
    zeros: Zeros = NO_ZEROS,
    how: How | None = None,
    model: FactoredModel | None = None,
    start: Start = UNIFORM,
) -> tuple[FactoredModel, Functions]:
    """Return the factored model of a transcript, and its functions. The arguments are those of `fit_dense`.

    A `model` that is used again must have been fitted to the same marginals. Its junction tree then need not be built again.
    """
    how = how or How()
    evidence = _evidence(transcript.first, orders=orders if how.smooth else UNORDERED)
    first = FactoredModel(resolutions, total=evidence.total, start=start.functions, zeros=zeros)
    base = first_factored(first, evidence) if how.start is None else how.start
    if model is None:
        model = first
    for each in transcript.later:
        evidence.add(each)
        model.make_room([each.axes])  # one after the other, as in the rounds: their order decides the tree
    model.rescale(evidence.total)
    return model, last_factored(model, evidence, base, orders=orders, how=how, start=start)


def plain_factored(
    resolutions: Resolutions, transcript: Transcript, *, orders: Orders, zeros: Zeros = NO_ZEROS
) -> tuple[FactoredModel, Functions]:
    """Return the same for a factored model, with room for all measurements."""
    model = FactoredModel(
        resolutions, total=(evidence := _evidence(transcript.first, orders=orders)).total, zeros=zeros
    )
    base = first_factored(model, evidence)
    for each in transcript.later:
        model.make_room([each.axes])
    model.rescale(_evidence((*transcript.first, *transcript.later), orders=orders).total)
    return model, base


def _evidence(measurements: Iterable[Measurement], *, orders: Orders) -> Evidence:
    evidence = Evidence(orders)
    for each in measurements:
        evidence.add(each)
    return evidence


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

    def take(self, model: DenseModel, measurement: Measurement) -> bool:
        """Correct the model by a measured count. Return False, and change nothing, if the model is accurate enough."""
        marginal = model.marginal(measurement.axes)
        cell = measurement.cell or 0
        error = float(marginal.ravel()[cell]) - float(measurement.values[0])
        if abs(error) <= 2 * self.alpha * model.total:
            return False
        factor = np.ones(marginal.shape)
        factor.ravel()[cell] -= math.copysign(self.rate, error)
        model.multiply(measurement.axes, factor)
        return True

    def fitted(
        self, shape: Sequence[int], transcript: Transcript, *, zeros: Zeros = NO_ZEROS
    ) -> tuple[DenseModel, Functions]:
        """Return the model of a transcript, whose first measurement is the number of rows, and its functions."""
        model = DenseModel(tuple(shape), total=counted_total(transcript.first[0]), zeros=zeros)
        functions: dict[Axes, Weights] = {}
        for each in transcript.later:
            before, cell = model.marginal(each.axes), each.cell or 0
            if self.take(model, each):
                error = float(before.ravel()[cell]) - float(each.values[0])
                function = functions.setdefault(each.axes, np.zeros(before.shape))
                function.ravel()[cell] += math.log1p(-math.copysign(self.rate, error))
        return model, functions


def counted_total(measurement: Measurement) -> float:
    """Return the number of rows, at least 1, by a measured total."""
    return max(1.0, float(measurement.values.sum()))
