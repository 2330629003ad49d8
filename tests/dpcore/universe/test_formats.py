"""Declared formats of dates: each text is read by itself, as `strptime` reads it, and whatever it holds nothing breaks."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import SpecError
from dpcore.universe import Date, Datetime, Every, Outside
from dpcore.universe.fine_days import FineDate
from dpcore.universe.formats import checked_format, checked_formats, read_moments
from dpcore.universe.places import ALIEN, NULL, Places

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORMATS = (
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%Y%m%d",
    "%d-%b-%Y",
    "%B %d, %Y",
    "%m/%d/%y",
    "%m/%d/%Y %I:%M:%S %p",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y年%m月%d日",
    "%d/%m/%Y %H:%M",
    "100%% %Y/%m/%d",
    "%b-%Y",
    "%Y/%m",
)
moments = st.datetimes(min_value=datetime(1000, 1, 1), max_value=datetime(9999, 12, 30))


def read(texts: Sequence[str | bytes], formats: Sequence[str]) -> tuple[npt.NDArray[np.int64], Places]:
    array = pa.array(
        [text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape") for text in texts],
        pa.large_binary(),
    )
    return read_moments(array, formats)


def by_strptime(text: str, format_: str) -> int | None:
    """Return what Python reads, or None."""
    try:
        moment = datetime.strptime(text, format_)  # noqa: DTZ007  a zone is part of some formats
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(seconds=1)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(format_=st.sampled_from(FORMATS), moment=moments, padded=st.booleans())
def test_what_strftime_writes_is_read_as_strptime_reads_it(format_: str, moment: datetime, padded: bool) -> None:
    text = checked_format(format_).write(moment.replace(microsecond=0))
    if not padded and format_ not in {"%Y%m%d", "%m/%d/%y"}:
        text = text.replace("/0", "/").replace(".0", ".", 1)
    seconds, states = read([text, f"  {text}\t"], [format_])
    assert by_strptime(text, format_) is not None
    assert states.tolist() == [0, 0]
    assert seconds.tolist() == [by_strptime(text, format_)] * 2


near_misses = st.text(alphabet="0123456789/-.: \n\0TZ+janfebmarAPMpm年月日٣", max_size=24)
digits = st.integers(0, 99).map(str)
nearly = st.builds("{}/{}/{}".format, digits, digits, st.integers(0, 10_100).map(lambda year: f"{year:04}"))


@settings(derandomize=True, max_examples=400, deadline=None)
@given(format_=st.sampled_from(FORMATS), text=near_misses | nearly | st.text(max_size=10))
def test_whatever_is_read_is_what_strptime_reads_and_no_other_text_is(format_: str, text: str) -> None:
    (seconds,), (state,) = read([text], [format_])
    oracle = by_strptime(text.strip(), format_)
    if state == 0:
        assert seconds == oracle
    elif (
        oracle is not None
    ):  # Python also takes digits of other scripts, fewer digits where numbers touch, and any white space
        assert (
            not text.isascii()
            or format_ == "%Y%m%d"
            or any(blank in text.strip() for blank in "\n\r\v\f \x1c\x1d\x1e\x1f")
        )


@settings(derandomize=True, max_examples=150, deadline=None)
@given(
    values=st.lists(
        st.binary(max_size=12) | st.sampled_from([b"01/31/2026", b"2/3/2026 ", b"", b"NaT", b"13/13/2026"]), max_size=8
    )
)
def test_one_value_never_changes_how_others_are_read(values: list[bytes]) -> None:
    together = read(values, ["%m/%d/%Y", "%Y-%m-%d"])
    alone = [read([value], ["%m/%d/%Y", "%Y-%m-%d"]) for value in values]
    assert together[1].tolist() == [int(states[0]) for _, states in alone]
    assert together[0].tolist() == [int(seconds[0]) for seconds, _ in alone]


def test_texts_of_every_kind_are_read_or_alien_or_null() -> None:
    texts = [
        "01/31/2026",
        "1/31/2026",
        "02/30/2026",
        "02/29/2024",
        "13/01/2026",
        "01/31/2026x",
        "01/31/2026\n",
        "",
        " ",
        "NaT",
    ]
    texts += [
        "01/31/2026\0",
        "\0",
        "\u0660\u0661/31/2026",
        "01/31/20266",
        "9" * 100_000,
        "00/01/2026",
        "01/00/2026",
        "01/01/0000",
        b"\xff\xfe",
    ]
    states = read(texts, ["%m/%d/%Y"])[1].tolist()
    assert states == [0, 0, ALIEN, 0, ALIEN, ALIEN, 0, NULL, NULL, NULL, *[ALIEN] * 9]


def test_several_formats_are_tried_in_their_order() -> None:
    formats = ["%m/%d/%Y", "%Y-%m-%d", "%d.%m.%Y"]
    seconds, states = read(["01/02/1970", "1970-01-02", "02.01.1970", "2 Jan 1970"], formats)
    assert states.tolist() == [0, 0, 0, ALIEN]
    assert seconds.tolist()[:3] == [86_400] * 3


@pytest.mark.parametrize(
    ("format_", "said"),
    [
        ("%m/%d", "whole day"),
        ("%Y", "whole day"),
        ("%d-%Y", "whole day"),
        ("%m-%Y %H:%M", "whole day"),
        ("%b %m %Y", "twice"),
        ("", "whole day"),
        ("%m/%d/%Y %x", "%x, which is not supported"),
        ("%A %d %m %Y", "%A, which is not supported"),
        ("%c", "%c, which is not supported"),
        ("%d/%m/%Y %", "is not supported"),
        ("%d/%d/%m/%Y", "twice"),
        ("%d/%m/%b/%Y", "twice"),
        ("%d/%m/%Y/%y", "twice"),
        ("%d/%m/%Y %I:%M", "%I without %p"),
        ("%d/%m/%Y %p", "%p without %I"),
        ("%d/%m/%Y %S", "%S without %M"),
        ("%d/%m/%Y %H%I%p", "twice"),
        ("1%d/%m/%Y", "where '1' ends"),
        ("%f%H:%M:%S %d/%m/%Y", "where %f ends"),
        ("%d%bof %Y", "where %b ends"),
        ("%d/%m/%Y\n", "printable"),
    ],
)
def test_a_format_that_names_no_whole_day_or_can_be_read_in_two_ways_is_refused(format_: str, said: str) -> None:
    with pytest.raises(SpecError, match="format") as refused:
        checked_format(format_)
    assert said in str(refused.value)


def test_two_formats_that_contradict_each_other_are_refused() -> None:
    for pair in (["%m/%d/%Y", "%d/%m/%Y"], ["%y/%m/%d", "%d/%m/%y"], ["%m%d%Y", "%d%m%Y"]):
        with pytest.raises(SpecError, match="different days"):
            checked_formats(pair)
    assert checked_formats(["%m/%d/%Y", "%m/%d/%Y %H:%M", "%Y/%m/%d"])


def test_a_month_without_a_day_is_its_first_day_in_english_whatever_the_locale() -> None:
    texts = ["Mar-1970", "mar-1970", "MAY-1970", " Dec-1970", "März-1970", "Mai-1970", "15-Mar-1970", "Mar-70", ""]
    seconds, states = read(texts, ["%b-%Y"])
    assert states.tolist() == [0, 0, 0, 0, ALIEN, ALIEN, ALIEN, ALIEN, NULL]
    firsts = [datetime(1970, month, 1, tzinfo=UTC) for month in (3, 3, 5, 12)]
    assert seconds[:4].tolist() == [(first - EPOCH) // timedelta(seconds=1) for first in firsts]
    for text, format_ in (("2018-03", "%Y-%m"), ("201803", "%Y%m"), ("3/18", "%m/%y"), ("March 2018", "%B %Y")):
        assert read([text], [format_])[0].tolist() == [by_strptime(text, format_)]
    with pytest.raises(SpecError, match="different days"):
        checked_formats(["%m%y", "%y%m"])


@pytest.mark.parametrize("every", [Every.MONTH, Every.QUARTER, Every.YEAR])
def test_a_column_of_months_has_the_bins_of_their_days(every: Every) -> None:
    column = Date(
        minimum=date(2018, 1, 1), maximum=date(2019, 12, 5), every=every, formats=("%b-%Y",), outside=Outside.DROP
    )
    texts = pa.array(["Jan-2018", "Mar-2018", "Dec-2019", "Dec-2017", "Jan-2020"])
    days = pa.array([date(2018, 1, 1), date(2018, 3, 1), date(2019, 12, 1), date(2017, 12, 1), date(2020, 1, 1)])
    assert column.encode(texts).tolist() == column.encode(days).tolist()
    assert column.encode(texts).tolist()[3:] == [-1, -1]


def test_months_are_refused_where_days_count() -> None:
    bounds = {"minimum": date(2018, 1, 1), "maximum": date(2019, 12, 31), "formats": ("%b-%Y",)}
    moments = {"minimum": datetime(2018, 1, 1), "maximum": datetime(2019, 12, 31)}
    for make in (
        lambda: Date(**bounds, every=Every.WEEK),
        lambda: Date(**bounds | {"minimum": date(2018, 1, 15)}, every=Every.MONTH),
        lambda: Datetime(**bounds | moments, every=Every.MONTH),
        lambda: FineDate(**bounds),
    ):
        with pytest.raises(SpecError, match=r"'%b-%Y' names a month without a day: write `type: date`, `every: month`"):
            make()


def test_columns_with_formats_follow_their_policy_for_what_is_not_readable() -> None:
    days = pa.array(["01/31/2026", "2026-01-31", None, "13/31/2026"])
    bounds = {"minimum": date(2026, 1, 1), "maximum": date(2026, 12, 31), "every": Every.MONTH}
    assert Date(**bounds, formats=("%m/%d/%Y",)).encode(days).tolist() == [0, -1, -1, -1]
    assert Date(**bounds, formats=("%m/%d/%Y",), outside=Outside.OTHER).encode(days).tolist() == [0, 12, 12, 12]
    assert Date(**bounds, formats=("%m/%d/%Y",), missing=True).encode(days).tolist() == [0, 12, 12, 12]
    assert Date(**bounds).encode(days).tolist() == [-1, 0, -1, -1]  # as without formats


def test_columns_of_a_date_type_do_not_need_the_format() -> None:
    column = Datetime(
        minimum=datetime(2026, 1, 1),
        maximum=datetime(2026, 12, 31),
        every=Every.MONTH,
        formats=("%d/%m/%Y %H:%M",),
    )
    typed = pa.array([date(2026, 2, 3), date(2027, 1, 1)])
    assert column.encode(typed).tolist() == [1, 11]
    assert column.encode(pa.array(["03/02/2026 23:59"])).tolist() == [1]
    assert column.encode(pa.array([0, 1])).tolist() == [-1, -1]


def test_a_reader_that_guesses_the_format_from_the_column_is_caught() -> None:
    """The planted variant: day first unless some value has a month above 12, as inference does."""

    def guessing(texts: list[str]) -> list[int]:
        american = any(int(text.split("/")[1]) > 12 for text in texts)
        return read(texts, ["%m/%d/%Y" if american else "%d/%m/%Y"])[0].tolist()

    table, neighbour = ["01/02/2026"] * 5, ["01/02/2026"] * 5 + ["01/31/2026"]
    assert guessing(table) != guessing(neighbour)[:5]
    assert np.array_equal(read(table, ["%m/%d/%Y"])[0], read(neighbour, ["%m/%d/%Y"])[0][:5])
