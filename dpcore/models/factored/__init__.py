"""A model for universes of any size: the multiplicative-weights distribution as functions on a junction tree."""

from dpcore.models.factored.model import BYTES_PER_CELL, FactoredModel

__all__ = ["BYTES_PER_CELL", "FactoredModel"]
