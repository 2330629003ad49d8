"""Store chunks of private arrays that may not fit in memory.

All spools of a process share one memory limit. Chunks beyond it go to an unnamed temporary file in the steward's private folder. No other
user can open the file, and it disappears when the process ends, however it ends.
"""

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import SourceBroken, UsageError
from dpcore.places import made_private_folder
from dpcore.private import Private
from dpcore.tables.sources.attempt import attempt

Chunk: TypeAlias = tuple[npt.NDArray[Any], ...]

MEMORY_BYTES = 1 << 27  # of all spools of this process together
FULL = (
    "the steward's private folder cannot store the coded rows that do not fit into memory; "
    "free space on its disk, or name a folder on another disk in DPFLOW_PRIVATE"
)


class _Memory:
    """Tracks how much of the memory limit is in use, for all spools and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, size: int) -> bool:
        """Reserve this many bytes. Return False and reserve nothing if they are not available."""
        with self._lock:
            if self._taken + size > MEMORY_BYTES:
                return False
            self._taken += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._taken -= size


_MEMORY = _Memory()


class Spool(Private):
    """Chunks of arrays in the order of appending: in memory while there is room, else in an unnamed temporary file.

    Several threads may read the chunks at once, any number of times. Chunks are yielded one by one as they were appended, so iterating
    over a spool needs the memory of one chunk.
    """

    __slots__ = ("_chunks", "_closed", "_end", "_file", "_held", "_kinds")

    def __init__(self) -> None:
        self._chunks: list[Chunk | tuple[int, int]] = []  # the arrays, or their offset in the file and their length
        self._kinds: tuple[np.dtype[Any], ...] | None = None
        self._file: IO[bytes] | None = None
        self._end = 0
        self._held = 0
        self._closed = False

    def append(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Store a copy of one chunk: one-dimensional arrays of equal length, with the same dtypes each time.

        Raises:
            SourceBroken: If the disk is full. This depends on the private number of rows, so the message is constant.
        """
        kinds = tuple(array.dtype for array in arrays)
        lengths = {array.shape for array in arrays}
        if self._closed or len(lengths) != 1 or len(next(iter(lengths))) != 1 or kinds != (self._kinds or kinds):
            raise UsageError(
                "an open spool takes one-dimensional arrays of equal length, with the same dtypes each time"
            )
        self._kinds = kinds
        (rows,) = next(iter(lengths))
        size = sum(array.nbytes for array in arrays)
        if not rows:
            return
        if _MEMORY.take(size):
            self._held += size
            self._chunks.append(tuple(_frozen(array.copy()) for array in arrays))
        else:
            attempt(partial(self._write, arrays), otherwise=FULL, failure=SourceBroken)
            self._chunks.append((self._end, rows))
            self._end += size

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks, read-only, in the order of appending."""
        for chunk in tuple(self._chunks):
            if isinstance(chunk[0], int):
                yield self._read(*chunk)
            else:
                yield chunk

    def close(self) -> None:
        """Free memory and file. A spool is also closed when it is garbage-collected."""
        self._closed = True
        self._chunks = []
        _MEMORY.give_back(self._held)
        self._held = 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def _write(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=made_private_folder(), buffering=0)  # noqa: SIM115  closed with the spool
        self._file.seek(self._end)
        for array in arrays:
            left = np.ascontiguousarray(array).data.cast("B")
            while left:
                left = left[self._file.write(left) :]

    def _read(self, begin: int, rows: int) -> Chunk:
        arrays = tuple(np.empty(rows, dtype=kind) for kind in self._kinds or ())
        place = begin
        for array in arrays:
            read = attempt(partial(self._read_at, array, place), otherwise=FULL, failure=SourceBroken)
            if read != array.nbytes:
                raise SourceBroken(FULL)
            place += read
        return tuple(map(_frozen, arrays))

    def _read_at(self, array: npt.NDArray[Any], place: int) -> int:
        if self._file is None:
            raise ValueError("a closed spool has no file")
        return os.preadv(self._file.fileno(), [array.data], place)


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
