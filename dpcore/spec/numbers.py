"""The spec models of integer and number columns."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from dpcore.descent import Descent
from dpcore.spec.discover import DiscoverBins
from dpcore.spec.parts import ClipOtherDrop, Finite, Nullable, ordered_bounds
from dpcore.universe import Attribute, Integer, Number, Outside
from dpcore.universe.numeric import UnevenInteger

MAX_CELLS_PER_ATTRIBUTE = 10_000_000
LARGEST_WHOLE = 2**53

Whole = Annotated[int, Field(ge=-LARGEST_WHOLE, le=LARGEST_WHOLE)]


class IntegerSpec(Nullable):
    """A whole number, in bins of equal width."""

    type: Literal["integer"]
    min: Whole = Field(description="the smallest value")
    max: Whole = Field(description="the largest value, included")
    width: Annotated[int, Field(ge=1)] = Field(1, description="how many adjacent values share a bin")
    discover: DiscoverBins | None = Field(
        None, description="instead of `width`: find bins of about equal mass in the data, for a share of the budget"
    )
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(ordered_bounds)

    @model_validator(mode="after")
    def _one_way(self) -> "IntegerSpec":
        if self.discover is not None and "width" in self.model_fields_set:
            raise ValueError("has both `width` and `discover`; keep one of the two")
        return self

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute. With `discover` it has the most bins that may be found."""
        policy = {"missing": bool(self.missing), "nulls": self.nulls, "outside": Outside(self.outside)}
        if self.discover is None:
            return Integer(minimum=self.min, maximum=self.max, width=self.width, **policy)  # type: ignore[arg-type]
        whole = UnevenInteger(minimum=self.min, maximum=self.max, cuts=(), **policy)  # type: ignore[arg-type]
        return self.discover.provisional(whole)

    def descent(self, template: Attribute) -> Descent | None:
        """Return the way to find the bins in the data."""
        return self.discover.descent(template) if self.discover is not None else None


class NumberSpec(Nullable):
    """A real number, in bins between edges."""

    type: Literal["number"]
    edges: Annotated[tuple[Finite, ...], Field(strict=False)] | None = Field(
        None, description="the edges of the bins, in increasing order"
    )
    min: Finite | None = Field(None, description="the lowest edge, with `max` and `bins` instead of `edges`")
    max: Finite | None = Field(None, description="the highest edge")
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
        parts = (self.min, self.max, self.bins)
        if self.edges is not None:
            if any(part is not None for part in (*parts, self.discover)):
                raise ValueError("has both `edges` and `min`, `max`, `bins`; keep one of the two forms")
        elif self.discover is not None and self.bins is not None:
            raise ValueError("has both `bins` and `discover`, which has its own `bins`; keep one of the two")
        elif self.min is None or self.max is None or (self.bins is None and self.discover is None):
            raise ValueError("needs `edges: [...]`, or `min`, `max` and `bins`, or `min`, `max` and `discover`")
        elif self.min == self.max:
            raise ValueError("has `min` equal to `max`; leave room for at least one bin")
        return self

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute. With `discover` it has the most bins that may be found."""
        edges = self.edges
        if edges is None:
            low, high, bins = float(self.min or 0), float(self.max or 0), int(self.bins or 0)
            edges = (*(low + (high - low) * i / bins for i in range(bins)), high) if bins else (low, high)
        declared = Number(
            edges=tuple(map(float, edges)),
            missing=bool(self.missing),
            nulls=self.nulls,
            outside=Outside(self.outside),
        )
        return declared if self.discover is None else self.discover.provisional(declared)

    def descent(self, template: Attribute) -> Descent | None:
        """Return the way to find the bins in the data."""
        return self.discover.descent(template) if self.discover is not None else None
