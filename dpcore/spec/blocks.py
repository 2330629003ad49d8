"""The spec's `blocks`: which rows share a budget, and which blocks a run reads."""

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from dpcore.errors import SpecError
from dpcore.spec.days import Day, Formats, Period
from dpcore.spec.document import Document
from dpcore.spec.parts import Name, SpecPart
from dpcore.universe import Attribute, Date, Datetime, Every
from dpcore.universe.blocks import Calendar
from dpcore.universe.formats import month_format


class BlocksSpec(SpecPart):
    """A separate budget for each period. Disjoint blocks compose in parallel."""

    column: Annotated[str, Field(min_length=1)] = Field(
        description="the column with the day or time that assigns a row to its block"
    )
    every: Period = Field(description="the length of a block")
    start: Day | None = Field(
        None, description="the first day of the first block; default: the column's `min` in the universe"
    )
    window: Annotated[str, Field(pattern=r"^(all|new|last [1-9][0-9]{0,3})$")] = Field(
        "all",
        description="what a run reads: `all` complete periods, those `new` to this series of releases, or the `last 3`",
    )
    series: Name | None = Field(
        None, description="the name of the series of releases whose blocks `new` remembers; default: the dataset"
    )
    arrived: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="the column with the day on which a row arrived: rows that arrive after their block was closed go to a late block",
    )
    grace_days: Annotated[int, Field(ge=0, le=3660)] = Field(
        0, description="how many days after its end a block is closed and can be read"
    )
    format: Formats | None = Field(
        None,
        description="the format of `column` and `arrived` if they are text; default: the `format` of `column` in the universe",
    )

    @field_validator("arrived")
    @classmethod
    def _another_column(cls, arrived: str | None, info: ValidationInfo) -> str | None:
        if arrived is not None and arrived == info.data.get("column"):
            raise ValueError("is the same as `column`, so no row would ever be late; name another column or remove it")
        return arrived


def calendar_of(spec: BlocksSpec, attributes: Mapping[str, Attribute]) -> Calendar:
    """Return the calendar that divides rows into blocks."""
    start = spec.start or _earliest(attributes.get(spec.column))
    if start is None:
        raise SpecError(
            f"`blocks` needs `start`, the first day of the first block: `{spec.column}` is not a date in the universe"
        )
    declared = attributes.get(spec.column)
    return Calendar(
        spec.column,
        Every(spec.every),
        start=start,
        arrived=spec.arrived,
        grace_days=spec.grace_days,
        formats=spec.format or (declared.formats if isinstance(declared, Date | Datetime) else ()),
    )


def check_blocks(document: Document, attributes: Mapping[str, Attribute]) -> None:
    """Report blocks without a start, a column with two different formats, and months where days are needed.

    The check works on the raw document, so that the mistakes are reported together with all others.
    """
    blocks = document.section("blocks")
    column = blocks.get("column")
    if not isinstance(column, str):
        return
    _check_formats(document, blocks, attributes)
    _check_months(document, blocks, attributes.get(column))
    broken = column in document.section("universe") and column not in attributes  # reported already
    if blocks.get("start") is None and not broken and _earliest(attributes.get(column)) is None:
        document.mistake(
            ("blocks",),
            "`start` is missing; write the first day of the first block, such as `start: 2026-01-01`, "
            f"or declare `{column}` as a date in the universe",
        )


def _check_formats(document: Document, blocks: dict[str, Any], attributes: Mapping[str, Attribute]) -> None:
    """Report formats that would read a column's text as one day for its block and as another for the release."""
    if "format" not in blocks:
        return
    written = blocks["format"] if isinstance(blocks["format"], list) else [blocks["format"]]
    for name in (blocks.get("column"), blocks.get("arrived")):
        declared = attributes.get(name) if isinstance(name, str) else None
        if isinstance(declared, Date | Datetime) and list(declared.formats) != written:
            document.mistake(
                ("blocks", "format"), f"`format` differs from that of `{name}` in the universe; write the same in both"
            )


def _check_months(document: Document, blocks: dict[str, Any], declared: Attribute | None) -> None:
    """Report blocks that need the days of texts that name months: a month lies in several weeks, and may be late for some of its days."""
    written = blocks.get("format") or (declared.formats if isinstance(declared, Date | Datetime) else ())
    try:
        month = month_format([written] if isinstance(written, str) else written)
    except (SpecError, TypeError):  # reported already
        return
    if month is not None and (blocks.get("every") in ("day", "week") or blocks.get("arrived") is not None):
        document.mistake(
            ("blocks",),
            f"the format {month!r} names a month without a day; write `every: month` or longer, and leave `arrived` out",
        )


def _earliest(attribute: Attribute | None) -> dt.date | None:
    if isinstance(attribute, Datetime):
        return attribute.minimum.date()
    return attribute.minimum if isinstance(attribute, Date) else None
