"""Compare the noisy number of counted rows with the number that the spec expects.

A table that is not read as its steward believes loses rows without an error, since every value has a declared policy. The noisy total
reveals this. The decision uses the noisy total and the spec, never the data, and likely causes are listed from the spec alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpcore.marginals.measurements import Measurement
from dpcore.models.evidence import LEAST_NOISE
from dpcore.spec import Declaration
from dpcore.universe import Attribute, Categorical, Date, Datetime, Outside, Universe
from dpcore.universe.constraints import Violations
from dpcore.universe.dependencies import Depends

SURE = math.log(1000) / math.sqrt(2)
"""With a probability of at least 99.9 %, noise is within SURE standard deviations, plus one row for rounding: the two-sided quantile of
Laplace noise. The quantile of Gaussian noise is smaller."""

FAINT = 10
"""A total below this many times its noise deserves a warning."""

FAINT_WORDS = "small compared with its noise"
"""What every warning of such a total says."""

MOST_NAMED = 5


@dataclass(frozen=True)
class NoisyTotal:
    """A noisy number of counted rows, or sum of weights in a weighted table, with the standard deviation of its noise."""

    rows: float
    noise: float

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> "NoisyTotal":
        """Combine all full marginals: the sum of each estimates the total, and the estimates are averaged by precision."""
        whole = [each for each in measurements if each.cell is None]
        precisions = [1 / (max(each.noise, LEAST_NOISE) ** 2 * each.values.size) for each in whole]
        together = math.fsum(precisions)
        sums = (float(each.values.sum()) * precision for each, precision in zip(whole, precisions, strict=True))
        return cls(math.fsum(sums) / together, noise=1 / math.sqrt(together))

    @property
    def margin(self) -> float:
        """The distance from the true total that is not exceeded with 99.9 % probability."""
        return margin_of(self.noise)

    def is_outside(self, expected: tuple[int, int]) -> bool:
        """Tell whether the true total lies outside the range, allowing for the noise."""
        low, high = expected
        return self.rows + self.margin < low or self.rows - self.margin > high

    @property
    def is_faint(self) -> bool:
        """Tell whether the total is hardly larger than its noise."""
        return self.rows < FAINT * self.noise


def margin_of(noise: float) -> float:
    """Return the size that noise with this standard deviation does not exceed with 99.9 % probability.

    >>> round(margin_of(64.0))
    314
    """
    return SURE * noise + 1


def open_universe(declaration: Declaration) -> Universe:
    """Return the universe, extended so that every value of a column to be discovered has a cell."""
    found_later = declaration.descents()
    attributes = {
        name: Categorical(("any",), missing=each.missing, nulls=each.nulls, outside=Outside.OTHER)
        if name in found_later and isinstance(each, Categorical)
        else each
        for name, each in declaration.universe.attributes.items()
    }
    return Universe(attributes)


def unexpected_sentence(declaration: Declaration, total: NoisyTotal, *, expected: tuple[int, int]) -> str:
    """Explain why a run was stopped, and what to check."""
    low, high = expected
    too_few = total.rows < low
    causes = list(_causes_of_few(declaration) if too_few else _causes_of_many(declaration))
    return (
        f"the run was stopped after its first measurement: the noisy total is {total.rows:,.0f} rows (noise {total.noise:,.1f}, "
        f"so {_true_range(total)} with 99.9 % probability), but the spec expects {low:,} to {high:,}; "
        "nothing is published, and the unspent budget was refunded; "
        f"likely causes: {'; '.join(causes)}; correct the spec, or `expect_rows`, and run again"
    )


def _true_range(total: NoisyTotal) -> str:
    return f"{max(0, total.rows - total.margin):,.0f} to {max(0, total.rows + total.margin):,.0f}"


def small_total_warning(declaration: Declaration, total: NoisyTotal) -> str | None:
    """Return a warning if the total is hardly larger than its noise, so that the release may be mostly noise."""
    if not total.is_faint:
        return None
    causes = "; ".join(_causes_of_few(declaration))
    return (
        f"the noisy total is {total.rows:,.0f} rows, which is {FAINT_WORDS} of {total.noise:,.1f}: the release may be "
        f"mostly noise; likely causes: {causes}; or the table is too small for this epsilon; declare `expect_rows` in `privacy` to stop "
        "such a run before it has spent its budget"
    )


def weak_check_warning(expected: tuple[int, int], *, noise: float) -> str | None:
    """Return a warning if the check of the total could not distinguish an empty table from the lower end of the expected range."""
    low, margin = expected[0], margin_of(noise)
    if low > 2 * margin:
        return None
    return (
        f"`expect_rows` starts at {low:,}, but the noise of the total is {noise:,.1f}: an empty table may pass the check; "
        f"the check detects an empty table if at least {math.floor(2 * margin) + 1:,} rows are expected, or with a larger epsilon"
    )


def _causes_of_few(declaration: Declaration) -> Iterator[str]:
    columns, privacy = declaration.universe.attributes, declaration.spec.privacy
    iso = [
        name
        for name, each in columns.items()
        if isinstance(each, Date | Datetime) and not each.formats and _drops(each)
    ]
    if iso:
        yield f"{_named(iso)} {_is(iso)} read as ISO dates such as 2025-01-31: if the table has another format, declare `format`"
    written = [
        name for name, each in columns.items() if isinstance(each, Date | Datetime) and each.formats and _drops(each)
    ]
    if written:
        yield f"dates in {_named(written)} may not have the declared `format`"
    dropping = [name for name, each in columns.items() if each.outside is Outside.DROP]
    if dropping:
        yield f"a row is dropped if its value of {_named(dropping)} is not declared (`outside: drop`)"
    nulls = [name for name, each in columns.items() if each.outside is Outside.CLIP and not each.missing]
    if nulls:
        yield f"a row is dropped if its value of {_named(nulls)} is null or unreadable (no `missing: true`)"
    strict = [
        each
        for each in declaration.universe.constraints
        if each.violations is Violations.DROP and not isinstance(each, Depends)
    ]
    if strict:
        named = list(dict.fromkeys(column for each in strict for column in each.columns))
        yield f"a row is dropped if it contradicts a constraint on {_named(named)} (write `violations: repair` to keep it)"
    calendar = declaration.calendar
    if calendar is not None:
        how = "in ISO form" if not calendar.formats else "in the declared `format`"
        yield f"only rows whose `{calendar.column}` is a day {how} within the blocks that were read count"
    if privacy.unit != "row":
        limit = declaration.protection.rows_per_unit
        yield (f"at most {limit:,} row{'s' if limit > 1 else ''} of each `{privacy.unit}` count, and none without one")
    if privacy.weight is not None:
        yield f"a row counts as often as `{privacy.weight.column}` says, and not at all if that is not a number of 1 or more"
    yield _source(declaration) + " may hold fewer rows than you think"


def _causes_of_many(declaration: Declaration) -> Iterator[str]:
    privacy = declaration.spec.privacy
    if privacy.weight is not None:
        yield f"a row counts as often as `{privacy.weight.column}` says, at most {privacy.weight.max:,} times"
    yield _source(declaration) + " may hold more rows than you think, or some of them twice"


def _source(declaration: Declaration) -> str:
    source = declaration.spec.source
    if source.sql is not None:
        return "the result of `sql`"
    return "the table" if source.path is None else "the files of `source`"


def _drops(attribute: Attribute) -> bool:
    """Tell whether a row with an unreadable value is dropped."""
    return attribute.outside is Outside.DROP or (attribute.outside is Outside.CLIP and not attribute.missing)


def _named(columns: Sequence[str]) -> str:
    shown = [f"`{name}`" for name in columns[:MOST_NAMED]]
    more = len(columns) - len(shown)
    if more:
        return f"{', '.join(shown)} or {more} other column{'s' if more > 1 else ''}"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def _is(columns: Sequence[str]) -> str:
    return "is" if len(columns) == 1 else "are"
