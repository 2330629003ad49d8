"""The window of a run: which rows it reads, whatever is in the columns that tell, and every row in one block only."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.tables.ingest.window import Window, has_days
from dpcore.universe import Every
from dpcore.universe.blocks import Calendar, TimeBlock

YEAR = date(2027, 1, 1)


def calendar(
    every: Every = Every.MONTH, *, start: date = date(2026, 1, 1), arrived: str | None = None, grace_days: int = 0
) -> Calendar:
    return Calendar("visit", every, start=start, arrived=arrived, grace_days=grace_days)


def kept(window: Window, **columns: Any) -> list[bool]:
    batch = pa.RecordBatch.from_arrays([pa.array(values) for values in columns.values()], names=list(columns))
    return window.keeps(batch).tolist()


def days(*texts: str) -> pa.Array:
    return pa.array([date.fromisoformat(text) for text in texts], pa.date32())


def test_a_row_is_read_if_its_period_is() -> None:
    window = Window.of(calendar(), ["2026-02", "2026-04"])
    assert window.columns == ("visit",)
    visits = days("2026-01-31", "2026-02-01", "2026-02-28", "2026-03-01", "2026-04-30", "2027-02-01")
    assert kept(window, visit=visits) == [False, True, True, False, True, False]


MOMENTS = [datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), None]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(MOMENTS, pa.timestamp("us", tz="UTC")),
        pa.array(MOMENTS, pa.timestamp("us", tz="America/New_York")),  # told in UTC all the same
        pa.array([m and m.replace(tzinfo=None) for m in MOMENTS], pa.timestamp("ns")),
        pa.array([m and m.date() for m in MOMENTS], pa.date32()),
        pa.array([m and m.date() for m in MOMENTS], pa.date64()),
        pa.array(["2026-01-31", "2026-02-01", None]),
        pa.array(["2026-01-31T23:59:59+00:00", "2026-01-31T23:00:00-05:00", ""]),
        pa.array(["2026-01-31 10:00:00", " 2026-02-01 ", "yesterday"]).dictionary_encode(),
        pa.array([b"2026-01-31", b"2026-02-01", b"\xff\xfe"], pa.large_binary()),
        pa.array(["2026-01-31", "2026-02-01", "0000-13-77"], pa.string_view()),
    ],
    ids=lambda column: str(column.type),
)
def test_days_are_read_from_every_type_that_can_tell_them(column: pa.Array) -> None:
    assert has_days(column.type)
    assert kept(Window.of(calendar(), ["2026-02"]), visit=column) == [False, True, False]


def test_days_are_read_in_the_declared_format_and_typed_ones_as_they_are() -> None:
    american = replace(calendar(arrived="sent"), formats=("%m/%d/%Y",))
    window = Window.of(american, ["2026-02"])
    visits = pa.array(["02/01/2026", "01/02/2026", "2026-02-01", "13/02/2026", None, "2/28/2026"])
    sent = pa.array(["02/03/2026"] * 6)
    assert kept(window, visit=visits, sent=sent) == [True, False, False, False, False, True]
    assert kept(window, visit=days("2026-02-01", "2026-01-02"), sent=sent[:2]) == [True, False]
    european = Window.of(replace(american, formats=("%d/%m/%Y",)), ["2026-02"])
    assert kept(european, visit=visits, sent=pa.array(["03/02/2026"] * 6)) == [False, True, False, True, False, False]
    assert american.words != european.calendar.words  # a row that may be in two months is in two accounts


@pytest.mark.parametrize(
    "column",
    [
        pa.array([20260201, 1, None]),
        pa.array([1.5, float("nan"), None]),
        pa.array([[1], None, []]),
        pa.array([True, False, None]),
        pa.nulls(3),
    ],
    ids=lambda column: str(column.type),
)
def test_rows_without_a_readable_day_are_left_out(column: pa.Array) -> None:
    assert kept(Window.of(calendar(), ["2026-02"]), visit=column) == [False, False, False]


def test_no_value_raises() -> None:
    extremes = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, -1, 0])
    for unit in ("s", "ms", "us", "ns"):
        column = pa.array(extremes).cast(pa.timestamp(unit))
        for every in (Every.DAY, Every.WEEK, Every.MONTH, Every.QUARTER, Every.YEAR):
            window = Window.of(calendar(every, arrived="sent"), [calendar(every).complete(YEAR)[0].name])
            assert kept(window, visit=column, sent=column) == [False] * 4
    texts = pa.array(
        ["9999-12-31", "0001-01-01", "10000-01-01", "-0001-01-01", "2026-02-30", "0001-01-01T00:00:00+23:59"]
    )
    assert kept(Window.of(calendar(), ["2026-02"]), visit=texts) == [False] * 6


def test_a_row_that_comes_after_its_block_was_closed_is_in_the_late_block_of_when_it_came() -> None:
    of = calendar(arrived="sent", grace_days=5)
    visits = days("2026-01-10", "2026-01-10", "2026-01-10", "2026-02-10", "2026-03-10")
    sent = days("2026-01-11", "2026-02-05", "2026-02-06", "2026-03-20", "2026-01-01")  # the last before it happened
    expected = {"2026-01": [0, 1], "2026-02-late": [2], "2026-03-late": [3], "2026-02": [], "2026-03": [4]}
    for name, rows in expected.items():
        assert np.flatnonzero(kept(Window.of(of, [name]), visit=visits, sent=sent)).tolist() == rows
    assert Window.of(of, ["2026-01"]).columns == ("visit", "sent")


def test_rows_from_before_the_first_block_and_rows_that_never_came_are_in_none() -> None:
    of = calendar(arrived="sent", start=date(2026, 1, 15))
    window = Window.of(of, [block.name for block in of.complete(YEAR)])
    visits = days("2025-12-31", "2026-01-01", "2026-01-20")
    assert kept(window, visit=visits, sent=pa.array(["2026-06-01", "2026-06-01", None])) == [False, True, False]


@given(
    every=st.sampled_from([Every.DAY, Every.WEEK, Every.MONTH, Every.QUARTER, Every.YEAR]),
    late=st.booleans(),
    rows=st.lists(st.tuples(st.dates(date(2025, 11, 1), date(2026, 6, 30)), st.integers(-40, 120)), max_size=8),
    grace_days=st.sampled_from([0, 1, 40]),
)
def test_once_all_blocks_are_closed_every_row_is_in_exactly_one(
    *, every: Every, late: bool, rows: list[tuple[date, int]], grace_days: int
) -> None:
    of = calendar(every, arrived="sent" if late else None, grace_days=grace_days)
    first_day = date.fromordinal(int(of.first_days(np.array([of.first]))[0]))
    visits = pa.array([day for day, _ in rows], pa.date32())
    sent = pa.array([day + timedelta(days=after) for day, after in rows], pa.date32())
    counted = _counted(of, of.complete(date(2028, 6, 1)), visits, sent)
    assert counted.tolist() == [int(day >= first_day) for day, _ in rows]


def _counted(of: Calendar, blocks: tuple[TimeBlock, ...], visits: pa.Array, sent: pa.Array) -> npt.NDArray[np.int64]:
    """Count the blocks that each row is in, halving them as long as rows are in them: quicker than to try each."""
    mine = np.array(kept(Window.of(of, [block.name for block in blocks]), visit=visits, sent=sent), dtype=np.int64)
    if len(blocks) <= 1 or not mine.any():
        return mine
    half = len(blocks) // 2
    return _counted(of, blocks[:half], visits, sent) + _counted(of, blocks[half:], visits, sent)


def test_no_row_decides_about_another() -> None:
    of = calendar(arrived="sent", grace_days=3)
    window = Window.of(of, ["2026-01", "2026-02-late"])
    visits, sent = (
        ["2026-01-05", "x", None, "2026-01-31T08:00:00Z", "2026-02-01"],
        ["2026-02-09", "2026-01-01", "y", "2026-02-03", ""],
    )
    together = kept(window, visit=visits, sent=sent)
    assert together == [kept(window, visit=[a], sent=[b])[0] for a, b in zip(visits, sent, strict=True)]
    assert together == [True, False, False, True, False]
