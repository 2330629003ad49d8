"""A group's values within a cell are not those of the whole table, and intervals say so."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import answer
from dpcore.answers import replicates
from dpcore.answers.intervals import Intervals
from dpcore.answers.release import Release, open_release
from tests.dpcore.answers.releases import make_release

SPEC = """\
dataset: visits
privacy: {unit: row, neighbours: add-remove, epsilon: 1, delta: 1e-9}
universe:
  ward: {type: categorical, values: [a, b, c]}
  cost: {type: number, min: 0, max: 10000, step: 0.01}
workload: {marginals: 2}
strategy: {name: adaptive, rounds: 2}
"""
NAMES = ("mean", "total", "middle", "upper")
NUMBERS = "avg(cost) as mean, sum(cost) as total, median(cost) as middle, quantile_cont(cost, 0.9) as upper"
BY_WARD = f"select ward, {NUMBERS} from release group by ward"


def visits(rows: int = 8000) -> pd.DataFrame:
    """Make a table in which most large costs are those of ward b, and the largest those of ward c."""
    rng = np.random.default_rng(3)
    ward = rng.choice(["a", "b", "c"], rows, p=[0.6, 0.3, 0.1])
    level = pd.Series(ward).map({"a": 4.6, "b": 6.6, "c": 7.4}).to_numpy()
    return pd.DataFrame({"ward": ward, "cost": np.clip(np.round(rng.lognormal(level, 0.5), 2), 0, 10000)})


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with the same noise in every run of the tests, and with as many replicates as users get."""
    with pytest.MonkeyPatch.context() as patch, seeded(13):
        patch.setattr(replicates, "REPLICATES", 5)
        return open_release(make_release(tmp_path_factory.mktemp("visits"), SPEC, frame=visits()))


def without(release: Release, monkeypatch: pytest.MonkeyPatch, question: str) -> pd.DataFrame:
    """Answer a question with the intervals of a release that takes all groups to be alike within cells."""
    monkeypatch.setattr(Intervals, "_resolved", lambda *_: {})
    return answer(open_release(release.folder), question)


def truth(rows: pd.DataFrame) -> dict[str, float]:
    cost = rows["cost"]
    return {"mean": cost.mean(), "total": cost.sum(), "middle": cost.median(), "upper": cost.quantile(0.9)}


def missed(answered: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the wards and numbers whose interval does not contain the truth."""
    truths = {str(ward): truth(rows) for ward, rows in visits().groupby("ward")}
    return [
        (str(row["ward"]), name)
        for _, row in answered.iterrows()
        for name in NAMES
        if not row[f"{name}_low"] <= truths[str(row["ward"])][name] <= row[f"{name}_high"]
    ]


def test_numbers_of_groups_are_covered_and_if_all_groups_were_alike_within_cells_they_would_not_be(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = answer(release, BY_WARD)
    now, before = missed(answered), missed(without(release, monkeypatch, BY_WARD))
    assert len(now) <= 1  # of twelve: an interval of 95 % may miss
    assert len(before) >= 2
    assert ("c", "middle") in before
    assert not {("c", "mean"), ("c", "middle"), ("c", "upper")} & set(now)
    for name in NAMES:  # the number itself stays the model's
        assert (answered[f"{name}_low"] <= answered[name]).all()
        assert (answered[name] <= answered[f"{name}_high"]).all()


def test_a_group_that_is_mostly_inferred_within_cells_is_not_called_measured(release: Release) -> None:
    answered = answer(release, BY_WARD).set_index("ward")
    assert answered.middle_basis["c"] == "model"
    assert answered.mean_basis["a"] == "measured"
    assert set(answer(release, f"select {NUMBERS} from release").mean_basis) == {"measured"}


def test_the_whole_table_keeps_its_intervals(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    for question in (
        f"select {NUMBERS} from release",
        f"select {NUMBERS} from release where cost > 500",  # a condition on the column itself
    ):
        answered = answer(release, question)
        with monkeypatch.context() as patch:
            pd.testing.assert_frame_equal(answered, without(release, patch, question))
    rows = f"select {NUMBERS} from release where ward in ('a', 'b', 'c')"  # all rows: no group is tilted
    both = pd.concat([answer(release, f"select {NUMBERS} from release"), answer(release, rows)])
    widths = both.mean_high - both.mean_low
    assert widths.iloc[1] == pytest.approx(widths.iloc[0], rel=1e-2)


def test_numbers_computed_from_others_have_the_term_too(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "select ward, sum(cost) / count(*) as mean, avg(cost) as same, sum(cost) / sum(sum(cost)) over () as share from release group by ward"
    answered, control = answer(release, question), without(release, monkeypatch, question)
    assert np.allclose(answered.mean_high - answered.mean_low, answered.same_high - answered.same_low, rtol=0.05)
    for name in ("mean", "share"):
        wider = (answered[f"{name}_high"] - answered[f"{name}_low"]) / (
            control[f"{name}_high"] - control[f"{name}_low"]
        )
        assert wider.max() > 1.1
