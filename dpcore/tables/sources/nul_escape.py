"""Escape NUL bytes, which Arrow's CSV reader mishandles."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyarrow import compute


@dataclass(frozen=True)
class NulEscape:
    """Escapes NUL as two other control characters, and restores it afterwards.

    Arrow scans several bytes at a time for the end of a value or row and stops at a NUL among them, so a row with a NUL may swallow the
    next row. Which code paths do this depends on the Arrow version and the machine; without a NUL none does.

    Attributes:
        mark: Starts an escape sequence.
        nul: After the mark, stands for NUL.
        itself: After the mark, stands for the mark itself.
    """

    mark: str
    nul: str
    itself: str

    @classmethod
    def beside(cls, taken: str) -> Self:
        """Choose control characters other than those in `taken`."""
        free = [chr(code) for code in range(1, ord("\n")) if chr(code) not in taken]
        return cls(mark=free[0], nul=free[1], itself=free[2])

    def hide(self, chunk: bytes) -> bytes:
        r"""Return the bytes with every NUL escaped.

        >>> NulEscape.beside("\1,").hide(b"a\0\2")
        b'a\x02\x03\x02\x04'
        """
        marked = chunk.replace(self.mark.encode(), (self.mark + self.itself).encode())
        return marked.replace(b"\0", (self.mark + self.nul).encode())

    def show(self, values: pa.Array) -> pa.Array:
        """Restore the original values from escaped ones."""
        shown = compute.replace_substring(values, pattern=self.mark + self.nul, replacement="\0")
        return compute.replace_substring(shown, pattern=self.mark + self.itself, replacement=self.mark)
