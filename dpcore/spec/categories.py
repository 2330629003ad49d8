"""The spec models of categorical and boolean columns."""

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from dpcore.descent import Descent
from dpcore.errors import SpecError
from dpcore.spec.discover import DiscoverValues
from dpcore.spec.parts import Finite, Nullable, OtherDrop
from dpcore.universe import Attribute, Boolean, Categorical
from dpcore.universe.categorical import canonical

Category = str | int | Finite | bool


class CategoricalSpec(Nullable):
    """One of a declared set of values."""

    type: Literal["categorical"]
    values: Annotated[tuple[Category, ...], Field(strict=False)] | None = Field(
        None, description="the values, each once"
    )
    values_from: str | None = Field(None, description="a text file with one value per line, relative to the spec")
    discover: DiscoverValues | None = Field(
        None, description="instead of `values`: find them in the data, for a share of the budget"
    )
    match: Literal["exact", "prefix"] | None = Field(
        None,
        description="exact: blanks at the ends of a value matter; prefix: an undeclared value counts as its longest declared prefix; default: the "
        "whole value, without such blanks",
    )
    outside: OtherDrop = Field(
        "drop",
        description="an undeclared value: count it in the cell `other`, or drop the row; default: drop, but other with `discover`",
    )

    @model_validator(mode="before")
    @classmethod
    def _default_to_other(cls, keys: Any) -> Any:
        """Default `outside` to `other` with `discover`, since it is unknown beforehand which rows `drop` would lose."""
        if isinstance(keys, dict) and keys.get("discover") is not None and "outside" not in keys:
            return {**keys, "outside": "other"}
        return keys

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
                "has both `discover`, which finds whole texts, and `match: prefix`; list the prefixes in `values`, or leave `match` out"
            )
        return self

    def attribute(self, folder: Path) -> Attribute:
        """Build the attribute. `values_from` is relative to the spec's folder; with `discover` there is a cell for each value that may be found."""
        if self.discover is not None:
            values: tuple[Category, ...] = self.discover.placeholders()
        else:
            values = self.values if self.values is not None else _values_of(folder / str(self.values_from))
        declared = Categorical(
            values=values, prefixes=self.match == "prefix", exact=self.match == "exact", **self.policy
        )
        self.descent(declared, share=Fraction(0))  # raises if the tree is too broad
        return declared

    def descent(self, template: Attribute, *, share: Fraction) -> Descent | None:
        """Return the descent that finds the values in the data."""
        del share  # `discover` has its own
        if self.discover is None or not isinstance(template, Categorical):
            return None
        return self.discover.descent(template)


def _values_of(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"the file {path.name} does not exist; its path is relative to the spec's folder") from None
    except (OSError, UnicodeDecodeError):
        text = "\0"
    if "\0" in text:  # a binary format, such as a database
        raise SpecError(f"the file {path.name} cannot be read as UTF-8 text; write one value per line")
    values = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not values:
        raise SpecError(f"the file {path.name} has no values; write one value per line")
    return values


class BooleanSpec(Nullable):
    """True or false."""

    type: Literal["boolean"]
    outside: OtherDrop = "drop"

    def attribute(self, _folder: Path) -> Attribute:
        """Build the attribute."""
        return Boolean(**self.policy)
