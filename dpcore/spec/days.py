"""The spec models of date and datetime columns."""

import datetime as dt
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from dpcore.errors import SpecError
from dpcore.spec.parts import MOST_PLAIN, FullResolution
from dpcore.universe import Attribute, Date, Datetime, Every
from dpcore.universe.fine_days import STEPS, FineDate, FineDatetime
from dpcore.universe.formats import SUPPORTED, checked_formats

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ][\d:.]+)?")


def _iso_date(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            if _DAY.fullmatch(value):
                raise ValueError("is no day of the calendar; write one such as 2025-01-31") from None
    elif isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    raise ValueError("must be a date such as 2025-01-31")


def _iso_datetime(value: Any) -> Any:
    if isinstance(value, str):
        try:
            moment = dt.datetime.fromisoformat(value)
        except ValueError:
            moment = None
            if _MOMENT.fullmatch(value):
                raise ValueError("is no time of the calendar; write one such as 2025-01-31T08:00:00") from None
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
    "default: ISO 8601; columns of a date type need none; months such as %b-%Y need `every: month` or longer"
)
Period = Literal["day", "week", "month", "quarter", "year"]
Day = Annotated[dt.date, BeforeValidator(_iso_date)]
Moment = Annotated[dt.datetime, BeforeValidator(_iso_datetime)]


class DateSpec(FullResolution):
    """A calendar day, at full resolution or in bins that follow the calendar."""

    type: Literal["date"]
    min: Day = Field(description="the first day")
    max: Day = Field(description="the last day, included")
    every: Period | None = Field(
        None,
        description=f"the length of a bin, of which the first day is released; default: full resolution, or day if there are at most {MOST_PLAIN}",
    )
    format: Formats | None = Field(None, description=FORMAT_HELP)

    @property
    def has_cells(self) -> bool:
        """Whether bins are declared, or the days are so few that each is a cell."""
        return self.every is not None or (self.max - self.min).days < MOST_PLAIN

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        days: dict[str, Any] = {"minimum": self.min, "maximum": self.max, "formats": self.format or (), **self.policy}
        return Date(every=Every(self.every or "day"), **days) if self.has_cells else FineDate(**days)


class DatetimeSpec(FullResolution):
    """A date and time without a time zone, at full resolution or in bins that follow the calendar and the clock."""

    type: Literal["datetime"]
    min: Moment = Field(description="the first date and time")
    max: Moment = Field(description="the last date and time, included")
    step: Literal["hour", "minute", "second"] | None = Field(
        None, description="full resolution: values are whole hours, minutes or seconds"
    )
    every: Literal["minute", "hour", "day", "week", "month", "quarter", "year"] | None = Field(
        None, description="instead of `step`: the length of a bin, of which the first moment is released"
    )
    format: Formats | None = Field(None, description=FORMAT_HELP)

    @model_validator(mode="after")
    def _one_way(self) -> "DatetimeSpec":
        if (self.every is None) == (self.step is None):
            raise ValueError("needs either `step: minute` for full resolution, or `every: day` for bins")
        return self

    @property
    def has_cells(self) -> bool:
        """Whether bins are declared."""
        return self.every is not None

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        times: dict[str, Any] = {"minimum": self.min, "maximum": self.max, "formats": self.format or (), **self.policy}
        if self.step is not None:
            if any((bound.minute * 60 + bound.second) % STEPS[self.step] for bound in (self.min, self.max)):
                raise SpecError(
                    f"`min` and `max` are not whole steps; write them to the {self.step}, or a finer `step`"
                )
            return FineDatetime(step=self.step, **times)
        return Datetime(every=Every(self.every), **times)  # type: ignore[arg-type]
