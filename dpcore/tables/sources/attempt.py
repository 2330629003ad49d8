"""Run a step that reads raw data and replace any error with a message that quotes no data."""

from collections.abc import Callable
from typing import TypeVar

from dpcore.errors import DpflowError, SourceError

T = TypeVar("T")


def attempt(step: Callable[[], T], *, otherwise: str, failure: type[SourceError] = SourceError) -> T:
    """Return the step's result. If it fails, raise a `failure` that says `otherwise` and nothing else.

    Readers quote data in their errors ("could not convert 'Jane Doe'"). An exception raised inside an `except` block keeps a
    reference to the original one, and `from None` only hides it. The replacement is therefore raised outside the block.

    >>> attempt(lambda: int("Jane Doe"), otherwise="visits.csv cannot be read")
    Traceback (most recent call last):
    dpcore.errors.SourceError: visits.csv cannot be read
    """
    try:
        return step()
    except DpflowError:
        raise
    except Exception:  # noqa: BLE001, S110  whatever went wrong, its text may quote a person's row
        pass
    raise failure(otherwise)
