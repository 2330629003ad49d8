"""Coded rows: the form that rows have between the raw table and the counts."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import UsageError
from dpcore.private import Carried
from dpcore.tables.ingest.draws import Words
from dpcore.tables.sources.ids import HashedIds
from dpcore.universe import CompactCodes

Weights: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Column: TypeAlias = npt.NDArray[Any]


class Coded(Carried):
    """Coded rows, with weights if they are declared, and with hashed ids and draws until the rows are bounded.

    Attributes:
        codes: One array for each attribute of the universe.
        weights: How often each row counts, or None if each counts once.
        ids: The keyed hash of each row's id, or None.
        draws: The random word of each row, or None.
        seen: How many rows of its unit each row stands for, itself and those left out before; None if nobody asks.
    """

    __slots__ = ("codes", "draws", "ids", "seen", "weights")

    def __init__(
        self,
        codes: Sequence[CompactCodes],
        *,
        weights: Weights | None,
        ids: HashedIds | None,
        draws: Words | None,
        seen: Weights | None = None,
    ) -> None:
        self.codes = tuple(codes)
        self.weights = weights
        self.ids = ids
        self.draws = draws
        self.seen = seen

    @classmethod
    def joined(cls, parts: Sequence["Coded"]) -> "Coded":
        """Join one or more parts that have the same columns."""
        first, *others = parts
        if not others:
            return first
        columns = [np.concatenate(columns) for columns in zip(*(part.columns() for part in parts), strict=True)]
        return first.like(columns)

    def columns(self) -> tuple[Column, ...]:
        """Return all columns as one-dimensional arrays: codes, weights, the rows seen, the two words of the id, draws."""
        ids = () if self.ids is None else (self.ids[:, 0], self.ids[:, 1])
        return (*self.codes, *_given(self.weights), *_given(self.seen), *ids, *_given(self.draws))

    def like(self, columns: Sequence[Column]) -> "Coded":
        """Build rows from columns in the order of `columns`, with the same optional columns as this object."""
        rest = list(columns)
        draws = None if self.draws is None else rest.pop()
        ids = None if self.ids is None else np.column_stack((rest.pop(-2), rest.pop()))
        seen = None if self.seen is None else rest.pop()
        weights = None if self.weights is None else rest.pop()
        return Coded(rest, weights=weights, ids=ids, draws=draws, seen=seen)

    @property
    def rows(self) -> int:
        """Number of rows: private, like the rows."""
        return len(self.codes[0])

    def take(self, rows: Column | slice) -> "Coded":
        """Return some of the rows."""
        return Coded(
            [code[rows] for code in self.codes],
            weights=None if self.weights is None else self.weights[rows],
            ids=None if self.ids is None else self.ids[rows],
            draws=None if self.draws is None else self.draws[rows],
            seen=None if self.seen is None else self.seen[rows],
        )

    def split(self, parts: int) -> list["Coded"]:
        """Split the rows by unit. All rows of a unit, from every batch, go to the part with the same number."""
        if self.ids is None:
            raise UsageError("rows without ids cannot be split by unit; split before bounding")
        part = (self.ids[:, 0] % np.uint64(parts)).astype(np.uint16 if parts <= 1 << 16 else np.uint32)
        order = np.argsort(part, kind="stable")
        ends = np.searchsorted(part[order], np.arange(parts), side="right").tolist()
        ordered = self.take(order)
        return [ordered.take(slice(begin, end)) for begin, end in zip((0, *ends), ends, strict=False)]

    def _parts(self) -> dict[str, object]:
        return {
            "codes": self.codes,
            "weights": self.weights,
            "ids": self.ids,
            "draws": self.draws,
            "seen": self.seen,
        }


def first_rows(ids: HashedIds) -> npt.NDArray[np.bool_]:
    """Tell which rows are the first ones of their unit, if the rows of each unit follow each other."""
    first = np.ones(len(ids), dtype=np.bool_)
    first[1:] = (ids[1:] != ids[:-1]).any(axis=1)
    return first


def _given(column: Column | None) -> tuple[Column, ...]:
    return () if column is None else (column,)
