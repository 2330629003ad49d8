"""Public distributions over the universe: everything here is a function of noisy measurements, never of the data."""

from dpcore.models.dense import MAX_CELLS, DenseModel
from dpcore.models.evidence import Evidence
from dpcore.models.factored import FactoredModel
from dpcore.models.model import Model, Weights
from dpcore.models.refine import Functions, refine

__all__ = ["MAX_CELLS", "DenseModel", "Evidence", "FactoredModel", "Functions", "Model", "Weights", "refine"]
