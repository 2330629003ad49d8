"""Marginals that are multiplied along each column by a matrix: how many rows satisfy conditions on single columns, by groups of others."""

from collections.abc import Sequence

from dpcore.marginals.workload import Axes
from dpcore.models.factored import FactoredModel
from dpcore.models.model import Matrix, Model, Weights


def projected(model: Model, axes: Axes, matrices: Sequence[Matrix]) -> Weights:
    """Return the counts that a model expects in some columns, multiplied along each by a matrix.

    Args:
        model: The model.
        axes: The columns, ascending.
        matrices: For each column, a row for each of its cells and a column for each result; None keeps the cells.
    """
    if isinstance(model, FactoredModel):
        return model.projected(axes, matrices)
    return contracted(model.marginal(axes), matrices)


def contracted(array: Weights, matrices: Sequence[Matrix]) -> Weights:
    """Multiply an array along each of its dimensions by a matrix.

    >>> import numpy as np
    >>> contracted(np.array([[1.0, 2.0], [3.0, 4.0]]), [np.array([[1.0], [1.0]]), None]).tolist()
    [[4.0, 6.0]]
    """
    shape, after = [], 1
    for cells, matrix in zip(reversed(array.shape), reversed(matrices), strict=True):
        if matrix is not None:
            is_last = after == 1  # a product of two matrices
            array = array.reshape(-1, cells) @ matrix if is_last else matrix.T @ array.reshape(-1, cells, after)
        shape.append(cells if matrix is None else matrix.shape[1])
        after *= shape[-1]
    return array.reshape(shape[::-1])
