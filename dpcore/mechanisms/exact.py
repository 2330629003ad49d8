"""The exact answer to a query, before its noise: private, and used only by the query that computed it."""

from typing import Any

from dpcore.privacy.protection import Protection
from dpcore.private import Private


class Exact(Private):
    """The exact answer to a query, between reading the table and paying for the noise.

    Attributes:
        protection: The protection that bounded the rows behind it. It is public.
    """

    __slots__ = ("_answer", "protection")

    def __init__(self, answer: Any, *, protection: Protection) -> None:
        self._answer = answer
        self.protection = protection

    def for_noise(self) -> Any:
        """Return the exact answer, for a mechanism to add its noise. It is private and must not be shown."""
        return self._answer
