"""Base classes and field types shared by the models of a spec."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from dpcore.descent import Descent
from dpcore.errors import SpecError
from dpcore.universe import Attribute
from dpcore.universe.nulls import checked_nulls


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

    @property
    def nulls(self) -> tuple[str, ...]:
        """The texts that count as null."""
        return () if isinstance(self.missing, bool) else self.missing

    def descent(self, template: Attribute) -> Descent | None:
        """Return the descent that finds the values or bins in the data; None if the spec declares them."""
        del template
        return None


def ordered_bounds(maximum: Any, info: ValidationInfo) -> Any:
    """Reject a `max` below its `min`, for fields of any ordered type."""
    minimum = info.data.get("min")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError("is below `min`; swap them")
    return maximum
