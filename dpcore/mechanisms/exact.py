"""The exact answer to a query, before its noise: private, and used only by the query that computed it."""

from typing import Any

from dpcore.private import Private


class Exact(Private):
    """The exact answer to a query, between reading the table and paying for the noise.

    >>> Exact(41)
    <Exact: private, not shown>
    """

    __slots__ = ("_answer",)

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def for_noise(self) -> Any:
        """Return the exact answer, for a mechanism to add its noise. It is private and must not be shown."""
        return self._answer
