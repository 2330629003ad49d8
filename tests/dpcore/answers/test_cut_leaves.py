"""A count of some values of a cell knows what the tree did not count: single values within leaves, and rows that the noise hides."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import answer
from dpcore.answers import replicates
from dpcore.answers.cut_leaves import CutLeaves, Sides
from dpcore.answers.leaf_tree import LeafTree, TreeNoise
from dpcore.answers.release import Release, open_release
from dpcore.universe.leaves import Leaves
from tests.dpcore.answers.releases import make_release

SPEC = """\
dataset: gains
privacy: {unit: row, neighbours: add-remove, epsilon: 0.5, delta: 1e-9}
universe:
  ward: {type: categorical, values: [a, b]}
  gain: {type: integer, min: 0, max: 99999}
  at: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-12-31T23:00:00, step: hour}
workload: {marginals: 2}
strategy: {name: adaptive, rounds: 2}
"""
NOISE = TreeNoise(deviation=10.0, levels=3)


def gains(rows: int = 8000) -> pd.DataFrame:
    """Make a table in which most gains are 0, and the others a few amounts, of which the largest means "more than that"."""
    rng = np.random.default_rng(4)
    amounts = np.array([0, *rng.integers(1, 99_999, 60), 99_999])
    shares = np.array([0.7, *rng.dirichlet(np.full(60, 0.7)) * 0.27, 0.03])
    hours = rng.integers(0, 365 * 24, rows)
    return pd.DataFrame(
        {
            "ward": rng.choice(["a", "b"], rows),
            "gain": rng.choice(amounts, rows, p=shares / shares.sum()),
            "at": pd.Timestamp("2025-01-01") + pd.to_timedelta(hours, "h"),
        }
    )


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with the same noise in every run of the tests, and with as many replicates as users get."""
    with pytest.MonkeyPatch.context() as patch, seeded(6):
        patch.setattr(replicates, "REPLICATES", 8)
        return open_release(make_release(tmp_path_factory.mktemp("gains"), SPEC, frame=gains()))


def covered(release: Release, amounts: "pd.Series[int]", condition: Callable[[int], str]) -> float:
    """Return which share of counts of single amounts is within its interval."""
    found = [
        answer(release, f"select count(*) as n from release where {condition(amount)}").iloc[0]
        for amount in amounts.index
    ]
    return float(np.mean([one.n_low <= wanted <= one.n_high for one, wanted in zip(found, amounts, strict=True)]))


def test_amounts_within_leaves_are_covered_and_without_the_term_they_are_not(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = gains().gain.value_counts().head(40)
    assert covered(release, often, lambda amount: f"gain = {amount}") >= 0.8
    in_ward = gains().query("ward == 'a'").gain.value_counts().reindex(often.index, fill_value=0)
    assert covered(release, in_ward, lambda amount: f"gain = {amount} and ward = 'a'") >= 0.8
    monkeypatch.setattr(CutLeaves, "sides", lambda self, *_, **__: Sides(*np.zeros((2, self.merging.groups))))
    assert covered(release, often, lambda amount: f"gain = {amount}") <= 0.3


def test_a_count_that_cuts_no_cell_keeps_its_interval(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = [
        "select ward, count(*) as n from release group by ward",
        "select count(*) as n from release where gain >= 0",
        "select count(*) as n from release where gain = 0",  # most rows: a cell of its own
        "select extract(hour from at) as hour, count(*) as n from release group by hour",  # the times of a day were measured
    ]
    found = [answer(release, question) for question in questions]
    monkeypatch.setattr(CutLeaves, "sides", lambda self, *_, **__: Sides(*np.zeros((2, self.merging.groups))))
    for before, question in zip(found, questions, strict=True):
        pd.testing.assert_frame_equal(before, answer(release, question))


def test_no_more_rows_can_be_missing_than_there_are_and_no_more_counted(release: Release) -> None:
    tens = answer(release, "select bin(gain, 10007) as from_, count(*) as n from release group by from_")
    assert (tens.n_low >= 0).all()
    assert (
        (tens.n_high <= tens.n + (tens.n.sum() - tens.n.max())).iloc[1:].all()
    )  # all rows above 0 are fewer than those at 0


def test_shares_have_the_term_of_their_counts(release: Release) -> None:
    amount = gains().gain.value_counts().index[1]
    one = answer(release, f"select count(*) as n from release where gain = {amount}")
    share = answer(release, f"select avg(gain = {amount}) as part from release")
    rows = answer(release, "select count(*) as n from release").n.item()
    assert share.part_high.item() * rows > 0.9 * one.n_high.item() > 1.1 * one.n.item()


def tree(rows: list[float], *, size: int = 256) -> LeafTree:
    width = size // len(rows)
    starts = tuple(range(0, size, width))
    return LeafTree(Leaves(starts, tuple(round(1000 * each) for each in rows), size), NOISE)


def test_nodes_with_equal_parts_are_even_and_nodes_with_one_value_are_not() -> None:
    even, single = tree([100.0] * 256), tree([1000.0, *[0.0] * 15] * 16)
    assert even.unevenness < 0.3  # a little is always expected
    assert single.unevenness > 0.7


def test_both_ends_are_nodes_of_the_first_level() -> None:
    found = tree([0.0] * 256)
    assert found.light.all()
    assert found.level.tolist() == [0, *[2] * 254, 0]
    assert found.deviations[0] < found.deviations[1]  # so they are counted more often
