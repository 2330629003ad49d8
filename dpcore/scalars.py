"""Single values that a person or a file gave: whether one is a whole number, a number, or text that can be encoded."""

from typing import TypeGuard


def is_unicode(text: str) -> bool:
    r"""Return whether a text can be written as UTF-8. A lone surrogate cannot: JSON and command lines may hold one.

    >>> is_unicode("naïve"), is_unicode("\ud800")
    (True, False)
    """
    return not any("\ud800" <= character <= "\udfff" for character in text)


def is_whole(number: object) -> TypeGuard[int]:
    """Return whether something is a whole number. True and False are not.

    >>> is_whole(2), is_whole(True), is_whole(2.0)
    (True, False, False)
    """
    return isinstance(number, int) and not isinstance(number, bool)


def is_number(number: object) -> TypeGuard[int | float]:
    """Return whether something is a whole number or a float. True and False are not."""
    return is_whole(number) or isinstance(number, float)
