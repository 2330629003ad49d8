"""Columns whose values are names, as they are written in a spec."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from dpcore.descent import Descent
from dpcore.errors import SpecError
from dpcore.spec.discover import DiscoverValues
from dpcore.spec.parts import Finite, Nullable, OtherDrop
from dpcore.universe import Attribute, Boolean, Categorical, Outside
from dpcore.universe.categorical import canonical

Category = str | int | Finite | bool


class CategoricalSpec(Nullable):
    """One of a declared set of values."""

    type: Literal["categorical"]
    values: Annotated[tuple[Category, ...], Field(strict=False)] | None = Field(
        None, description="the values, each once"
    )
    values_from: str | None = Field(None, description="a text file with one value a line, relative to the spec")
    discover: DiscoverValues | None = Field(
        None, description="in place of `values`: find them in the data, for a share of the budget"
    )
    match: Literal["exact", "prefix"] | None = Field(
        None,
        description="prefix: a value that is not declared belongs to the longest declared one that it begins with; left out, exact",
    )
    outside: OtherDrop = Field(
        "drop",
        description="an undeclared value: count it in a cell of its own, or drop the row; left out, drop, and other where `discover` finds the values",
    )

    @model_validator(mode="before")
    @classmethod
    def _keep_what_is_not_found(cls, given: Any) -> Any:
        """Count values that are not found as `other`: nobody can know which rows would be dropped."""
        if isinstance(given, dict) and given.get("discover") is not None and "outside" not in given:
            return {**given, "outside": "other"}
        return given

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
        if sum(way is not None for way in (self.values, self.values_from, self.discover)) != 1:
            raise ValueError("needs either `values: [...]` or `values_from: FILE`, or `discover: {...}` to find them")
        if self.discover is not None and self.match == "prefix":
            raise ValueError(
                "has `discover`, which finds whole texts, and `match: prefix`; list the prefixes in `values`, or leave `match` out"
            )
        return self

    def attribute(self, folder: Path) -> Attribute:
        """Build the attribute, reading `values_from` relative to the spec's folder; what is to be found has as many cells as it may."""
        if self.discover is not None:
            values: tuple[Category, ...] = self.discover.placeholders()
        else:
            values = self.values if self.values is not None else _values_of(folder / str(self.values_from))
        declared = Categorical(
            values=values,
            prefixes=self.match == "prefix",
            missing=bool(self.missing),
            nulls=self.nulls,
            outside=Outside(self.outside),
        )
        self.descent(declared)  # which refuses a tree that is too broad
        return declared

    def descent(self, template: Attribute) -> Descent | None:
        """Return the way to find the values in the data."""
        if self.discover is None or not isinstance(template, Categorical):
            return None
        return self.discover.descent(template)


def _values_of(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise SpecError(f"the file {path.name} is not there; its path starts at the spec's own folder") from None
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"the file {path.name} cannot be read as UTF-8 text; write one value a line") from None
    values = tuple(line.strip() for line in lines if line.strip())
    if not values:
        raise SpecError(f"the file {path.name} holds no values; write one value a line")
    return values


class BooleanSpec(Nullable):
    """True or false."""

    type: Literal["boolean"]
    outside: OtherDrop = "drop"

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        return Boolean(missing=bool(self.missing), nulls=self.nulls, outside=Outside(self.outside))
