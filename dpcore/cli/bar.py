"""Draw a budget as a text bar: spent, reserved, left."""

import sys

_MARKS, _PLAIN_MARKS = ("█", "▒", "·"), ("#", "=", ".")
_NOTHING = 10**6
"""A rest of at most one part in this many is rounding error, and the bar is drawn full."""


def bar(*, spent: int, reserved: int, whole: int, width: int) -> str:
    """Draw a bar. A small used or remaining part still gets one cell.

    >>> bar(spent=500, reserved=250, whole=1000, width=8)
    '████▒▒··'
    """
    used = _cells(spent + reserved, whole, width)
    filled = min(_cells(spent, whole, width), used if not reserved or used < 2 else used - 1)
    first, second, third = _marks()
    return first * filled + second * (used - filled) + third * (width - used)


def legend() -> str:
    """Return the meaning of a bar's marks."""
    first, second, third = _marks()
    return f"{first} spent   {second} reserved   {third} left"


def rule(width: int) -> str:
    """Draw a line to go below a heading."""
    return ("-" if _marks() is _PLAIN_MARKS else "─") * width


def _cells(part: int, whole: int, width: int) -> int:
    if part <= 0:
        return 0
    if (whole - part) * _NOTHING <= whole:
        return width
    return max(1, min(width - 1, round(width * part / whole)))


def _marks() -> tuple[str, str, str]:
    try:
        "".join(_MARKS).encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_MARKS
    return _MARKS
