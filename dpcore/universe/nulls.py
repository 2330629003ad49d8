"""Find values that a spec declares as null, such as `?` and `NA`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.errors import SpecError
from dpcore.universe import reading
from dpcore.universe.reading import Floats, Integers

Mask = npt.NDArray[np.bool_]

LONGEST_WHOLE = 20  # digits; no integer type of Arrow holds more


def named_nulls(array: pa.Array, texts: Sequence[str]) -> Mask:
    """Return which values of a flat array equal one of the texts, each independently of the others.

    Texts are compared without surrounding blanks. In a column of numbers, dates or datetimes, a text denotes its value: `-9` also matches
    the whole number -9 and -9.0. A text that denotes no value of the column's type matches nothing.

    >>> named_nulls(pa.array([b"NA", b" ? ", b"N"], pa.large_binary()), ["?", "NA"]).tolist()
    [True, True, False]
    >>> named_nulls(pa.array([-9, 9]), ["-9", "NA", "1e20"]).tolist()
    [True, False]
    """
    nulls, kind = _values_of(tuple(texts)), array.type
    if reading.is_text(kind):
        matched = pc.match_substring_regex(array, nulls.pattern).fill_null(False)  # noqa: FBT003  Arrow's signature
        return np.asarray(matched.to_numpy(zero_copy_only=False), dtype=np.bool_)
    if pa.types.is_boolean(kind) or pa.types.is_time(kind):
        encoded = array.dictionary_encode()
        found = np.array(
            [*(_written(value) in nulls.texts for value in reading.python_values(encoded.dictionary)), False],
            dtype=np.bool_,
        )
        spread: Mask = found[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return spread
    if pa.types.is_decimal(kind):
        return np.array([value in nulls.numbers for value in array.to_pylist()], dtype=np.bool_)
    return nulls.find(array)


def checked_nulls(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts. Raise if they are not distinct, cannot occur in a table or cannot be compared with it.

    What follows from the texts alone is computed here, before any row is read: an error in it is an error of the spec.
    """
    if isinstance(texts, str) or any(not isinstance(text, str) for text in texts):
        raise SpecError("the texts that count as null must be a list of texts: put quotes around numbers")
    plain = [text.strip() for text in texts]
    if "" in plain:
        raise SpecError("an empty text is a null anyway: remove it from the texts that count as null")
    if len(set(plain)) < len(plain):
        raise SpecError("the texts that count as null must differ: remove duplicates")
    if any("\ud800" <= character <= "\udfff" for text in plain for character in text):
        raise SpecError("a text that counts as null is not valid Unicode: write it as UTF-8")
    if texts:
        _values_of(tuple(texts))
    return tuple(texts)


@dataclass(frozen=True)
class _Values:
    """The values that texts denote: everything public that `named_nulls` compares a column with.

    Attributes:
        texts: The texts without surrounding blanks.
        pattern: Matches these texts, and no others.
        numbers: The exact finite numbers.
        wholes: Those that are whole and not longer than any integer type.
        floats: The nearest doubles, including infinity.
        seconds: Dates and datetimes, in seconds since 1970.
    """

    texts: frozenset[str]
    pattern: str
    numbers: frozenset[Decimal]
    wholes: tuple[int, ...]
    floats: Floats
    seconds: Integers

    def find(self, array: pa.Array) -> Mask:
        """Compare numbers with numbers and datetimes with datetimes, in the array's own type."""
        if reading.is_moment(array.type):
            return np.isin(reading.seconds(array), self.seconds)
        if reading.is_whole(array.type):
            values = reading.stored_wholes(array)
            limits = np.iinfo(values.dtype)
            held = [whole for whole in self.wholes if limits.min <= whole <= limits.max]
            return np.isin(values, np.array(held, dtype=values.dtype))
        if pa.types.is_floating(array.type):
            return self._find_floats(np.asarray(array.to_numpy(zero_copy_only=False)))
        return np.zeros(len(array), dtype=np.bool_)

    def _find_floats(self, values: npt.NDArray[Any]) -> Mask:
        with np.errstate(over="ignore"):
            rounded = self.floats.astype(values.dtype)  # 0.1 in the column's own precision
        return np.isin(values, rounded[np.isfinite(rounded) | np.isinf(self.floats)])


@lru_cache(maxsize=256)
def _values_of(texts: tuple[str, ...]) -> _Values:
    plain = [text.strip() for text in texts]
    written = pa.array([text.encode() for text in plain], pa.large_binary())
    doubles, states = reading.parsed_numbers(written)
    seconds, moments = reading.parsed_seconds(written)
    exact = [
        Decimal(text) if state >= 0 else Decimal("NaN") for text, state in zip(plain, states.tolist(), strict=True)
    ]
    numbers = frozenset(number for number in exact if number.is_finite())
    held = [
        np.isfinite(double) if number.is_finite() else number.is_infinite()  # 1e309 is no double
        for number, double in zip(exact, doubles.tolist(), strict=True)
    ]
    return _Values(
        texts=frozenset(plain),
        pattern=_pattern(plain),
        numbers=numbers,
        wholes=tuple(int(number) for number in numbers if _is_whole(number)),
        floats=doubles[np.array(held, dtype=np.bool_)],
        seconds=seconds[moments >= 0],
    )


def _pattern(texts: Sequence[str]) -> str:
    pattern = rf"^\s*({'|'.join(map(re.escape, texts))})\s*$"
    try:
        pc.match_substring_regex(pa.array([b""], pa.large_binary()), pattern)  # compiles it, which no rows would not do
    except pa.ArrowInvalid:
        raise SpecError(
            "the texts that count as null are too many or too long to be looked for; declare those that occur, or make them null before"
        ) from None
    return pattern


def _is_whole(number: Decimal) -> bool:
    return number.adjusted() < LONGEST_WHOLE and number == number.to_integral_value()


def _written(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else getattr(value, "isoformat", str)()
