"""Typed keys of noisy counts, by which they are joined with the released rows.

Every column of the universe has its own key columns, null where a count does not concern the column:

| column | keys | a row belongs to the count if |
|---|---|---|
| numbers, dates, times | `age_low`, `age_high`, in the type of `age` | `age_low <= age < age_high` |
| categories, booleans | `sex_values`, a list in the type of `sex` | `sex` is in the list |
| any with nulls | `age_null` | `age` is null, if true |

A list has more than one value where the strategy has merged rare categories. Merged neighbours of an ordered column have one interval.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.marginals.resolutions import Resolutions
from dpcore.universe import Attribute, Universe
from dpcore.universe.spread import Spread, category_values, null_codes
from dpcore.universe.spreading import spread_of

Cells = npt.NDArray[np.intp]


class Key(NamedTuple):
    """A key column: its Arrow field, and its value for some cells of its column that count together."""

    field: pa.Field
    value: Callable[[Cells], Any]


def key_columns(universe: Universe, *, taken: Sequence[str]) -> dict[str, list[Key]]:
    """Return the key columns of each column. Their names differ from each other and from those already taken.

    >>> from dpcore.universe import Boolean, Integer
    >>> keys = key_columns(Universe({"age": Integer(minimum=0, maximum=9), "age_low": Boolean()}), taken=["age_low_values"])
    >>> [key.field.name for key in keys["age_low"]]
    ['age_low_values_']
    """
    used = set(taken)

    def fresh(name: str) -> str:
        while name in used:
            name += "_"
        used.add(name)
        return name

    return {
        name: [Key(pa.field(fresh(f"{name}_{what}"), kind), value) for what, kind, value in _keys_of(attribute)]
        for name, attribute in universe.attributes.items()
    }


def keyed_schema(fields: Sequence[pa.Field], universe: Universe) -> pa.Schema:
    """Return the schema of a table of counts: its own fields, and the keys of every column of the universe."""
    keys = key_columns(universe, taken=[field.name for field in fields]).values()
    return pa.schema([*fields, *(key.field for own in keys for key in own)])


def keyed_table(columns: Mapping[str, pa.Array], schema: pa.Schema, *, count: int) -> pa.Table:
    """Return a table of so many counts, null in the key columns that do not concern them."""
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def _keys_of(attribute: Attribute) -> Iterator[tuple[str, pa.DataType, Callable[[Cells], Any]]]:
    kind, nulls, values = attribute.arrow_type, set(null_codes(attribute)), category_values(attribute)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if attribute.ordered:
        spread = spread_of(attribute)
        yield "low", kind, partial(_end, spread, side=0)
        yield "high", kind, partial(_end, spread, side=1)
    elif values is not None:
        yield "values", pa.list_(kind), lambda cells: [values[cell] for cell in cells if cell not in nulls]
    if nulls:
        yield "null", pa.bool_(), lambda cells: any(cell in nulls for cell in cells)


def _end(spread: Spread, cells: Cells, *, side: int) -> Any:
    """Return an end of the interval of some cells, or None if they are no interval."""
    inside = cells[cells < spread.cells]
    whole = len(inside) > 0 and inside[-1] - inside[0] + 1 == len(inside)
    return spread.edges[inside[-side] + side] if whole else None


def keys_by_axis(
    universe: Universe, resolutions: Resolutions, *, taken: Sequence[str]
) -> Callable[[int], Mapping[str, pa.Array]]:
    """Return a function that gives the key columns of an axis, with one entry for each of its cells."""
    keys = key_columns(universe, taken=taken)

    @cache
    def of_axis(axis: int) -> Mapping[str, pa.Array]:
        column = resolutions.column(axis)
        groups = resolutions.groups(column, axis)
        order = np.argsort(groups, kind="stable")
        members = np.split(order, np.searchsorted(groups[order], np.arange(1, resolutions.shape[axis])))
        return {
            field.name: pa.array([value(cells) for cells in members], field.type)
            for field, value in keys[universe.names[column]]
        }

    return of_axis
