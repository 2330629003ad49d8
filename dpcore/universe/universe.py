"""The universe: all possible rows of a table, declared before any row is seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.errors import SourceError, SpecError, UsageError
from dpcore.universe.attribute import Attribute
from dpcore.universe.constraints import Constraint, Possible
from dpcore.universe.dependencies import Depends, refuse_circles, refuse_shared_determined
from dpcore.universe.drawing import Intervals, row_intervals
from dpcore.universe.orders import Order, in_order, refuse_large_chains, refuse_mixed_chains
from dpcore.universe.places import CompactCodes, SignedCodes, compact
from dpcore.universe.sums import Sum, adding_up, refuse_shared_columns


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
        found: dict[tuple[int, ...], Possible] = {}
        orders = [each for each in self.constraints if isinstance(each, Order)]
        refuse_mixed_chains(orders, self.attributes)
        refuse_large_chains(orders, self.attributes)
        refuse_circles([each for each in self.constraints if isinstance(each, Depends)])
        refuse_shared_determined(self.constraints)
        refuse_shared_columns([each for each in self.constraints if isinstance(each, Sum)], orders)
        for constraint in self.constraints:
            for columns, table in constraint.tables(self.attributes):
                places = [self.names.index(column) for column in columns]
                axes = tuple(sorted(places))
                turned = table.transpose([places.index(axis) for axis in axes])
                found[axes] = found[axes] & turned if axes in found else turned
        return found

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
        return {place: each.cells for place, each in enumerate(self.attributes.values()) if each.ordered}

    @property
    def size(self) -> int:
        """Number of cells, which may be far too many to list."""
        return prod(self.shape)

    @property
    def schema(self) -> pa.Schema:
        """Schema of a release."""
        return pa.schema([(name, attribute.arrow_type) for name, attribute in self.attributes.items()])

    def encode(self, table: pa.Table) -> tuple[CompactCodes, ...]:
        """Return the codes of a private table's rows, attribute by attribute, without the rows that any attribute drops."""
        return self.encode_rows(table)[0]

    def encode_rows(
        self, table: pa.Table | pa.RecordBatch, *, read: Mapping[str, SignedCodes] = MappingProxyType({})
    ) -> tuple[tuple[CompactCodes, ...], npt.NDArray[np.bool_]]:
        """Encode a private table; also return which rows were kept, so that other columns can be filtered alike.

        Args:
            table: Any table or batch that has each declared column once. Other columns are ignored.
            read: The codes of columns that were encoded before, -1 for rows to drop. These columns may be of other universes, too.

        Returns:
            The codes of the kept rows, attribute by attribute, each in the smallest unsigned type for its size; and for
            each row of the table whether it was kept. Both are as private as the table itself.
        """
        self._refuse_incomplete(table)
        columns = [
            read[name] if name in read else attribute.encode(table.column(name))
            for name, attribute in self.attributes.items()
        ]
        keep: npt.NDArray[np.bool_] = np.ones(table.num_rows, dtype=np.bool_)
        for codes in (*columns, *read.values()):
            if codes.min(initial=0) < 0:
                keep &= codes >= 0
        if not keep.all():
            columns = [codes[keep] for codes in columns]
        return tuple(compact(codes, size=size) for codes, size in zip(columns, self.shape, strict=True)), keep

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
        orders = [each for each in self.constraints if isinstance(each, Order)]
        sums = [each for each in self.constraints if isinstance(each, Sum)]
        places = {name: place for place, name in enumerate(self.names)}
        intervals = {
            name: within[name] if name in within else row_intervals(self.attributes[name], codes[places[name]])
            for name in dict.fromkeys(column for each in (*orders, *sums) for column in each.columns)
        }
        feasible = np.ones(table.num_rows, dtype=np.bool_)
        if orders:
            ordered = {column: intervals[column] for each in orders for column in each.columns}
            table, feasible = in_order(table, orders, ordered, attributes=self.attributes, rng=rng)
        for each in sums:
            table, allowed = adding_up(table, each, intervals, attributes=self.attributes, rng=rng)
            feasible &= allowed
        return table, feasible

    def _refuse_incomplete(self, table: pa.Table | pa.RecordBatch) -> None:
        present = table.schema.names
        for name in self.names:
            found = present.count(name)
            if found != 1:
                raise SourceError(
                    f"the table has {found} columns named {name!r}, but the universe declares one: "
                    "rename columns in the source, or correct the universe"
                )
