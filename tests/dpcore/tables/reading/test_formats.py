"""Declared formats of dates: each text is read by itself, as `strptime` reads it, and whatever it holds nothing breaks."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import SpecError
from dpcore.tables.reading.places import ALIEN, NULL
from dpcore.tables.reading.values import moments
from dpcore.universe.formats import checked_format, checked_formats

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORMATS = (
    *("%m/%d/%Y", "%d.%m.%Y", "%Y%m%d", "%d-%b-%Y", "%B %d, %Y", "%m/%d/%y", "%m/%d/%Y %I:%M:%S %p", "%Y-%m-%dT%H:%M:%S%z"),
    *("%Y-%m-%d %H:%M:%S.%f", "%Y年%m月%d日", "%d/%m/%Y %H:%M", "100%% %Y/%m/%d", "%b-%Y", "%Y/%m"),
)  # fmt: skip


def read(texts: Sequence[str | bytes], formats: Sequence[str]) -> tuple[list[int], list[int]]:
    raw = [text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape") for text in texts]
    seconds, states = moments(pa.array(raw, pa.large_binary()), formats)
    return seconds.tolist(), states.tolist()


def by_strptime(text: str, format_: str) -> int | None:
    """Return what Python reads, or None."""
    try:
        moment = datetime.strptime(text, format_)  # noqa: DTZ007  a zone is part of some formats
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // timedelta(seconds=1)


@given(st.sampled_from(FORMATS), st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 30)), st.booleans())
def test_what_strftime_writes_is_read_as_strptime_reads_it(format_: str, moment: datetime, padded: bool) -> None:
    text = moment.replace(microsecond=0, tzinfo=UTC).strftime(format_)
    if not padded and format_ not in {"%Y%m%d", "%m/%d/%y"}:
        text = text.replace("/0", "/").replace(".0", ".", 1)
    assert by_strptime(text, format_) is not None
    assert read([text, f"  {text}\t"], [format_]) == ([by_strptime(text, format_)] * 2, [0, 0])


near_misses = st.text(alphabet="0123456789/-.: \n\0TZ+janfebmarAPMpm年月日٣", max_size=24)
digits = st.integers(0, 99).map(str)
nearly = st.builds("{}/{}/{}".format, digits, digits, st.integers(0, 10_100).map(lambda year: f"{year:04}"))


@given(format_=st.sampled_from(FORMATS), text=near_misses | nearly | st.text(max_size=10))
def test_whatever_is_read_is_what_strptime_reads_and_no_other_text_is(format_: str, text: str) -> None:
    (seconds,), (state,) = read([text], [format_])
    oracle = by_strptime(text.strip(), format_)
    if state == 0:
        assert seconds == oracle
    elif oracle is not None:
        # Python also takes digits of other scripts, fewer digits where numbers touch, and any white space
        odd = any(blank in text.strip() for blank in "\n\r\v\f \x1c\x1d\x1e\x1f")
        assert odd or not text.isascii() or format_ == "%Y%m%d"


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"01/31/2026", b"2/3/2026 ", b"", b"13/13/2026"]), max_size=8))  # fmt: skip
def test_one_value_never_changes_how_others_are_read(values: list[bytes]) -> None:
    formats = ["%m/%d/%Y", "%Y-%m-%d"]
    alone = [read([value], formats) for value in values]
    assert read(values, formats) == ([seconds[0] for seconds, _ in alone], [states[0] for _, states in alone])


STATES = {
    "%m/%d/%Y": {
        0: ["01/31/2026", "1/31/2026", "02/29/2024", "01/31/2026\n"],
        NULL: ["", " ", "NaT"],
        ALIEN: [
            *("02/30/2026", "13/01/2026", "01/31/2026x", "01/31/2026\0", "\0", "\u0660\u0661/31/2026", "01/31/20266"),
            *("9" * 100_000, "00/01/2026", "01/00/2026", "01/01/0000", b"\xff\xfe"),
        ],
    },
    "%b-%Y": {
        0: ["Mar-1970", "mar-1970", "MAY-1970", " Dec-1970"],  # the locale does not matter
        ALIEN: ["März-1970", "Mai-1970", "15-Mar-1970", "Mar-70"],
    },
}


@pytest.mark.parametrize("format_", STATES)
def test_texts_of_every_kind_are_read_or_alien_or_null(format_: str) -> None:
    for state, texts in STATES[format_].items():
        assert read(texts, [format_])[1] == [state] * len(texts)


def test_several_formats_are_tried_in_their_order() -> None:
    texts = ["01/02/1970", "1970-01-02", "02.01.1970", "2 Jan 1970"]
    assert read(texts, ["%m/%d/%Y", "%Y-%m-%d", "%d.%m.%Y"]) == ([86_400] * 3 + [0], [0, 0, 0, ALIEN])


READ = {
    "%Y-%m": "2018-03",
    "%Y%m": "201803",
    "%m/%y": "3/18",
    "%B %Y": "March 2018",
    "%d.%m.%y": "31.12.68",
    "%d/%m/%y": "01/01/69",
    "%Y-%m-%d %H:%M%z": "2026-01-01 00:30+02:45",
    "%Y-%m-%d %I%p": "2026-01-01 12am",
}


@pytest.mark.parametrize("format_", READ)
def test_months_centuries_halves_of_days_and_zones_are_read_as_strptime_does(format_: str) -> None:
    assert read([READ[format_]], [format_]) == ([by_strptime(READ[format_], format_)], [0])


REFUSED = {
    "whole day": ["%m/%d", "%Y", "%d-%Y", "%m-%Y %H:%M", ""],
    "twice": ["%b %m %Y", "%d/%d/%m/%Y", "%d/%m/%b/%Y", "%d/%m/%Y/%y", "%d/%m/%Y %H%I%p"],
    "is not supported": ["%m/%d/%Y %x", "%A %d %m %Y", "%c", "%d/%m/%Y %"],
    " without ": ["%d/%m/%Y %I:%M", "%d/%m/%Y %p", "%d/%m/%Y %S"],
    "ends and": ["1%d/%m/%Y", "%f%H:%M:%S %d/%m/%Y", "%d%bof %Y"],
    "printable": ["%d/%m/%Y\n"],
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_format_that_names_no_whole_day_or_can_be_read_in_two_ways_is_refused(words: str) -> None:
    for format_ in REFUSED[words]:
        with pytest.raises(SpecError, match=words):
            checked_format(format_)


def test_formats_that_contradict_each_other_are_refused() -> None:
    for pair in (["%m/%d/%Y", "%d/%m/%Y"], ["%y/%m/%d", "%d/%m/%y"], ["%m%d%Y", "%d%m%Y"], ["%m%y", "%y%m"]):
        with pytest.raises(SpecError, match="different days"):
            checked_formats(pair)
    assert checked_formats(["%m/%d/%Y", "%m/%d/%Y %H:%M", "%Y/%m/%d"])


def test_a_reader_that_guesses_the_format_from_the_column_is_caught() -> None:
    """The planted variant: day first unless some value has a month above 12, as inference does."""

    def guessing(texts: list[str]) -> list[int]:
        american = any(int(text.split("/")[1]) > 12 for text in texts)
        return read(texts, ["%m/%d/%Y" if american else "%d/%m/%Y"])[0]

    table, neighbour = ["01/02/2026"] * 5, ["01/02/2026"] * 5 + ["01/31/2026"]
    assert guessing(table) != guessing(neighbour)[:5]
    assert np.array_equal(read(table, ["%m/%d/%Y"])[0], read(neighbour, ["%m/%d/%Y"])[0][:5])
