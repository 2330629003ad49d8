"""Run a step that touches raw files so that only our own sentence about a failure gets out."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from dpcore.errors import DpflowError, SourceError

T = TypeVar("T")


def attempt(step: Callable[[], T], *, otherwise: str, failure: type[SourceError] = SourceError) -> T:
    """Return what the step gives; if it fails, raise a `failure` saying `otherwise` and nothing else.

    Readers quote the data in what they raise ("could not convert 'Jane Doe'"). Python links an error to the one that
    was being dealt with when it was raised, and `from None` only hides that link. So ours is raised after the other is
    gone.

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


def attempt_each(items: Iterator[T], *, otherwise: str, failure: type[SourceError] = SourceError) -> Iterator[T]:
    """Yield the items; if producing one fails, raise a `failure` saying `otherwise` and nothing else."""

    def one_more() -> tuple[T, ...]:
        for item in items:
            return (item,)
        return ()

    while found := attempt(one_more, otherwise=otherwise, failure=failure):
        yield from found
