"""Base classes and field types shared by the models of a spec."""

import math
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from dpcore.descent import Descent, TreeDescent
from dpcore.errors import SpecError
from dpcore.universe import Attribute
from dpcore.universe.leaves import Fine
from dpcore.universe.nulls import checked_nulls

MOST_SHARE = 0.9
"""The largest share of the budget for discovery in all columns together. The release needs the rest."""

MOST_PLAIN = 32
"""A column of at most this many whole numbers or days has a cell for each: there is nothing to find."""


LONGEST_PROSE = 1000


class SpecPart(BaseModel):
    """A part of a spec. Unknown keys are mistakes, and values are not converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


Finite = Annotated[float, AfterValidator(_finite)]


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

    @property
    def nulls(self) -> tuple[str, ...]:
        """The texts that count as null."""
        return () if isinstance(self.missing, bool) else self.missing

    def descent(self, template: Attribute, *, share: Fraction) -> Descent | None:
        """Return the descent that finds values, bins or a distribution in the data; None if the spec declares the cells.

        Args:
            template: The column with the maximum number of cells.
            share: The share of the budget for a column at full resolution, if the spec does not give it.
        """
        del template, share
        return None


class Quantity(SpecPart):
    """A column whose values are numbers of something."""

    measured_in: Prose | None = Field(
        None, description="what a value of 1 is, such as EUR, year or mmol/L; for readers of the release"
    )


class FullResolution(Nullable):
    """A column that has full resolution unless the spec declares bins."""

    share: Annotated[Finite, Field(gt=0, le=MOST_SHARE)] | None = Field(
        None,
        description="at full resolution: the share of the budget for finding the distribution; default: chosen by the columns and `expect_rows`",
    )

    def descent(self, template: Attribute, *, share: Fraction) -> Descent | None:
        """Return the tree that finds the distribution of a column at full resolution."""
        if not isinstance(template, Fine):
            return None
        return TreeDescent(template, share=share if self.share is None else Fraction(repr(self.share)))

    def refuse_share(self) -> None:
        """Reject a share where bins are declared, for which nothing is bought."""
        if self.share is not None:
            raise ValueError("has a `share`, which is for full resolution, and declared cells; remove one of the two")


def ordered_bounds(maximum: Any, info: ValidationInfo) -> Any:
    """Reject a `max` below its `min`, for fields of any ordered type."""
    minimum = info.data.get("min")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError("is below `min`; swap them")
    return maximum
