"""The accuracy measure: the mean L1 distance between the marginals of two tables, and two references to compare it with."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb, prod

import numpy as np
import pandas as pd

from benchmarks.tables import BenchmarkTable

MOST_MARGINALS = 2_000
"""If there are more marginals than this, a sample of this size is measured, always the same, drawn with a fixed seed."""
_SEED = 20_261_115


def workload_error(table: BenchmarkTable, synthetic: pd.DataFrame, *, order: int) -> float:
    """Return the mean over the `order`-way marginals of sum |true share - synthetic share|, from 0 to 2."""
    made = _shares(table, synthetic, order)
    return float(
        np.mean([np.abs(true - each).sum() for true, each in zip(_true_shares(table, order), made, strict=True)])
    )


def marginals_measured(columns: int, *, order: int) -> str:
    """Return how many of a table's marginals are measured, as text.

    >>> marginals_measured(14, order=3), marginals_measured(42, order=3)
    ('all 364', '2,000 of 11,480')
    """
    total = comb(columns, order)
    return f"all {total:,}" if total <= MOST_MARGINALS else f"{MOST_MARGINALS:,} of {total:,}"


def measured_marginals(columns: Sequence[str], *, order: int) -> list[tuple[str, ...]]:
    """Return the measured marginals: all of them, or the sample, in the order of the columns."""
    every = list(combinations(columns, order))
    if len(every) <= MOST_MARGINALS:
        return every
    chosen = np.random.default_rng(_SEED).choice(len(every), size=MOST_MARGINALS, replace=False)
    return [every[number] for number in np.sort(chosen)]


@lru_cache(maxsize=4)
def _true_shares(table: BenchmarkTable, order: int) -> list[np.ndarray]:
    return list(_shares(table, table.frame, order))


def _shares(table: BenchmarkTable, frame: pd.DataFrame, order: int) -> Iterator[np.ndarray]:
    """Count the marginals one by one. Successive marginals mostly share all but their last column, so those columns' codes are reused."""
    codes = {column: frame[column].to_numpy(dtype=np.int64) for column in table.sizes}
    rows, begun, prefix = max(len(frame), 1), None, np.zeros(len(frame), dtype=np.int64)
    for columns in measured_marginals(list(table.sizes), order=order):
        if columns[:-1] != begun:
            begun = columns[:-1]
            prefix = np.zeros(len(frame), dtype=np.int64)
            for column in begun:
                prefix = prefix * table.sizes[column] + codes[column]
        cells = prefix * table.sizes[columns[-1]] + codes[columns[-1]]
        yield np.bincount(cells, minlength=prod(table.sizes[column] for column in columns)) / rows


def independent_columns(table: BenchmarkTable, *, seed: int) -> pd.DataFrame:
    """Shuffle each column independently: the lower reference, which keeps no dependencies."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({column: rng.permutation(table.frame[column].to_numpy()) for column in table.sizes})


def bootstrap(table: BenchmarkTable, *, seed: int) -> pd.DataFrame:
    """Resample the rows with replacement: the upper reference, which only has sampling error."""
    return table.frame.sample(n=len(table.frame), replace=True, random_state=seed)
