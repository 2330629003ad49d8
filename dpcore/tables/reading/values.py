"""Read the values of a flat Arrow array of any type as numbers, moments or texts, which attributes compare.

Every function reads each value independently. No array is parsed as a whole with another parser as a fallback: one unreadable value
would then change how the other values of its column are read.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.tables.reading.places import ALIEN, NULL, Places, all_of
from dpcore.tables.sources import text as decoding
from dpcore.tables.sources.text import PER_SECOND
from dpcore.universe.attribute import DAY, EPOCH
from dpcore.universe.formats import MONTHS, checked_format

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Texts that every correct parser reads alike. Arrow, the fastest parser, cannot fail on them.
_PLAIN_NUMBER = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"
_PLAIN_DAY = r"[1-9][0-9]{3}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
_PLAIN_MOMENT = f"^{_PLAIN_DAY}([T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])?$"


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type holds text. Bytes count as UTF-8 text, because old Parquet files store text as bytes."""
    return decoding.is_text(kind) or decoding.is_bytes(kind)


def is_parsed(kind: pa.DataType) -> bool:
    """Return whether values of a type are parsed one by one in Python, so that only distinct values should be."""
    return is_text(kind) or bool(pa.types.is_decimal(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type holds numbers of any kind. A boolean counts as 0 or 1."""
    types = pa.types
    native = types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind)
    return bool(native or types.is_decimal(kind))


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


def numbers(array: pa.Array) -> tuple[npt.NDArray[Any], Places]:
    """Read numbers, also in text, in their own type or as the nearest doubles; also return which are NULL or ALIEN instead. NaN is a null, too."""
    kind = array.type
    if is_text(kind):
        return _plain_or_parsed(array, _PLAIN_NUMBER, pa.float64(), number)
    if pa.types.is_decimal(kind):
        return _parsed(array.to_pylist(), lambda value: None if value is None else float(value), dtype=np.float64)
    if not is_number(kind):
        return np.zeros(len(array)), all_of(len(array), ALIEN)
    if pa.types.is_floating(kind):
        return array.to_numpy(zero_copy_only=False).astype(np.float64, copy=False), all_of(len(array), 0)
    native = array.cast(pa.uint8()) if pa.types.is_boolean(kind) else array
    return native.fill_null(0).to_numpy(zero_copy_only=False), all_of(len(array), 0)


def moments(array: pa.Array, formats: Sequence[str] = ()) -> tuple[Integers, Places]:
    """Read dates and times as whole seconds since 1970 in UTC, rounded down; also return which values are NULL or ALIEN instead.

    Text is read by the first of the formats that it matches, without formats as ISO 8601. Blanks around it are ignored. A blank text or
    `NaT` is a null.

    >>> moments(pa.array([b"01/31/1970", b"1970-01-31", b" "], pa.large_binary()), ["%m/%d/%Y"])[1].tolist()
    [0, -4, -1]
    """
    kind = array.type
    if is_moment(kind):
        days = pa.types.is_date32(kind)
        ticks = array.view(pa.int32() if days else pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        if days:
            return ticks.astype(np.int64) * DAY, all_of(len(array), 0)
        return ticks // PER_SECOND["ms" if pa.types.is_date64(kind) else kind.unit], all_of(len(array), 0)
    if not is_text(kind):
        return np.zeros(len(array), dtype=np.int64), all_of(len(array), ALIEN)
    if not formats:
        return _plain_or_parsed(array, _PLAIN_MOMENT, pa.timestamp("s"), _moment)
    seconds, fits = _first_fitting(array, formats)
    states: Places = np.where(fits, 0, ALIEN).astype(np.int64)
    if not fits.all():
        others = np.flatnonzero(~fits)
        stripped = [text.strip() for text in texts(array.take(pa.array(others)))]
        again = pa.array([text.encode("utf-8", "surrogateescape") for text in stripped], pa.large_binary())
        seconds[others], fitting = _first_fitting(again, formats)
        blank = np.array([text in {"", "NaT"} for text in stripped], dtype=np.bool_)
        states[others] = np.where(fitting, 0, np.where(blank, NULL, ALIEN))
    return seconds, states


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
    return (moment - EPOCH) // timedelta(seconds=1)


def _as_python(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, ArithmeticError):
        return ...


def _plain_or_parsed(
    array: pa.Array, pattern: str, kind: pa.DataType, read: Callable[[str], float | None]
) -> tuple[npt.NDArray[Any], Places]:
    """Parse texts that match the plain pattern with Arrow, and the others one by one in Python. The choice depends on each text alone."""
    plain = pc.match_substring_regex(array, pattern).fill_null(False)  # noqa: FBT003  Arrow's signature
    parsed = pc.if_else(plain, array, None).cast(pa.large_string()).cast(kind)
    if pa.types.is_timestamp(kind):
        parsed = parsed.view(pa.int64())
    values = parsed.fill_null(0).to_numpy(zero_copy_only=False)
    states: Places = np.zeros(len(array), dtype=np.int64)
    others = ~plain.to_numpy(zero_copy_only=False)
    if others.any():
        values = values.copy()
        values[others], states[others] = _parsed(texts(array.filter(pa.array(others))), read, dtype=values.dtype)
    return values, states


def _parsed(
    values: Iterable[Any], read: Callable[[Any], float | None], *, dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], Places]:
    parsed: list[float] = []
    states: list[int] = []
    for value in values:
        try:
            result = read(value)
            states.append(NULL if result is None else 0)
        except (ValueError, ArithmeticError):
            result = None
            states.append(ALIEN)
        parsed.append(result or 0)
    return np.array(parsed, dtype=dtype), np.array(states, dtype=np.int64)


def _first_fitting(array: pa.Array, formats: Sequence[str]) -> tuple[Integers, Mask]:
    """Read each text by the first format that it matches; also return which texts match one, and name a real day or month."""
    seconds: Integers = np.zeros(len(array), dtype=np.int64)
    read: Mask = np.zeros(len(array), dtype=np.bool_)
    for text in formats:
        groups = pc.extract_regex(array, checked_format(text).pattern)
        fits: Mask = np.array(groups.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        fits &= ~read
        if fits.any():
            fitting = groups.filter(pa.array(fits))
            fields = {
                field.name: _directive(fitting.field(place), field.name) for place, field in enumerate(groups.type)
            }
            seconds[fits], fits[fits] = _combined(fields)
        read |= fits
    return np.where(read, seconds, 0), read


def _directive(field: pa.Array, name: str) -> Integers:
    """Return the numbers that the texts of one directive denote."""
    if name not in "bBpz":
        return np.asarray(field.cast(pa.large_string()).cast(pa.int64()).to_numpy(zero_copy_only=False))
    encoded = field.dictionary_encode()
    by_text = [_word(text.decode(), name) for text in encoded.dictionary.to_pylist()]
    return np.asarray(np.array(by_text, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)])


def _word(text: str, name: str) -> int:
    """Return what the name of a month, `am`, `pm` or a time zone denotes: a month, hours, or seconds."""
    if name == "p":
        return 12 if text.lower() == "pm" else 0
    if name == "z":
        if text == "Z":
            return 0
        hours, minutes = int(text[1:3]), int(text[-2:])
        if hours >= 24 or minutes >= 60:
            return DAY  # no zone is a day away: `_combined` refuses it
        return (-60 if text[0] == "-" else 60) * (60 * hours + minutes)
    return 1 + [month[: len(text)] for month in MONTHS].index(text.lower())


def _combined(fields: dict[str, Integers]) -> tuple[Integers, Any]:
    """Combine the directives' numbers into seconds since 1970; also return which combinations are valid dates and times."""
    month = next(fields[name] for name in "mbB" if name in fields)
    zero = np.zeros_like(month)
    day = fields.get("d", zero + 1)
    # two-digit years follow POSIX: 69 to 99 are 1969 to 1999
    year = fields["Y"] if "Y" in fields else np.where(fields["y"] >= 69, 1900, 2000) + fields["y"]
    hour = fields["H"] if "H" in fields else fields.get("I", zero) % 12 + fields.get("p", zero)
    minute, second, offset = (fields.get(name, zero) for name in "MSz")
    valid = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59) & (np.abs(offset) < DAY)
    if "I" in fields:
        valid &= (fields["I"] >= 1) & (fields["I"] <= 12)
    months = np.where(valid, (year - 1970) * 12 + month - 1, 0)
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
    valid &= days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) == months  # no 30 February
    return days * DAY + hour * 3600 + minute * 60 + second - offset, valid
