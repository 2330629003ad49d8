"""What all parts of a spec have in common, and what all columns do."""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from dpcore.descent import Descent
from dpcore.errors import SpecError
from dpcore.universe import Attribute
from dpcore.universe.nulls import checked_nulls


class SpecPart(BaseModel):
    """A part of a spec: unknown keys are mistakes, and nothing is converted behind the writer's back."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


Finite = Annotated[float, AfterValidator(_finite)]


def _told_apart(texts: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return checked_nulls(texts)
    except SpecError as error:
        raise ValueError(str(error)) from None


Missing = Annotated[
    bool | Annotated[tuple[str, ...], Field(strict=False, min_length=1), AfterValidator(_told_apart)],
    Field(
        description='true: a null is a value of its own, and comes back as a null; a list such as ["?", "NA"]: so are these texts'
    ),
]
ClipOtherDrop = Annotated[
    Literal["clip", "other", "drop"],
    Field(description="a value outside: clip it to the nearest bin, count it in a cell of its own, or drop the row"),
]
OtherDrop = Annotated[
    Literal["other", "drop"],
    Field(description="an undeclared value: count it in a cell of its own, or drop the row"),
]


class Nullable(SpecPart):
    """A column that may have nulls."""

    missing: Missing = False

    @property
    def nulls(self) -> tuple[str, ...]:
        """The texts that count as null."""
        return () if isinstance(self.missing, bool) else self.missing

    def descent(self, template: Attribute) -> Descent | None:
        """Return the way to find in the data what is not declared; None if all is."""
        del template
        return None


def ordered_bounds(maximum: Any, info: ValidationInfo) -> Any:
    """Refuse a `max` below its `min`; for fields of any kind that has an order."""
    minimum = info.data.get("min")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError("is below `min`; swap them")
    return maximum
