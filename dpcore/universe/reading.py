"""Read the values of a flat Arrow array of any type as numbers, datetimes or text, which attributes compare.

Every function reads each value independently. No array is parsed as a whole with another parser as a fallback: one unreadable value
would then change how the other values of its column are read.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.universe.places import ALIEN, NULL, Places

Integers = npt.NDArray[np.int64]
AnyIntegers = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float64]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400
"""Seconds in a day."""
_SECOND = timedelta(seconds=1)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

# Texts that every correct parser reads alike. Arrow, the fastest parser, cannot fail on them.
_PLAIN_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"
_PLAIN_DAY = r"[1-9][0-9]{3}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
_PLAIN_MOMENT = f"^{_PLAIN_DAY}([T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])?$"

_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def flat(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values themselves, without storage layouts such as dictionaries."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds text. Bytes count as UTF-8 text, because old Parquet files store text as bytes."""
    return any(test(kind) for test in _TEXT)


def is_parsed(kind: pa.DataType) -> bool:
    """Return whether values of a type are parsed one by one in Python, so that only distinct values should be."""
    return is_text(kind) or bool(pa.types.is_decimal(kind))


def is_whole(kind: pa.DataType) -> bool:
    """Return whether a type holds whole numbers. A boolean counts as 0 or 1."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type holds numbers of any kind."""
    return is_whole(kind) or bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_moment(kind: pa.DataType) -> bool:
    """Return whether a type holds dates or timestamps."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def distinct(array: pa.Array) -> pa.DictionaryArray:
    """Dictionary-encode an array of a parsed type. Text becomes `large_binary`, which may hold any bytes."""
    if is_text(array.type):
        array = array.cast(pa.large_binary())
    elif array.type.bit_width < 128:
        array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return array.dictionary_encode()


def whole_numbers(array: pa.Array) -> Integers:
    """Read whole numbers exactly, as int64. Larger numbers become the largest int64."""
    return native_wholes(array).astype(np.int64, copy=False)


def stored_wholes(array: pa.Array) -> AnyIntegers:
    """Read whole numbers exactly, in their own type."""
    values: AnyIntegers = _filled(array)
    return values


def native_wholes(array: pa.Array) -> AnyIntegers:
    """Read whole numbers exactly, in their own width. Numbers beyond int64 become the largest int64."""
    values = stored_wholes(array)
    if values.dtype == np.uint64:
        return np.minimum(values, np.uint64(np.iinfo(np.int64).max)).astype(np.int64)
    return values.view(np.uint8) if values.dtype == np.bool_ else values


def floats(array: pa.Array) -> Floats:
    """Read native numbers as doubles."""
    if pa.types.is_floating(array.type):
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.float64)
    return _filled(array).astype(np.float64)


def parsed_numbers(array: pa.Array) -> tuple[Floats, Places]:
    """Read decimals, or numbers in text, as doubles; also return which are NULL or ALIEN instead."""
    if pa.types.is_decimal(array.type):
        return _each(array.to_pylist(), lambda value: None if value is None else float(value), dtype=np.float64)
    return _plain_or_each(array, _PLAIN_NUMBER, lambda plain: floats(plain.cast(pa.float64())), number)


def seconds(array: pa.Array) -> Integers:
    """Read dates and timestamps as whole seconds since 1970, rounded down. Values with a time zone are read in UTC."""
    ticks, per_second = native_ticks(array)
    return ticks.astype(np.int64) * per_second.denominator // per_second.numerator


def native_ticks(array: pa.Array) -> tuple[AnyIntegers, Fraction]:
    """Read dates and timestamps as stored; also return how many of their units make a second."""
    if pa.types.is_date32(array.type):
        return _filled(array.view(pa.int32())), Fraction(1, DAY)
    unit = "ms" if pa.types.is_date64(array.type) else array.type.unit
    return _filled(array.view(pa.int64())), Fraction(_PER_SECOND[unit])


def parsed_seconds(array: pa.Array) -> tuple[Integers, Places]:
    """Read ISO 8601 dates and datetimes in text as `seconds` does; also return which are NULL or ALIEN instead."""
    return _plain_or_each(array, _PLAIN_MOMENT, lambda plain: seconds(plain.cast(pa.timestamp("s"))), _moment)


def texts(array: pa.Array) -> list[str]:
    """Decode bytes as UTF-8. Invalid bytes stay distinguishable, and a text with them equals no declared text."""
    return [(value or b"").decode("utf-8", "surrogateescape") for value in array.to_pylist()]


def python_values(array: pa.Array) -> list[Any]:
    """Read scalars of any type as Python objects. Values that Python cannot hold, such as the year 20000, become `...`."""
    kind = array.type
    if is_text(kind):
        return texts(array)
    if pa.types.is_float16(kind) or pa.types.is_float32(kind):
        # Through the shortest text that denotes this number in its own precision: 0.1, not 0.10000000149011612.
        return [float(str(value)) for value in array.to_numpy(zero_copy_only=False)]
    if pa.types.is_timestamp(kind):
        array = array.view(pa.timestamp(kind.unit))
    if pa.types.is_temporal(kind):
        return [_as_python(scalar) for scalar in array]
    values: list[Any] = array.to_pylist()
    return values


def number(text: str) -> float | None:
    """Parse a number from text. Return None if the text is blank; raise ValueError if it is not a number."""
    stripped = text.strip()
    if not stripped:
        return None
    if "_" in stripped:
        raise ValueError  # float() would accept Python's digit separator, which is not a number in data
    return float(stripped)


def _moment(text: str) -> int | None:
    stripped = text.strip()
    if not stripped or stripped == "NaT":
        return None
    moment = datetime.fromisoformat(stripped)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // _SECOND


def _as_python(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, ArithmeticError):
        return ...


def _filled(array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers exactly, with 0 for nulls. With nulls, to_numpy alone would convert them all to doubles."""
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _plain_or_each(
    array: pa.Array,
    pattern: str,
    read_plain: Callable[[pa.Array], npt.NDArray[Any]],
    read: Callable[[str], float | None],
) -> tuple[npt.NDArray[Any], Places]:
    """Parse texts that match the plain pattern with Arrow, and the others one by one in Python. The choice depends on each text alone."""
    plain = pc.match_substring_regex(array, pattern).fill_null(False)  # noqa: FBT003  Arrow's signature
    values = read_plain(pc.if_else(plain, array, None).cast(pa.large_string()))
    states: Places = np.zeros(len(array), dtype=np.int64)
    others = ~plain.to_numpy(zero_copy_only=False)
    if others.any():
        values = values.copy()
        values[others], states[others] = _each(texts(array.filter(pa.array(others))), read, dtype=values.dtype)
    return values, states


def _each(
    values: Iterable[Any], read: Callable[[Any], float | None], *, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], Places]:
    found: list[float] = []
    states: list[int] = []
    for value in values:
        result: float | None = 0
        state = 0
        try:
            result = read(value)
        except (ValueError, ArithmeticError):
            state = ALIEN
        if result is None:
            result, state = 0, NULL
        found.append(result)
        states.append(state)
    return np.array(found, dtype=dtype), np.array(states, dtype=np.int64)
