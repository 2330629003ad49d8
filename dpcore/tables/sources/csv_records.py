"""A CSV file's bytes in chunks of whole records.

A reader that is handed a chunk which begins and ends with a record has nothing to remember from one chunk to the next, so no row's
length or bytes can change how a row in another chunk is read.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

CR, LF = b"\r\n"
TAIL_BYTES = 1 << 16  # where the last record end of a chunk mostly is


def record_ends(chunk: bytes, *, quote: str | None, is_open: bool) -> np.ndarray:
    r"""Return the places just after each line end that is outside quotation marks, blank lines' among them.

    Args:
        chunk: Bytes of a file; one that ends with CR is taken to have no LF after it.
        quote: The quotation mark; None where it has no meaning.
        is_open: Whether the chunk begins inside a quoted value.

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
    """Yield a stream's bytes from here on, in chunks that end where a record does, or the file.

    A record that is longer than `largest`, its line end not counted, is left out. That depends on the record alone, not on where it stands.

    Args:
        stream: At the start of a record, of a file whose quotation marks are all in their place.
        quote: The quotation mark; None where it has no meaning.
        usual: About how many bytes a chunk has, unless a record is longer.
        largest: How many bytes a record may have, at least `usual`; what is held in memory follows from it.
    """
    pending: list[bytes] = []  # the beginning of one record
    skipping = False  # whether the stream is inside a record that is too long
    is_open, held = False, b""
    while read := stream.read(usual):
        chunk = held + read
        held = chunk[-1:] if chunk[-1] == CR else b""  # what it ends shows only with the byte after it
        chunk = chunk.removesuffix(held)
        length = sum(map(len, pending))
        if skipping or length + len(chunk) > largest:
            content, end = _first_record(chunk, quote=quote, is_open=is_open)
            if skipping or length + content > largest:
                skipping = end is None
                dropped = chunk[:end]
                is_open ^= _turns(dropped, quote=quote)
                pending, chunk = [], chunk[len(dropped) :]
        is_open ^= _turns(chunk, quote=quote)
        if end := _last_end(chunk, quote=quote, is_open=is_open):
            yield b"".join((*pending, chunk[:end]))
            pending = [chunk[end:]]
        else:
            pending.append(chunk)
    if not skipping and (last := b"".join((*pending, held))):
        yield last


def _first_record(chunk: bytes, *, quote: str | None, is_open: bool) -> tuple[int, int | None]:
    """Return how many bytes a chunk has before its first line end, and the place after that; None if it has no line end."""
    ends = record_ends(chunk, quote=quote, is_open=is_open)
    if not len(ends):
        return len(chunk), None
    end = int(ends[0])
    return end - (2 if chunk[:end].endswith(b"\r\n") else 1), end


def _turns(chunk: bytes, *, quote: str | None) -> bool:
    """Tell whether a chunk that begins outside quotation marks ends inside, or the other way round."""
    if quote is None:
        return False
    return bool(np.count_nonzero(np.frombuffer(chunk, dtype=np.uint8) == ord(quote)) % 2)


def _last_end(chunk: bytes, *, quote: str | None, is_open: bool) -> int:
    """Return the place after the last record end, or 0; `is_open` is about the end of the chunk."""
    for tail in (chunk[-TAIL_BYTES:], chunk):
        ends = record_ends(tail, quote=quote, is_open=is_open ^ _turns(tail, quote=quote))
        if len(ends):
            return len(chunk) - len(tail) + int(ends[-1])
    return 0
