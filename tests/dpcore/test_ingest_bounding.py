"""At most k rows of a unit are kept, chosen uniformly, and nobody's choice depends on anybody else."""

from collections import Counter
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.histogram import Histogram
from dpcore.ingest import bounding
from dpcore.ingest.bounding import bound_rows
from dpcore.ingest.records import Records
from dpcore.ingest.units import NOBODY
from dpcore.universe import Integer, Universe

UNITS = st.lists(st.integers(NOBODY, 6), max_size=60).map(lambda units: np.array(units, dtype=np.int64))
K = st.integers(1, 5)


@given(units=UNITS, k=K)
def test_each_unit_keeps_k_rows_or_all_it_has_and_nobody_keeps_none(units: npt.NDArray[np.int64], k: int) -> None:
    kept = bound_rows(units, rows_per_unit=k)
    assert np.all(np.diff(kept) > 0)
    expected = {unit: min(k, rows) for unit, rows in Counter(units.tolist()).items() if unit != NOBODY}
    assert Counter(units[kept].tolist()) == expected


def test_arrow_columns_are_taken_as_they_are() -> None:
    ids = pa.chunked_array([pa.array(["a", "b", None]), pa.array(["b", "b", ""])])
    kept = bound_rows(ids, rows_per_unit=2).tolist()
    assert kept[0] == 0
    assert len(kept) == 3
    assert set(kept[1:]) < {1, 3, 4}
    assert bound_rows(ids.chunk(0), rows_per_unit=1).tolist() == [0, 1]


@given(units=UNITS, k=K, removed=st.integers(0, 6), seed=st.integers(0, 2**32 - 1))
def test_removing_one_unit_moves_no_marginal_by_more_than_k(
    units: npt.NDArray[np.int64], k: int, removed: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, 3, len(units)).astype(np.uint8) for _ in range(2)]
    keys = rng.integers(0, 2**64, len(units), dtype=np.uint64)
    others = units != removed

    with_unit = histogram_of(codes, units, keys, k=k)
    without = histogram_of([column[others] for column in codes], units[others], keys[others], k=k)
    for axes in [(), (0,), (1,), (0, 1)]:
        change = with_unit.marginal(axes) - without.marginal(axes)
        assert change.min() >= 0
        assert change.sum() <= k


def histogram_of(
    codes: list[npt.NDArray[np.uint8]], units: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64], *, k: int
) -> Histogram:
    """Bound and count with the given key for each row that has to be drawn for."""
    crowded = [unit != NOBODY and np.count_nonzero(units == unit) > k for unit in units]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounding, "random_words", lambda _: keys[np.array(crowded, dtype=bool)])
        kept = bound_rows(units, rows_per_unit=k)
    attribute = Integer(minimum=0, maximum=2)
    return Histogram.count(Records([column[kept] for column in codes]), Universe({"a": attribute, "b": attribute}))


UNIT_COUNT, UNIT_ROWS = 20_000, 5


def p_value_of_uniform_pairs(kept: npt.NDArray[np.int64]) -> float:
    """Test whether every pair of the five rows of a unit was kept equally often."""
    pairs = np.sort(kept).reshape(UNIT_COUNT, 2) % UNIT_ROWS
    counts = Counter(map(tuple, pairs.tolist()))
    return float(stats.chisquare([counts[pair] for pair in combinations(range(UNIT_ROWS), 2)]).pvalue)


def test_every_pair_of_rows_is_equally_likely_to_be_kept() -> None:
    units = np.repeat(np.arange(UNIT_COUNT), UNIT_ROWS)
    assert p_value_of_uniform_pairs(bound_rows(units, rows_per_unit=2)) > 1e-9


def test_the_check_of_uniformity_rejects_the_first_rows_and_a_slight_preference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = np.repeat(np.arange(UNIT_COUNT), UNIT_ROWS)
    first = np.flatnonzero(np.arange(len(units)) % UNIT_ROWS < 2)
    assert p_value_of_uniform_pairs(first) < 1e-9

    keys = np.random.default_rng(1).random(len(units))
    keys[::UNIT_ROWS] **= 1.15  # the first row's key is a little smaller than it should be
    monkeypatch.setattr(bounding, "random_words", lambda _: (keys * 2**63).astype(np.uint64))
    assert p_value_of_uniform_pairs(bound_rows(units, rows_per_unit=2)) < 1e-9


def test_the_choice_is_drawn_anew_each_time() -> None:
    units = np.repeat(np.arange(1000), UNIT_ROWS)
    assert bound_rows(units, rows_per_unit=2).tolist() != bound_rows(units, rows_per_unit=2).tolist()
