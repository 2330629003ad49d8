"""The spec models of integer and number columns."""

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from dpcore.descent import Descent
from dpcore.spec.discover import DiscoverBins
from dpcore.spec.parts import MOST_PLAIN, ClipOtherDrop, Finite, FullResolution, Quantity, ordered_bounds
from dpcore.universe import Attribute, Integer, Number, Outside
from dpcore.universe.fine_numbers import FineInteger, FineNumber, Scale
from dpcore.universe.numeric import UnevenInteger

MAX_CELLS_PER_ATTRIBUTE = 10_000_000
LARGEST_WHOLE = 2**53
Whole = Annotated[int, Field(ge=-LARGEST_WHOLE, le=LARGEST_WHOLE)]


class IntegerSpec(Quantity, FullResolution):
    """A whole number, at full resolution or in bins of equal width."""

    type: Literal["integer"]
    min: Whole = Field(description="the smallest value")
    max: Whole = Field(description="the largest value, included")
    width: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description=f"how many adjacent values share a bin; default: full resolution, or 1 if there are at most {MOST_PLAIN} values",
    )
    discover: DiscoverBins | None = Field(
        None, description="instead of `width`: find bins of about equal mass in the data, for a share of the budget"
    )
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(ordered_bounds)

    @model_validator(mode="after")
    def _one_way(self) -> "IntegerSpec":
        if self.discover is not None and self.width is not None:
            raise ValueError("has both `width` and `discover`; keep one of the two")
        if self.discover is not None or self.width is not None or self._plain:
            self.refuse_share()
        return self

    @property
    def _plain(self) -> bool:
        """Whether the values are so few that each is a cell."""
        return self.max - self.min < MOST_PLAIN

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute. With `discover` it has the maximum number of bins."""
        policy = {"missing": bool(self.missing), "nulls": self.nulls, "outside": Outside(self.outside)}
        if self.discover is None and self.width is None and not self._plain:
            return FineInteger(minimum=self.min, maximum=self.max, **policy)  # type: ignore[arg-type]
        if self.discover is None:
            return Integer(minimum=self.min, maximum=self.max, width=self.width or 1, **policy)  # type: ignore[arg-type]
        whole = UnevenInteger(minimum=self.min, maximum=self.max, cuts=(), **policy)  # type: ignore[arg-type]
        return self.discover.provisional(whole)

    def descent(self, template: Attribute, *, share: Fraction) -> Descent | None:
        """Return the way to find the distribution, or the bins, in the data."""
        return super().descent(template, share=share) if self.discover is None else self.discover.descent(template)


class NumberSpec(Quantity, FullResolution):
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
    discover: DiscoverBins | None = Field(
        None, description="instead of `bins`: find bins of about equal mass in the data, for a share of the budget"
    )
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(ordered_bounds)

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
        if self.step is None:
            self.refuse_share()
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

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute. With `discover` it has the maximum number of bins."""
        if self.step is not None:
            return FineNumber(
                scale=Scale.of(_as_written(self.min), _as_written(self.max), step=_as_written(self.step)),
                missing=bool(self.missing),
                nulls=self.nulls,
                outside=Outside(self.outside),
            )
        edges = self.edges
        if edges is None:
            edges = _even_edges(_as_written(self.min), _as_written(self.max), bins=self.bins or 1)
        declared = Number(
            edges=tuple(map(float, edges)),
            missing=bool(self.missing),
            nulls=self.nulls,
            outside=Outside(self.outside),
        )
        return declared if self.discover is None else self.discover.provisional(declared)

    def descent(self, template: Attribute, *, share: Fraction) -> Descent | None:
        """Return the way to find the distribution, or the bins, in the data."""
        return super().descent(template, share=share) if self.discover is None else self.discover.descent(template)


def _as_written(number: float | None) -> Fraction:
    """Return a number of the spec exactly, so that edges between two of them are as short as they are in decimals."""
    return Fraction(repr(float(number or 0)))


def _even_edges(low: Fraction, high: Fraction, *, bins: int) -> tuple[float, ...]:
    """Return the edges of equally wide bins. They are quotients of whole numbers, which Python rounds correctly, and faster than fractions."""
    first, last = low.numerator * high.denominator, high.numerator * low.denominator
    each = bins * low.denominator * high.denominator
    return tuple((first * (bins - i) + last * i) / each for i in range(bins + 1))
