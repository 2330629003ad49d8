"""Find values that a spec declares as null, such as `?` and `NA`."""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.errors import SpecError
from dpcore.universe import reading

Mask = npt.NDArray[np.bool_]


def named_nulls(array: pa.Array, texts: Sequence[str]) -> Mask:
    """Return which values of a flat array equal one of the texts, each independently of the others.

    Texts are compared without surrounding blanks. In a column of numbers, dates or datetimes, a text denotes its value: `-9` also matches
    the whole number -9 and -9.0.

    >>> named_nulls(pa.array([b"NA", b" ? ", b"N"], pa.large_binary()), ["?", "NA"]).tolist()
    [True, True, False]
    >>> named_nulls(pa.array([-9, 9]), ["-9", "NA"]).tolist()
    [True, False]
    """
    kind = array.type
    if reading.is_text(kind):
        pattern = "|".join(re.escape(text.strip()) for text in texts)
        matched = pc.match_substring_regex(array, rf"^\s*({pattern})\s*$").fill_null(False)  # noqa: FBT003  Arrow's signature
        return np.asarray(matched.to_numpy(zero_copy_only=False), dtype=np.bool_)
    if pa.types.is_boolean(kind) or pa.types.is_time(kind):
        encoded = array.dictionary_encode()
        found = np.array(
            [*(_written(value) in texts for value in reading.python_values(encoded.dictionary)), False], dtype=np.bool_
        )
        spread: Mask = found[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return spread
    if pa.types.is_decimal(kind):
        numbers = set(_decimals(texts))
        return np.array([value is not None and value in numbers for value in array.to_pylist()], dtype=np.bool_)
    return _typed(array, texts)


def checked_nulls(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts. Raise if they are not distinct or cannot occur in a table."""
    if isinstance(texts, str) or any(not isinstance(text, str) for text in texts):
        raise SpecError("the texts that count as null must be a list of texts: put quotes around numbers")
    plain = [text.strip() for text in texts]
    if "" in plain:
        raise SpecError("an empty text is a null anyway: remove it from the texts that count as null")
    if len(set(plain)) < len(plain):
        raise SpecError("the texts that count as null must differ: remove duplicates")
    if any("\ud800" <= character <= "\udfff" for text in plain for character in text):
        raise SpecError("a text that counts as null is not valid Unicode: write it as UTF-8")
    return tuple(texts)


def _typed(array: pa.Array, texts: Sequence[str]) -> Mask:
    """Compare numbers with numbers and datetimes with datetimes. A text that denotes no such value matches nothing."""
    written = pa.array([text.encode() for text in texts], pa.large_binary())
    values: npt.NDArray[Any]
    wanted: npt.NDArray[Any]
    if reading.is_moment(array.type):
        values, (wanted, states) = reading.seconds(array), reading.parsed_seconds(written)
    elif reading.is_whole(array.type):
        values, (wanted, states) = reading.whole_numbers(array), reading.parsed_numbers(written)
        wanted = np.where(np.floor(wanted) == wanted, wanted, np.nan)
    elif pa.types.is_floating(array.type):
        values, (wanted, states) = np.asarray(array.to_numpy(zero_copy_only=False)), reading.parsed_numbers(written)
        wanted = wanted.astype(values.dtype)  # 0.1 in the column's own precision
    else:
        return np.zeros(len(array), dtype=np.bool_)
    readable = wanted[states >= 0]
    if values.dtype == np.int64:
        readable = np.array([int(value) for value in readable.tolist() if np.isfinite(value)], dtype=np.int64)
    return np.isin(values, readable)


def _written(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else getattr(value, "isoformat", str)()


def _decimals(texts: Sequence[str]) -> list[Decimal]:
    numbers = []
    for text in texts:
        try:
            numbers.append(Decimal(text.strip()))
        except InvalidOperation:
            continue
    return [number for number in numbers if number.is_finite()]
