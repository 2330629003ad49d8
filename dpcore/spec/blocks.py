"""Blocks over time, as they are written in a spec: which rows share a budget, and which blocks a run reads."""

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from dpcore.blocks import Calendar
from dpcore.errors import SpecError
from dpcore.spec.attributes import Day, SpecPart
from dpcore.spec.document import Document
from dpcore.universe import Attribute, Date, Datetime, Every

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
    return Calendar(spec.column, Every(spec.every), start=start, arrived=spec.arrived, grace_days=spec.grace_days)


def check_blocks(document: Document, attributes: Mapping[str, Attribute]) -> None:
    """Note it if nothing says when the first block begins; on the raw document, so that it is reported beside all other mistakes."""
    blocks = document.data.get("blocks")
    column = blocks.get("column") if isinstance(blocks, dict) else None
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


def _earliest(attribute: Attribute | None) -> dt.date | None:
    if isinstance(attribute, Datetime):
        return attribute.minimum.date()
    return attribute.minimum if isinstance(attribute, Date) else None
