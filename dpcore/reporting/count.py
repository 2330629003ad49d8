"""A count with its interval, as pictures and tables show it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Count:
    """A count, and the ends of its interval.

    Attributes:
        label: The value, or the values, that were counted.
        value: The count.
        low: The lower end of its interval.
        high: The upper end.
        apart: Whether it stands apart from the others, such as the rows without a value.
        first: The smallest value that was counted, if values have an order; empty if it is not known.
        last: The largest one.
    """

    label: str
    value: float
    low: float
    high: float
    apart: bool = False
    first: str = ""
    last: str = ""

    @property
    def words(self) -> str:
        """The count and its interval as text.

        >>> Count("F", 1234.5, 1200.0, 1280.0).words
        'F: 1,234 (1,200 to 1,280)'
        """
        return f"{self.label}: {self.value:,.0f} ({self.low:,.0f} to {self.high:,.0f})"

    @property
    def half(self) -> float:
        """How far the farther end of the interval is from the count."""
        return max(self.high - self.value, self.value - self.low)
