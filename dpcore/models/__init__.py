"""Public distributions over the universe: everything here is a function of what was measured, never of the data."""

from dpcore.models.dense import MAX_CELLS, DenseModel
from dpcore.models.model import Model, Weights, update_towards

__all__ = ["MAX_CELLS", "DenseModel", "Model", "Weights", "update_towards"]
