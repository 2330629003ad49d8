"""Find the bin of a number without a binary search: in a table of whole numbers, or by its slot in an even grid and one comparison."""

from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.tables.reading.places import ABOVE, BELOW, NULL, Places, signed_type

Floats = npt.NDArray[np.float64]

_SLOTS = tuple(1 << bits for bits in (6, 8, 10, 12, 14, 16))


class Grid:
    """Places numbers in the bins [bounds[i], bounds[i + 1]), with exactly the results of a binary search.

    The slot is a monotone function of the number despite rounding, because each step of its computation is monotone. Bounds in earlier
    slots are therefore at most the number, and bounds in later slots are above it. Only a bound in the number's own slot has to be
    compared. If no grid of a useful size has at most one bound per slot, the bounds are searched instead.

    >>> Grid(np.array([0.0, 1.0, 10.0])).place(np.array([-1.0, 0.5, 1.0, 9.9, 10.0, np.nan])).tolist()
    [-2, 0, 1, 1, -3, -1]
    """

    def __init__(self, bounds: Floats) -> None:
        self._bounds = bounds
        self._kind = signed_type(len(bounds) + 1)
        self._scale, self._before, self._within = 0.0, np.empty(0, dtype=self._kind), np.empty(0)
        self._whole: Places | None = None
        with np.errstate(all="ignore"):
            width = float(bounds[-1] - bounds[0])
            if width < 1 << 18 and (bounds == np.floor(bounds)).all():
                bins = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds).astype(np.int64))
                self._whole = np.array([BELOW, *bins, ABOVE], dtype=self._kind)
            for slots in _SLOTS:
                scale = slots / width
                if isfinite(scale) and scale > 0 and self._suits(scale, slots):
                    return

    def _suits(self, scale: float, slots: int) -> bool:
        """Build the tables of a grid and return True, unless two bounds share a slot."""
        taken = self._slot(self._bounds, scale, slots)
        if len(np.unique(taken)) < len(taken):
            return False
        self._scale = scale
        self._before = (np.searchsorted(taken, np.arange(slots)) - 1).astype(self._kind)
        self._within = np.full(slots, np.inf)
        self._within[taken] = self._bounds
        return True

    def _slot(self, values: Floats, scale: float, slots: int) -> npt.NDArray[np.intp]:
        shifted = values - self._bounds[0]
        shifted *= scale
        np.clip(shifted, 0, slots - 1, out=shifted)
        return np.asarray(shifted.astype(np.intp))

    def place(self, values: npt.NDArray[Any]) -> Places:
        """Return the place of each number, independently of the others. NaN is a null."""
        if values.dtype.kind != "f" and self._whole is not None:
            limits, before, end = np.iinfo(values.dtype), int(self._bounds[0]) - 1, int(self._bounds[-1])
            if not limits.min <= before < end <= limits.max:
                values = np.minimum(values, min(limits.max, 2**63 - 1)).astype(np.int64)
            return np.asarray(self._whole.take(np.subtract(np.clip(values, before, end), before, dtype=np.intp)))
        values = values.astype(np.float64, copy=False)
        if self._scale:
            with np.errstate(over="ignore", invalid="ignore"):
                slots = self._slot(values, self._scale, len(self._within))
            # The slot of NaN is meaningless and clipped into the tables; its place is set at the end.
            places: Places = self._before.take(slots, mode="clip")
            places += values >= self._within.take(slots, mode="clip")
        else:
            places = (np.searchsorted(self._bounds, values, side="right") - 1).astype(self._kind)
        if places.size and (places.min() < 0 or places.max() >= len(self._bounds) - 1):
            np.putmask(places, values < self._bounds[0], BELOW)
            np.putmask(places, values >= self._bounds[-1], ABOVE)
        null = np.isnan(values)
        if null.any():
            np.putmask(places, null, NULL)
        return places
