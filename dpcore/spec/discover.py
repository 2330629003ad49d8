"""The spec's `discover`: find the values of a column, or the edges of its bins, in the data for a share of the budget."""

import math
import string
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from dpcore.descent import Descent, GridDescent, PrefixDescent, Ruler, binned
from dpcore.errors import SpecError
from dpcore.spec.document import Document
from dpcore.spec.parts import MOST_SHARE, Finite, Share, SpecPart, as_written
from dpcore.universe import Attribute, Categorical, Integer, Number

FINEST_PART = 10_000
"""By default a range of real numbers is divided into this many finest parts."""

MOST_PLACES = 2**53
"""The most parts of a grid. Up to here, its edges are distinct floats."""

PRINTABLE = " " + string.digits + string.ascii_letters + string.punctuation


def _each_once(alphabet: str) -> str:
    twice = [letter for letter, count in Counter(alphabet).items() if count > 1]
    if twice:
        raise ValueError(f"has {twice[0]!r} twice; keep each character once")
    if any("\ud800" <= letter <= "\udfff" for letter in alphabet):
        raise ValueError("is not valid Unicode text; write it as UTF-8")
    return alphabet


class _PaidDiscovery(SpecPart):
    """A discovery that costs a share of the run's budget."""

    share: Share = Field(description="the share of the release's whole budget to spend on it")


class DiscoverValues(_PaidDiscovery):
    """Find the texts that many rows have, character by character. Each further level of characters takes a part of the share."""

    most: Annotated[int, Field(ge=1, le=10_000)] = Field(description="the maximum number of values to find")
    length: Annotated[int, Field(ge=1, le=100)] = Field(
        description="the maximum length of a value; longer values are not found, and each level of characters adds noise"
    )
    alphabet: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_each_once)] = Field(
        PRINTABLE,
        description="the characters that values consist of; fewer characters mean less noise; default: printable ASCII",
    )

    def placeholders(self) -> tuple[str, ...]:
        """Return placeholder texts for the values until they are found."""
        return tuple(f"value {number}" for number in range(1, self.most + 1))

    def descent(self, template: Categorical) -> Descent:
        """Return the descent that finds the values. Raise if its tree is too broad."""
        return PrefixDescent(template, length=self.length, alphabet=self.alphabet, share=as_written(self.share))


class DiscoverBins(_PaidDiscovery):
    """Find the edges of bins with about equally many rows each."""

    bins: Annotated[int, Field(ge=2, le=1000)] = Field(description="the maximum number of bins")
    finest: Annotated[Finite, Field(gt=0)] | None = Field(
        None,
        description="the narrowest width of a bin; default: 1 for whole numbers, a ten-thousandth of the range for others",
    )

    def provisional(self, template: Attribute) -> Attribute:
        """Return an attribute with the same bounds and with the maximum number of bins."""
        grid = self._grid(template)
        bins = min(self.bins, grid.size)
        return binned(template, grid, [start for start, _ in grid.cut(0, grid.size, parts=bins)][1:])

    def descent(self, template: Attribute) -> Descent:
        """Return the descent that finds the edges between an attribute's bounds, for at most as many bins as it has."""
        return GridDescent(template, grid=self._grid(template), bins=template.cells, share=as_written(self.share))

    def _grid(self, template: Attribute) -> Ruler:
        """Return the finest bins between the bounds."""
        low: float
        high: float
        if isinstance(template, Integer):
            whole, low, high = True, template.minimum, template.maximum + 1
        elif isinstance(template, Number):
            whole, low, high = False, template.edges[0], template.edges[-1]
        else:
            raise SpecError("`discover` finds bins of numbers only; declare the bins of other columns")
        usual = high - low if whole else FINEST_PART
        parts = usual if self.finest is None else (high - low) / self.finest
        if not math.isfinite(high - low) or not parts <= MOST_PLACES:
            raise SpecError("`finest` is too small for this range; write a larger one, or narrow `min` and `max`")
        size = max(1, math.floor(parts + 1e-9))  # in floats, 0.3 / 0.1 is slightly below 3
        return Ruler(low, high, size=min(size, int(high - low)) if whole else size, whole=whole)


def check_shares(document: Document, shares: Mapping[str, float]) -> None:
    """Report shares that leave too little of the budget for the release."""
    together = sum(shares.values())
    if together > MOST_SHARE and len(shares) > 1:
        first = next(iter(shares))
        nested = ("universe", first, "discover", "share")
        document.mistake(
            nested if nested in document.positions else ("universe", first, "share"),
            f"the shares for discovery in all columns add up to {together:g}; reduce them to at most {MOST_SHARE:g}, because the release needs the rest",
        )
