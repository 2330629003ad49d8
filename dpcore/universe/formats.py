"""Read dates and times from text by declared formats, as in `strptime`.

Reading is row-wise and total: each text is read by the first declared format that it matches, or by none. Nothing is inferred from other
texts, and the machine's locale has no effect: month names are English. A month without a day is read as its first day.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.errors import SpecError
from dpcore.universe import reading
from dpcore.universe.places import ALIEN, NULL, Places

MOST_FORMATS = 20
MOST_LETTERS = 100
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DIGITS = "YymdHIMSf"
_LETTERS = "bBp"
_PATTERNS = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "b": f"(?P<b>(?i:{'|'.join(name[:3] for name in _MONTHS)}))",
    "B": f"(?P<B>(?i:{'|'.join(_MONTHS)}))",
    "p": "(?P<p>(?i:am|pm))",
    "f": "[0-9]{1,9}",
    "z": "(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})",
} | {two: f"(?P<{two}>[0-9]{{1,2}})" for two in "mdHIMS"}
_EXACTLY_TWO = ("{1,2}", "{2}")
SUPPORTED = ", ".join(f"%{letter}" for letter in "YymbBdHIpMSfz")
_NEEDS = (("M", "HI"), ("S", "M"), ("f", "S"), ("z", "HI"), ("I", "p"), ("p", "I"))
_PROBES = (datetime(2001, 2, 3, 4, 5, 6), datetime(2006, 5, 4, 3, 2, 1), datetime(2012, 11, 10, 9, 8, 7))  # noqa: DTZ001
_LAST_OF_2000 = 68  # two-digit years follow POSIX: 69 to 99 are 1969 to 1999

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Format:
    """One checked format.

    Attributes:
        text: The format as declared, such as `%m/%d/%Y`.
        parts: Its directives, each as one letter, and the text between them.
        pattern: A regular expression that matches exactly the texts in this format.
    """

    text: str
    parts: tuple[tuple[str, str], ...]
    pattern: str

    @property
    def is_month(self) -> bool:
        """Whether the format names a month without a day."""
        return ("directive", "d") not in self.parts

    def read(self, array: pa.Array) -> tuple[Integers, Mask]:
        """Read texts, given as `large_binary`, as seconds since 1970 in UTC; also return which match this format and name a real day or month."""
        found = pc.extract_regex(array, self.pattern)
        fits: Mask = np.array(found.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
        seconds: Integers = np.zeros(len(array), dtype=np.int64)
        if fits.any():
            fitting = found.filter(pa.array(fits))
            fields = {field.name: _numbers(fitting.field(place), field.name) for place, field in enumerate(found.type)}
            seconds[fits], fits[fits] = _moments(fields)
        return seconds, fits

    def write(self, moment: datetime) -> str:
        """Format a datetime."""
        month = _MONTHS[moment.month - 1].title()
        values = {
            "Y": f"{moment.year:04}",
            "y": f"{moment.year % 100:02}",
            "m": f"{moment.month:02}",
            "b": month[:3],
            "B": month,
            "d": f"{moment.day:02}",
            "H": f"{moment.hour:02}",
            "I": f"{(moment.hour - 1) % 12 + 1:02}",
            "p": "PM" if moment.hour >= 12 else "AM",
            "M": f"{moment.minute:02}",
            "S": f"{moment.second:02}",
            "f": "000000",
            "z": "+0000",
        }
        return "".join(values[part] if kind == "directive" else part for kind, part in self.parts)


def read_moments(array: pa.Array, formats: Sequence[str]) -> tuple[Integers, Places]:
    """Read each text by the first format that it matches, as seconds since 1970; also return which texts are NULL or ALIEN instead.

    Blanks around a text are ignored. A blank text or `NaT` is a null, as without formats.

    Args:
        array: Texts as `large_binary`.
        formats: Checked formats, in the order in which they are tried.

    >>> read_moments(pa.array([b"01/31/1970", b"1970-01-31", b" "], pa.large_binary()), ["%m/%d/%Y"])[1].tolist()
    [0, -4, -1]
    """
    seconds, fits = _first_fitting(array, formats)
    states: Places = np.where(fits, 0, ALIEN).astype(np.int64)
    if not fits.all():
        others = np.flatnonzero(~fits)
        stripped = [text.strip() for text in reading.texts(array.take(pa.array(others)))]
        again = pa.array([text.encode("utf-8", "surrogateescape") for text in stripped], pa.large_binary())
        seconds[others], fitting = _first_fitting(again, formats)
        blank = np.array([text in {"", "NaT"} for text in stripped], dtype=np.bool_)
        states[others] = np.where(fitting, 0, np.where(blank, NULL, ALIEN))
    return seconds, states


def _first_fitting(array: pa.Array, formats: Sequence[str]) -> tuple[Integers, Mask]:
    seconds: Integers = np.zeros(len(array), dtype=np.int64)
    found: Mask = np.zeros(len(array), dtype=np.bool_)
    for text in formats:
        moments, fits = checked_format(text).read(array)
        fits &= ~found
        seconds[fits] = moments[fits]
        found |= fits
    return seconds, found


def checked_formats(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the formats if they are unambiguous: no text is read differently by two of them. Raise otherwise.

    >>> checked_formats(["%m/%d/%Y", "%d/%m/%Y"])
    Traceback (most recent call last):
        ...
    dpcore.errors.SpecError: '%m/%d/%Y' and '%d/%m/%Y' read the same text as different days: keep the one that the table is written in
    """
    if isinstance(formats, str) or any(not isinstance(text, str) for text in formats):
        raise SpecError("formats must be a list of texts such as '%m/%d/%Y'")
    if len(formats) > MOST_FORMATS:
        raise SpecError(f"there are {len(formats)} formats: keep at most {MOST_FORMATS}")
    if len(set(formats)) < len(formats):
        raise SpecError("a format is listed twice: keep it once")
    for one, other in combinations(map(checked_format, formats), 2):
        if _contradict(one, other) or _contradict(other, one):
            raise SpecError(
                f"{one.text!r} and {other.text!r} read the same text as different days: keep the one that the table is written in"
            )
    return tuple(formats)


