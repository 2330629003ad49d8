"""Typed keys of noisy counts, by which they are joined with the released rows.

Every column of the universe has its own key columns, null where a count does not concern the column:

| column | keys | a row belongs to the count if |
|---|---|---|
| numbers, dates, times | `age_low`, `age_high`, in the type of `age` | `age_low <= age < age_high` |
| categories, booleans | `sex_values`, a list in the type of `sex` | `sex` is in the list |
| any with nulls | `age_null` | `age` is null, if true |

A list has more than one value where the strategy has merged rare categories. Merged neighbours of an ordered column have one interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.marginals.resolutions import Resolutions
from dpcore.universe import Attribute, Universe
from dpcore.universe.spread import Spread, category_values, null_codes
from dpcore.universe.spreading import spread_of


@dataclass(frozen=True)
class KeyNames:
    """The names of a column's key columns; None for keys that it does not have."""

    low: str | None
    high: str | None
    values: str | None
    null: str | None


def key_names(universe: Universe, *, taken: Sequence[str]) -> dict[str, KeyNames]:
    """Return the names of all key columns. They differ from each other and from those already taken.

    >>> from dpcore.universe import Boolean, Integer
    >>> key_names(Universe({"age": Integer(minimum=0, maximum=9), "age_low": Boolean()}), taken=["age_low_values"])["age_low"].values
    'age_low_values_'
    """
    used = set(taken)

    def fresh(name: str) -> str:
        while name in used:
            name += "_"
        used.add(name)
        return name

    found = {}
    for name, attribute in universe.attributes.items():
        ordered = attribute.ordered
        found[name] = KeyNames(
            low=fresh(f"{name}_low") if ordered else None,
            high=fresh(f"{name}_high") if ordered else None,
            values=None if ordered else fresh(f"{name}_values"),
            null=fresh(f"{name}_null") if null_codes(attribute) else None,
        )
    return found


def key_fields(universe: Universe, *, taken: Sequence[str]) -> list[pa.Field]:
    """Return the Arrow fields of all key columns."""
    fields = []
    for name, names in key_names(universe, taken=taken).items():
        kind = _value_type(universe.attributes[name])
        fields += [pa.field(each, kind) for each in (names.low, names.high) if each]
        if names.values:
            fields.append(pa.field(names.values, pa.list_(kind)))
        if names.null:
            fields.append(pa.field(names.null, pa.bool_()))
    return fields


class Keys:
    """The keys of the cells of every axis of some resolutions."""

    def __init__(self, universe: Universe, resolutions: Resolutions, *, taken: Sequence[str]) -> None:
        self._universe = universe
        self._resolutions = resolutions
        self._names = key_names(universe, taken=taken)
        self._known: dict[int, dict[str, pa.Array]] = {}

    def of_axis(self, axis: int) -> Mapping[str, pa.Array]:
        """Return the key columns of an axis, with one entry for each of its cells."""
        if axis not in self._known:
            self._known[axis] = self._of_axis(axis)
        return self._known[axis]

    def _of_axis(self, axis: int) -> dict[str, pa.Array]:
        column = self._resolutions.column(axis)
        name = self._universe.names[column]
        attribute, names = self._universe.attributes[name], self._names[name]
        groups = self._resolutions.groups(column, axis)
        order = np.argsort(groups, kind="stable")
        members = np.split(order, np.searchsorted(groups[order], np.arange(1, self._resolutions.shape[axis])))
        values, kind, nulls = category_values(attribute), _value_type(attribute), set(null_codes(attribute))
        keys: dict[str, pa.Array] = {}
        if names.low and names.high:
            lows, highs = _intervals(spread_of(attribute), members)
            keys |= {names.low: pa.array(lows, kind), names.high: pa.array(highs, kind)}
        if names.values and values is not None:
            lists = [[values[cell] for cell in cells if cell not in nulls] for cells in members]
            keys[names.values] = pa.array(lists, pa.list_(kind))
        if names.null:
            keys[names.null] = pa.array([any(cell in nulls for cell in cells) for cells in members], pa.bool_())
        return keys


def _intervals(spread: Spread, members: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the ends of each group's interval, None for a group that is no interval."""
    lows: list[Any] = []
    highs: list[Any] = []
    for cells in members:
        inside = cells[cells < spread.cells]
        one = len(inside) > 0 and inside[-1] - inside[0] + 1 == len(inside)
        lows.append(spread.edges[inside[0]] if one else None)
        highs.append(spread.edges[inside[-1] + 1] if one else None)
    return lows, highs


def _value_type(attribute: Attribute) -> pa.DataType:
    kind = attribute.arrow_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind
