"""A number of some values of a cell knows what was not counted: values within leaves, rows that the noise hides, and days within bins."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import answer
from dpcore.answers import ensemble, replicates
from dpcore.answers.cut_cells import CutLeaves
from dpcore.answers.evaluate import Prepared
from dpcore.answers.leaf_tree import LeafTree, TreeNoise
from dpcore.answers.query import Count
from dpcore.answers.release import Release, open_release
from dpcore.answers.sides import Sides
from dpcore.answers.sql import parse
from dpcore.descent import TreeDescent
from dpcore.marginals.workload import Axes
from dpcore.models.model import Matrix, Weights
from dpcore.models.projection import contracted
from dpcore.universe import Universe
from dpcore.universe.fine_numbers import FineInteger
from dpcore.universe.leaves import Leaves
from tests.dpcore.answers.releases import make_release, table

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
        patch.setattr(replicates, "REPLICATES", 5)
        return open_release(make_release(tmp_path_factory.mktemp("gains"), SPEC, frame=gains()))


def covered(release: Release, amounts: "pd.Series[int]", condition: Callable[[int], str]) -> float:
    """Return which share of counts of single amounts is within its interval."""
    answers = [
        answer(release, f"select count(*) as n from release where {condition(amount)}").iloc[0]
        for amount in amounts.index
    ]
    return float(np.mean([row.n_low <= true <= row.n_high for row, true in zip(answers, amounts, strict=True)]))


def test_amounts_within_leaves_are_covered_and_without_the_term_they_are_not(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = gains().gain.value_counts().head(40)
    assert covered(release, often, lambda amount: f"gain = {amount}") >= 0.8
    in_ward = gains().query("ward == 'a'").gain.value_counts().reindex(often.index, fill_value=0)
    assert covered(release, in_ward, lambda amount: f"gain = {amount} and ward = 'a'") >= 0.8
    monkeypatch.setattr(CutLeaves, "sides", lambda self, *_, **__: Sides(*np.zeros((2, self.prepared.groups))))
    assert covered(release, often, lambda amount: f"gain = {amount}") <= 0.3


def test_a_count_that_cuts_no_cell_keeps_its_interval(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = [
        "select ward, count(*) as n from release group by ward",
        "select count(*) as n from release where gain >= 0",
        "select count(*) as n from release where gain = 0",  # most rows: a cell of its own
        "select extract(hour from at) as hour, count(*) as n from release group by hour",  # the times of a day were measured
    ]
    answers = [answer(release, question) for question in questions]
    monkeypatch.setattr(CutLeaves, "sides", lambda self, *_, **__: Sides(*np.zeros((2, self.prepared.groups))))
    for before, question in zip(answers, questions, strict=True):
        pd.testing.assert_frame_equal(before, answer(release, question))


def test_shares_have_the_term_of_their_counts(release: Release) -> None:
    amount = gains().gain.value_counts().index[1]
    single = answer(release, f"select count(*) as n from release where gain = {amount}")
    share = answer(release, f"select avg(gain = {amount}) as part from release")
    rows = answer(release, "select count(*) as n from release").n.item()
    assert share.part_high.item() * rows > 0.9 * single.n_high.item() > 1.1 * single.n.item()


# Leaves: 0 | 1 to 79 | 80 to 99 | 100 to 158 | 159, in cells from 0 and from 100. The last two leaves are light.
STARTS, ROWS, IN_CELLS = (0, 1, 80, 100, 159), (500.0, 100.0, 300.0, 15.0, 0.0), (900.0, 15.0)
SMALL = LeafTree(Leaves(STARTS, tuple(round(1000 * rows) for rows in ROWS), 160), NOISE)
UNIVERSE = Universe({"x": FineInteger(minimum=0, maximum=159).cut_at((100,), leaves=SMALL.leaves)})
WIDE = 1.96 * np.sqrt(SMALL.unevenness)


def of_one_model(rows: Weights, _: Axes, matrices: Sequence[Matrix]) -> Weights:
    """Return the projection of the only column of one model."""
    own = [matrix[0] if matrix is not None and matrix.ndim == 3 else matrix for matrix in matrices]
    return np.stack([contracted(rows, own) if own else rows.sum()])


def sides(where: str, *others: str) -> Sides:
    """Return how far the count of `where` may be off in a table of these leaves, if other counts are asked for, too."""
    asked = ", ".join(f"count(*) filter (where {condition}) as n{at}" for at, condition in enumerate((where, *others)))
    prepared = Prepared(parse(f"select {asked} from release", UNIVERSE, tables=("release",)), UNIVERSE)
    project = partial(of_one_model, np.array(IN_CELLS))
    count = prepared.query.outputs[0].value
    assert isinstance(count, Count)
    squares = CutLeaves(SMALL, prepared, 0).sides(count, project, errors=1.96)
    return Sides(np.sqrt(squares.below), np.sqrt(squares.above))


def test_a_part_of_a_leaf_may_have_all_of_its_rows_or_none() -> None:
    assert SMALL.light.tolist() == [False, False, False, True, True]
    value = sides("x = 85")  # one of twenty values
    assert value.below.item() == pytest.approx(300 / 20)
    assert value.above.item() == pytest.approx(300 * min(WIDE, 19 / 20))
    most = sides("x >= 81 and x < 100")
    assert most.below.item() == pytest.approx(300 * min(WIDE, 19 / 20))
    assert most.above.item() == pytest.approx(300 / 20)


def test_a_leaf_that_is_counted_whole_is_not_cut_whatever_else_is_asked() -> None:
    for whole in ("x >= 80 and x < 100", "x > 79 and x <= 99", "x between 80 and 99"):
        for others in ((), ("x < 90",), ("x = 85", "x = 99")):
            whole_leaf = sides(whole, *others)
            assert (whole_leaf.below.item(), whole_leaf.above.item()) == (0.0, 0.0)


def test_light_leaves_hide_rows_and_those_of_a_whole_cell_do_not_matter() -> None:
    hidden = WIDE * SMALL.deviations
    assert sides("x >= 100 and x < 159").above.item() == pytest.approx(hidden[3])
    assert sides("x >= 100 and x < 159").below.item() == pytest.approx(hidden[4])
    assert sides("x = 159").above.item() == pytest.approx(hidden[4])
    assert sides("x >= 100").above.item() == 0.0
    cut = sides("x = 120")  # of 59 values
    assert cut.above.item() == pytest.approx((15 + 1.96 * SMALL.deviations[3]) * min(WIDE, 58 / 59))


def test_light_leaves_that_make_up_a_node_hide_no_more_than_the_node() -> None:
    size = 2048
    leaves = LeafTree(Leaves(tuple(range(size)), (*[0] * (size - 1), 5_000_000), size), NOISE)
    universe = Universe({"x": FineInteger(minimum=0, maximum=size - 1).cut_at((), leaves=leaves.leaves)})
    inside = 5 * leaves.node_widths[0]
    question = f"select count(*) as n from release where x < {inside}"
    prepared = Prepared(parse(question, universe, tables=("release",)), universe)
    project = partial(of_one_model, np.array([5000.0]))
    squares = CutLeaves(leaves, prepared, 0).sides(Count(), project, errors=1.0)
    of_node = leaves.unevenness * NOISE.deviation**2
    assert (
        5 * of_node <= squares.above.item() <= 6 * of_node
    )  # five nodes, and the first place, which is a node of its own


def test_days_of_a_datetime_are_cut_and_times_of_the_week_are_not(release: Release) -> None:
    def extent(question: str) -> float:
        with_term = answer(release, question)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CutLeaves, "sides", lambda self, *_, **__: Sides(*np.zeros((2, self.prepared.groups))))
            without = answer(release, question)
        return float((with_term.n_high - without.n_high).max())

    one_day = "at >= '2025-02-11 00:00:00' and at < '2025-02-12 00:00:00'"
    assert extent(f"select count(*) as n from release where {one_day}") > 1
    assert extent("select isodow(at) as day, count(*) as n from release group by day") == 0
    assert extent("select hour(at) as hour, count(*) as n from release group by hour") == 0


def test_a_share_is_at_most_one_and_its_counts_move_together(release: Release) -> None:
    same = answer(release, "select avg(gain >= 50000) as part from release where gain >= 50000")
    assert (same.part.item(), same.part_high.item()) == (1.0, 1.0)
    assert same.part_low.item() > 0.95
    most = answer(release, "select avg(gain >= 51000) as part from release where gain >= 50500")
    assert most.part_low.item() < most.part.item() <= most.part_high.item() <= 1.0


def tree(rows: list[float], *, size: int = 256) -> LeafTree:
    width = size // len(rows)
    starts = tuple(range(0, size, width))
    return LeafTree(Leaves(starts, tuple(round(1000 * count) for count in rows), size), NOISE)


def test_nodes_with_equal_parts_are_even_and_nodes_with_one_value_are_not() -> None:
    even, single = tree([100.0] * 256), tree([1000.0, *[0.0] * 15] * 16)
    assert even.unevenness < 0.3  # a little is always expected
    assert single.unevenness > 0.7


def test_both_ends_and_the_leaves_beside_them_are_nodes_of_their_levels() -> None:
    leaves = tree([0.0] * 256)
    assert leaves.light.all()
    assert leaves.level.tolist() == [0, *[2] * 254, 0]
    assert leaves.deviations[0] < leaves.deviations[1]  # so they are counted more often
    column = FineInteger(minimum=0, maximum=9_999)
    first = TreeDescent(column, share=Fraction(1, 10)).candidates  # the nodes of the first level
    assert isinstance(first, FineInteger)
    starts = (0, *(first.starts or ()))
    assert LeafTree(Leaves(starts, (0,) * len(starts), column.places), NOISE).level.tolist() == [0] * len(starts)


# Bins of dates and times, of which only the first day or moment is released.
CUT = [
    "born between '2025-03-10' and '2025-03-20'",
    "born >= '2025-03-10' and born < '2025-05-25'",  # more days than the bins that begin between the ends
    "born = '2025-07-04'",
    "born in ('2025-07-04', '2025-08-17')",
    "dayofweek(born) = 1",
    "seen >= '2025-01-02 03:15:00' and seen < '2025-01-02 03:45:00'",
]
WHOLE = [
    "born >= '2025-03-01' and born < '2025-05-01'",
    "born between '2025-03-01' and '2025-03-31'",
    "born = '2025-07-01'",
    "born <> '2025-07-01'",
    "month(born) in (4, 5)",
    "seen >= '2025-01-02 03:00:00' and seen < '2025-01-02 05:00:00'",
]


def truth(where: str) -> pd.DataFrame:
    """Return the rows of the table that satisfy a condition. A first day alone stands for its month, as in the released rows."""
    frame = table(4000, seed=1)
    born, seen = frame["born"], frame["seen"]
    day = born.dt.strftime("%Y-%m-%d")
    chosen = {
        CUT[0]: (day >= "2025-03-10") & (day <= "2025-03-20"),
        CUT[1]: (day >= "2025-03-10") & (day < "2025-05-25"),
        CUT[2]: day == "2025-07-04",
        CUT[3]: day.isin(["2025-07-04", "2025-08-17"]),
        CUT[4]: born.dt.day_of_week == 0,
        CUT[5]: (seen >= "2025-01-02 03:15:00") & (seen < "2025-01-02 03:45:00"),
        WHOLE[0]: (day >= "2025-03") & (day < "2025-05"),
        WHOLE[1]: day.str.startswith("2025-03"),
        WHOLE[2]: day.str.startswith("2025-07"),
        WHOLE[3]: born.notna() & ~day.str.startswith("2025-07"),
        WHOLE[4]: born.dt.month.isin([4, 5]),
        WHOLE[5]: (seen >= "2025-01-02 03:00:00") & (seen < "2025-01-02 05:00:00"),
    }
    return frame[chosen[where].fillna(value=False).astype(bool)]


def asked(release: Release, where: str) -> pd.Series:
    question = f"select count(*) as n, sum(children) as children, count(*) / 4000 as share from release where {where}"
    return answer(release, question).iloc[0]


@pytest.mark.parametrize("where", CUT)
def test_intervals_include_all_rows_of_a_bin_that_is_cut(
    kinds: Release, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, rows = asked(kinds, where), truth(where)
    assert answered["n_low"] <= len(rows) <= answered["n_high"]
    assert answered["share_low"] <= len(rows) / 4000 <= answered["share_high"]
    assert answered["children_low"] <= rows["children"].sum() <= answered["children_high"]
    monkeypatch.setattr(ensemble, "cuts_bins", lambda merging, axis: False)
    without = asked(kinds, where)
    assert not without["n_low"] <= len(rows) <= without["n_high"]
    assert without["n"] == answered["n"]


@pytest.mark.parametrize("where", WHOLE)
def test_whole_bins_and_bins_named_by_their_first_day_have_the_usual_intervals(
    kinds: Release, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, rows = asked(kinds, where), truth(where)
    assert answered["n_low"] - 2 <= len(rows) <= answered["n_high"] + 2
    assert answered["n_basis"] == "measured"
    monkeypatch.setattr(ensemble, "cuts_bins", lambda merging, axis: False)
    assert asked(kinds, where).equals(answered)


def test_a_group_of_a_period_that_bins_do_not_have_may_be_empty_or_have_all_rows_of_its_bins(kinds: Release) -> None:
    answered = answer(
        kinds, "select dayofweek(born) as day, count(*) as n from release where born is not null group by 1"
    )
    born = table(4000, seed=1)["born"].dropna()
    true = ((born.dt.day_of_week + 1) % 7).value_counts()
    assert (answered["n_low"] == 0).all()
    assert all(row.n_low <= true[row.day] <= row.n_high for row in answered.itertuples())
    assert answered["n_high"].max() < 1.05 * len(born)


def test_rows_that_count_on_every_day_of_a_bin_are_certain_and_the_others_are_not(kinds: Release) -> None:
    few, july = asked(kinds, "born = '2025-07-01' and children < 2"), asked(kinds, "born = '2025-07-01'")
    assert few["n"] < 0.7 * july["n"]
    answered = asked(kinds, "born = '2025-07-04' or (born = '2025-07-01' and children < 2)")
    assert answered["n"] == pytest.approx(few["n"])
    assert answered["n_low"] == pytest.approx(few["n_low"], abs=0.02 * few["n"])
    assert few["n_high"] < answered["n_high"]
    assert july["n"] <= answered["n_high"]
