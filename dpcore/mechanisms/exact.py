"""What a query finds in a table before its noise: private, and of use only to the query that found it."""

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
        """Return it, for a mechanism to add its noise: whoever shows it has published a private value."""
        return self._answer