def _contradict(writer: Format, reader: Format) -> bool:
    written = pa.array([writer.write(moment).encode() for moment in _PROBES], pa.large_binary())
    (own, _), (other, fits) = writer.read(written), reader.read(written)
    return bool((fits & (own // reading.DAY != other // reading.DAY)).any())


def month_format(formats: Sequence[str]) -> str | None:
    """Return the first format that names a month without a day; None if all name days.

    >>> month_format(["%d/%m/%Y", "%b-%Y"])
    '%b-%Y'
    """
    return next((text for text in formats if checked_format(text).is_month), None)


@lru_cache(maxsize=1000)
def checked_format(text: str) -> Format:
    """Parse a format. Raise unless it names a whole day, or a month without a day and time, and can be read in only one way.

    >>> checked_format("%d %b %Y").write(datetime(2026, 3, 1))
    '01 Mar 2026'
    >>> checked_format("%d.%m.")
    Traceback (most recent call last):
        ...
    dpcore.errors.SpecError: the format '%d.%m.' does not name a whole day or month: it needs a year (%Y or %y), a month (%m, %b or %B) and, unless months are meant, a day (%d)
    """
    if len(text) > MOST_LETTERS or not text.isprintable():
        raise SpecError(f"a format must have at most {MOST_LETTERS} characters, all printable")
    parts = tuple(_parts(text))
    directives = [part for kind, part in parts if kind == "directive"]
    for letter in directives:
        if letter not in _PATTERNS:
            raise SpecError(f"the format {text!r} has %{letter}, which is not supported: use {SUPPORTED}")
    whole = [sum(letter in group for letter in directives) for group in ("Yy", "mbB", "d")]
    names_month = whole == [1, 1, 0] and len(directives) == 2
    if whole != [1, 1, 1] and max(whole) <= 1 and not names_month:
        raise SpecError(
            f"the format {text!r} does not name a whole day or month: it needs a year (%Y or %y), a month (%m, %b or %B) and, "
            "unless months are meant, a day (%d)"
        )
    if max(*whole, *map(directives.count, directives), sum(letter in "HI" for letter in directives)) > 1:
        raise SpecError(f"the format {text!r} names a part of the day or of the time twice: keep it once")
    for letter, needed in _NEEDS:
        if letter in directives and not any(other in directives for other in needed):
            others = " or ".join(f"%{other}" for other in needed)
            raise SpecError(f"the format {text!r} has %{letter} without {others}: add it")
    return Format(text, parts, _pattern(text, parts))


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield directives as their letters, blanks as one blank, and all other text as it is."""
    for directive, blanks, other in re.findall(r"%(.|$)|(\s+)|([^%\s]+)", text):
        if directive == "%":
            yield "literal", "%"
        elif blanks:
            yield "blank", " "
        elif other:
            yield "literal", other
        else:
            yield "directive", directive


def _pattern(text: str, parts: Sequence[tuple[str, str]]) -> str:
    """Return a format's regular expression. Adjacent numbers get a fixed width; otherwise it would be unclear where one ends."""
    fixed: set[int] = set()
    for place, (one, other) in enumerate(pairwise(parts)):
        if _class_of(one, end=True) == _class_of(other, end=False) != "":
            if one[0] != other[0] or "f" in (one[1], other[1]) or _class_of(one, end=True) == "letter":
                raise SpecError(
                    f"the format {text!r} does not say where {_shown(one)} ends and {_shown(other)} begins: put a separator between them"
                )
            fixed |= {place, place + 1}
    pieces = []
    for place, (kind, part) in enumerate(parts):
        if kind == "directive":
            pieces.append(_PATTERNS[part].replace(*_EXACTLY_TWO) if place in fixed else _PATTERNS[part])
        else:
            pieces.append("[ \\t]+" if kind == "blank" else re.escape(part))
    return f"^{''.join(pieces)}$"


def _class_of(part: tuple[str, str], *, end: bool) -> str:
    """Return whether a part ends or begins with a digit or a letter, which could be confused with those of the part next to it."""
    kind, text = part
    if kind == "directive":
        return "digit" if text in _DIGITS or (text == "z" and end) else "letter" if text in _LETTERS else ""
    edge = text[-1] if end else text[0]
    return "digit" if edge.isdigit() else "letter" if edge.isascii() and edge.isalpha() else ""


def _shown(part: tuple[str, str]) -> str:
    return f"%{part[1]}" if part[0] == "directive" else repr(part[1])


def _numbers(field: pa.Array, name: str) -> Integers:
    """Return the numbers that the texts of one directive denote."""
    if name not in "bBpz":
        return np.asarray(field.cast(pa.large_string()).cast(pa.int64()).to_numpy(zero_copy_only=False))
    encoded = field.dictionary_encode()
    known = [_named(text.decode(), name) for text in encoded.dictionary.to_pylist()]
    numbers: Integers = np.array(known, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
    return numbers


def _named(text: str, name: str) -> int:
    if name == "p":
        return 12 if text.lower() == "pm" else 0
    if name == "z":
        if text == "Z":
            return 0
        hours, minutes = int(text[1:3]), int(text[-2:])
        return (-60 if text[0] == "-" else 60) * (60 * hours + minutes) if hours < 24 and minutes < 60 else _NO_OFFSET
    return 1 + [month[: len(text)] for month in _MONTHS].index(text.lower())


_NO_OFFSET = 10**6  # seconds, more than a day: no such offset exists


def _moments(fields: dict[str, Integers]) -> tuple[Integers, Any]:
    """Combine the directives' numbers into seconds since 1970; also return which combinations are valid dates and times."""
    month = next(fields[name] for name in "mbB" if name in fields)
    zero = np.zeros_like(month)
    day = fields.get("d", zero + 1)
    year = fields["Y"] if "Y" in fields else np.where(fields["y"] > _LAST_OF_2000, 1900, 2000) + fields["y"]
    hour = fields["H"] if "H" in fields else fields.get("I", zero) % 12 + fields.get("p", zero)
    minute, second, offset = (fields.get(name, zero) for name in "MSz")
    valid = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59) & (np.abs(offset) < reading.DAY)
    if "I" in fields:
        valid &= (fields["I"] >= 1) & (fields["I"] <= 12)
    months = np.where(valid, (year - 1970) * 12 + month - 1, 0)
    days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
    valid &= days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) == months  # no 30 February
    return days * reading.DAY + hour * 3600 + minute * 60 + second - offset, valid
