"""Check that the quotation marks of a CSV file stand only where RFC 4180 allows them."""

import numpy as np

LINE_ENDS = b"\r\n"


class QuotationScan:
    """Checks the quotation marks of a file, chunk by chunk.

    Marks open and close in turn; a doubled mark inside a value closes the quotation and opens it again. In a well-formed file, every
    opening mark stands at the start of a value or after a closing mark, every closing mark stands at the end of a value or before an
    opening mark, and no quotation is open at the end of the file.
    """

    def __init__(self, delimiter: str, *, quote: str = '"') -> None:
        self._quote = ord(quote)
        self._beside = np.zeros(256, dtype=bool)
        self._beside[list(f"{delimiter}{quote}".encode() + LINE_ENDS)] = True
        self._open = False
        self._before = LINE_ENDS[0]  # the start of the file is the start of a value
        self._fine = True

    def take(self, chunk: bytes) -> None:
        """Check the next bytes of the file."""
        codes = np.frombuffer(bytes([self._before]) + chunk, dtype=np.uint8)
        if self._before == self._quote and not self._open:  # the last chunk ended with a closing mark
            self._fine &= bool(self._beside[codes[1]])
        places = np.flatnonzero(codes[1:] == self._quote) + 1
        opens = (np.arange(len(places)) % 2 == 0) != self._open
        self._fine &= bool(self._beside[codes[places[opens] - 1]].all())
        closing = places[~opens]
        closing = closing[closing + 1 < len(codes)]
        self._fine &= bool(self._beside[codes[closing + 1]].all())
        self._open ^= len(places) % 2 == 1
        self._before = int(codes[-1])

    def well_formed(self) -> bool:
        """Tell, after the last chunk, whether the whole file was well formed."""
        return self._fine and not self._open
