"""The universe: all possible rows of a table, declared before any row is seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SpecError, UsageError
from dpcore.universe.attribute import Attribute
from dpcore.universe.constraints import Constraint, Possible
from dpcore.universe.dependencies import Depends, refuse_circles, refuse_shared_determined
from dpcore.universe.drawing import Draws, Intervals, row_intervals
from dpcore.universe.orders import Order, in_order, refuse_large_chains, refuse_mixed_chains
from dpcore.universe.sums import Sum, adding_up, refuse_shared_columns

_Kind = TypeVar("_Kind", bound=Constraint)


@dataclass(frozen=True, eq=False)
class Universe:
    """The product of its attributes' cells, in the order of declaration, without the combinations that constraints exclude.

    >>> from dpcore.universe import Boolean, Integer
    >>> universe = Universe({"smoker": Boolean(), "age": Integer(minimum=0, maximum=99, width=10)})
    >>> universe.shape, universe.size
    ((2, 10), 20)
    """

    attributes: Mapping[str, Attribute]
    constraints: tuple[Constraint, ...] = ()

    def __post_init__(self) -> None:
        """Reject a universe without columns, or with unnamed columns."""
        object.__setattr__(self, "attributes", dict(self.attributes))
        if not self.attributes:
            raise SpecError("a universe needs at least one attribute")
        if any(not isinstance(name, str) or not name for name in self.attributes):
            raise SpecError("every attribute needs the name of its column")

    def __eq__(self, other: object) -> bool:
        """Compare the attributes including their order, which mappings alone do not."""
        if not isinstance(other, Universe):
            return NotImplemented
        same = tuple(self.attributes.items()) == tuple(other.attributes.items())
        return same and self.constraints == other.constraints

    def __hash__(self) -> int:
        return hash((tuple(self.attributes.items()), self.constraints))

    def with_attributes(self, attributes: Mapping[str, Attribute]) -> "Universe":
        """Return the universe with some attributes replaced, and the same constraints."""
        return Universe({**self.attributes, **attributes}, self.constraints)

    @cached_property
    def possible(self) -> dict[tuple[int, ...], Possible]:
        """For the columns of each constraint, by ascending position: which combinations of their codes are possible."""
        possible: dict[tuple[int, ...], Possible] = {}
        orders = self._constraints(Order)
        refuse_mixed_chains(orders, self.attributes)
        refuse_large_chains(orders, self.attributes)
        refuse_circles(self._constraints(Depends))
        refuse_shared_determined(self.constraints)
        refuse_shared_columns(self._constraints(Sum), orders)
        for constraint in self.constraints:
            for columns, table in constraint.tables(self.attributes):
                places = [self.names.index(column) for column in columns]
                axes = tuple(sorted(places))
                turned = table.transpose([places.index(axis) for axis in axes])
                possible[axes] = possible[axes] & turned if axes in possible else turned
        return possible

    def _constraints(self, kind: type[_Kind]) -> list[_Kind]:
        return [constraint for constraint in self.constraints if isinstance(constraint, kind)]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.attributes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of codes of each attribute."""
        return tuple(attribute.size for attribute in self.attributes.values())

    @property
    def orders(self) -> dict[int, int]:
        """How many cells of each ordered column are in order, by the column's position."""
        return {axis: column.cells for axis, column in enumerate(self.attributes.values()) if column.ordered}

    @property
    def size(self) -> int:
        """Number of cells, which may be far too many to list."""
        return prod(self.shape)

    @property
    def schema(self) -> pa.Schema:
        """Schema of a release."""
        return pa.schema([(name, attribute.arrow_type) for name, attribute in self.attributes.items()])

    def decode(self, codes: Sequence[npt.NDArray[np.integer[Any]]], rng: np.random.Generator) -> pa.Table:
        """Draw a row of values for each row of codes, each within its cell. Values satisfy the orders and sums of columns."""
        if len(codes) != len(self.attributes) or len({len(column) for column in codes}) != 1:
            raise UsageError(
                f"decode needs {len(self.attributes)} arrays of codes of one length, one for each attribute"
            )
        columns = [
            attribute.decode(column, rng) for attribute, column in zip(self.attributes.values(), codes, strict=True)
        ]
        return self.satisfying(pa.Table.from_arrays(columns, schema=self.schema), codes, rng)[0]

    def satisfying(
        self,
        table: pa.Table,
        codes: Sequence[npt.NDArray[np.integer[Any]]],
        rng: np.random.Generator,
        *,
        within: Intervals = MappingProxyType({}),
    ) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        """Draw values again where drawn rows violate an order or a sum.

        Args:
            table: The rows.
            codes: Their codes.
            rng: Draws.
            within: Parts of cells from which values of some columns must come.

        Returns:
            The rows, and whether each row's cells, or parts of cells, allow all orders and sums. Whole possible cells always do.
        """
        orders, sums = self._constraints(Order), self._constraints(Sum)
        places = {name: place for place, name in enumerate(self.names)}
        intervals = {
            name: within[name] if name in within else row_intervals(self.attributes[name], codes[places[name]])
            for name in dict.fromkeys(column for constraint in (*orders, *sums) for column in constraint.columns)
        }
        feasible = np.ones(table.num_rows, dtype=np.bool_)
        if orders:
            ordered = {column: intervals[column] for order in orders for column in order.columns}
            table, feasible = in_order(table, Draws(orders, ordered, self.attributes, rng), orders)
        for total in sums:
            added = {column: intervals[column] for column in total.columns}
            table, allowed = adding_up(table, Draws((total,), added, self.attributes, rng), total)
            feasible &= allowed
        return table, feasible
