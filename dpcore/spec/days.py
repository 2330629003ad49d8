"""The spec models of date and datetime columns."""

import datetime as dt
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from dpcore.errors import SpecError
from dpcore.spec.parts import ClipOtherDrop, Nullable, ordered_bounds
from dpcore.universe import Attribute, Date, Datetime, Every, Outside
from dpcore.universe.formats import SUPPORTED, checked_formats


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
    raise ValueError("must be a date and time without a time zone, such as 2025-01-31T08:00:00")


def _formats(value: Any) -> Any:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError('must be a format such as "%m/%d/%Y", or a list of them')
    try:
        return checked_formats(texts)
    except SpecError as error:
        raise ValueError(f"cannot be used: {error}") from None


Formats = Annotated[
    tuple[str, ...],
    BeforeValidator(_formats),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}], "default": None}
    ),
]
FORMAT_HELP = (
    f"the format of text, such as %m/%d/%Y, or a list of formats tried in this order, made of {SUPPORTED}; "
    "default: ISO 8601; columns of a date type need none"
)
Day = Annotated[dt.date, BeforeValidator(_iso_date)]
Moment = Annotated[dt.datetime, BeforeValidator(_iso_datetime)]


class DateSpec(Nullable):
    """A calendar day, in bins that follow the calendar."""

    type: Literal["date"]
    min: Day = Field(description="the first day")
    max: Day = Field(description="the last day, included")
    every: Literal["day", "week", "month", "quarter", "year"] = Field(description="the length of a bin")
    format: Formats | None = Field(None, description=FORMAT_HELP)
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(ordered_bounds)

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        return Date(
            minimum=self.min,
            maximum=self.max,
            every=Every(self.every),
            missing=bool(self.missing),
            nulls=self.nulls,
            outside=Outside(self.outside),
            formats=self.format or (),
        )


class DatetimeSpec(Nullable):
    """A date and time without a time zone, in bins that follow the calendar and the clock."""

    type: Literal["datetime"]
    min: Moment = Field(description="the first date and time")
    max: Moment = Field(description="the last date and time, included")
    every: Literal["minute", "hour", "day", "week", "month", "quarter", "year"] = Field(
        description="the length of a bin"
    )
    format: Formats | None = Field(None, description=FORMAT_HELP)
    outside: ClipOtherDrop = "clip"

    _bounds = field_validator("max")(ordered_bounds)

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        return Datetime(
            minimum=self.min,
            maximum=self.max,
            every=Every(self.every),
            missing=bool(self.missing),
            nulls=self.nulls,
            outside=Outside(self.outside),
            formats=self.format or (),
        )
