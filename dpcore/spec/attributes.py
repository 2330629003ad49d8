"""The attribute kinds of a universe, as they are written in a spec."""

import datetime as dt
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dpcore.errors import SpecError
from dpcore.universe import Attribute, Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside
from dpcore.universe.categorical import canonical

MAX_CELLS_PER_ATTRIBUTE = 10_000_000
LARGEST_WHOLE = 2**53


class SpecPart(BaseModel):
    """A part of a spec: unknown keys are mistakes, and nothing is converted behind the writer's back."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def _iso_date(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            pass
    elif isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    raise ValueError("must be a date such as 2025-01-31")


def _iso_datetime(value: Any) -> Any:
    if isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is None:
            return moment
    elif isinstance(value, dt.datetime):
        return value
    raise ValueError("must be a date and time without zone, such as 2025-01-31T08:00:00")


Whole = Annotated[int, Field(ge=-LARGEST_WHOLE, le=LARGEST_WHOLE)]
Finite = Annotated[float, AfterValidator(_finite)]
Day = Annotated[dt.date, BeforeValidator(_iso_date)]
Moment = Annotated[dt.datetime, BeforeValidator(_iso_datetime)]
Category = str | int | Finite | bool
Missing = Annotated[bool, Field(description="true: a null is a value of its own, and comes back as a null")]
ClipOtherDrop = Annotated[
    Literal["clip", "other", "drop"],
    Field(description="a value outside: clip it to the nearest bin, count it in a cell of its own, or drop the row"),
]
OtherDrop = Annotated[
    Literal["other", "drop"],
    Field(description="an undeclared value: count it in a cell of its own, or drop the row"),
]


def _ordered_bounds(maximum: Any, info: ValidationInfo) -> Any:
    minimum = info.data.get("min")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError("is below `min`; swap them")
    return maximum


class CategoricalSpec(SpecPart):
    """One of a declared set of values."""

    type: Literal["categorical"]
    values: Annotated[tuple[Category, ...], Field(strict=False)] | None = Field(
        None, description="the values, each once"
    )
    values_from: str | None = Field(None, description="a text file with one value a line, relative to the spec")
    missing: Missing = False
    outside: OtherDrop = "drop"

    @field_validator("values")
    @classmethod
    def _distinct(cls, values: tuple[Category, ...] | None) -> tuple[Category, ...] | None:
        if values is None:
            return values
        if not values:
            raise ValueError("is empty; list the values that may occur")
        for value, count in Counter(canonical(value) for value in values).items():
            if count > 1:
                raise ValueError(f"lists {value!r} twice; keep each value once")
        return values

    @model_validator(mode="after")
    def _one_way(self) -> "CategoricalSpec":
        if (self.values is None) == (self.values_from is None):
            raise ValueError("needs either `values: [...]` or `values_from: FILE`")
        return self

    def attribute(self, folder: Path) -> Attribute:
        """Build the attribute, reading `values_from` relative to the spec's folder."""
        values = self.values if self.values is not None else _values_of(folder / str(self.values_from))
        return Categorical(values=values, missing=self.missing, outside=Outside(self.outside))


def _values_of(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"the file {path.name} cannot be read as UTF-8 text; write one value a line") from None
    values = tuple(line.strip() for line in lines if line.strip())
    if not values:
        raise SpecError(f"the file {path.name} holds no values; write one value a line")
    return values


class BooleanSpec(SpecPart):
    """True or false."""

    type: Literal["boolean"]
    missing: Missing = False
    outside: OtherDrop = "drop"

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        return Boolean(missing=self.missing, outside=Outside(self.outside))


class IntegerSpec(SpecPart):
    """A whole number, in bins of equal width."""

    type: Literal["integer"]
    min: Whole = Field(description="the smallest value")
    max: Whole = Field(description="the largest value, included")
    width: Annotated[int, Field(ge=1)] = Field(1, description="how many neighbouring values share a bin")
    missing: Missing = False
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(_ordered_bounds)

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        return Integer(
            minimum=self.min, maximum=self.max, width=self.width, missing=self.missing, outside=Outside(self.outside)
        )


class NumberSpec(SpecPart):
    """A real number, in bins between edges."""

    type: Literal["number"]
    edges: Annotated[tuple[Finite, ...], Field(strict=False)] | None = Field(
        None, description="the bins' edges, rising"
    )
    min: Finite | None = Field(None, description="the lowest edge, with `max` and `bins` in place of `edges`")
    max: Finite | None = Field(None, description="the highest edge")
    bins: Annotated[int, Field(ge=1, le=MAX_CELLS_PER_ATTRIBUTE)] | None = Field(
        None, description="how many bins of equal width"
    )
    missing: Missing = False
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(_ordered_bounds)

    @field_validator("edges")
    @classmethod
    def _rising(cls, edges: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if edges is None:
            return edges
        if len(edges) < 2:
            raise ValueError("needs at least two edges, such as [0, 100]")
        for low, high in pairwise(edges):
            if low >= high:
                raise ValueError(f"must rise from edge to edge, but {high:g} follows {low:g}")
        return edges

    @model_validator(mode="after")
    def _one_way(self) -> "NumberSpec":
        parts = (self.min, self.max, self.bins)
        if self.edges is not None:
            if any(part is not None for part in parts):
                raise ValueError("has both `edges` and `min`, `max`, `bins`; keep one of the two forms")
        elif any(part is None for part in parts):
            raise ValueError("needs `edges: [...]`, or `min`, `max` and `bins` together")
        elif self.min == self.max:
            raise ValueError("has `min` equal to `max`; leave room for at least one bin")
        return self

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        edges = self.edges
        if edges is None:
            low, high, bins = float(self.min or 0), float(self.max or 0), int(self.bins or 1)
            edges = (*(low + (high - low) * i / bins for i in range(bins)), high)
        return Number(edges=tuple(map(float, edges)), missing=self.missing, outside=Outside(self.outside))


class DateSpec(SpecPart):
    """A calendar day, in bins that follow the calendar."""

    type: Literal["date"]
    min: Day = Field(description="the first day")
    max: Day = Field(description="the last day, included")
    every: Literal["day", "week", "month", "quarter", "year"] = Field(description="how long a bin is")
    missing: Missing = False
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(_ordered_bounds)

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        return Date(
            minimum=self.min,
            maximum=self.max,
            every=Every(self.every),
            missing=self.missing,
            outside=Outside(self.outside),
        )


class DatetimeSpec(SpecPart):
    """A moment without time zone, in bins that follow the calendar and the clock."""

    type: Literal["datetime"]
    min: Moment = Field(description="the first moment")
    max: Moment = Field(description="the last moment, included")
    every: Literal["minute", "hour", "day", "week", "month", "quarter", "year"] = Field(description="how long a bin is")
    missing: Missing = False
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(_ordered_bounds)

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        return Datetime(
            minimum=self.min,
            maximum=self.max,
            every=Every(self.every),
            missing=self.missing,
            outside=Outside(self.outside),
        )


AttributeSpec = Annotated[
    CategoricalSpec | BooleanSpec | IntegerSpec | NumberSpec | DateSpec | DatetimeSpec,
    Field(discriminator="type"),
]
