"""Represent real values as whole multiples of a declared step, so that their noise is whole as well.

The last bits of a float plus float noise reveal the float: some floats near the answer can be reached from one table and
not from its neighbour (Mironov 2012). So each value is rounded to a multiple of the step by itself, before anything is
added. Sums and noise are whole numbers of steps, and only the noisy result is converted to a float.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError, UsageError
from dpcore.mechanisms.descriptions import Description, number_in
from dpcore.scalars import is_number
from dpcore.tables.reading import values
from dpcore.tables.reading.column import place_column
from dpcore.tables.reading.nulls import named_nulls
from dpcore.tables.reading.places import ABOVE, BELOW, NULL, Places, outside_or
from dpcore.tables.sources.layout import stored_type
from dpcore.universe import Attribute, Integer, Number, Outside
from dpcore.universe.attribute import checked_nulls

Steps: TypeAlias = npt.NDArray[np.int64]
Usable: TypeAlias = npt.NDArray[np.bool_]
Step: TypeAlias = Fraction | Decimal | int | float | str

MOST_STEPS = 1 << 30
"""The farthest a value may be from 0, in steps. The sum of 2^32 such values, more rows than a machine holds, fits in 64 bits."""

_SMALLEST, _LARGEST = Fraction(1, 10**250), Fraction(10**250)


@dataclass(frozen=True, kw_only=True)
class ValueGrid:
    """The multiples of a step within declared bounds, and the conversion of a private column to them.

    Each value is clipped to the bounds, then rounded to the nearest multiple (ties up). However float arithmetic rounds, the
    outcome is one of the whole numbers `lowest` .. `highest` and depends on that value alone, which is all that a
    sensitivity relies on. These have no usable value: nulls, NaN, text that is not a number, and values outside the bounds
    unless the attribute clips them.

    >>> ages = ValueGrid.of(Integer(minimum=18, maximum=99), step=1)
    >>> steps, usable = ages.read(pa.array(["20", "150", "none of your business", None]))
    >>> steps[usable].tolist()
    [20, 99]
    >>> ValueGrid.of(Number((0, 1)), step=0)
    Traceback (most recent call last):
    dpcore.errors.UsageError: a step must be above 0; declare the spacing of the grid, such as "0.01"

    Attributes:
        minimum: The lower bound of the declared attribute.
        maximum: Its upper bound.
        step: The exact spacing of the grid's points. 0 is one of them.
        whole: Whether a fraction is rounded down first, as an Integer attribute does.
        outside: The policy for values beyond the bounds.
        nulls: Texts that stand for null.
    """

    minimum: float
    maximum: float
    step: Fraction
    whole: bool
    outside: Outside
    nulls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that the bounds contain a grid, and that its sums fit in 64 bits."""
        object.__setattr__(self, "nulls", checked_nulls(self.nulls))
        object.__setattr__(self, "step", exact_step(self.step))
        for name in ("minimum", "maximum"):
            bound = getattr(self, name)
            if not is_number(bound) or not abs(bound) <= 1e300:
                raise UsageError("the bounds of a grid must be finite numbers; declare them in the attribute")
            object.__setattr__(self, name, float(bound))
        if not self.minimum < self.maximum:
            raise UsageError("a grid's minimum must be below its maximum; declare the range of the values")
        if self.lowest >= self.highest:
            raise UsageError("the step is larger than the declared range; choose a smaller step")
        if self.reach > MOST_STEPS:
            least = float(max(abs(Fraction(self.minimum)), abs(Fraction(self.maximum))) / MOST_STEPS)
            raise UsageError(
                f"sums on this fine a grid could exceed 64 bits; choose a coarser step, of at least {least:.3g}"
            )

    @classmethod
    def of(cls, attribute: Attribute, *, step: Step) -> Self:
        """Return the grid of a numeric attribute's declared range.

        Args:
            attribute: An Integer or a Number. Its bins do not matter here.
            step: The spacing: a fraction, a whole number, or a decimal as text. A float is taken at its binary value.
        """
        if isinstance(attribute, Integer):
            low, high, whole = float(attribute.minimum), float(attribute.maximum), True
        elif isinstance(attribute, Number):
            low, high, whole = attribute.edges[0], attribute.edges[-1], False
        else:
            raise UsageError("only an Integer or a Number attribute has values to add up; count other columns instead")
        exact = exact_step(step)
        return cls(minimum=low, maximum=high, step=exact, whole=whole, outside=attribute.outside, nulls=attribute.nulls)

    @classmethod
    def from_description(cls, description: Mapping[str, object]) -> Self:
        """Rebuild the grid from a description."""
        try:
            return cls(
                minimum=number_in(description, "minimum"),
                maximum=number_in(description, "maximum"),
                step=exact_step(str(description.get("step"))),
                whole={"whole": True, "real": False}[str(description.get("values"))],
                outside=Outside(str(description.get("outside"))),
                nulls=tuple(json.loads(str(description.get("nulls")))),
            )
        except (KeyError, ValueError, TypeError, SpecError):
            raise UsageError("this description has no complete grid; record it with describe()") from None

    @cached_property
    def lowest(self) -> int:
        """The least number of steps that a value can become."""
        return self.nearest(self.minimum)

    @cached_property
    def highest(self) -> int:
        """The largest number of steps that a value can become."""
        return self.nearest(self.maximum)

    @property
    def reach(self) -> int:
        """The farthest that a value can be from 0, in steps."""
        return max(abs(self.lowest), abs(self.highest))

    @property
    def width(self) -> int:
        """The distance between the bounds, in steps."""
        return self.highest - self.lowest

    def reads(self, kind: pa.DataType) -> bool:
        """Return whether a column of this Arrow type can hold numbers."""
        flat = stored_type(kind)
        return bool(pa.types.is_null(flat)) or values.is_text(flat) or values.is_number(flat)

    def read(self, column: pa.Array | pa.ChunkedArray) -> tuple[Steps, Usable]:
        """Return each row's value in steps, and a mask of the rows that have a usable value. Never raises or logs."""
        places = place_column(column, self._place).astype(np.int64)
        if self.outside is Outside.CLIP:
            np.putmask(places, places == BELOW, 0)
            np.putmask(places, places == ABOVE, self.width)
        usable = places >= 0
        return np.where(usable, places + self.lowest, 0), usable

    def nearest(self, value: float | Fraction) -> int:
        """Convert one number to steps, clipped to the bounds, in exact arithmetic. NaN counts as the minimum."""
        clipped = self.minimum if value != value else max(self.minimum, min(self.maximum, value))  # noqa: PLR0124  NaN, of any type
        return math.floor(Fraction(clipped) / self.step + Fraction(1, 2))

    def value(self, steps: int | Fraction) -> float:
        """Convert a noisy number of steps to a float. Sums and noise are exact until here."""
        return float(steps * self.step)

    def describe(self) -> Description:
        """Return the parameters that decide how a column is converted."""
        return {
            "minimum": repr(self.minimum),
            "maximum": repr(self.maximum),
            "step": str(self.step),
            "values": "whole" if self.whole else "real",
            "outside": self.outside.value,
            "nulls": json.dumps(self.nulls),
        }

    def _place(self, array: pa.Array) -> Places:
        """Return each value's distance from `lowest` in steps, or its state; see `place_column`."""
        numbers, states = values.numbers(array)
        places = outside_or(self._steps(numbers), states)
        if self.nulls:
            places[named_nulls(array, self.nulls)] = NULL
        return places

    def _steps(self, numbers: values.Floats) -> Steps:
        if self.whole:
            numbers = np.floor(numbers)
        null = np.isnan(numbers)
        inside = np.clip(np.where(null, self.minimum, numbers), self.minimum, self.maximum)
        nearest = np.floor(inside / float(self.step) + 0.5)
        # clipped again as whole numbers: the sensitivity must not depend on a rounded division
        steps = np.clip(nearest.astype(np.int64), self.lowest, self.highest) - self.lowest
        return np.select([null, numbers < self.minimum, numbers > self.maximum], [NULL, BELOW, ABOVE], default=steps)


def exact_step(step: Step) -> Fraction:
    """Return the exact value of a declared step. Raise if it is not a number in range.

    >>> exact_step("0.01"), exact_step("1/3"), exact_step(0.5)
    (Fraction(1, 100), Fraction(1, 3), Fraction(1, 2))
    """
    if isinstance(step, bool) or not isinstance(step, Fraction | Decimal | int | float | str):
        raise UsageError('a step must be a number; write a decimal as text, such as "0.01"')
    try:
        exact = Fraction(step)
    except (ValueError, OverflowError, ZeroDivisionError, InvalidOperation):
        raise UsageError('a step must be a finite number; write a decimal as text, such as "0.01"') from None
    if exact <= 0:
        raise UsageError('a step must be above 0; declare the spacing of the grid, such as "0.01"')
    if not _SMALLEST <= exact <= _LARGEST:
        raise UsageError("a step must be from 1e-250 to 1e250, where floats are exact enough; change the values' unit")
    return exact
