"""Integers and decimal numbers at full resolution."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import lcm
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.universe.attribute import Codes
from dpcore.universe.leaves import Fine, Leaves
from dpcore.universe.numeric import Integer, Number
from dpcore.universe.places import Places, cut
from dpcore.universe.reading import AnyIntegers, Integers

LARGEST = 2**51  # up to here no multiple of a step is rounded to an edge between two of them

MOST_DECIMALS = 22  # a double holds the powers of ten up to 10^22
MOST_BITS = 1000  # a power of two may be a longer denominator, but not beyond the range of doubles


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
    def places(self) -> int:
        """One for each number."""
        return self.maximum - self.minimum + 1

    def cut_at(self, starts: Sequence[int] | None, *, leaves: Leaves | None = None) -> Self:
        """Return the column with other cells."""
        return replace(self, starts=None if starts is None else tuple(starts), leaves=leaves)

    @cached_property
    def _bounds(self) -> Integers:
        return self.cell_bounds + self.minimum

    def _cell_labels(self) -> tuple[str, ...]:
        bounds = self._bounds.tolist()
        return tuple(str(low) if high == low + 1 else f"[{low}, {high})" for low, high in pairwise(bounds))

    def _bin_whole(self, values: AnyIntegers) -> Places:
        if values.dtype == np.uint64:  # NumPy would compare these with the bounds as doubles
            values = np.minimum(values, np.uint64(np.iinfo(np.int64).max))
        return cut(values.astype(np.int64, copy=False), self._bounds)

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        return self.minimum + self._draw_places(cells, rng)


@dataclass(frozen=True)
class Scale:
    """The multiples of a step from a lowest to a highest number: (low + place x step) / per, all whole, so that values are exact.

    >>> Scale.of(Fraction("0"), Fraction("0.3"), step=Fraction("0.01")).values(np.array([29, 30])).tolist()
    [0.29, 0.3]
    """

    low: int
    step: int
    per: int
    size: int

    @classmethod
    def of(cls, low: Fraction, high: Fraction, *, step: Fraction) -> "Scale":
        """Return the scale.

        Raises:
            SpecError: If the step does not divide the range, or a double cannot hold every multiple.
        """
        steps = (high - low) / step
        if steps.denominator != 1:
            raise SpecError(
                "`step` does not divide the range from `min` to `max`; write a `max` that is `min` plus whole steps"
            )
        per = lcm(low.denominator, step.denominator)
        if max(abs(low), abs(high)) * per > LARGEST:
            raise SpecError(
                f"the range has too many steps to be exact: `min` and `max` may be at most 2^51 (about 2.2e15) times {Fraction(1, per)}; "
                "write a larger `step`, or a narrower range"
            )
        if per.bit_length() > MOST_BITS or int(float(per)) != per:
            raise SpecError(
                f"`min`, `max` and `step` may have at most {MOST_DECIMALS} decimal places, since doubles would round the numbers between "
                "them; write a larger `step`, or declare the column in a smaller unit"
            )
        return cls(low=int(low * per), step=int(step * per), per=per, size=int(steps) + 1)

    def values(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the doubles nearest to the numbers at these places."""
        return (self.low + places * self.step) / np.float64(self.per)

    def lower_edges(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the lower edges of these places, all above 0: as `edges` does, since numerator and denominator are exact doubles."""
        return (2 * self.low + (2 * places - 1) * self.step) / np.float64(2 * self.per)

    def edges(self, starts: Sequence[int]) -> tuple[float, ...]:
        """Return the edges of cells: half a step below the first number of each, since values are read as the nearest number."""
        inner = ((2 * self.low + (2 * start - 1) * self.step) / (2 * self.per) for start in starts)
        return (self.low / self.per, *inner, (self.low + (self.size - 1) * self.step) / self.per)


@dataclass(frozen=True, kw_only=True)
class FineNumber(Fine, Number):
    """Multiples of a step from a lowest to a highest number, both inclusive. Other numbers are read as the nearest multiple.

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
    def places(self) -> int:
        """One for each multiple."""
        return self.scale.size

    def cut_at(self, starts: Sequence[int] | None, *, leaves: Leaves | None = None) -> Self:
        """Return the column with other cells."""
        return replace(self, starts=None if starts is None else tuple(starts), leaves=leaves)

    def _cell_labels(self) -> tuple[str, ...]:
        bounds = self.cell_bounds
        first = [_text(number) for number in self.scale.values(bounds[:-1]).tolist()]
        after = [*first[1:], _text(self.edges[-1])]
        ends = [")"] * (self.cells - 1) + ["]"]
        single = (np.diff(bounds) == 1).tolist()
        return tuple(
            low if alone else f"[{low}, {high}{end}"
            for low, high, end, alone in zip(first, after, ends, single, strict=True)
        )

    def _draw(self, cells: Codes, rng: np.random.Generator) -> npt.NDArray[Any]:
        return self.scale.values(self._draw_places(cells, rng))


def _text(number: float) -> str:
    return repr(number).removesuffix(".0")
