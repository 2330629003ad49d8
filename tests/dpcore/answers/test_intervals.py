"""Intervals contain the truth as often as they say, and say what they are based on."""

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import answer
from dpcore.answers import intervals, replicates
from dpcore.answers.direct import Direct
from dpcore.answers.ensemble import Ensemble
from dpcore.answers.intervals import Intervals, student
from dpcore.answers.query import Cells, Count, Key, Mean, Output, Query, Term
from dpcore.answers.release import Release, open_release
from dpcore.errors import UsageError
from dpcore.tables.reading.encoding import encode_rows
from tests.dpcore.answers.releases import DENSE, make_release, table

ROWS = 4000
SPEC = (
    DENSE.replace("STRATEGY", "{name: mwem}")
    .replace("epsilon: 20", "epsilon: 2")
    .replace("marginals: 2", "marginals: 3")
)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with much noise, always the same, with as many replicates as users get."""
    with pytest.MonkeyPatch.context() as patch, seeded(5):
        patch.setattr(replicates, "REPLICATES", 5)
        return open_release(make_release(tmp_path_factory.mktemp("noisy"), SPEC, rows=ROWS))


def test_intervals_of_counts_cover_the_truth_and_those_of_the_standard_deviation_do_not(noisy: Release) -> None:
    codes, _ = encode_rows(noisy.universe, pa.Table.from_pandas(table(ROWS, seed=1)[list(noisy.universe.names)]))
    intervals_of, shape = Intervals(noisy), noisy.universe.shape
    covered, by_deviation, by_bias = [], [], []
    for columns in (chosen for size in (1, 2, 3) for chosen in combinations(range(len(shape)), size)):
        keys = tuple(
            Key(str(column), Term(column, Cells() if shape_is_ordered(noisy, column) else None)) for column in columns
        )
        merging, answered = intervals_of.of(Query((Output("n", Count()),), keys=keys), level=0.95)
        truth = np.zeros([shape[column] for column in columns])
        np.add.at(truth, tuple(np.asarray(codes[column]) for column in columns), 1)
        values, every = intervals_of.ensemble.evaluated(merging)
        interval, value, differences = answered[Count()], values[Count()], every[Count()]
        deviation = 1.96 * differences.std(axis=0, ddof=1)
        covered.append((interval.low <= truth.ravel()) & (truth.ravel() <= interval.high))
        by_deviation.append(np.abs(value - truth.ravel()) <= deviation)
        by_bias.append(np.abs(value - differences.mean(axis=0) - truth.ravel()) <= deviation)
    together = [np.concatenate(inside) for inside in (covered, by_deviation, by_bias)]
    assert len(together[0]) > 400
    ours, *controls = (float(inside.mean()) for inside in together)
    assert 0.92 <= ours <= 0.99, ours
    assert max(controls) < 0.9, controls


def shape_is_ordered(release: Release, column: int) -> bool:
    return release.universe.attributes[release.universe.names[column]].ordered


def test_every_number_has_its_interval_and_its_basis(noisy: Release) -> None:
    answered = answer(
        noisy, "select sex, count(*) as n, avg(income) as mean, median(age) as middle from release group by sex"
    )
    named = [f"{name}{end}" for name in ("n", "mean", "middle") for end in ("", "_low", "_high", "_basis")]
    assert answered.columns.tolist() == ["sex", *named]
    for name in ("n", "mean", "middle"):
        assert (answered[f"{name}_low"] <= answered[name]).all()
        assert (answered[name] <= answered[f"{name}_high"]).all()
    assert answered.n_basis.tolist() == ["measured"] * 3
    every = answer(
        noisy,
        "select count(*) as n from release where sex = 'F' and city = 'west' and smoker and income > 10 and age < 50",
    )
    assert every.n_basis.tolist() == ["model"]
    assert every.n_low[0] >= 0


def test_a_count_that_no_measurement_covers_varies_at_least_as_a_sample_of_rows(
    noisy: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = "count(*) filter (where sex = 'F' and city = 'west' and smoker and age < 50)"
    asked = f"select count(*) as every, {some} as some from release"
    answered = answer(noisy, asked).iloc[0]
    share = answered.some / answered.every
    assert answered.some_basis == "model"
    assert answered.some_high - answered.some > 1.96 * math.sqrt(answered.some * (1 - share))
    # a control: without that variance, the interval is narrower, and that of a measured count is the same
    monkeypatch.setattr(Intervals, "_unmeasured", lambda _self, _prepared, _number, counts: np.zeros(len(counts)))
    surer = answer(noisy, asked).iloc[0]
    assert surer.some_high < answered.some_high
    assert surer.every_high == answered.every_high


def test_the_sum_of_a_group_that_seems_empty_is_as_uncertain_as_its_rows(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seeded(5):
        few = open_release(
            make_release(tmp_path_factory.mktemp("few"), SPEC.replace("marginals: 3", "marginals: 2"), rows=600)
        )
    asked = (
        "select sex, city, smoker, age, count(income) as n, sum(income) as total, sum(age) as ages from release "
        "group by sex, city, smoker, age"
    )

    def of_seemingly_empty() -> pd.DataFrame:
        answered = answer(few, asked)
        return answered[answered.n < 0.03]

    empty = of_seemingly_empty()
    assert len(empty) > 5
    a_typical_income = 10
    assert (empty.total_high > a_typical_income * empty.n_high).all()
    assert (empty.ages_low == 0).all()  # no age is negative
    assert (empty.total_low < 0).all()  # an income may be
    # a control: the variance of the rows that the model expects is next to nothing
    monkeypatch.setattr(Ensemble, "sampling_variance", lambda self, prepared, number: self.rows(prepared, number))
    assert (of_seemingly_empty().total_high < a_typical_income * empty.n_high).all()


def test_a_mean_that_a_replicate_does_not_have_may_be_any_value_of_its_column(noisy: Release) -> None:
    mean = Mean(noisy.universe.names.index("age"))
    prepared, answered = Intervals(noisy).of(Query((Output("mean", mean),)), level=0.95)
    unknown = np.full(1, np.nan)
    any_value = intervals._within_range(prepared, mean, replace(answered[mean], low=unknown, high=unknown))
    assert any_value.low[0] <= 12.5  # the middle of the first bin
    assert any_value.high[0] >= 87.5  # and of the last one
    no_row = intervals._within_range(prepared, mean, replace(any_value, value=unknown))
    assert np.isnan([no_row.low[0], no_row.high[0]]).all()


def test_columns_that_no_measurement_connects_are_a_guess(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = SPEC.replace("marginals: 3", "marginals: 1").replace("{name: mwem}", "{name: adaptive}")
    release = open_release(make_release(tmp_path_factory.mktemp("alone"), alone, rows=ROWS))
    answered = answer(
        release, "select count(*) as one, count(*) filter (where smoker) as two from release where sex = 'F'"
    )
    assert (answered.one_basis[0], answered.two_basis[0]) == ("measured", "guess")
    asked = "select sum(age) as total, avg(age) as mean, median(age) as middle from release where sex = 'F'"
    widths = []
    # controls: with smaller clumps, or none, all three intervals are narrower
    for clumps, in_six in ((0.0, 0.0), (intervals.CLUMPS, 0.0), (intervals.CLUMPS, intervals.OF_SIX)):
        monkeypatch.setattr(intervals, "CLUMPS", clumps)
        monkeypatch.setattr(intervals, "OF_SIX", in_six)
        answered = answer(release, asked)
        widths.append(
            [float(answered[f"{name}_high"][0] - answered[f"{name}_low"][0]) for name in ("total", "mean", "middle")]
        )
    assert all(none <= few < six for none, few, six in zip(*widths, strict=True))
    assert widths[0][:2] < widths[1][:2]  # the middle may lie anywhere in its cell anyway


def test_a_share_of_columns_never_measured_together_is_as_uncertain_as_its_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = SPEC.replace("marginals: 3", "marginals: 1").replace("{name: mwem}", "{name: adaptive}")
    release = open_release(make_release(tmp_path, alone, rows=ROWS))
    smokers = "count(*) filter (where smoker)"
    asked = f"select {smokers} as n, {smokers} / count(*) as share, 1 - {smokers} / count(*) as rest, count(*) as every from release"

    def halves() -> list[float]:
        answered = answer(release, f"{asked} where sex = 'F'").iloc[0]
        return [float(answered[f"{name}_high"] - answered[f"{name}_low"]) / 2 for name in ("n", "share", "rest")]

    rows = float(answer(release, f"{asked} where sex = 'F'").every[0])
    count, share, rest = halves()
    assert count > 200  # nothing is known of how these columns depend on each other
    assert 0.7 * count < share * rows < 2 * count
    assert rest >= share  # which ends at zero
    by_city = answer(release, f"{asked} where city = 'o''hara' and sex is null")
    assert by_city.share_low[0] >= 0
    # a control: with what replicates show alone, the share is far too sure of itself
    monkeypatch.setattr(Intervals, "_of_unmeasured_counts", lambda _self, merging, _number: np.zeros(merging.groups))
    assert halves()[1] * rows < 0.7 * count


def test_a_higher_level_gives_wider_intervals_and_an_impossible_one_is_refused(noisy: Release) -> None:
    widths = [
        answer(noisy, "select count(*) as n from release where smoker", level=level) for level in (0.5, 0.9, 0.99)
    ]
    halves = [float(answered.n_high[0] - answered.n_low[0]) for answered in widths]
    assert halves == sorted(halves)
    assert halves[0] < 0.5 * halves[2]
    for level in (0.0, 1.0, 95.0, float("nan")):
        with pytest.raises(UsageError, match=r"use 0[.]95"):
            answer(noisy, "select count(*) from release", level=level)


def test_two_columns_of_the_same_name_are_refused(noisy: Release) -> None:
    with pytest.raises(UsageError, match="rename one"):
        answer(noisy, "select count(*) as n, count(*) as n_low from release")


@pytest.mark.parametrize(("degrees", "expected"), [(8, 2.306), (16, 2.120), (50, 2.009)])
def test_student_is_close_to_the_exact_quantile(degrees: int, expected: float) -> None:
    assert student(0.95, degrees) == pytest.approx(expected, abs=0.005)


def test_bias_that_all_replicates_agree_on_is_not_averaged_away() -> None:
    usual = np.full(2, 100.0)
    biased, spread = np.full(8, 60.0), np.array([60.0, -60.0] * 4)
    variances = intervals._steadied(np.stack([biased, spread], axis=1), usual)
    assert variances[0] == pytest.approx(60.0**2 + math.sqrt(101.0), rel=0.01)
    assert variances[1] == pytest.approx(math.sqrt(60.0**2 * 100.0), rel=0.02)  # half of the way, by logarithms


def test_a_noisy_sum_moves_the_interval_and_never_widens_it() -> None:
    value, variances = np.array([100.0, 100.0, 100.0]), np.array([400.0, 400.0, 400.0])
    sums = Direct(np.array([140.0, 140.0, 0.0]), np.array([400.0, 1.0, math.inf]))
    low, high = intervals._combined(value, variances, sums, errors=2.0, normal=1.96)
    plain = 2.0 * 20.0
    assert 100 - plain < low[0] < 100
    assert 140 < high[0] < 140 + plain
    assert high[1] - 140 < 2.0  # the sum is nearly exact
    assert low[1] == 100  # but the number itself stays inside
    assert (low[2], high[2]) == (100 - plain, 100 + plain)


@pytest.mark.parametrize(
    "where", ["false", "age > 200", "age < 20 and age >= 60", "sex = 'F' and sex = 'M'", "city is null"]
)
def test_a_count_that_no_row_can_satisfy_is_exactly_zero(noisy: Release, where: str) -> None:
    answered = answer(noisy, f"select count(*) as n from release where {where}").iloc[0]
    assert (answered["n"], answered["n_low"], answered["n_high"]) == (0, 0, 0)


def test_groups_that_no_row_can_be_in_are_exactly_zero_and_the_others_are_not(noisy: Release) -> None:
    answered = answer(noisy, "select sex, count(*) filter (where sex = 'F') as n from release group by sex")
    assert (answered["n_high"] > 0).tolist() == [True, False, False]
    assert (answered["n_high"] > answered["n_low"]).tolist() == [True, False, False]
