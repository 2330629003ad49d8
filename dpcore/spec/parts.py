"""Base classes and field types shared by the models of a spec."""

import math
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from dpcore.descent import Descent, TreeDescent
from dpcore.errors import SpecError
from dpcore.universe import Attribute, Outside
from dpcore.universe.attribute import checked_nulls
from dpcore.universe.leaves import Fine

MOST_SHARE = 0.9
"""The largest share of the budget for discovery in all columns together. The release needs the rest."""

MOST_PLAIN = 32
"""A column of at most this many whole numbers or days has a cell for each: there is nothing to find."""

LONGEST_PROSE = 1000

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


class SpecPart(BaseModel):
    """A part of a spec. Unknown keys are mistakes, and values are not converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def as_written(number: float) -> Fraction:
    """Return a number of a spec as the exact decimal that was written."""
    return Fraction(repr(number))


Name = Annotated[str, Field(pattern=NAME, max_length=100)]
Finite = Annotated[float, AfterValidator(_finite)]
Share = Annotated[Finite, Field(gt=0, le=MOST_SHARE)]
"""A share of the budget that a spec gives to something learned before the release."""


def _distinct(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return checked_nulls(texts)
    except SpecError as error:
        raise ValueError(str(error)) from None


def _printable(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; write a sentence, or remove the key")
    if not text.replace("\n", " ").isprintable():
        raise ValueError("has characters that cannot be printed, such as tabs; remove them")
    if len(text) > LONGEST_PROSE:
        raise ValueError(f"is too long; use at most {LONGEST_PROSE:,} characters")
    return text.strip()


Prose = Annotated[str, AfterValidator(_printable), Field(json_schema_extra={"maxLength": LONGEST_PROSE})]
"""A public text for people, which a release repeats."""

Missing = Annotated[
    bool | Annotated[tuple[str, ...], Field(strict=False, min_length=1), AfterValidator(_distinct)],
    Field(
        description='true: nulls get a cell of their own and are released as nulls; a list such as ["?", "NA"]: these texts are nulls too'
    ),
]
ClipOtherDrop = Annotated[
    Literal["clip", "other", "drop"],
    Field(description="a value outside: clip it to the nearest bin, count it in the cell `other`, or drop the row"),
]
OtherDrop = Annotated[
    Literal["other", "drop"],
    Field(description="an undeclared value: count it in the cell `other`, or drop the row"),
]


class Nullable(SpecPart):
    """A column that may have nulls."""

    missing: Missing = False
    description: Prose | None = Field(
        None, description="what the column means, for readers of the release; it is published, so write nothing private"
    )
    outside: ClipOtherDrop = "clip"

    @property
    def policy(self) -> dict[str, Any]:
        """What the attribute does with nulls and with values outside."""
        nulls = () if isinstance(self.missing, bool) else self.missing
        return {"missing": bool(self.missing), "nulls": nulls, "outside": Outside(self.outside)}

    def descent(self, template: Attribute, *, share: Fraction) -> Descent | None:
        """Return the descent that finds values, bins or a distribution in the data; None if the spec declares the cells.

        Args:
            template: The column with the maximum number of cells.
            share: The share of the budget for a column at full resolution, if the spec does not give it.
        """
        del template, share
        return None


class FullResolution(Nullable):
    """A column that has full resolution unless the spec declares bins."""

    share: Share | None = Field(
        None,
        description="at full resolution: the share of the budget for finding the distribution; default: chosen by the columns and `expect_rows`",
    )

    def descent(self, template: Attribute, *, share: Fraction) -> Descent | None:
        """Return the tree that finds the distribution of a column at full resolution."""
        if not isinstance(template, Fine):
            return None
        return TreeDescent(template, share=share if self.share is None else as_written(self.share))

    @property
    def has_cells(self) -> bool:
        """Whether the spec declares cells, or has them discovered, instead of full resolution."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _buys_something(self) -> Self:
        if self.share is not None and self.has_cells:
            raise ValueError("has a `share`, which is for full resolution, and declared cells; remove one of the two")
        return self

    @field_validator("max", check_fields=False)
    @classmethod
    def _ordered_bounds(cls, maximum: Any, info: ValidationInfo) -> Any:
        minimum = info.data.get("min")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise ValueError("is below `min`; swap them")
        return maximum
