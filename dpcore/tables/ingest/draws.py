"""The chance of one run's bounding: which rows of a person are kept, and under which name a person goes meanwhile."""

import hashlib
import os
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.private import Carried

Words: TypeAlias = npt.NDArray[np.uint64]

KEY_BYTES = 32
CHUNK_WORDS = 1 << 12  # expanded at a time: a few rows in the middle of a piece cost no more than this
UNIT_KEY, ROW_DRAWS = b"unit", b"rows"


class Draws(Carried):
    """32 bytes of the operating system's entropy, expanded by SHAKE-256: drawn once a run, held in memory, never stored.

    What is drawn for a row depends on its place in its piece of the source alone. A piece that is read again, in other batches or by
    another worker, thus gets the same draws, which straight entropy could not give (docs/decisions/0017).

    >>> draws = Draws.fresh()
    >>> draws.words(3, 100, 50).tolist() == draws.words(3, 0, 200)[100:150].tolist()
    True
    >>> draws
    <Draws: private, not shown>
    """

    __slots__ = ("_key", "_unit_key")

    def __init__(self, key: bytes, *, unit_key: bytes | None = None) -> None:
        self._key = key
        self._unit_key = unit_key

    @classmethod
    def fresh(cls, *, unit_key: bytes | None = None) -> "Draws":
        """Draw what nobody has drawn before; there is no seed to pass, by design.

        Args:
            unit_key: The key under which ids are hashed, where a resumed run has to find the same hashes again; else drawn too.
        """
        return cls(os.urandom(KEY_BYTES), unit_key=unit_key)

    def words(self, piece: int, start: int, count: int) -> Words:
        """Return a uniform 64-bit word for each of `count` rows of a piece, from row `start` on."""
        first, end = start // CHUNK_WORDS, -(-(start + count) // CHUNK_WORDS)
        stream = b"".join(self._chunk(piece, chunk) for chunk in range(first, end))
        words = np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)
        return words[start - first * CHUNK_WORDS :][:count]

    def unit_key(self) -> bytes:
        """Return the key under which ids are hashed."""
        return self._unit_key or hashlib.shake_256(self._key + UNIT_KEY).digest(KEY_BYTES)

    def _chunk(self, piece: int, chunk: int) -> bytes:
        place = piece.to_bytes(8) + chunk.to_bytes(8)
        return hashlib.shake_256(self._key + ROW_DRAWS + place).digest(8 * CHUNK_WORDS)

    def _parts(self) -> dict[str, object]:
        return {"key": self._key, "unit_key": self._unit_key}
