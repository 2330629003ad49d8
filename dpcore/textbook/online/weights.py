"""The public model of `online`: multiplicative weights over the universe, dense or factored."""

import math

import numpy as np

from dpcore.curator.gate import CountQuery
from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models import DenseModel, FactoredModel, Model
from dpcore.models.model import Weights

DENSE_CELLS = 1 << 20
"""Up to this many cells, the model stores every cell: each query then takes a few milliseconds."""

FACTORED_CELLS = 1 << 24
"""The most cells of a factored model: 128 MB."""

QUERY_CELLS = 1 << 22
"""The most cells of the marginal that a query is a part of."""


def expected_rows(weights: "PublicWeights", query: CountQuery) -> int:
    """Return the number of rows that the model expects, rounded to a whole number."""
    return round(float(query.on(weights.model.marginal(query.axes))))


def weights_for(shape: tuple[int, ...]) -> "PublicWeights":
    """Return the uniform distribution in the form that suits the universe's size."""
    return DenseWeights(shape) if math.prod(shape) <= DENSE_CELLS else FactoredWeights(shape)


class PublicWeights:
    """A distribution that can be multiplied along a query: a function for each set of columns that was learned. Their sum is its logarithm.

    Attributes:
        model: The distribution as a model. All forms hold the same distribution for the same history.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._functions: dict[Axes, Weights] = {}

    def check(self, query: CountQuery) -> None:
        """Raise if the model would become too large, before anything is compared or paid for."""

    def learn(self, query: CountQuery, step: float) -> None:
        """Add the step to the function of the query's columns, and compute the distribution again."""
        if query.axes:  # a factor for all cells alike changes nothing
            function = self._functions.setdefault(query.axes, np.zeros(query.cells.shape))
            function += step * query.cells
            self.model.assign(self._functions)


class DenseWeights(PublicWeights):
    """Every cell of the universe has its weight. So every query is a part of the stored cells."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(DenseModel(shape, total=1.0))


class FactoredWeights(PublicWeights):
    """A factored model, for universes of any size."""

    model: FactoredModel

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(FactoredModel(Resolutions(shape), total=1.0))

    def check(self, query: CountQuery) -> None:
        """Raise if the model would become too large, before anything is compared or paid for."""
        if query.cells.size > QUERY_CELLS:
            raise UsageError(
                f"the query joins {query.cells.size:,} cells, and at most {QUERY_CELLS:,} are possible; use fewer of its columns at once"
            )
        cells = self.model.cells_with(query.axes) if query.axes else 0
        if cells > FACTORED_CELLS:
            raise UsageError(
                f"learning this query could take a model of {cells:,} cells, and at most {FACTORED_CELLS:,} are possible; ask about columns "
                "that earlier hard queries have joined, or about fewer columns at once"
            )
