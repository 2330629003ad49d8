"""The randomness of one run's bounding: which rows of a unit are kept, and the key that hashes its id."""

import hashlib
import os
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.private import Carried

Words: TypeAlias = npt.NDArray[np.uint64]

KEY_BYTES = 32
CHUNK_WORDS = 1 << 12  # expanded at a time, so that a few rows in the middle of a piece stay cheap
UNIT_KEY, ROW_DRAWS = b"unit", b"rows"


class Draws(Carried):
    """32 bytes of the operating system's entropy, expanded by SHAKE-256. They are drawn once per run, held in memory and never stored.

    The draw of a row depends only on its position in its piece of the source. A piece that is read again, in other batches or by another
    worker, therefore gets the same draws, which direct calls to `os.urandom` could not give (docs/decisions/0017).

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
        """Draw a new key from the operating system. There is no seed parameter, by design.

        Args:
            unit_key: The key that hashes ids, for a resumed run that needs the same hashes; None to derive it from the new key.
        """
        return cls(os.urandom(KEY_BYTES), unit_key=unit_key)

    def words(self, piece: int, start: int, count: int) -> Words:
        """Return a uniform 64-bit word for each of `count` rows of a piece, starting at row `start`."""
        first, end = start // CHUNK_WORDS, -(-(start + count) // CHUNK_WORDS)
        stream = b"".join(self._chunk(piece, chunk) for chunk in range(first, end))
        words = np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)
        return words[start - first * CHUNK_WORDS :][:count]

    def unit_key(self) -> bytes:
        """Return the key that hashes ids."""
        return self._unit_key or hashlib.shake_256(self._key + UNIT_KEY).digest(KEY_BYTES)

    def _chunk(self, piece: int, chunk: int) -> bytes:
        place = piece.to_bytes(8) + chunk.to_bytes(8)
        return hashlib.shake_256(self._key + ROW_DRAWS + place).digest(8 * CHUNK_WORDS)

    def _parts(self) -> dict[str, object]:
        return {"key": self._key, "unit_key": self._unit_key}
