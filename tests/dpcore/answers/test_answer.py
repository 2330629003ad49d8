"""Answers: what they show, and that they agree with DuckDB on the released rows."""

import datetime as dt
import math

import numpy as np
import pandas as pd
import pytest

from benchmarks.questions import Asked, Generator, Question, compare, rows_of
from dpcore import answer
from dpcore.answers.release import Release
from dpcore.errors import DpflowError
from tests.campaign import often


@pytest.mark.campaign
def test_random_questions_agree_with_duckdb_on_the_released_rows(kinds: Release) -> None:
    rows, generator = rows_of(kinds), Generator(kinds.universe, seed=1)
    questions = [generator.question() for _ in range(often(80, campaign=300))]
    compared = [comparison for question in questions for comparison in compare(kinds, rows, question)]
    assert len(compared) > 500
    assert {comparison.kind for comparison in compared} == {"count", "share", "sum", "avg", "quantile"}
    worst = max(compared, key=lambda comparison: comparison.ratio)
    assert worst.ratio < 1, (worst.question.sql, worst)
    furthest = max(compared, key=lambda comparison: comparison.outside)
    assert furthest.outside <= 1, (furthest.question.sql, furthest)


CONTROLS = [
    (Question("age < 30", (), (Asked("count", "count(*)", "age", "true"),)), "age = age + 10"),
    (
        Question("true", (("city", "city"),), (Asked("count", "count(*)", "city", "true"),)),
        "city = 'north' where city = 'south'",
    ),
    (Question("true", (), (Asked("avg", "avg(cost)", "cost", "cost is not null"),)), "cost = cost * 1.3"),
    (Question("true", (), (Asked("quantile", "median(cost)", "cost", "cost is not null"),)), "cost = cost * 1.3"),
    (Question("true", (), (Asked("share", "avg(sex = 'F')", "sex = 'F'", "sex is not null"),)), "sex = 'M'"),
    (  # two columns that were measured together
        Question("age >= 50", (), (Asked("share", "avg(smoker)", "smoker", "smoker is not null"),)),
        "smoker = true",
    ),
]


def test_the_comparison_notices_rows_that_were_changed(kinds: Release) -> None:
    rows = rows_of(kinds)
    rows.execute("create table true_rows as select * from release")
    for question, change in CONTROLS:
        rows.execute("create or replace table release as select * from true_rows")
        assert max(comparison.ratio for comparison in compare(kinds, rows, question)) < 1
        rows.execute(f"update release set {change}")
        changed = list(compare(kinds, rows, question))
        assert max(comparison.ratio for comparison in changed) > 1
        assert max(comparison.outside for comparison in changed) > 1


def names(answered: pd.DataFrame) -> list[str]:
    """Return the columns of an answer without those of its intervals."""
    numbers = [str(name).removesuffix("_basis") for name in answered.columns if str(name).endswith("_basis")]
    more = {f"{name}{end}" for name in numbers for end in ("_low", "_high", "_basis")}
    return [str(name) for name in answered.columns if name not in more]


def test_a_table_of_groups_is_filtered_sorted_and_limited(kinds: Release) -> None:
    every = answer(kinds, "select city, count(*) as n, avg(cost) from release group by city")
    assert names(every) == ["city", "n", "avg_cost"]
    assert every.city.tolist() == ["north", "south", "west", "o'hara", "other"]
    assert math.isclose(every.n.sum(), kinds.model.total)
    few = answer(
        kinds,
        "select city, count(*) as n from release group by city having n > 100 and city <> 'north' order by n desc limit 2",
    )
    largest = every[(every.n > 100) & (every.city != "north")].nlargest(2, "n")
    assert few.city.tolist() == largest.city.tolist()
    assert answer(kinds, "select city, count(*) n from release group by city order by 1 offset 4").city.tolist() == [
        "west"
    ]


def test_groups_that_where_excludes_are_not_shown_and_those_without_rows_are(kinds: Release) -> None:
    def shown(where: str) -> list[tuple[str, int]]:
        answered = answer(kinds, f"select city, bin(hours, 10) as h, count(*) from release where {where} group by 1, 2")
        return list(zip(answered.city, answered.h, strict=True))

    every = shown("true")
    assert shown("cost < 0.0001") == every
    assert shown("city = 'west'") == [group for group in every if group[0] == "west"]
    assert shown("city = 'west' or hours >= 20") == [group for group in every if group[0] == "west" or group[1] >= 20]
    assert shown("not (hours < 20 or city in ('north', 'south'))") == [
        group for group in every if group[1] >= 20 and group[0] not in ("north", "south")
    ]
    assert shown("city = 'west' and city = 'north'") == []


