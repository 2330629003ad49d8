"""A column on several models at once: the same pieces of cells, within which each model distributes values in its own way."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpcore.answers.cells import Column, Floats, Indices
from dpcore.universe import Attribute


@dataclass(frozen=True, eq=False)
class Varied:
    """A column as each of several models sees it.

    Attributes:
        each: The column of each model. All have the same pieces.
    """

    each: tuple[Column, ...]

    @property
    def attribute(self) -> Attribute:
        """The column itself."""
        return self.each[0].attribute

    @property
    def cell(self) -> Indices:
        """The cell of each piece."""
        return self.each[0].cell

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return self.each[0].pieces

    @cached_property
    def share(self) -> Floats:
        """The share of its cell that is in each piece, by each model."""
        return np.stack([column.share for column in self.each])

    @cached_property
    def means(self) -> Floats:
        """The mean value of each piece, by each model."""
        return np.stack([column.means for column in self.each])
