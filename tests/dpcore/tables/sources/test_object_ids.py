"""Python values that are equal have one id or none, and those of different persons have different ids."""

import array
import dataclasses
import datetime as dt
import enum
import ipaddress
import pathlib
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import combinations, product
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpcore.tables.sources import object_ids
from dpcore.tables.sources.ids import canonical_ids
from dpcore.tables.sources.object_ids import as_id
from dpcore.tables.sources.values import as_text
from tests.dpcore.tables.sources.equal_values import EAST, Holder, Pair, Silent, Word

Id = Callable[[Any], str | None]


class Level(enum.IntEnum):
    """A number of an enumeration."""

    SEVEN = 7


class Sort(enum.Enum):
    """A value of an enumeration."""

    FIRST = "1st"


class Name(str):
    """A text that ignores case."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self.lower() == str(other).lower()

    def __hash__(self) -> int:
        return hash(self.lower())


class Rude(type):
    """A type that cannot be hashed."""

    def __hash__(cls) -> int:
        raise ValueError


class Unhashed(metaclass=Rude):
    """A value of such a type."""


PARIS, ROME = ZoneInfo("Europe/Paris"), ZoneInfo("Europe/Rome")
UNITS = ("D", "h", "m", "s", "ms", "us", "ns")
NUMBERS = [
    *(0, 1, 7, -7, 10**16, 2**53, 2**53 + 1, 2**70, 10**400, 10**500),
    *(0.0, -0.0, 1.0, 7.0, -7.0, 1e16, 2.0**53, 2.0**70, 0.5, 7.5, float("inf")),
    *map(
        Decimal,
        ("0", "-0.0", "0E-900", "1", "7", "7.00", "-7.0", "0.7E1", "1E+16", "9007199254740993.0", "7.5", "7.50"),
    ),
    *map(Decimal, ("1E+500", "10E+499", "1E-500", "Infinity", "sNaN", "0.5")),
    *(Fraction(7), Fraction(1, 2), Fraction(15, 2), 7 + 0j, True, False, Level.SEVEN),
    *(kind(7) for kind in (np.int8, np.uint64, np.float16, np.float32, np.float64, np.longdouble, np.complex128)),
    *(
        np.float32(2**24),
        np.float32(0.5),
        np.bool_(True),
        np.timedelta64(7, "s"),
        np.timedelta64(7, "ns"),
        pa.scalar(7),
    ),
]
MOMENTS = [
    *(
        dt.date(2025, 1, 31),
        dt.datetime(2025, 1, 31),
        dt.datetime(2025, 1, 31, 10),
        dt.datetime(2025, 1, 31, 10, 0, 0, 500_000),
    ),
    *(np.datetime64("2025-01-31", unit) for unit in UNITS),
    *(np.datetime64("2025-01-31T10", unit) for unit in UNITS[1:]),
    *(np.datetime64("2025-01-31T10:00:00.5", unit) for unit in UNITS[4:]),
    *(np.datetime64("1969-12-31T23:59:59.5", unit) for unit in UNITS[4:]),
    *(
        np.datetime64("2025-01", "M"),
        np.datetime64("2025", "Y"),
        np.datetime64("2025-01-01"),
        np.datetime64("NaT", "ns"),
    ),
    *(
        np.datetime64(7, "10D"),
        np.datetime64(70, "D"),
        np.datetime64(2**62, "s"),
        np.datetime64(2**62, "Y"),
        np.datetime64(7, "as"),
    ),
    *(pd.Timestamp("2025-01-31T10").as_unit(unit) for unit in ("s", "us", "ns")),
    *(pd.Timestamp("2025-01-31"), pd.Timestamp(7), pd.NaT, pd.NA, pd.Timestamp("2025-01-31T10", tz="UTC")),
    *(pd.Timestamp("2025-01-31T11", tz=zone) for zone in ("Europe/Paris", "Europe/Rome")),
    *(dt.datetime(2025, 1, 31, 10, tzinfo=dt.UTC), EAST, dt.datetime(2025, 1, 31, 11, tzinfo=PARIS)),
    *(dt.datetime(2025, 10, 26, 2, 30, tzinfo=zone, fold=fold) for zone in (PARIS, ROME) for fold in (0, 1)),
    *(dt.datetime(2025, 10, 26, hour, 30, tzinfo=dt.UTC) for hour in (0, 1)),
    *(pd.Timestamp(dt.datetime(2025, 10, 26, 2, 30, tzinfo=PARIS, fold=fold)) for fold in (0, 1)),
    *(
        dt.time(10),
        dt.time(10, tzinfo=dt.UTC),
        dt.timedelta(seconds=7),
        pd.Timedelta(7, "s"),
        pd.Period("2025-01", "M"),
    ),
    *(
        dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
        np.datetime64(dt.datetime(9999, 12, 31, 23, 59, 59)),
    ),
]
TEXTS = [
    *("7", "7.0", "07", "a", "A", "", " ", "\0", "\0\0", "\x001:7", "2025-01-31", "1:7", "\ud800", "\ud801", "?"),
    *(b"7", b"a", b"\x001:7", bytearray(b"a"), bytearray(b"7"), memoryview(b"a"), memoryview(array.array("i", [7]))),
    *(memoryview(array.array("q", [7])), np.str_("a"), np.bytes_(b"a"), np.str_("7"), Word("a"), Name("a"), Name("A")),
    *(
        "a\0",
        "a\0\0",
        b"a\0",
        np.str_("a\0"),
        np.str_("a\0\0"),
        np.str_("\0"),
        np.bytes_(b"a\0"),
        np.bytes_(b"a\0\0"),
        np.bytes_(b"\0"),
    ),
    *(UUID(int=5), str(UUID(int=5)), UUID(int=6)),
]
OTHERS = [
    *(
        Silent(),
        Silent(),
        Holder(Silent()),
        Holder(Silent()),
        Holder(7),
        Holder(7.0),
        Sort.FIRST,
        pathlib.Path("a"),
        Unhashed(),
    ),
    *(frozenset("abc"), frozenset("cba"), {"a", "b"}, {"b", "a"}, {1: 2, 3: 4}, {3: 4, 1: 2}, {"a": 1}.items()),
    *(
        UserDict(a=1, b=2),
        UserDict(b=2, a=1),
        OrderedDict(a=1),
        deque([1]),
        deque([1.0]),
        range(0),
        range(1, 1),
        slice(1, 2),
    ),
    *(array.array("i", [7]), array.array("d", [7]), np.array([7]), np.array([7.0]), np.array(7), np.void(b"abc")),
    *(ipaddress.ip_address("10.1.2.3"), pa.scalar("a"), pa.scalar(Decimal("7.0")), float("nan"), None, object, len),
    *(np.array([(1, 2.0)], dtype="i4,f8")[0], np.array([(1, 2)], dtype="i4,i4")[0]),
]
SINGLE = [*NUMBERS, *MOMENTS, *TEXTS, *OTHERS]
SEVERAL = [
    *((value,) for value in SINGLE),
    *([value] for value in SINGLE),
    *((1, value) for value in NUMBERS),
    *(Pair(1.0, value) for value in NUMBERS),
    *product(["a", "a1", "", "1:a"], ["b", "1b", "", "1:b"]),
    *(
        (),
        [],
        ((1, 7),),
        ([1, 7],),
        ("a", "b", "c"),
        ("ab", "c"),
        ("a", "bc"),
        ("a1:b",),
        "\x001:11:7",
        "(1, 7)",
        "[7]",
    ),
]


def ids_of(values: Sequence[Any], write: Id = as_id) -> list[bytes | None]:
    """Return what is hashed as the id of each value."""
    return list(canonical_ids(pa.array(map(write, values), pa.large_string())).to_pylist())


def hash_or_none(value: Any) -> int | None:
    try:
        return hash(tuple(value) if isinstance(value, list) else value)
    except Exception:  # noqa: BLE001  some of these values raise anything
        return None


def are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(np.all(one == other))
    except Exception:  # noqa: BLE001  likewise
        return False


def split(values: Sequence[Any], write: Id = as_id) -> list[tuple[Any, Any]]:
    """Return the pairs of values that are equal, as keys or as what cannot be a key, but have two ids."""
    ids, hashes = ids_of(values, write), [hash_or_none(value) for value in values]
    numbered = [number for number, one in enumerate(ids) if one is not None]
    return [
        (values[one], values[other])
        for one, other in combinations(numbered, 2)
        if ids[one] != ids[other] and hashes[one] == hashes[other] and are_equal(values[one], values[other])
    ]


def test_equal_values_have_one_id_or_none() -> None:
    assert split(SINGLE) == []
    assert split(SEVERAL) == []


def by_text(value: Any) -> str | None:
    return None if value is None else str(value).encode("utf-8", "replace").decode()


def of_members(write: Callable[[Sequence[Any]], str | None]) -> Id:
    return lambda value: write(value) if isinstance(value, tuple | list) else as_id(value)


@pytest.mark.parametrize(
    ("write", "values"),
    [(as_text, SINGLE), (by_text, SINGLE), (of_members(by_text), SEVERAL), (of_members(as_text), SEVERAL)],
    ids=["the text for columns", "the text of Python", "Python's text of tuples", "the text for columns of tuples"],
)
def test_ids_that_are_other_texts_are_caught(write: Id, values: Sequence[Any]) -> None:
    assert split(values, write)


def test_moments_that_keep_their_zone_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_ids, "_WRITERS", {**object_ids._WRITERS, dt.datetime: dt.datetime.isoformat})
    assert split(MOMENTS)


def test_derived_types_with_an_equality_of_their_own_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_ids, "_behaves_as", issubclass)
    assert split(TEXTS)


def test_ids_without_the_null_characters_at_their_end_are_caught() -> None:
    assert split(TEXTS, lambda value: as_id(value.item() if isinstance(value, np.str_ | np.bytes_) else value))


PERSONS: list[Iterable[Any]] = [
    *([number, str(number)] for number in (0, 1, 7, -7, 2**53, 2**53 + 1, 2**70, 10**300)),
    *(
        [text, text.encode(), np.str_(text), np.bytes_(text.encode())]
        for text in ("a", "a\0", "a\0\0", "A", "07", " ", "\0", "\0\0", "\x001:7", "1:7", "\x001:11:7", "(1, 7)", "?")
    ),
    *([text] for text in ("7.5", "7.50", "0.1", "-0.1", "7.0", "7.", "-0", "1e+05")),
    [dt.date(2025, 1, 31), dt.datetime(2025, 1, 31), "2025-01-31", np.datetime64(1_738_281_600, "s")],
    [dt.datetime(2025, 1, 31, 10), np.datetime64("2025-01-31T10", "ns"), pd.Timestamp("2025-01-31T10")],
    [dt.datetime(2025, 1, 31, 10, tzinfo=dt.UTC), EAST, pd.Timestamp("2025-01-31T11", tz="Europe/Paris")],
    [dt.datetime(2025, 1, 31, tzinfo=dt.UTC)],
    *([np.datetime64(7, unit)] for unit in ("Y", "M", "W", *UNITS, "ps", "fs", "as")),
    [1_738_281_600],
    *([UUID(int=number), str(UUID(int=number))] for number in (5, 6)),
    *([one, list(one), Pair(*one)] for one in product(("a", "a1", "1:a", 1, 11), ("b", "1b", "1:b", 1, 11))),
    *(
        [one]
        for one in ((1,), ("a",), ("a", "b", "c"), ("ab", "c"), ("a", "bc"), ("a1:b",), ("1:a1:b",), (UUID(int=5),))
    ),
    [(dt.date(2025, 1, 31), 7.0), [np.datetime64("2025-01-31", "us"), "7"]],
]


def test_each_person_has_one_id_and_no_two_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [set(ids_of(list(values))) for values in PERSONS]
    assert all(len(one) == 1 and None not in one for one in ids)
    assert len(set.union(*ids)) == len(PERSONS)
    monkeypatch.setattr(object_ids, "_of_members", lambda members: "\0" + "".join(map(str, members)))
    assert len({one for values in PERSONS for one in ids_of(list(values))}) < len(PERSONS)


def test_what_is_not_on_the_list_is_nobody() -> None:
    assert {as_id(value) for value in OTHERS} == {None}
    assert {as_id((value,)) for value in OTHERS} == {None}
    assert as_id(dataclasses.make_dataclass("Id", ["number"])(7)) is None
