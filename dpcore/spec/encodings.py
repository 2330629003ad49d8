"""Check which encodings a CSV file may use: those in which an ASCII byte always means its ASCII character.

A CSV file is split into records and values by its bytes, before decoding. This is correct only if a delimiter, a quotation mark and a
newline are the same byte everywhere, and if that byte is never part of another character. UTF-16, UTF-32, Shift-JIS, Big5, GBK, GB18030,
EBCDIC and stateful encodings (ISO-2022, UTF-7, HZ) fail this condition: a stray byte in one value can change how later values are read.
"""

import codecs
import re
import warnings
from functools import cache, lru_cache

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


@lru_cache(maxsize=32)
def keeps_ascii(encoding: str) -> bool:
    """Return whether decoding keeps ASCII: the ASCII characters of a decoded text are the ASCII bytes of the input, in the same order.

    The check runs the codec itself: on every pair of ASCII bytes, on every ASCII byte after every non-ASCII byte, and on two ASCII bytes
    after every two non-ASCII bytes, each in the middle and at the end of a text. Codecs that are unknown or do not decode to text fail.

    >>> [keeps_ascii(name) for name in ("utf-8", "cp1252", "gb2312", "utf-16", "shift_jis", "iso2022_jp", "base64")]
    [True, True, True, False, False, False, False]
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some codecs warn about bytes
            return all(_ascii_of(raw.decode(encoding, "replace")) == ascii_text for raw, ascii_text in _trials())
    except (LookupError, ValueError, TypeError, AttributeError):  # unknown, not a text encoding, or without "replace"
        return False


def _ascii_of(text: str) -> str:
    return text if text.isascii() else _NOT_ASCII.sub("", text)


def is_known(encoding: str) -> bool:
    """Return whether a name denotes a text encoding."""
    try:
        codecs.lookup(encoding)
        return isinstance("".encode(encoding), bytes)
    except (LookupError, ValueError, TypeError):
        return False


@cache
def _trials() -> tuple[tuple[bytes, str], ...]:
    """Return the inputs to try a codec with, each with its ASCII characters.

    The first concatenates all pairs of ASCII bytes and all other inputs.
    """
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
