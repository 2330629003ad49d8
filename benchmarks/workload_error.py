"""The accuracy of record: the mean L1 distance between the marginals of two tables, and the two references beside it."""

from itertools import combinations

import numpy as np
import pandas as pd

from benchmarks.tables import BenchmarkTable


def workload_error(table: BenchmarkTable, synthetic: pd.DataFrame, *, order: int) -> float:
    """Return the mean over all `order`-way marginals of sum |true share - synthetic share|, from 0 to 2."""
    errors = []
    for columns in combinations(table.sizes, order):
        shape = tuple(table.sizes[column] for column in columns)
        true, made = (_shares(frame, columns, shape) for frame in (table.frame, synthetic))
        errors.append(np.abs(true - made).sum())
    return float(np.mean(errors))


def _shares(frame: pd.DataFrame, columns: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    flat = np.ravel_multi_index([frame[column].to_numpy() for column in columns], shape)
    return np.bincount(flat, minlength=int(np.prod(shape))) / max(len(frame), 1)


def independent_columns(table: BenchmarkTable, *, seed: int) -> pd.DataFrame:
    """Shuffle each column by itself: the floor of usefulness."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({column: rng.permutation(table.frame[column].to_numpy()) for column in table.sizes})


def bootstrap(table: BenchmarkTable, *, seed: int) -> pd.DataFrame:
    """Resample the rows with replacement: the ceiling, what another sample of the same people would look like."""
    return table.frame.sample(n=len(table.frame), replace=True, random_state=seed)
