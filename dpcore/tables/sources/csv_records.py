"""Work on the bytes of a CSV file: check its quotation marks, split it into chunks of whole records.

Every chunk starts and ends at a record boundary, so the reader keeps no state between chunks. The length and bytes of one row therefore
cannot change how a row in another chunk is read.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

CR, LF = LINE_ENDS = b"\r\n"
TAIL_BYTES = 1 << 16  # the last record of a chunk usually ends within these


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


def record_ends(chunk: bytes, *, quote: str | None, is_open: bool) -> np.ndarray:
    r"""Return the offset just past each record terminator: a newline outside quotation marks. Blank lines count.

    Args:
        chunk: Bytes of a file. A CR at its end is assumed to have no LF after it.
        quote: The quotation mark; None if the file has no quoting.
        is_open: Whether the chunk starts inside a quoted value.

    >>> record_ends(b'a,"b\n"\r\nc', quote='"', is_open=False).tolist()
    [8]
    """
    codes = np.frombuffer(chunk, dtype=np.uint8)
    ends = np.flatnonzero((codes == LF) | (codes == CR))
    if quote is not None:
        marks_before = np.searchsorted(np.flatnonzero(codes == ord(quote)), ends)
        ends = ends[(marks_before + is_open) % 2 == 0]
    within = ends[ends + 1 < len(codes)]
    before_feed = within[(codes[within] == CR) & (codes[within + 1] == LF)]
    return ends[~np.isin(ends, before_feed, assume_unique=True)] + 1


def whole_records(stream: pa.NativeFile, *, quote: str | None, usual: int, largest: int) -> Iterator[bytes]:
    """Yield the rest of a stream in chunks that end at a record boundary or at the end of the file.

    Skip each record longer than `largest`, without its newline. This depends on the record alone, not on its position.

    Args:
        stream: At the start of a record. The quotation marks of the file must be well formed.
        quote: The quotation mark; None if the file has no quoting.
        usual: The approximate size of a chunk in bytes, unless a record is longer.
        largest: The maximum length of a record in bytes, at least `usual`. It bounds memory.
    """
    pending: list[bytes] = []  # the start of one record
    skipping = False  # whether the stream is inside a record that is too long
    is_open, held = False, b""
    while read := stream.read(usual):
        chunk = held + read
        held = chunk[-1:] if chunk[-1] == CR else b""  # the next byte may be the LF of a CR LF
        chunk = chunk.removesuffix(held)
        length = sum(map(len, pending))
        if skipping or length + len(chunk) > largest:
            content, end = _first_record(chunk, quote=quote, is_open=is_open)
            if skipping or length + content > largest:
                skipping = end is None
                dropped = chunk[:end]
                is_open ^= _toggles_quotation(dropped, quote=quote)
                pending, chunk = [], chunk[len(dropped) :]
        is_open ^= _toggles_quotation(chunk, quote=quote)
        if end := _last_end(chunk, quote=quote, is_open=is_open):
            yield b"".join((*pending, chunk[:end]))
            pending = [chunk[end:]]
        else:
            pending.append(chunk)
    if not skipping and (last := b"".join((*pending, held))):
        yield last


def _first_record(chunk: bytes, *, quote: str | None, is_open: bool) -> tuple[int, int | None]:
    """Return the length of a chunk's first record without its newline, and the offset past that newline; None if it has none."""
    ends = record_ends(chunk, quote=quote, is_open=is_open)
    if not len(ends):
        return len(chunk), None
    end = int(ends[0])
    return end - (2 if chunk[:end].endswith(b"\r\n") else 1), end


def _toggles_quotation(chunk: bytes, *, quote: str | None) -> bool:
    """Tell whether the chunk has an odd number of quotation marks, and so starts and ends on different sides of a quotation."""
    if quote is None:
        return False
    return bool(np.count_nonzero(np.frombuffer(chunk, dtype=np.uint8) == ord(quote)) % 2)


def _last_end(chunk: bytes, *, quote: str | None, is_open: bool) -> int:
    """Return the offset past the last record terminator, or 0. `is_open` refers to the end of the chunk."""
    for tail in (chunk[-TAIL_BYTES:], chunk):
        ends = record_ends(tail, quote=quote, is_open=is_open ^ _toggles_quotation(tail, quote=quote))
        if len(ends):
            return len(chunk) - len(tail) + int(ends[-1])
    return 0
