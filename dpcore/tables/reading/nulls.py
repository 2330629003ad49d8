"""Find values that a spec declares as null, such as `?` and `NA`."""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.tables.reading import values
from dpcore.tables.reading.places import spread
from dpcore.universe.categorical import canonical


def named_nulls(array: pa.Array, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which values of a flat array equal one of the texts, each independently of the others.

    Texts are compared without surrounding blanks. In a column of numbers, dates or datetimes, a text denotes its value: `-9` also matches
    -9.0. Whole numbers are compared exactly, other ones as the nearest doubles. A text that denotes no value of the column's type matches
    nothing.

    >>> named_nulls(pa.array([b"NA", b" ? ", b"N"], pa.large_binary()), ["?", "NA"]).tolist()
    [True, True, False]
    >>> named_nulls(pa.array([-9, 9]), ["-9", "NA", "1e20"]).tolist()
    [True, False]
    >>> named_nulls(pa.array([2**53, 2**53 + 1]), [str(2**53)]).tolist()
    [True, False]
    """
    kind, plain = array.type, {text.strip() for text in texts}
    pattern, doubles, wholes, seconds = _denoted(tuple(texts))
    if values.is_text(kind):
        matched = pc.match_substring_regex(array, pattern).fill_null(False)  # noqa: FBT003  Arrow's signature
        return np.asarray(matched.to_numpy(zero_copy_only=False), dtype=np.bool_)
    if pa.types.is_boolean(kind) or pa.types.is_time(kind):
        encoded = array.dictionary_encode()
        by_value = [canonical(value) in plain for value in values.python_values(encoded.dictionary)]
        return np.equal(spread(encoded, np.array(by_value, dtype=np.int8)), 1)
    if values.is_moment(kind):
        return np.isin(values.moments(array)[0], seconds)
    if not values.is_number(kind):
        return np.zeros(len(array), dtype=np.bool_)
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        held = [whole for whole in wholes if limits.min <= whole <= limits.max]
        return np.isin(values.numbers(array)[0], np.array(held, dtype=limits.dtype))
    if pa.types.is_floating(kind):
        with np.errstate(over="ignore"):
            rounded = doubles.astype(kind.to_pandas_dtype())  # 0.1 in the column's own precision
        doubles = rounded[np.isfinite(rounded) | np.isinf(doubles)].astype(np.float64)
    return np.isin(values.numbers(array)[0], doubles)


@lru_cache(maxsize=256)
def _denoted(texts: tuple[str, ...]) -> tuple[str, values.Floats, list[int], values.Integers]:
    """Return a pattern that matches texts, and the numbers, whole numbers, and seconds since 1970 that they denote."""
    pattern = rf"^\s*({'|'.join(re.escape(text.strip()) for text in texts)})\s*$"
    written = pa.array([text.encode() for text in texts], pa.large_binary())
    (doubles, numeric), (seconds, temporal) = values.numbers(written), values.moments(written)
    exact = [
        Decimal(text.strip())
        for text, finite in zip(texts, (numeric == 0) & np.isfinite(doubles), strict=True)
        if finite
    ]
    wholes = [int(number) for number in exact if number == number.to_integral_value()]
    return pattern, doubles[(numeric == 0) & ~np.isnan(doubles)], wholes, seconds[temporal == 0]
