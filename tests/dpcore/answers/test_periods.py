"""Which blocks a question needs, and what it asks of a release that lacks their column."""

from dataclasses import replace
from datetime import date

import pytest

from dpcore.answers.periods import Periods
from dpcore.answers.query import Query
from dpcore.answers.sql import parse
from dpcore.errors import UsageError
from dpcore.universe import Boolean, Date, Every, Universe
from dpcore.universe.blocks import Calendar, TimeBlock

CALENDAR = Calendar("day", Every.MONTH, start=date(2026, 1, 1), arrived="sent", grace_days=0)
YEARS = Date(minimum=date.min, maximum=date.max, every=Every.YEAR)
UNIVERSE = Universe({"smoker": Boolean(), "day": YEARS})
SPRING = tuple(CALENDAR.block(f"2026-0{month}") for month in (2, 3, 4))


def asked(text: str, *, calendar: Calendar = CALENDAR, blocks: tuple[TimeBlock, ...] = SPRING) -> tuple[Query, Periods]:
    query = parse(f"select count(*) from release {text}", UNIVERSE)
    return query, Periods.of(calendar, query, 1, attribute=YEARS, published=blocks)


@pytest.mark.parametrize(
    ("where", "needed"),
    [
        ("", ["2026-02", "2026-03", "2026-04"]),
        ("where day >= '2026-03-15'", ["2026-03", "2026-04"]),
        ("where day between '2025-06-01' and '2026-02-28'", ["2026-01", "2026-02"]),
        ("where day > '2026-04-30' and day < '2026-07-01'", ["2026-05", "2026-06"]),
        ("where month(day) = 3 and smoker", ["2026-03"]),
        ("where month(day) = 3 or smoker", ["2026-02", "2026-03", "2026-04"]),
        ("where not (day < '2026-04-01')", ["2026-04"]),
        ("where (day >= '2026-04-01') is true", ["2026-04"]),
        ("where day in ('2026-02-01', '2026-04-30')", ["2026-02", "2026-04"]),
        ("where day is null", []),
        ("where day is not null and false", []),
    ],
)
def test_the_blocks_that_a_condition_needs(where: str, needed: list[str]) -> None:
    query, periods = asked(where)
    assert list(periods.needed(query.where).values()) == needed
    for block in SPRING:
        assert periods.may_hold(query.where, block) == (block.name in needed)


def test_missing_periods_before_and_after_all_published_ones_are_named_as_one() -> None:
    always = replace(CALENDAR, start=date.min)
    query, periods = asked("where day between '1900-01-01' and '2300-12-31'", calendar=always)
    covered = {"2026-02", "2026-04"}
    assert periods.missing(query.where, covered, SPRING) == ["1900-01 to 2026-01", "2026-03", "2026-05 to 2300-12"]
    query, periods = asked("where day < '2026-07-01'", calendar=always)
    assert periods.missing(query.where, covered, SPRING) == ["2026-03", "2026-05", "2026-06"]


def test_a_question_about_whole_blocks_does_not_need_the_column() -> None:
    query, periods = asked("where day >= '2026-03-01' and smoker group by quarter(day), smoker")
    plain, removed = periods.without(query, SPRING[1:2], release="r")
    expected = parse("select count(*) from release where smoker group by smoker", UNIVERSE)
    assert (plain.where, plain.keys, removed) == (expected.where, expected.keys, ((1, 1),))
    with pytest.raises(
        UsageError, match=r"^r does not have the column day, so its rows cannot be divided by it; ask for whole periods"
    ):
        periods.without(query, SPRING[:2], release="r")


def test_late_rows_may_have_any_earlier_day() -> None:
    late = CALENDAR.block("2026-03-late")
    query, periods = asked("where day < '2026-03-01'", blocks=(*SPRING, late))
    assert periods.may_hold(query.where, late)
    assert not periods.may_hold(query.where, SPRING[1])
    with pytest.raises(UsageError, match=r"its rows cannot be divided by it"):
        periods.without(query, (late,), release="r")


def test_a_question_about_too_many_periods_is_refused() -> None:
    daily = Calendar("day", Every.DAY, start=date.min, arrived=None, grace_days=0)
    with pytest.raises(UsageError, match=r"at most 100,000 are possible; name a shorter time"):
        asked("where day >= '0900-01-01'", calendar=daily, blocks=(daily.block("2026-01-01"),))
