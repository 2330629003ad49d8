"""Formats of dates and times in text, as in `strptime`: which are unambiguous, and the texts that each matches.

The machine's locale has no effect on how a table is read: month names are English. A month without a day is read as its first day.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from itertools import combinations, pairwise

from dpcore.errors import SpecError

MOST_FORMATS = 20
MOST_LETTERS = 100
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DIGITS = "YymdHIMSf"
_LETTERS = "bBp"
_PATTERNS = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "b": f"(?P<b>(?i:{'|'.join(name[:3] for name in MONTHS)}))",
    "B": f"(?P<B>(?i:{'|'.join(MONTHS)}))",
    "p": "(?P<p>(?i:am|pm))",
    "f": "[0-9]{1,9}",
    "z": "(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})",
} | {two: f"(?P<{two}>[0-9]{{1,2}})" for two in "mdHIMS"}
_EXACTLY_TWO = ("{1,2}", "{2}")
SUPPORTED = ", ".join(f"%{letter}" for letter in "YymbBdHIpMSfz")
_NEEDS = (("M", "HI"), ("S", "M"), ("f", "S"), ("z", "HI"), ("I", "p"), ("p", "I"))
_PROBES = tuple(
    datetime(*digits, tzinfo=UTC) for digits in ((2001, 2, 3, 4, 5, 6), (2006, 5, 4, 3, 2, 1), (2012, 11, 10, 9, 8, 7))
)


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
    for first, second in combinations(map(checked_format, formats), 2):
        if _contradict(first, second) or _contradict(second, first):
            raise SpecError(
                f"{first.text!r} and {second.text!r} read the same text as different days: keep the one that the table is written in"
            )
    return tuple(formats)


def _contradict(writer: Format, reader: Format) -> bool:
    """Return whether one format reads another day from a text that the other writes."""
    for moment in _PROBES:
        written = moment.strftime(writer.text)
        with suppress(ValueError):
            if _day(written, reader) != _day(written, writer):
                return True
    return False


def _day(written: str, reader: Format) -> date:
    return datetime.strptime(written, reader.text).date()  # noqa: DTZ007  a day, whatever its zone


def month_format(formats: Sequence[str]) -> str | None:
    """Return the first format that names a month without a day; None if all name days.

    >>> month_format(["%d/%m/%Y", "%b-%Y"])
    '%b-%Y'
    """
    return next((text for text in formats if checked_format(text).is_month), None)


@lru_cache(maxsize=1000)
def checked_format(text: str) -> Format:
    """Parse a format. Raise unless it names a whole day, or a month without a day and time, and can be read in only one way.

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
        if letter in directives and not any(required in directives for required in needed):
            either = " or ".join(f"%{required}" for required in needed)
            raise SpecError(f"the format {text!r} has %{letter} without {either}: add it")
    return Format(text, parts, _pattern(text, parts))


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield directives as their letters, blanks as one blank, and all other text as it is."""
    for directive, blanks, literal in re.findall(r"%(.|$)|(\s+)|([^%\s]+)", text):
        if directive == "%":
            yield "literal", "%"
        elif blanks:
            yield "blank", " "
        elif literal:
            yield "literal", literal
        else:
            yield "directive", directive


def _pattern(text: str, parts: Sequence[tuple[str, str]]) -> str:
    """Return a format's regular expression. Adjacent numbers get a fixed width; otherwise it would be unclear where one ends."""
    fixed: set[int] = set()
    for place, (before, after) in enumerate(pairwise(parts)):
        if _class_of(before, end=True) == _class_of(after, end=False) != "":
            if before[0] != after[0] or "f" in (before[1], after[1]) or _class_of(before, end=True) == "letter":
                raise SpecError(
                    f"the format {text!r} does not say where {_shown(before)} ends and {_shown(after)} begins: put a separator between them"
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
