"""Whole numbers in bins of different widths, as `discover` finds them in the data."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.universe.attribute import Codes
from dpcore.universe.numeric import Integer
from dpcore.universe.places import Places, cut
from dpcore.universe.reading import AnyIntegers, Integers


@dataclass(frozen=True, kw_only=True)
class UnevenInteger(Integer):
    """Whole numbers from minimum to maximum, both inclusive. A new bin starts at each cut.

    >>> UnevenInteger(minimum=0, maximum=99, cuts=(1, 10)).labels
    ('0', '[1, 10)', '[10, 100)')
    """

    cuts: tuple[int, ...]

    def __post_init__(self) -> None:
        """Reject cuts that do not ascend between the bounds."""
        object.__setattr__(self, "cuts", tuple(self.cuts))
        if any(isinstance(start, bool) or not isinstance(start, int) for start in self.cuts):
            raise SpecError("the cuts of an integer attribute must be whole numbers")
        super().__post_init__()
        if any(low >= high for low, high in pairwise((self.minimum, *self.cuts, self.maximum + 1))):
            raise SpecError("the cuts of an integer attribute must ascend, above the minimum and up to the maximum")
        if self.width != 1:
            raise SpecError("an integer attribute has either cuts or a width: leave the width out")

    @property
    def cells(self) -> int:
        """Number of bins."""
        return len(self.cuts) + 1

    @cached_property
    def _bounds(self) -> Integers:
        return np.array([self.minimum, *self.cuts, self.maximum + 1], dtype=np.int64)

    def _cell_labels(self) -> tuple[str, ...]:
        bounds = self._bounds.tolist()
        return tuple(str(low) if high == low + 1 else f"[{low}, {high})" for low, high in pairwise(bounds))

    def _bin_whole(self, values: AnyIntegers) -> Places:
        if values.dtype == np.uint64:  # NumPy would compare these with the bounds as doubles
            values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
        return cut(values.astype(np.int64, copy=False), self._bounds)

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        return rng.integers(self._bounds[cells], self._bounds[cells + 1])
