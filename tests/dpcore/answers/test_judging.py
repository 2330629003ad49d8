"""The portrait of a release: pictures of all columns, pairs with what is known about them, and no more than a page can show."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpcore.answers import judging
from dpcore.answers.distributions import is_unequal
from dpcore.answers.errors import CountErrors
from dpcore.answers.intervals import Basis, Interval
from dpcore.answers.judging import judge, mutual_information
from dpcore.answers.release import Release
from dpcore.release import Judgement
from dpcore.reporting.portrait import GUESS, INFERRED, MEASURED, MODEL
from dpcore.reporting.ratings import Rating
from dpcore.universe import Universe
from dpcore.universe.fine_numbers import FineInteger


@pytest.fixture(scope="module")
def judged(kinds: Release) -> Judgement:
    return judge(kinds)


def test_the_release_was_published_with_the_same_errors(kinds: Release, judged: Judgement) -> None:
    written = pq.read_table(kinds.folder / "errors.parquet")
    assert written.replace_schema_metadata(None).equals(judged.errors.replace_schema_metadata(None))


def test_the_bars_of_a_column_have_all_rows(kinds: Release, judged: Judgement) -> None:
    assert [column.name for column in judged.portrait.columns] == list(kinds.universe.names)
    for column in judged.portrait.columns:
        assert len(column.counts) <= 21
        assert sum(count.value for count in column.counts) == pytest.approx(kinds.model.total, rel=1e-6)
        assert all(count.low <= count.value <= count.high for count in column.counts)
    by_name = {column.name: column for column in judged.portrait.columns}
    assert [count.label for count in by_name["sex"].counts] == ["F", "M", "missing"]
    assert [count.label for count in by_name["age"].counts][:2] == ["0 to 24", "25 to 49"]
    assert [count.apart for count in by_name["age"].counts][-2:] == [False, True]
    assert by_name["grade"].counts[-1].label == "other"


def test_the_bars_of_a_column_at_full_resolution_have_equal_widths_and_declared_bins_of_unequal_widths_no_axis(
    kinds: Release, judged: Judgement
) -> None:
    by_name = {column.name: column for column in judged.portrait.columns}
    hours = [count for count in by_name["hours"].counts if not count.apart]
    firsts = [int(count.first) for count in hours]
    assert is_unequal(kinds.universe.attributes["hours"])  # its cells are narrow where rows are many
    assert firsts == list(range(-20, 80, 5))
    assert (by_name["hours"].on_axis, by_name["hours"].note) == (True, "bars of equal width")
    assert [count.label for count in by_name["income"].counts] == ["-10 to 0", "0 to 10", "10 to 40", "40 to 100"]
    assert (by_name["income"].on_axis, by_name["income"].note) == (False, "")
    assert by_name["age"].on_axis  # all its bins have 25 years


def test_a_column_of_which_hardly_anything_was_found_is_not_called_good(kinds: Release) -> None:
    """Its one count has a small error, but its values are nearly anywhere."""
    fine = kinds.universe.attributes["hours"]
    assert isinstance(fine, FineInteger)
    interval = Interval(np.array([4000.0]), np.array([3990.0]), np.array([4010.0]), Basis.MEASURED)
    single = Universe({"hours": fine.cut_at([])})
    table = judging._table(single, CountErrors((0,), (np.array([0]),), interval), MEASURED)
    assert (table.error, table.blurred, table.rating) == (pytest.approx(0.001, rel=0.1), 1.0, Rating.POOR)
    interval = Interval(np.array([3900.0, 100.0]), np.zeros(2), np.ones(2), Basis.MEASURED)
    split = CountErrors((0,), (np.array([0, 1]),), interval)
    table = judging._table(Universe({"hours": fine.cut_at([1])}), split, MEASURED)
    assert table.blurred == pytest.approx((100 / 4000) ** 2)  # the first cell is a single value


def test_each_pair_says_whether_it_was_measured(kinds: Release, judged: Judgement) -> None:
    names, column = kinds.universe.names, kinds.resolutions.column
    together = {
        pair
        for measured in kinds.measurements
        for pair in combinations(sorted(names[column(axis)] for axis in measured.axes), 2)
    }
    pairs = judged.portrait.pairs
    assert len(pairs) == len(names) * (len(names) - 1) // 2
    for pair in pairs:
        is_known = pair.table.basis in {MEASURED, MODEL}
        assert is_known == (tuple(sorted(pair.table.columns)) in together)
        if pair.table.basis == INFERRED:
            assert pair.table.rating is not Rating.GOOD
        if pair.table.basis == GUESS:
            assert (pair.dependence, pair.table.rating) == (None, Rating.POOR)
    assert {MEASURED, GUESS} <= {pair.table.basis for pair in pairs}


def test_tables_come_from_the_best_to_the_worst(judged: Judgement) -> None:
    order = [(list(Rating).index(table.rating), table.error) for table in judged.portrait.tables]
    assert order == sorted(order)
    assert all(table.rating is Rating.GOOD for table in judged.portrait.trusted)
    assert all(table.rating is not Rating.GOOD for table in judged.portrait.doubtful)


def test_of_a_wide_table_the_columns_with_the_strongest_dependence_are_paired(
    kinds: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("MOST_PAIRED", 3), ("MOST_PICTURES", 2)):
        monkeypatch.setattr(judging, name, most)
    few = judge(kinds).portrait
    assert (len(few.paired), len(few.pairs), len(few.columns)) == (3, 3, 2)
    assert few.more_columns == len(kinds.universe.names) - 2
    assert sorted((*few.paired, *few.unpaired)) == sorted(kinds.universe.names)
    every = judge(replace(kinds)).portrait
    assert every == few  # the same release has the same portrait


def test_columns_that_cannot_be_compared_come_last_but_are_not_hidden(
    kinds: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("MOST_PAIRED", 3), ("MOST_CELLS_EACH", 1)):  # no pair of columns has so few cells
        monkeypatch.setattr(judging, name, most)
    portrait = judge(kinds).portrait
    assert portrait.paired == kinds.universe.names[:3]
    assert [pair.dependence for pair in portrait.pairs] == [None] * 3


def test_dependence_is_that_of_mutual_information() -> None:
    rng = np.random.default_rng(1)
    independent = np.outer([10.0, 30.0], [5.0, 1.0, 4.0])
    assert mutual_information(independent) == pytest.approx(0.0, abs=1e-9)
    joint = rng.random((4, 5))
    joint /= joint.sum()
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    shared = np.sum(joint * np.log(joint / np.outer(rows, columns)))
    entropies = [-np.sum(shares * np.log(shares)) for shares in (rows, columns)]
    assert mutual_information(1000 * joint) == pytest.approx(shared / np.sqrt(np.prod(entropies)), rel=1e-6)
    assert mutual_information(np.array([[7.0, 0.0]])) == 0.0  # a constant tells nothing
