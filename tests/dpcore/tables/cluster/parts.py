"""Parts of a table that do on a worker what no part should: kill it, or fail with the table in their hands."""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from dpcore.tables.ingest.coding import Coding
from dpcore.tables.sources.part import Part


@dataclass(frozen=True)
class Around(Part):
    """A part as it is."""

    inner: Part

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def damaged(self) -> str:
        return self.inner.damaged

    def column_names(self) -> list[str]:
        return self.inner.column_names()

    def column_types(self, columns: Sequence[str]) -> list[pa.DataType]:
        return self.inner.column_types(columns)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self.inner.batches(columns)


@dataclass(frozen=True)
class Killing(Around):
    """Kills the worker that reads it, as often as there are files to take away; a reader that is spared reads it to its end."""

    lives: Path

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.inner.batches(columns)
        for life in self.lives.iterdir():
            life.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Careless(Around):
    """Prints what it reads, and fails with it."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.inner.batches(columns):
            print(batch.to_pydict())  # noqa: T201  as careless as can be
            raise ValueError(str(batch.to_pydict())) from KeyError(str(batch.to_pydict()))
        yield from ()


@dataclass(frozen=True)
class CarelessCoding(Coding):
    """Fails with the rows that it is to code."""

    def words(self, batch: pa.RecordBatch, **_: object) -> NoReturn:  # type: ignore[override]
        raise ValueError(str(batch.to_pydict()))
