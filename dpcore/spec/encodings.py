"""Which encodings a CSV file may be in: those in which the bytes of ASCII always mean ASCII.

A CSV file is cut into records and values by its bytes, before anything is decoded. That is right only if a delimiter, a quotation mark
and a line end are the same byte wherever they stand, and if that byte is never a part of another character. UTF-16, UTF-32, Shift-JIS, Big5,
GBK, GB18030, EBCDIC and encodings with a state (ISO-2022, UTF-7, HZ) fail this: in them, a stray byte of one value can change how the
values after it are read.
"""

import codecs
import re
import warnings
from functools import cache, lru_cache

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


@lru_cache(maxsize=32)
def keeps_ascii(encoding: str) -> bool:
    """Tell whether the ASCII characters of every decoded text are the ASCII bytes of what was decoded, in the same order.

    The codec itself is tried: with every pair of ASCII bytes, with every ASCII byte after every other byte, and with some after every two
    others, each in the middle of a text and at its end. Codecs that are unknown, or that make no text of bytes, fail.

    >>> [keeps_ascii(name) for name in ("utf-8", "cp1252", "gb2312", "utf-16", "shift_jis", "iso2022_jp", "base64")]
    [True, True, True, False, False, False, False]
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some codecs warn about bytes
            return all(_ascii_of(raw.decode(encoding, "replace")) == wanted for raw, wanted in _trials())
    except (LookupError, ValueError, TypeError, AttributeError):  # unknown, or none for text, or one that can't replace
        return False


def _ascii_of(text: str) -> str:
    return text if text.isascii() else _NOT_ASCII.sub("", text)


def is_known(encoding: str) -> bool:
    """Tell whether a name stands for an encoding of text at all."""
    try:
        codecs.lookup(encoding)
        return isinstance("".encode(encoding), bytes)
    except (LookupError, ValueError, TypeError):
        return False


@cache
def _trials() -> tuple[tuple[bytes, str], ...]:
    """Return what a codec is tried with, and the ASCII characters that are in it: the first is all others in one."""
    low, high = ([bytes([byte]) for byte in codes] for codes in (range(128), range(128, 256)))
    pairs = [first + second for first in low for second in low]
    after_one = [(first + byte, byte.decode()) for first in high for byte in low]
    after_two = [(first + second + byte, byte.decode()) for first in high for second in high for byte in (b"\n", b"A")]
    one_by_one = [*after_one, *after_two]
    whole = (
        b"".join([*pairs, *(raw for raw, _ in one_by_one)]),
        b"".join(pairs).decode() + "".join(text for _, text in one_by_one),
    )
    return whole, *one_by_one
