"""Forms of values: a fixed public list of the ways in which a value can be written, by which the type and the range of a column are found."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.tables.reading import values
from dpcore.tables.reading.encoding import Reader, reader
from dpcore.tables.reading.places import ALIEN, NULL, Places, outside_or
from dpcore.universe.attribute import Outside
from dpcore.universe.categorical import Categorical, Category

Kind = Literal["integer", "number", "date", "datetime", "boolean", "text", "null"]

LONGEST_TEXT = 24
FIRST_YEAR, LAST_YEAR, DECADE = 1900, 2100, 10
DATES: tuple[tuple[Kind, str | None], ...] = (
    ("date", None),
    ("datetime", None),
    ("date", "%m/%d/%Y"),
    ("date", "%d/%m/%Y"),
    ("date", "%d.%m.%Y"),
    ("date", "%Y/%m/%d"),
    ("date", "%d-%b-%Y"),
    ("datetime", "%m/%d/%Y %H:%M"),
    ("datetime", "%d/%m/%Y %H:%M"),
    ("datetime", "%d.%m.%Y %H:%M"),
)
"""Dates with their formats; None is ISO 8601. A text counts as the first one that it matches."""

NULL_WORDS = ("NA", "N/A", "n/a", "NULL", "null", "None", "none", "?", "-", ".")
BOOLEAN_WORDS = ("true", "false", "yes", "no")
_SIZES = tuple(float(f"{digit}e{power}") for power in range(-3, 12) for digit in (1, 2, 5))
_EDGES = np.array([*(-size for size in reversed(_SIZES)), 0.0, *_SIZES])
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d(?!\d)")
_LEADING_ZERO = re.compile(r"-?0\d+")


@dataclass(frozen=True)
class Form:
    """One way in which a value can be written.

    Attributes:
        kind: What such a value is.
        low: The smallest such number, the first such year, or the length of such a text. The outermost numbers and years include all beyond.
        high: The number after the largest one, or the year after the last one.
        text: The format of a date, or the word.
    """

    kind: Kind
    low: float = 0
    high: float = 0
    text: str | None = None


FORMS = (
    *(Form(kind, low, high) for kind in ("integer", "number") for low, high in pairwise(_EDGES.tolist())),
    *(Form(kind, year, year + DECADE, text) for kind, text in DATES for year in range(FIRST_YEAR, LAST_YEAR, DECADE)),
    *(Form("text", length, length + 1) for length in range(1, LONGEST_TEXT + 2)),
    *(Form("null", text=word) for word in NULL_WORDS),
    Form("boolean"),
)
_FIRST = {(form.kind, form.text): place for place, form in reversed(list(enumerate(FORMS)))}


@dataclass(frozen=True)
class Forms(Categorical):
    """The forms as categories. Every value has one form, which depends on that value alone.

    >>> from dpcore.tables.reading.encoding import encode
    >>> [FORMS[code].kind for code in encode(Forms(), pa.array(["7", "0.5", "007", "3/31/2025", "NA", "yes"]))]
    ['integer', 'number', 'text', 'date', 'null', 'boolean']
    """

    values: tuple[Category, ...] = tuple(map(repr, FORMS))
    missing: bool = True
    outside: Outside = Outside.OTHER


@reader.register
def _(attribute: Forms) -> Reader:
    return Reader(reader.dispatch(Categorical)(attribute).types, _place)


def _place(array: pa.Array) -> Places:
    kind = array.type
    if values.is_text(kind):
        return _texts(array)
    if pa.types.is_boolean(kind):
        return np.full(len(array), _FIRST["boolean", None])
    if values.is_moment(kind):
        return _FIRST["date" if pa.types.is_date(kind) else "datetime", None] + _decades(values.moments(array)[0])
    numbers, states = values.numbers(array)
    return outside_or(_numbers(numbers), states)


def _texts(array: pa.Array) -> Places:
    texts = [text.strip() for text in values.texts(array)]
    words = {word: _FIRST["null", word] for word in NULL_WORDS} | {"": NULL}
    words |= dict.fromkeys(BOOLEAN_WORDS, _FIRST["boolean", None])
    lengths = (_FIRST["text", None] + min(len(text), LONGEST_TEXT + 1) - 1 for text in texts)
    places: Places = np.array(
        [words.get(text, words.get(text.lower(), place)) for text, place in zip(texts, lengths, strict=True)],
        dtype=np.int64,
    )
    stripped = pa.array([text.encode("utf-8", "surrogateescape") for text in texts], pa.large_binary())
    for kind, form in reversed(DATES):  # the first one counts, so it comes last
        seconds, states = values.moments(stripped, [form] if form else [])
        fits = states == 0
        if form is None:
            days = (bool(_ISO_DAY.match(text)) and (len(text) == 10) == (kind == "date") for text in texts)
            fits &= np.fromiter(days, dtype=np.bool_)
        places[fits] = _FIRST[kind, form] + _decades(seconds[fits])
    numbers, states = values.numbers(stripped)
    fits = (states == 0) & np.isfinite(numbers)
    fits &= np.fromiter((not _LEADING_ZERO.fullmatch(text) for text in texts), dtype=np.bool_)
    places[fits] = _numbers(numbers[fits])
    places[(states == 0) & np.isnan(numbers)] = NULL
    return places


def _numbers(numbers: values.Floats) -> Places:
    bins = np.clip(np.searchsorted(_EDGES, numbers, side="right") - 1, 0, len(_EDGES) - 2)
    first = np.where(numbers == np.floor(numbers), _FIRST["integer", None], _FIRST["number", None])
    return np.select([np.isnan(numbers), np.isinf(numbers)], [NULL, ALIEN], default=first + bins)


def _decades(seconds: values.Integers) -> npt.NDArray[np.int64]:
    years = seconds.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    return (np.clip(years, FIRST_YEAR, LAST_YEAR - 1) - FIRST_YEAR) // DECADE
