"""Rate an error as good, fair or poor: the same three words and symbols before a run, in `dpflow plan`, and after it, in the card."""

from enum import StrEnum

GOOD_ERROR = 0.1
"""Up to this error, a rating is good: a typical count is wrong by at most a tenth of itself."""
FAIR_ERROR = 0.5
"""Up to this error, a rating is fair: large counts can be used, small ones cannot. Above it, a typical count is wrong by more than half of
itself, and the rating is poor."""

LARGEST_SHARE = 10.0
"""A larger share is not worth its digits."""


class Rating(StrEnum):
    """How far the counts of a column, or of a marginal, can be trusted.

    The symbol is for people who scan a list, and the word for those who read it. Neither depends on a colour.

    >>> [f"{each.symbol} {each}" for each in Rating]
    ['✓ good', '~ fair', '✗ poor']
    """

    GOOD = "good"
    FAIR = "fair"
    POOR = "poor"

    @property
    def symbol(self) -> str:
        """The symbol that goes before the word."""
        return {Rating.GOOD: "✓", Rating.FAIR: "~", Rating.POOR: "✗"}[self]

    @property
    def meaning(self) -> str:
        """What the rating says about a typical count, for a legend."""
        return {
            Rating.GOOD: f"a typical count is off by at most {percent(GOOD_ERROR)} of itself",
            Rating.FAIR: f"off by {percent(GOOD_ERROR)} to {percent(FAIR_ERROR)}: rely on large counts only",
            Rating.POOR: f"off by more than {percent(FAIR_ERROR)}: do not rely on single counts",
        }[self]


def rate(error: float) -> Rating:
    """Rate the expected error of a marginal: its absolute errors, summed over all cells, as a share of the rows.

    This is also the mean absolute error of a cell divided by the mean count of a cell. An error that is not a number is poor.

    >>> rate(0.1), rate(0.11), rate(0.8)
    (<Rating.GOOD: 'good'>, <Rating.FAIR: 'fair'>, <Rating.POOR: 'poor'>)
    """
    if error <= GOOD_ERROR:
        return Rating.GOOD
    return Rating.FAIR if error <= FAIR_ERROR else Rating.POOR


def percent(share: float) -> str:
    """Format a share with two significant digits, without decimals above 100 %, and above 1,000 % only as that.

    >>> percent(0.00083), percent(0.5), percent(0.996), percent(7.345), percent(644.87)
    ('0.083 %', '50 %', '100 %', '734 %', 'over 1,000 %')
    """
    if share > LARGEST_SHARE:
        return f"over {percent(LARGEST_SHARE)}"
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:,.0f} %"