def test_nulls_are_a_group_and_satisfy_no_comparison(kinds: Release) -> None:
    by_sex = answer(kinds, "select sex, count(*) n from release group by sex order by sex nulls first")
    assert by_sex.sex.tolist() == [None, "F", "M"]
    total = kinds.model.total

    def count(where: str) -> float:
        return float(answer(kinds, f"select count(*) from release where {where}").iloc[0, 0])

    missing = by_sex.n[0]
    assert math.isclose(count("sex is null"), missing)
    assert math.isclose(count("sex = 'F' or not sex = 'F'"), total - missing)
    assert math.isclose(count("sex = 'F' is not true"), total - by_sex.n[1])
    assert count("sex <> 'F' and sex is null") == 0
    present = answer(kinds, "select count(sex) a, count(*) filter (where sex is not null) b from release")
    assert present.a[0] == present.b[0]


def test_keys_keep_their_types_and_wide_bins_show_their_ends(kinds: Release) -> None:
    bins = answer(kinds, "select age, count(*) from release group by age")
    assert names(bins) == ["age", "age_high", "count"]
    assert bins.age.tolist()[:4] == [0, 25, 50, 75]
    assert bins.age_high.tolist()[:4] == [25, 50, 75, 100]
    assert bins.age.isna().tolist() == [False] * 4 + [True]
    days = answer(kinds, "select date_trunc('quarter', day) q, median(day), count(*) from release group by q")
    assert days.q.tolist() == [dt.date(2025, month, 1) for month in (1, 4, 7, 10)]
    assert days.median_day.dtype.kind == "M"
    assert ((days.median_day >= pd.to_datetime(days.q)) & (days.median_day.dt.quarter == [1, 2, 3, 4])).all()
    single = answer(kinds, "select children, count(*) from release group by all")
    assert single.children.tolist() == list(range(10))
    assert names(single) == ["children", "count"]


def test_shares_ratios_and_arithmetic_are_of_the_numbers(kinds: Release) -> None:
    answered = answer(
        kinds,
        "select city, count(*) n, count(*) filter (where smoker) s, avg(smoker) a, 100 * count(*) / sum(count(*)) over () p, "
        "sum(case when smoker then 1 else 0 end) c, sum(hours) / count(*) m, avg(hours) h, count(*) / nullif(0 * count(*), 0) z "
        "from release where smoker is not null group by city",
    )
    assert np.allclose(answered.s / answered.n, answered.a)
    assert np.allclose(answered.s, answered.c)
    assert np.allclose(answered.m, answered.h)
    assert math.isclose(answered.p.sum(), 100)
    assert answered.z.isna().all()


def test_no_rows_have_a_count_but_no_mean(kinds: Release) -> None:
    nothing = answer(
        kinds, "select count(*), sum(cost), avg(cost), median(cost), median(day) d from release where false"
    )
    row = nothing[names(nothing)].iloc[0]
    assert row[:2].tolist() == [0, 0]
    assert row[2:].isna().all()


def test_a_column_has_its_name_in_any_case_and_each_result_its_own(kinds: Release) -> None:
    answered = answer(kinds, 'select COUNT(*), count(*), avg(R.Cost) from "release" r where "CITY" = \'north\'')
    assert names(answered) == ["count", "count_2", "avg_cost"]
    assert names(answer(kinds, "select count(*) from kinds")) == ["count"]  # its dataset's name


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            "select day, hours, median(day) from release group by day, hours",
            "parts",
        ),
        ("select bin(cost, 0.000001), count(*) from release group by 1", "use wider bins"),
        ("select bin(cost, 0.01), bin(hours, 1), count(*) from release group by 1, 2", "groups"),
    ],
)
def test_what_would_take_too_long_is_refused_before_it_is_computed(kinds: Release, question: str, message: str) -> None:
    with pytest.raises(DpflowError, match=message):
        answer(kinds, question)
