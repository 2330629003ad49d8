"""Whether the quotation marks of a CSV file stand only where RFC 4180 allows them."""

import numpy as np

LINE_ENDS = b"\r\n"


class QuotationScan:
    """Looks at the quotation marks of a file, chunk by chunk.

    They open and close in turn; a doubled one inside a value closes it and opens it again. So each that opens follows the start of a
    value or the mark that closed, each that closes stands before the end of a value or the mark that opens again, and at the end of
    the file none is open.
    """

    def __init__(self, delimiter: str, *, quote: str = '"') -> None:
        self._quote = ord(quote)
        self._beside = np.zeros(256, dtype=bool)
        self._beside[list(f"{delimiter}{quote}".encode() + LINE_ENDS)] = True
        self._open = False
        self._before = LINE_ENDS[0]  # the start of the file is the start of a value
        self._fine = True

    def take(self, chunk: bytes) -> None:
        """Look at the next bytes of the file."""
        codes = np.frombuffer(bytes([self._before]) + chunk, dtype=np.uint8)
        if self._before == self._quote and not self._open:  # it closed, and only now is seen what follows
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
        """Tell, at the end of the file, whether all was as it should be."""
        return self._fine and not self._open
