"""Which encodings a CSV file may be in: those in which the bytes of ASCII always mean ASCII.

A CSV file is cut into records and values by its bytes, before anything is decoded. That is right only if a delimiter, a quotation mark
and a line end are the same byte wherever they stand, and if that byte is never a part of another character. UTF-16, UTF-32, Shift-JIS, Big5,
GBK, GB18030, EBCDIC and encodings with a state (ISO-2022, UTF-7, HZ) fail this: in them, a stray byte of one value can change how the
values after it are read.
"""

import codecs
import re
from functools import cache, lru_cache

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_OF_ALL_KINDS = b'\n\x1b",0A\\~'


@lru_cache(maxsize=32)
def keeps_ascii(encoding: str) -> bool:
    """Tell whether the ASCII characters of every decoded text are the ASCII bytes of what was decoded, in the same order.

    The codec itself is tried: with every pair of ASCII bytes, with every ASCII byte after every other byte, and with those of all kinds after
    every two others. Codecs that are unknown, or that make no text of bytes, fail.

    >>> [keeps_ascii(name) for name in ("utf-8", "cp1252", "euc_kr", "utf-16", "shift_jis", "iso2022_jp", "base64")]
    [True, True, True, False, False, False, False]
    """
    raw, ascii_only = _trial()
    try:
        text = raw.decode(encoding, "replace")
    except (
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
    ):  # unknown, or none for text, or one that refuses to replace
        return False
    return _NOT_ASCII.sub("", text) == ascii_only


def is_known(encoding: str) -> bool:
    """Tell whether a name stands for an encoding of text at all."""
    try:
        codecs.lookup(encoding)
        return isinstance("".encode(encoding), bytes)
    except (LookupError, ValueError, TypeError):
        return False


@cache
def _trial() -> tuple[bytes, str]:
    """Return the bytes that a codec is tried with, and the ASCII characters that are in them."""
    low, high = ([bytes([byte]) for byte in codes] for codes in (range(128), range(128, 256)))
    kinds = [bytes([byte]) for byte in _OF_ALL_KINDS]
    raw = b"".join(
        [
            *(first + second for first in low for second in low),
            *(first + second for first in high for second in low),
            *(first + second + third for first in high for second in high for third in kinds),
        ]
    )
    return raw, bytes(byte for byte in raw if byte < 128).decode("ascii")
