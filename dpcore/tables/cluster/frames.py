"""Convert coded rows to dataframes, which Dask can shuffle, and back."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.coding import Coding
from dpcore.tables.ingest.fingerprint import Fingerprint, Sums
from dpcore.universe import code_type

ID = "u0"
ID_COLUMNS = (ID, "u1", "draw")


@dataclass(frozen=True)
class Layout:
    """The columns of a dataframe of coded rows: codes, a weight if declared, and the id and draw until the rows are bounded.

    Attributes:
        codes: The dtype of each attribute's codes.
        weight: The dtype of the weights; None if each row counts once.
        by_unit: Whether the rows have ids and draws and are not yet bounded.
    """

    codes: tuple[np.dtype[Any], ...]
    weight: np.dtype[Any] | None
    by_unit: bool

    @classmethod
    def of(cls, coding: Coding) -> "Layout":
        """Return the layout of rows coded by a coding."""
        if coding.tallies:
            return cls(codes=(np.dtype(np.uint8),), weight=np.dtype(np.uint64), by_unit=True)
        protection = coding.protection
        return cls(
            codes=tuple(np.dtype(code_type(size)) for size in coding.universe.shape),
            weight=None if protection.weight is None else np.dtype(code_type(protection.row_weight + 1)),
            by_unit=coding.by_unit,
        )

    @property
    def bounded(self) -> "Layout":
        """The layout of the same rows after bounding."""
        return Layout(codes=self.codes, weight=self.weight, by_unit=False)

    @property
    def tallied(self) -> "Layout":
        """The layout of units with the bucket of their number of rows."""
        return Layout(codes=self.codes, weight=None, by_unit=False)

    @property
    def columns(self) -> dict[str, np.dtype[Any]]:
        """The name and dtype of each column."""
        columns = {f"c{axis}": kind for axis, kind in enumerate(self.codes)}
        if self.weight is not None:
            columns["weight"] = self.weight
        return columns | dict.fromkeys(ID_COLUMNS if self.by_unit else (), np.dtype(np.uint64))

    def empty(self) -> pd.DataFrame:
        """Return a dataframe without rows."""
        return pd.DataFrame({name: np.empty(0, kind) for name, kind in self.columns.items()})

    def frame(self, parts: list[Coded]) -> pd.DataFrame:
        """Join coded rows into one dataframe."""
        arrays = zip(*(part.columns() for part in parts), strict=True) if parts else ((),) * len(self.columns)
        joined = {
            name: np.concatenate([np.empty(0, kind), *pieces])
            for (name, kind), pieces in zip(self.columns.items(), arrays, strict=True)
        }
        return pd.DataFrame(joined, copy=False)

    def coded(self, frame: pd.DataFrame) -> Coded:
        """Convert a dataframe back to coded rows."""
        columns = {name: frame[name].to_numpy() for name in self.columns}
        codes = [columns[f"c{axis}"] for axis in range(len(self.codes))]
        ids = np.column_stack([columns[ID], columns["u1"]]) if self.by_unit else None
        return Coded(codes, weights=columns.get("weight"), ids=ids, draws=columns.get("draw"))


def sums_frame(sums: Sums) -> pd.DataFrame:
    """Write fingerprint sums as a dataframe of one row."""
    return pd.DataFrame(sums[np.newaxis], columns=[f"s{place}" for place in range(len(sums))])


def sums_of(frames: Iterable[pd.DataFrame]) -> Sums:
    """Add up the fingerprint sums of several dataframes."""
    return sum((frame.to_numpy(dtype=np.uint64).sum(axis=0) for frame in frames), start=Fingerprint.nothing())
