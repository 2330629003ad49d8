"""NUL bytes, kept from a reader that trips over them."""

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyarrow import compute


@dataclass(frozen=True)
class NulEscape:
    """Writes NUL as two other control characters, and back, so that every value comes out as it was.

    Arrow looks for the ends of values and rows in several bytes at a time and, in these, not beyond a NUL, so that a row with one may
    take in the next. Which of its steps do so depends on its version and the machine; without a NUL none does.

    Attributes:
        mark: Begins what stands for another character.
        nul: After the mark, stands for NUL.
        itself: After the mark, stands for the mark.
    """

    mark: str
    nul: str
    itself: str

    @classmethod
    def beside(cls, taken: str) -> Self:
        """Choose characters that have no meaning in a file where those of `taken` have one."""
        free = [chr(code) for code in range(1, ord("\n")) if chr(code) not in taken]
        return cls(mark=free[0], nul=free[1], itself=free[2])

    def hide(self, chunk: bytes) -> bytes:
        r"""Return the bytes without NUL.

        >>> NulEscape.beside("\1,").hide(b"a\0\2")
        b'a\x02\x03\x02\x04'
        """
        marked = chunk.replace(self.mark.encode(), (self.mark + self.itself).encode())
        return marked.replace(b"\0", (self.mark + self.nul).encode())

    def show(self, values: pa.Array) -> pa.Array:
        """Return texts that were cut from hidden bytes as they were."""
        shown = compute.replace_substring(values, pattern=self.mark + self.nul, replacement="\0")
        return compute.replace_substring(shown, pattern=self.mark + self.itself, replacement=self.mark)
