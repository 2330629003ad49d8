"""The calendar of blocks: their names, when they are complete, and which of them a run reads."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import UsageError
from dpcore.universe import Date, Every
from dpcore.universe.blocks import Calendar, checked_day, choose

PERIODS = (Every.DAY, Every.WEEK, Every.MONTH, Every.QUARTER, Every.YEAR)


def calendar(
    every: Every = Every.MONTH, *, start: date = date(2026, 1, 1), arrived: str | None = None, grace_days: int = 0
) -> Calendar:
    return Calendar("visit", every, start=start, arrived=arrived, grace_days=grace_days)


def names(of: Calendar, as_of: date) -> list[str]:
    return [block.name for block in of.complete(as_of)]


def chosen(of: Calendar, window: str, as_of: date, *covered: str) -> list[str]:
    return [block.name for block in choose(of, window=window, as_of=as_of, covered=covered)]


@pytest.mark.parametrize("every", PERIODS)
@settings(max_examples=30)
@given(first=st.dates(date(1, 1, 8), date(9990, 1, 1)), days=st.integers(0, 400))
def test_blocks_have_the_words_that_a_date_column_has_for_its_bins(every: Every, first: date, days: int) -> None:
    last = first + timedelta(days=days)
    labels = Date(minimum=first, maximum=last, every=every).labels
    of = calendar(every, start=first)
    first_period, last_period = (int(of.periods(np.array([day.toordinal()]))[0]) for day in (first, last))
    found = [of.name(period, late=False) for period in range(first_period, last_period + 1)]
    assert found == list(labels)
    for name in found:
        assert of.block(name).name == name
        assert of.block(f"{name}-late").late


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (Every.DAY, "2026-01-31"),
        (Every.WEEK, "2026-W05"),
        (Every.MONTH, "2026-01"),
        (Every.QUARTER, "2026-Q1"),
        (Every.YEAR, "2026"),
    ],
)
def test_a_name_says_which_period_it_is(every: Every, words: str) -> None:
    of = calendar(every)
    assert of.name(int(of.periods(np.array([date(2026, 1, 31).toordinal()]))[0]), late=False) == words


@pytest.mark.parametrize(
    "name", ["2026-13", "2026", "2026-Q1", "2026-01-01", "2026-1", "January", "", "2026-01-late-late"]
)
def test_a_name_that_is_no_block_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"is not a block by month of visit"):
        calendar().block(name)


def test_a_period_is_complete_on_the_day_after_its_last() -> None:
    assert names(calendar(), date(2026, 2, 28)) == ["2026-01"]
    assert names(calendar(), date(2026, 3, 1)) == ["2026-01", "2026-02"]
    assert names(calendar(), date(2025, 6, 1)) == []


def test_days_of_grace_are_waited_for() -> None:
    of = calendar(grace_days=10)
    assert names(of, date(2026, 2, 10)) == []
    assert names(of, date(2026, 2, 11)) == ["2026-01"]
    assert of.next_complete(date(2026, 2, 11)) == ("2026-02", date(2026, 3, 11))


@pytest.mark.parametrize("every", PERIODS)
@pytest.mark.parametrize("grace_days", [0, 3, 45])
@settings(max_examples=20)
@given(as_of=st.dates(date(2026, 1, 1), date(2028, 1, 1)))
def test_what_is_complete_next_is_complete_on_the_day_that_is_told_and_not_before(
    every: Every, grace_days: int, as_of: date
) -> None:
    of = calendar(every, grace_days=grace_days)
    name, day = of.next_complete(as_of)
    assert name not in names(of, as_of)
    assert name not in names(of, day - timedelta(days=1))
    assert name in names(of, day)


def test_the_first_day_may_lie_within_a_period() -> None:
    assert names(calendar(start=date(2026, 1, 20)), date(2026, 2, 1)) == ["2026-01"]


def test_a_period_has_a_late_block_from_when_there_can_be_late_rows() -> None:
    assert names(calendar(arrived="sent"), date(2026, 4, 1)) == [
        *("2026-01", "2026-02", "2026-02-late", "2026-03", "2026-03-late"),
    ]
    assert names(calendar(arrived="sent", grace_days=40), date(2026, 5, 20)) == [
        *("2026-01", "2026-02", "2026-03", "2026-03-late"),  # January is open until March 12
    ]


def test_windows() -> None:
    of, day = calendar(arrived="sent"), date(2026, 4, 1)
    everything = ["2026-01", "2026-02", "2026-02-late", "2026-03", "2026-03-late"]
    assert chosen(of, "all", day) == everything
    assert chosen(of, "all", day, "2026-01") == everything
    assert chosen(of, "last 1", day) == ["2026-03", "2026-03-late"]
    assert chosen(of, "last 2", day) == everything[1:]
    assert chosen(of, "last 9999", day) == everything
    assert chosen(of, "new", day) == everything
    assert chosen(of, "new", day, "2026-01", "2026-03") == ["2026-02", "2026-02-late", "2026-03-late"]


def test_nothing_to_read_is_refused_with_the_day_on_which_there_will_be() -> None:
    with pytest.raises(
        UsageError, match=r"no block is complete as of 2026-01-31; the first, 2026-01, will be complete on 2026-02-01"
    ):
        chosen(calendar(), "all", date(2026, 1, 31))
    with pytest.raises(
        UsageError,
        match=r"there is no new block as of 2026-02-05: .* the next, 2026-02, will be complete on 2026-03-01",
    ):
        chosen(calendar(), "new", date(2026, 2, 5), "2026-01")


def test_a_day_that_is_yet_to_come_is_refused() -> None:
    today = datetime.now(UTC).date()
    assert checked_day(date(2020, 1, 1)) == date(2020, 1, 1)
    assert today <= checked_day(None) <= today + timedelta(days=1)
    with pytest.raises(UsageError, match="is in the future"):
        checked_day(today + timedelta(days=2))


def test_what_decides_about_a_rows_block_is_what_the_account_is_kept_by() -> None:
    assert calendar().words == calendar(grace_days=9, start=date(2020, 5, 5)).words == "month of visit"
    late = {calendar(arrived=arrived, grace_days=days).words for arrived in ("sent", "seen") for days in (0, 5)}
    assert len(late) == 4
