"""The spec models of integer and number columns."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from dpcore.descent import Descent
from dpcore.spec.discover import DiscoverBins
from dpcore.spec.parts import MOST_PLAIN, Finite, FullResolution, Prose, as_written
from dpcore.universe import Attribute, Integer, Number
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Scale
from dpcore.universe.numeric import UnevenInteger

MAX_CELLS_PER_ATTRIBUTE = 10_000_000
LARGEST_WHOLE = 2**53
Whole = Annotated[int, Field(ge=-LARGEST_WHOLE, le=LARGEST_WHOLE)]


class Quantity(FullResolution):
    """A column whose values are numbers of something."""

    measured_in: Prose | None = Field(
        None, description="what a value of 1 is, such as EUR, year or mmol/L; for readers of the release"
    )
    discover: DiscoverBins | None = Field(
        None,
        description="instead of declared bins: find bins of about equal mass in the data, for a share of the budget",
    )

    def descent(self, template: Attribute, *, share: Fraction) -> Descent | None:
        """Return the way to find the distribution, or the bins, in the data."""
        return super().descent(template, share=share) if self.discover is None else self.discover.descent(template)


class IntegerSpec(Quantity):
    """A whole number, at full resolution or in bins of equal width."""

    type: Literal["integer"]
    min: Whole = Field(description="the smallest value")
    max: Whole = Field(description="the largest value, included")
    width: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description=f"how many adjacent values share a bin; default: full resolution, or 1 if there are at most {MOST_PLAIN} values",
    )

    @model_validator(mode="after")
    def _one_way(self) -> "IntegerSpec":
        if self.discover is not None and self.width is not None:
            raise ValueError("has both `width` and `discover`; keep one of the two")
        return self

    @property
    def has_cells(self) -> bool:
        """Whether bins are declared or discovered, or the values are so few that each is a cell."""
        return self.discover is not None or self.width is not None or self.max - self.min < MOST_PLAIN

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute. With `discover` it has the maximum number of bins."""
        if not self.has_cells:
            return FineInteger(minimum=self.min, maximum=self.max, **self.policy)
        if self.discover is None:
            return Integer(minimum=self.min, maximum=self.max, width=self.width or 1, **self.policy)
        return self.discover.provisional(UnevenInteger(minimum=self.min, maximum=self.max, cuts=(), **self.policy))


class NumberSpec(Quantity):
    """A real number, at full resolution or in bins between edges."""

    type: Literal["number"]
    edges: Annotated[tuple[Finite, ...], Field(strict=False)] | None = Field(
        None, description="the edges of the bins, in increasing order"
    )
    min: Finite | None = Field(
        None, description="the lowest number, with `max` and `step` or `bins` instead of `edges`"
    )
    max: Finite | None = Field(None, description="the highest number, included")
    step: Annotated[Finite, Field(gt=0)] | None = Field(
        None, description="full resolution: values are multiples of this step above `min`, such as 0.01"
    )
    bins: Annotated[int, Field(ge=1, le=MAX_CELLS_PER_ATTRIBUTE)] | None = Field(
        None, description="the number of bins, all of equal width"
    )

    @field_validator("edges")
    @classmethod
    def _rising(cls, edges: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if edges is None:
            return edges
        if len(edges) < 2:
            raise ValueError("needs at least two edges, such as [0, 100]")
        for low, high in pairwise(edges):
            if low >= high:
                raise ValueError(f"must increase from edge to edge, but {high:g} follows {low:g}")
        return edges

    @model_validator(mode="after")
    def _one_way(self) -> "NumberSpec":
        parts = (self.min, self.max, self.bins, self.step)
        if self.edges is not None:
            if any(part is not None for part in (*parts, self.discover)):
                raise ValueError("has both `edges` and `min`, `max`, `bins`; keep one of the two forms")
        elif self.step is not None and (self.bins is not None or self.discover is not None):
            raise ValueError("has both `step`, for full resolution, and bins; keep one of the two")
        elif self.discover is not None and self.bins is not None:
            raise ValueError("has both `bins` and `discover`, which has its own `bins`; keep one of the two")
        elif (
            self.min is None or self.max is None or (self.bins is None and self.discover is None and self.step is None)
        ):
            raise ValueError(
                "needs `edges: [...]`, or `min`, `max` and `bins`, or `min`, `max` and `step` for full resolution"
            )
        elif self.min == self.max:
            raise ValueError("has `min` equal to `max`; leave room for at least one bin")
        return self

    @property
    def has_cells(self) -> bool:
        """Whether the values are no multiples of a step."""
        return self.step is None

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute. With `discover` it has the maximum number of bins."""
        low, high = as_written(self.min or 0), as_written(self.max or 0)
        if self.step is not None:
            return FineNumber(scale=Scale.of(low, high, step=as_written(self.step)), **self.policy)
        edges = _even_edges(low, high, bins=self.bins or 1) if self.edges is None else self.edges
        declared = Number(edges=tuple(map(float, edges)), **self.policy)
        return declared if self.discover is None else self.discover.provisional(declared)


def _even_edges(low: Fraction, high: Fraction, *, bins: int) -> tuple[float, ...]:
    """Return the edges of equally wide bins. They are quotients of whole numbers, which Python rounds correctly, and faster than fractions."""
    first, last = low.numerator * high.denominator, high.numerator * low.denominator
    divisor = bins * low.denominator * high.denominator
    return tuple((first * (bins - i) + last * i) / divisor for i in range(bins + 1))
