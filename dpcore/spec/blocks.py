"""Blocks over time, as they are written in a spec: which rows share a budget, and which blocks a run reads."""

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from dpcore.errors import SpecError
from dpcore.spec.attributes import Day, Formats, SpecPart
from dpcore.spec.document import Document
from dpcore.universe import Attribute, Date, Datetime, Every
from dpcore.universe.blocks import Calendar

EVERY = Literal["day", "week", "month", "quarter", "year"]
WINDOW = r"^(all|new|last [1-9][0-9]{0,3})$"


class BlocksSpec(SpecPart):
    """A budget for each period: disjoint blocks compose in parallel."""

    column: Annotated[str, Field(min_length=1)] = Field(
        description="the column with the day or moment that a row belongs to"
    )
    every: EVERY = Field(description="how long a block is")
    start: Day | None = Field(
        None, description="the day on which the first block begins; left out, the `min` of the column in the universe"
    )
    window: Annotated[str, Field(pattern=WINDOW)] = Field(
        "all",
        description="what a run reads: `all` complete periods, those `new` to this series of releases, or the `last 3`",
    )
    series: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = Field(
        None, description="the name of the series of releases that `new` remembers; left out, the dataset"
    )
    arrived: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="the column with the day on which a row came in: rows that come after their block was closed go to a late block",
    )
    grace_days: Annotated[int, Field(ge=0, le=3660)] = Field(
        0, description="how many days after its end a block is closed, and may be read"
    )
    format: Formats | None = Field(
        None,
        description="how `column` and `arrived` are written as text; left out, as `format` of `column` in the universe says",
    )

    @field_validator("arrived")
    @classmethod
    def _another_column(cls, arrived: str | None, info: ValidationInfo) -> str | None:
        if arrived is not None and arrived == info.data.get("column"):
            raise ValueError("is the same as `column`, so that nothing is ever late; name another column or remove it")
        return arrived


def calendar_of(spec: BlocksSpec, attributes: Mapping[str, Attribute]) -> Calendar:
    """Return how rows are divided into blocks."""
    start = spec.start or _earliest(attributes.get(spec.column))
    if start is None:
        raise SpecError(
            f"`blocks` needs `start`, the day on which the first block begins: `{spec.column}` is no date in the universe"
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
    """Note it if nothing says when the first block begins, or if two formats are declared for one column.

    This looks at the raw document, so that it is reported beside all other mistakes.
    """
    blocks = document.data.get("blocks")
    column = blocks.get("column") if isinstance(blocks, dict) else None
    if isinstance(blocks, dict) and isinstance(column, str) and "format" in blocks:
        _check_formats(document, blocks, attributes)
    if not isinstance(blocks, dict) or not isinstance(column, str) or blocks.get("start") is not None:
        return
    declared = document.data.get("universe")
    broken = isinstance(declared, dict) and column in declared and column not in attributes  # reported already
    if not broken and _earliest(attributes.get(column)) is None:
        document.mistake(
            ("blocks",),
            "`start` is missing; write the day on which the first block begins, such as `start: 2026-01-01`, "
            f"or declare `{column}` as a date in the universe",
        )


def _check_formats(document: Document, blocks: dict[str, Any], attributes: Mapping[str, Attribute]) -> None:
    """Refuse that a column's text means one day for its block and another in the release."""
    written = blocks["format"] if isinstance(blocks["format"], list) else [blocks["format"]]
    for name in (blocks.get("column"), blocks.get("arrived")):
        declared = attributes.get(name) if isinstance(name, str) else None
        if isinstance(declared, Date | Datetime) and list(declared.formats) != written:
            document.mistake(
                ("blocks", "format"), f"`format` differs from that of `{name}` in the universe; write the same in both"
            )


def _earliest(attribute: Attribute | None) -> dt.date | None:
    if isinstance(attribute, Datetime):
        return attribute.minimum.date()
    return attribute.minimum if isinstance(attribute, Date) else None
