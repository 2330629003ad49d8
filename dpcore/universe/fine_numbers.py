"""Integers and decimal numbers at full resolution."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.universe.attribute import Codes
from dpcore.universe.leaves import Fine, Scale
from dpcore.universe.numeric import Integer, Integers, Number, interval_labels, short


@dataclass(frozen=True, kw_only=True)
class FineInteger(Fine, Integer):
    """Whole numbers from minimum to maximum, both inclusive, each of them a place.

    >>> FineInteger(minimum=0, maximum=99, starts=(1, 40, 41)).labels
    ('0', '[1, 40)', '40', '[41, 100)')
    """

    def __post_init__(self) -> None:
        """Reject what an integer attribute rejects."""
        super().__post_init__()
        if self.width != 1:
            raise SpecError("an integer at full resolution has no width: leave it out")

    @property
    def line(self) -> Scale:
        """The numbers."""
        return Scale(low=self.minimum, step=1, per=1, size=self.maximum - self.minimum + 1)

    @cached_property
    def whole_bounds(self) -> Integers:
        """The first number of each cell, and the one after the maximum."""
        return self.cell_bounds + self.minimum

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        return self.minimum + self._draw_places(cells, rng)


@dataclass(frozen=True, kw_only=True)
class FineNumber(Fine, Number):
    """Multiples of a step from a lowest to a highest number, both inclusive. Other numbers are read as the nearest multiple.

    >>> from fractions import Fraction
    >>> scale = Scale.of(Fraction(0), Fraction(100), step=Fraction("0.5"))
    >>> FineNumber(scale=scale, starts=(1, 2)).labels
    ('0', '0.5', '[1, 100]')
    """

    scale: Scale
    edges: tuple[float, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        """Derive the edges from the cells."""
        object.__setattr__(self, "edges", self.scale.edges(self._inner))
        super().__post_init__()

    @property
    def line(self) -> Scale:
        """The multiples."""
        return self.scale

    @property
    def first_place(self) -> int:
        """Zero: multiples are counted from the lowest one."""
        return 0

    def _cell_labels(self) -> tuple[str, ...]:
        numbers = self.scale.values(np.append(self.cell_bounds[:-1], self.places - 1)).tolist()
        return interval_labels(map(short, numbers), alone=np.diff(self.cell_bounds) == 1, last="]")

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        return self.scale.values(self._draw_places(cells, rng))
