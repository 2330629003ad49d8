"""Describe columns by counts of their values: exact ones of a public file, or noisy ones of the table.

Two steps find a range: the forms of values give a type and a coarse range, and bins inside that range give a finer one. Both have plain
numbers as bounds, so a range is rounded outwards.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.descent import StandingOut, threshold
from dpcore.marginals.measurements import Counts
from dpcore.starter.description import Column
from dpcore.starter.forms import BOOLEAN_WORDS, FORMS, LONGEST_TEXT, Form, Forms
from dpcore.tables.reading.encoding import encode
from dpcore.tables.reading.values import texts as value_texts
from dpcore.universe import Attribute, Date, Datetime, Every, Number, Outside

MOST_LISTED = 100
"""The most values of a text column that are listed. All others count as `other`."""

OUTSIDE = 0.02
"""The largest share of the rows that noisy counts may leave outside a range, half of it on each side."""

SURE = 2.0
"""A count is surely small if it is small with this many standard deviations added."""

_SORTS = {"integer": "number", "boolean": "text"}
_DAY_FIRST = {"%m/%d/%Y": "%d/%m/%Y", "%m/%d/%Y %H:%M": "%d/%m/%Y %H:%M"}


@dataclass(frozen=True)
class Sighted:
    """A column as the forms of its values show it.

    Attributes:
        column: Its type, format, and words for nulls.
        bins: The bins among which to look for its range; None if it has no order, or too many rows have other forms.
        longest: The length of its longest texts; 0 if it does not hold texts.
    """

    column: Column
    bins: Attribute | None = None
    longest: int = 0

    @classmethod
    def of(cls, name: str, forms: StandingOut, *, rows: float) -> "Sighted":
        """Return what the counts of a column's forms show. The most frequent sort of values decides the type.

        `rows` is the number of rows, perhaps with noise.
        """
        counts = {FORMS[cell]: int(forms.counts[cell]) for cell in forms.cells}
        column = Column(name, nulls=tuple(str(form.text) for form in counts if form.kind == "null"))
        sorts: Counter[str] = Counter()
        for form, count in counts.items():
            if form.kind != "null":
                sorts[_SORTS.get(form.kind, form.kind)] += count
        if not sorts:
            return cls(column)
        ((sort, _),) = sorts.most_common(1)
        shown = [form for form in counts if _SORTS.get(form.kind, form.kind) == sort]
        if sort == "text":
            words = [form.low or max(map(len, BOOLEAN_WORDS)) for form in shown]
            if all(form.kind == "boolean" for form in shown):
                return cls(replace(column, stored="boolean"))
            return cls(replace(column, stored="text"), longest=min(int(max(words)), LONGEST_TEXT))
        unknown = rows - sum(counts.values()) - int(forms.counts[-1])  # the last cell is that of nulls
        largest = unknown + SURE * forms.noise * math.sqrt(len(counts) + 2)
        sighted = _numbers(column, shown) if sort == "number" else _dates(column, shown, counts)
        return sighted if largest <= OUTSIDE * rows else replace(sighted, bins=None)

    def between(self, bins: StandingOut, *, rows: float, outside: float) -> Column:
        """Return the column with its range by the counts of its bins.

        It reaches over all bins that stand out. It reaches no further if the others surely hold few rows together; otherwise only those at
        its ends are cut off that do.

        Args:
            bins: The counts.
            rows: The number of rows, perhaps with noise.
            outside: The largest share of the rows outside the range.
        """
        size = 0 if self.bins is None else self.bins.cells
        inside, apart = bins.counts[:size], bins.counts[size:]
        first, last = min(bins.cells, default=size), max(bins.cells, default=-1)
        rest = rows - int(inside[first : last + 1].sum()) - int(apart.sum())
        if rest + SURE * bins.noise * math.sqrt(max(last - first, 0) + 2 + len(apart)) > outside * rows:
            tail = outside / 2 * rows
            first = min(first, _cut(inside, noise=bins.noise, tail=tail))
            last = max(last, size - 1 - _cut(inside[::-1], noise=bins.noise, tail=tail))
        if self.bins is None or first > last:
            return self.column
        if isinstance(self.bins, Number):
            low, high = self.bins.edges[first], self.bins.edges[last + 1]
            if self.column.stored == "integer":
                high -= self.bins.edges[1] - self.bins.edges[0] == 1  # the bin of a single number
            return replace(self.column, minimum=_short(low), maximum=_short(high))
        year = self.bins.minimum.year  # type: ignore[attr-defined]
        begin, end = ("T00:00:00", "T23:59:00") if self.column.stored == "datetime" else ("", "")
        return replace(self.column, minimum=f"{year + first}-01-01{begin}", maximum=f"{year + last}-12-31{end}")


def _cut(counts: Counts, *, noise: float, tail: float) -> int:
    """Return how many of the first bins surely hold no more than `tail` rows together."""
    small = np.cumsum(counts) + SURE * noise * np.sqrt(np.arange(1, len(counts) + 1)) <= tail
    return len(counts) if small.all() else int(np.argmin(small))


def _short(bound: float) -> float:
    return int(bound) if bound.is_integer() else bound


def _numbers(column: Column, forms: Collection[Form]) -> Sighted:
    """Divide the range of the forms into bins whose width is 1, 2 or 5 times a power of ten."""
    whole = all(form.kind == "integer" for form in forms)
    low, high = (Decimal(repr(bound)) for bound in (min(form.low for form in forms), max(form.high for form in forms)))
    widest = (high - low) / 100  # at least so many bins
    power = Decimal(10) ** widest.adjusted()
    width = next(digit * power for digit in (5, 2, 1) if digit * power <= widest)
    width = max(width, Decimal(1)) if whole else width
    start, stop = (low / width).to_integral_value(ROUND_FLOOR), (high / width).to_integral_value(ROUND_CEILING)
    edges = tuple(float(place * width) for place in range(int(start), int(stop) + 1))
    stored = replace(column, stored="integer" if whole else "number")
    return Sighted(stored, Number(edges, missing=True, nulls=column.nulls, outside=Outside.OTHER))


def _dates(column: Column, forms: Collection[Form], counts: dict[Form, int]) -> Sighted:
    """Divide the decades of the forms into years. Dates that can only have the day first show that all of them have."""
    texts = {form.text for form in forms}
    formats: Counter[str | None] = Counter()
    for form in forms:
        formats[_day_first(form, texts)] += counts[form]
    ((written, _),) = formats.most_common(1)
    same = [form for form in forms if _day_first(form, texts) == written]
    first, last = int(min(form.low for form in same)), int(max(form.high for form in same)) - 1
    column = replace(column, stored="date" if same[0].kind == "date" else "datetime", format=written)
    policy: dict[str, Any] = {
        "every": Every.YEAR,
        "formats": () if written is None else (written,),
        "missing": True,
        "nulls": column.nulls,
        "outside": Outside.OTHER,
    }
    if column.stored == "date":
        return Sighted(column, Date(minimum=date(first, 1, 1), maximum=date(last, 12, 31), **policy))
    ends = datetime(first, 1, 1), datetime(last, 12, 31, 23, 59, 59)  # noqa: DTZ001  as attributes have them
    return Sighted(column, Datetime(minimum=ends[0], maximum=ends[1], **policy))


def _day_first(form: Form, seen: Collection[str | None]) -> str | None:
    later = _DAY_FIRST.get(form.text or "")
    return later if later is not None and later in seen else form.text


def describe_values(name: str, values: pa.ChunkedArray) -> Column:
    """Describe a column of a public table by its values."""
    forms = _exact(Forms(), values)
    seen = Sighted.of(name, forms, rows=len(values))
    if seen.bins is not None:
        return seen.between(_exact(seen.bins, values), rows=len(values), outside=0.0)
    if not seen.longest:
        return seen.column
    texts = Counter(text for text in _texts(values) if text and text.isprintable())
    for word in seen.column.nulls:
        del texts[word]
    often = len(texts) <= MOST_LISTED
    listed = [text for text, count in texts.most_common(MOST_LISTED) if often or count > 1]
    return replace(seen.column, values=tuple(sorted(listed)) or None, others=True)


def _exact(attribute: Attribute, values: pa.ChunkedArray) -> StandingOut:
    codes = encode(attribute, values)
    counts = np.bincount(codes[codes >= 0], minlength=attribute.size).astype(np.int64)
    standing = StandingOut(attribute, share=Fraction(0))
    standing.take(counts, least=threshold(len(counts), noise=0.0, laplace=False), noise=0.0)
    return standing


def _texts(values: pa.ChunkedArray) -> Iterable[str]:
    for chunk in values.chunks:
        flat = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
        yield from (text.strip() for text in value_texts(flat.cast(pa.large_binary())))
