"""A budget as a bar: what is spent, what is reserved, what is left."""

import sys

_MARKS, _PLAIN_MARKS = ("█", "▒", "·"), ("#", "=", ".")
_NOTHING = 10**6
"""One part in so many is the dust that rounding leaves, and no rest worth showing."""


def bar(*, spent: int, reserved: int, whole: int, width: int) -> str:
    """Draw a bar; neither a little that is used nor a little that is left ever vanishes.

    >>> bar(spent=500, reserved=250, whole=1000, width=8)
    '████▒▒··'
    """
    used = _cells(spent + reserved, whole, width)
    filled = min(_cells(spent, whole, width), used if not reserved or used < 2 else used - 1)
    first, second, third = _marks()
    return first * filled + second * (used - filled) + third * (width - used)


def legend() -> str:
    """Say what the marks of a bar mean."""
    first, second, third = _marks()
    return f"{first} spent   {second} reserved   {third} left"


def rule(width: int) -> str:
    """Draw a line below a heading."""
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
