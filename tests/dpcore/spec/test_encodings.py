"""Only encodings are accepted in which the bytes of ASCII always mean ASCII: proved codec by codec, for all that Python knows."""

import encodings
import pkgutil
import random
import re

import pytest

from dpcore.spec.encodings import is_known, keeps_ascii

NAMES = sorted({module.name for module in pkgutil.iter_modules(encodings.__path__)} - {"aliases"})
REFUSED = {
    *("utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be", "utf_7"),
    *(
        "shift_jis",
        "shift_jis_2004",
        "shift_jisx0213",
        "cp932",
        "big5",
        "big5hkscs",
        "cp950",
        "gbk",
        "gb18030",
        "johab",
        "cp949",
    ),
    *(
        "hz",
        "iso2022_jp",
        "iso2022_jp_1",
        "iso2022_jp_2",
        "iso2022_jp_2004",
        "iso2022_jp_3",
        "iso2022_jp_ext",
        "iso2022_kr",
    ),
    *(
        "cp037",
        "cp500",
        "cp1140",
        "unicode_escape",
        "raw_unicode_escape",
        "punycode",
        "idna",
        "base64",
        "hex",
        "rot13",
        "undefined",
    ),
}
ACCEPTED = {
    "ascii",
    "utf_8",
    "utf_8_sig",
    "latin_1",
    "cp1252",
    "iso8859_15",
    "koi8_r",
    "cp437",
    "mac_roman",
    "gb2312",
}
ASCII = bytes(range(128))


@pytest.fixture(scope="module")
def kept() -> list[str]:
    """All codecs of Python that are accepted."""
    return [name for name in NAMES if is_known(name) and keeps_ascii(name)]


def plain(text: str) -> str:
    return re.sub(r"[^\x00-\x7f]+", "", text)


def test_all_that_should_be_is_accepted_and_nothing_else(kept: list[str]) -> None:
    assert set(kept) >= ACCEPTED
    assert not {*kept} & REFUSED
    assert not any(map(keeps_ascii, ("UTF-16", "Shift-JIS", "base64", "no such thing")))


def test_a_delimiter_a_mark_and_a_line_end_mean_themselves_after_every_two_bytes(kept: list[str]) -> None:
    """For each codec that is accepted, every ASCII byte after every pair of others, of which the spec's own trial tries some kinds."""
    high = range(128, 256)
    chance = random.Random(1)  # noqa: S311  not for secrets
    for name in kept:
        leads = [bytes((first, second)) for first in high for second in chance.sample(high, 8)]
        raw = b"".join(lead + bytes([byte]) for lead in leads for byte in chance.sample(ASCII, 16))
        assert plain(raw.decode(name, "replace")) == raw.translate(None, bytes(high)).decode(), name


def test_any_bytes_cut_at_an_ascii_byte_and_decoded_apart_are_what_they_are_together(kept: list[str]) -> None:
    chance = random.Random(2)  # noqa: S311  not for secrets
    for name in kept * 30:
        parts = [chance.randbytes(chance.randrange(9)).replace(b",", b"") for _ in range(6)]
        apart = ",".join(part.decode(name, "replace") for part in parts)
        together = b",".join(parts).decode(name, "replace")
        assert plain(apart) == plain(together) == b",".join(parts).translate(None, bytes(range(128, 256))).decode()


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("shift_jis", b"\x81A"),
        ("gb18030", b"\x810"),
        ("utf_16", b"ab"),
        ("big5", b"\xa4A"),
        ("euc_jp", b"\x8fo"),
        ("hz", b"~{"),
    ],
)
def test_the_control_in_encodings_that_are_refused(name: str, raw: bytes) -> None:
    assert plain(raw.decode(name, "replace")) != raw.translate(None, bytes(range(128, 256))).decode()
