"""Compute the data's version: a keyed digest of the rows that a run may read. Without the key it reveals nothing but equality.

The digest covers the coded rows: those in the run's window and universe, with an id and a weight if they are declared. Changes that the run
cannot see do not change it: changes of another column, of rows outside the window, or of the order of the rows. The digest is computed in
the pass that codes the rows. The words of each row are mixed under secret constants and the results are summed, so batches, files and
workers may come in any order. This is the construction of MSet-Add-Hash (Clarke, Devadas, van Dijk, Gassend and Suh 2003).

Two different tables have the same sum with probability about 2^-64, whatever the tables are, since nobody who changes a table knows the
constants or sees the sum. This treats the mixing as a random function. Only an HMAC of the sum leaves the private side.
"""

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.errors import LedgerError
from dpcore.private import Carried
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.draws import KEY_BYTES

Sums: TypeAlias = npt.NDArray[np.uint64]
"""The number of rows, and two sums modulo 2^64."""
Word: TypeAlias = npt.NDArray[np.integer[Any]]

KEY_NAME = "fingerprint.key"
LANES = 2
CHUNK_ROWS = 1 << 14  # mixed at a time, so that they stay in the processor's cache


class Fingerprint(Carried):
    """Digests the rows of one run. Every run has its own key, so the versions of two runs cannot be compared.

    >>> import numpy as np
    >>> rows = Coded([np.array([0, 1, 1])], weights=None, ids=None, draws=None)
    >>> one, other = Fingerprint(bytes(32)), Fingerprint(bytes([1]) * 32)
    >>> turned = rows.take(np.array([2, 0, 1]))
    >>> one.version(one.of(rows, shape=(2,))) == one.version(one.of(turned, shape=(2,)))
    True
    >>> one.version(one.of(rows, shape=(2,))) == other.version(other.of(rows, shape=(2,)))
    False
    """

    __slots__ = ("_constants", "_key")

    def __init__(self, key: bytes) -> None:
        self._key = key
        words = np.frombuffer(hashlib.shake_256(b"rows" + key).digest(8 * 3 * (1 + LANES)), dtype="<u8").astype(
            np.uint64
        )
        # the second and third constant are multipliers and must be odd
        self._constants = words.reshape(1 + LANES, 3) | np.array([0, 1, 1], dtype=np.uint64)

    @classmethod
    def of_run(cls, run_id: str, *, key: bytes) -> "Fingerprint":
        """Return the fingerprint of a run, derived from the steward's key. A resumed run gets the same one."""
        return cls(hmac.digest(key, run_id.encode(), "sha256"))

    def unit_key(self) -> bytes:
        """Return the key that hashes the run's ids."""
        return hmac.digest(self._key, b"units", "sha256")

    @staticmethod
    def nothing() -> Sums:
        """Return the sums of no rows."""
        return np.zeros(1 + LANES, dtype=np.uint64)

    def of(self, coded: Coded, *, shape: Sequence[int]) -> Sums:
        """Return the sums of coded rows. The sums of several parts add up.

        Args:
            coded: The rows.
            shape: The number of codes of each attribute.
        """
        beside = () if coded.weights is None else (coded.weights,)
        ids = () if coded.ids is None else (coded.ids[:, 0], coded.ids[:, 1])
        sums = self.nothing()
        for start in range(0, coded.rows, CHUNK_ROWS):
            chunk = slice(start, start + CHUNK_ROWS)
            packed = _packed([code[chunk] for code in coded.codes], sizes=shape)
            sums += self.of_words([*packed, *(column[chunk] for column in (*beside, *ids))])
        return sums

    def of_words(self, columns: Sequence[Word]) -> Sums:
        """Return the sums of rows that are given as columns of integers."""
        mixed = np.zeros(len(columns[0]), dtype=np.uint64)
        for column in columns:
            mixed ^= column.astype(np.uint64)
            _mix(mixed, *self._constants[0])
        lanes = [_mix(mixed.copy(), *constants).sum(dtype=np.uint64) for constants in self._constants[1:]]
        return np.array([len(mixed), *lanes], dtype=np.uint64)

    def version(self, sums: Sums) -> str:
        """Return the version of the summed rows. Only the version may be stored, not the sums."""
        return hmac.new(self._key, b"version" + sums.astype("<u8").tobytes(), "sha256").hexdigest()

    def _parts(self) -> dict[str, object]:
        return {"key": self._key}


def _packed(codes: Sequence[Word], *, sizes: Sequence[int]) -> list[npt.NDArray[np.uint64]]:
    """Pack each row's codes into as few words as possible, one-to-one: as digits of one number, until a word is full."""
    words: list[npt.NDArray[np.uint64]] = []
    room = 1
    for code, size in zip(codes, sizes, strict=True):
        room *= size
        if not words or room > 1 << 64:
            words.append(code.astype(np.uint64))
            room = size
        else:
            words[-1] *= np.uint64(size)
            words[-1] += code
    return words


def _mix(words: npt.NDArray[np.uint64], plus: np.uint64, times: np.uint64, again: np.uint64) -> npt.NDArray[np.uint64]:
    """Mix words in place: a permutation of 64-bit words like SplitMix64 (Steele, Lea and Flood 2014), with other constants."""
    words += plus
    words ^= words >> np.uint64(30)
    words *= times
    words ^= words >> np.uint64(27)
    words *= again
    words ^= words >> np.uint64(31)
    return words


def fingerprint_key(folder: Path) -> bytes:
    """Return the key stored in the folder. Create the folder and the key on first use.

    The file is created atomically: if two processes create it at once, both return the same key. Losing the key makes all data look
    changed. Nothing else depends on it; in particular no noise is ever drawn from it.

    Raises:
        LedgerError: If the file cannot be created or read, is not a key, or is open to other users.
    """
    path = folder / KEY_NAME
    try:
        if not path.exists():
            _create(path)
        key, mode = path.read_bytes(), path.stat().st_mode
    except OSError:
        raise _not_stored(folder) from None
    if len(key) != KEY_BYTES:
        raise LedgerError(
            f"{KEY_NAME} in {str(folder)!r} is damaged; restore it, or delete it to treat all data as changed"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise LedgerError(f"{KEY_NAME} in {str(folder)!r} is open to other users; run `chmod 600` on it")
    return key


def check_key(folder: Path) -> None:
    """Raise what `fingerprint_key` would raise for the folder, before anything is reserved. Create nothing.

    Raises:
        LedgerError: If the key is damaged or open to other users, or is missing and cannot be created.
    """
    try:
        is_there = (folder / KEY_NAME).exists()
    except OSError:  # the folder may not be entered
        raise _not_stored(folder) from None
    if is_there:
        fingerprint_key(folder)
        return
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK, effective_ids=True)):
        raise _not_stored(folder)


def _not_stored(folder: Path) -> LedgerError:
    return LedgerError(f"{KEY_NAME} cannot be stored in {str(folder)!r}; check that you may write to the folder")


def _create(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        # unlike a rename, a link never replaces a key that another process has created in the meantime
        path.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink(missing_ok=True)
