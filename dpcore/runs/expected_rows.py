"""Compare the noisy number of counted rows with the number that the spec expects.

A table that is not read as its steward believes loses rows without an error, since every value has a declared policy. The noisy total
reveals this. The decision uses the noisy total and the spec, never the data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from dpcore.marginals.measurements import LEAST_NOISE, Measurement
from dpcore.marginals.sizes import Sizes
from dpcore.release.statement import FAINT
from dpcore.runs.causes import causes_of_few_rows, causes_of_many_rows
from dpcore.spec import Declaration
from dpcore.universe import Categorical, Outside, Universe

SURE = math.log(1000) / math.sqrt(2)
"""With a probability of at least 99.9 %, noise is within SURE standard deviations, plus one row for rounding: the two-sided quantile of
Laplace noise. The quantile of Gaussian noise is smaller."""

FAINT_WORDS = "small compared with its noise"
"""What every warning of such a total says."""


@dataclass(frozen=True)
class NoisyTotal:
    """A noisy number of counted rows, or sum of weights in a weighted table, with the standard deviation of its noise."""

    rows: float
    noise: float

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> "NoisyTotal":
        """Combine all full marginals: the sum of each estimates the total, and the estimates are averaged by precision."""
        whole = [measurement for measurement in measurements if measurement.cell is None]
        precisions = [1 / (max(marginal.noise, LEAST_NOISE) ** 2 * marginal.values.size) for marginal in whole]
        rows = fmean((float(marginal.values.sum()) for marginal in whole), weights=precisions)
        return cls(rows, noise=1 / math.sqrt(math.fsum(precisions)))

    def of_all(self, sizes: Sizes, *, limit: int) -> "NoisyTotal":
        """Return the number of all rows, if this is that of the rows that a limit on the rows of a unit keeps."""
        ratio = sizes.total / float(sizes.kept(limit).sum())
        rows = ratio * self.rows
        return NoisyTotal(rows, noise=math.hypot(ratio * self.noise, rows * sizes.deviation))

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
        name: Categorical(("any",), missing=attribute.missing, nulls=attribute.nulls, outside=Outside.OTHER)
        if name in found_later and isinstance(attribute, Categorical)
        else attribute
        for name, attribute in declaration.universe.attributes.items()
    }
    return Universe(attributes)


def unexpected_sentence(declaration: Declaration, total: NoisyTotal, *, expected: tuple[int, int]) -> str:
    """Explain why a run was stopped, and what to check."""
    low, high = expected
    causes = causes_of_few_rows(declaration) if total.rows < low else causes_of_many_rows(declaration)
    return (
        f"the run was stopped after its first measurement: the noisy total is {total.rows:,.0f} rows (noise {total.noise:,.1f}, "
        f"so {max(0, total.rows - total.margin):,.0f} to {max(0, total.rows + total.margin):,.0f} with 99.9 % probability), but the spec expects {low:,} to {high:,}; "
        "nothing is published, and the unspent budget was refunded; "
        f"likely causes: {'; '.join(causes)}; correct the spec, or `expect_rows`, and run again"
    )


def small_total_warning(declaration: Declaration, total: NoisyTotal) -> str | None:
    """Return a warning if the total is hardly larger than its noise, so that the release may be mostly noise."""
    if not total.is_faint:
        return None
    causes = "; ".join(causes_of_few_rows(declaration))
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
