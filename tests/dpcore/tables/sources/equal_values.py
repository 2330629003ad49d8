"""Python values of which a column holds many that are equal, each an object of its own: they are one id, whatever dtype a library chooses."""

import datetime as dt
import ipaddress
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpcore.tables.sources import memory_table

ONE = "12345678-1234-5678-1234-567812345678"
ROWS = 6


class Word(str):
    """A text of a derived type."""

    __slots__ = ()


class Silent:
    """A value that equals others and has no text but its address."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Silent)

    def __hash__(self) -> int:
        return 1


class Pair(NamedTuple):
    """A tuple with names."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Holder:
    """A value that writes what it holds."""

    held: Any


EAST = dt.datetime(2025, 1, 31, 11, tzinfo=dt.timezone(dt.timedelta(hours=1)))

EQUAL: dict[str, Sequence[Callable[[], Any]]] = {
    "UUIDs": [lambda: UUID(ONE)],
    "UUIDs and their text": [lambda: UUID(ONE), lambda: str(UUID(ONE))],
    "decimals": [lambda: Decimal("7.00")],
    "decimals of other lengths": [lambda: Decimal("7.0"), lambda: Decimal("7.000")],
    "days": [lambda: dt.date(2025, 1, 31)],
    "moments": [lambda: dt.datetime(2025, 1, 31, 10)],
    "moments in a zone": [lambda: dt.datetime(2025, 1, 31, 10, tzinfo=dt.UTC)],
    "bytes": [lambda: bytes([80, 55])],
    "bytes that are no text": [lambda: bytes([255, 55])],
    "arrays of bytes": [lambda: bytearray(b"P7")],
    "texts": [lambda: str(b"P7", "ascii")],
    "derived texts": [lambda: Word("P7")],
    "whole numbers": [lambda: int("70000")],
    "floats": [lambda: float("70000")],
}
ONLY_TYPED: dict[str, Sequence[Callable[[], Any]]] = {  # which are ids by the type of their column, but not as objects
    "times": [lambda: dt.time(10, 30)],
    "durations": [lambda: dt.timedelta(1, 2)],
}
ONLY_OBJECTS: dict[str, Sequence[Callable[[], Any]]] = {  # of which polars makes no column, or other values
    "numbers of many types": [
        lambda: 7,
        lambda: 7.0,
        lambda: Decimal("7.00"),
        lambda: "7",
        lambda: b"7",
        lambda: np.int8(7),
    ],
    "large numbers": [lambda: 2**70],
    "tuples": [lambda: (1, 7), lambda: (1, 7.0), lambda: Pair(1, 7), lambda: (Decimal("1.0"), "7")],
    "lists": [lambda: ["a", Decimal("7.0")], lambda: ["a", Decimal("7.00")]],
    "moments in two zones": [lambda: dt.datetime(2025, 1, 31, 10, tzinfo=dt.UTC), lambda: EAST],
    "moments of two units": [
        lambda: np.datetime64("2025-01-31T10", "ns"),
        lambda: np.datetime64("2025-01-31T10", "us"),
    ],
}
NO_IDS: dict[str, Sequence[Callable[[], Any]]] = {
    "values without a text": [Silent],
    "tuples of values without a text": [lambda: (Silent(), "a")],
    "dataclasses of values without a text": [lambda: Holder(Silent())],
    "times": [lambda: dt.time(10, 30)],
    "addresses": [lambda: ipaddress.ip_address("10.1.2.3")],
    "fractions": [lambda: Fraction(7, 2)],
    "lists of dictionaries": [lambda: [{1: 2, 3: 4}], lambda: [{3: 4, 1: 2}]],
    "queues": [lambda: deque([1]), lambda: deque([1.0])],
    "sets": [lambda: frozenset(["a", "b"]), lambda: frozenset(["b", "a"])],
    "dictionaries": [lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1}],
}


def made(makers: Sequence[Callable[[], Any]]) -> list[Any]:
    return [makers[place % len(makers)]() for place in range(ROWS)]


def _objects(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "NumPy": _objects,
    "pandas": pd.Series,
    "pandas objects": lambda values: pd.Series(values, dtype=object),
    "polars": pl.Series,
    "polars objects": lambda values: pl.Series(values, dtype=pl.Object),
}
COLUMNS_OF_EQUAL = [
    pytest.param(kind, makers, id=f"{name} in {kind}")
    for kind in COLUMNS
    for name, makers in {**EQUAL, **(ONLY_TYPED if kind == "polars" else ONLY_OBJECTS)}.items()
]
COLUMNS_WITHOUT_IDS = [
    pytest.param(kind, makers, id=f"{name} in {kind}")
    for kind in COLUMNS
    if kind != "polars"
    for name, makers in NO_IDS.items()
]


def export_addresses(patch: pytest.MonkeyPatch) -> None:
    """Plant the conversion that leaves columns of objects to polars."""
    patch.setattr(memory_table, "_of_polars", lambda values, _: memory_table._joined(pa.chunked_array(values)))
