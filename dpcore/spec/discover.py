"""What is to be found in the data, at a price, as it is written in a spec: the values of a column, or the edges of its bins."""

import math
import string
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, Field

from dpcore.descent import Descent, GridDescent, PrefixDescent, Ruler, binned
from dpcore.errors import SpecError
from dpcore.spec.document import Document
from dpcore.spec.parts import Finite, SpecPart
from dpcore.universe import Attribute, Categorical, Integer, Number

MOST_SHARE = 0.9
"""Of the budget, for all columns together: a release needs the rest."""

FINEST_PART = 10_000
"""Into so many parts a range of numbers may be cut, unless something else is declared."""

MOST_PLACES = 2**53
"""Of a grid: its edges are then still different floats."""

PRINTABLE = " " + string.digits + string.ascii_letters + string.punctuation


def _each_once(alphabet: str) -> str:
    twice = [letter for letter, count in Counter(alphabet).items() if count > 1]
    if twice:
        raise ValueError(f"has {twice[0]!r} twice; keep each letter once")
    if any("\ud800" <= letter <= "\udfff" for letter in alphabet):
        raise ValueError("is not valid Unicode text; write it as UTF-8")
    return alphabet


class _Bought(SpecPart):
    """What is bought with a share of the run's budget."""

    share: Annotated[Finite, Field(gt=0, le=MOST_SHARE)] = Field(
        description="what to spend on it, as a share of the release's whole budget"
    )

    @property
    def part(self) -> Fraction:
        """The share exactly as it is written."""
        return Fraction(repr(self.share))


class DiscoverValues(_Bought):
    """The texts that many rows have, found letter by letter; each further level of letters takes a part of the share."""

    most: Annotated[int, Field(ge=1, le=10_000)] = Field(description="how many values to find at most")
    length: Annotated[int, Field(ge=1, le=100)] = Field(
        description="how many letters a value has at most; a longer one is not found, and each level of letters adds noise"
    )
    alphabet: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_each_once)] = Field(
        PRINTABLE,
        description="the letters that values are made of; the fewer, the less noise; left out, all of printable ASCII",
    )

    def placeholders(self) -> tuple[str, ...]:
        """Return texts that stand for the values until they are found."""
        return tuple(f"value {number}" for number in range(1, self.most + 1))

    def descent(self, template: Categorical) -> Descent:
        """Return the way to find the values; a tree too broad to descend is refused."""
        return PrefixDescent(template, length=self.length, alphabet=self.alphabet, share=self.part)


class DiscoverBins(_Bought):
    """The edges of bins that about equally many rows are in."""

    bins: Annotated[int, Field(ge=2, le=1000)] = Field(description="how many bins to make at most")
    finest: Annotated[Finite, Field(gt=0)] | None = Field(
        None,
        description="how narrow a bin may be; left out, 1 for whole numbers and a ten-thousandth of the range for others",
    )

    def provisional(self, template: Attribute) -> Attribute:
        """Return an attribute between the same bounds with as many bins as may be found."""
        grid = self._grid(template)
        bins = min(self.bins, grid.size)
        return binned(template, grid, [start for start, _ in grid.cut(0, grid.size, parts=bins)][1:])

    def descent(self, template: Attribute) -> Descent:
        """Return the way to find the edges between the bounds of an attribute, no more than it has."""
        return GridDescent(template, grid=self._grid(template), bins=template.cells, share=self.part)

    def _grid(self, template: Attribute) -> Ruler:
        """Return the finest bins between the bounds."""
        low: float
        high: float
        if isinstance(template, Integer):
            whole, low, high = True, template.minimum, template.maximum + 1
        elif isinstance(template, Number):
            whole, low, high = False, template.edges[0], template.edges[-1]
        else:
            raise SpecError("edges are found for numbers only; declare the bins of other columns")
        usual = high - low if whole else FINEST_PART
        parts = usual if self.finest is None else (high - low) / self.finest
        if not math.isfinite(high - low) or not parts <= MOST_PLACES:
            raise SpecError("`finest` is too small for this range; write a wider one, or bring `min` and `max` nearer")
        size = max(1, math.floor(parts + 1e-9))  # in floats, 0.3 is not quite three times 0.1
        return Ruler(low, high, size=min(size, int(high - low)) if whole else size, whole=whole)


def check_shares(document: Document, bought: Mapping[str, DiscoverValues | DiscoverBins]) -> None:
    """Note as a mistake that the shares leave too little for the release."""
    together = sum(each.share for each in bought.values())
    if together > MOST_SHARE and len(bought) > 1:
        first = next(iter(bought))
        document.mistake(
            ("universe", first, "discover", "share"),
            f"the shares of all `discover` are {together:g} together; leave some of the budget for the release, at most {MOST_SHARE:g} is for them",
        )
