"""At most k rows of a unit are kept, chosen uniformly, and nobody's choice depends on anybody else."""

from collections import Counter
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.errors import UsageError
from dpcore.tables.ingest.agreement import agreed
from dpcore.tables.ingest.bounding import bound, smallest_draws
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.ingest.tally import bucketed, started, tallied

PEOPLE = st.lists(st.integers(0, 6), max_size=60)
K = st.integers(1, 5)


def ids_of(people: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Give everybody two words, of which several people share the first: a hash is compared as a whole."""
    who = np.asarray(people, dtype=np.uint64).reshape(-1)
    return np.column_stack((who // np.uint64(3), who % np.uint64(3)))


def kept_of(people: npt.ArrayLike, draws: npt.NDArray[np.uint64], *, k: int) -> npt.NDArray[np.intp]:
    return smallest_draws(ids_of(people), draws, rows_per_unit=k, ties=())


@given(people=PEOPLE, k=K)
def test_each_unit_keeps_k_rows_or_all_it_has(people: list[int], k: int) -> None:
    kept = kept_of(people, Draws.fresh().words(0, 0, len(people)), k=k)
    assert np.all(np.diff(kept) > 0)
    assert Counter(people[place] for place in kept) == {who: min(k, rows) for who, rows in Counter(people).items()}


@given(people=PEOPLE, k=K, seed=st.integers(0, 2**32 - 1))
def test_they_are_the_rows_with_the_smallest_draws(people: list[int], k: int, seed: int) -> None:
    draws = np.random.default_rng(seed).permutation(len(people)).astype(np.uint64)
    expected = [
        place
        for place, who in enumerate(people)
        if sum(draws[other] < draws[place] for other, also in enumerate(people) if also == who) < k
    ]
    assert kept_of(people, draws, k=k).tolist() == expected


@given(people=PEOPLE, k=K, seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 60))
def test_part_by_part_and_then_together_is_the_same_as_at_once(people: list[int], k: int, seed: int, cut: int) -> None:
    rng = np.random.default_rng(seed)
    rows = len(people)
    coded = Coded(
        [rng.integers(0, 3, rows).astype(np.uint8)],
        weights=rng.integers(0, 3, rows).astype(np.uint8),
        ids=ids_of(people),
        draws=rng.integers(0, 4, rows, dtype=np.uint64),
    )
    parts = [bound(coded.take(slice(cut)), rows_per_unit=k), bound(coded.take(slice(cut, None)), rows_per_unit=k)]
    in_parts = bound(Coded.joined(parts), rows_per_unit=k)
    at_once = bound(coded, rows_per_unit=k)
    assert sorted(zip(*in_parts.columns(), strict=True)) == sorted(zip(*at_once.columns(), strict=True))


@given(people=PEOPLE, parts=st.integers(1, 5))
def test_a_split_puts_all_rows_of_a_unit_into_one_part(people: list[int], parts: int) -> None:
    rows = np.arange(len(people), dtype=np.uint64)
    coded = Coded([rows.astype(np.uint8)], weights=None, ids=ids_of(people), draws=rows)
    split = coded.split(parts)
    assert len(split) == parts
    assert sorted(np.concatenate([part.draws for part in split]).tolist()) == rows.tolist()
    found = [{people[place] for place in part.codes[0].tolist()} for part in split]
    assert sum(map(len, found)) == len(set(people))


def test_rows_that_have_no_units_are_not_bounded_by_mistake() -> None:
    coded = Coded([np.zeros(3, np.uint8)], weights=None, ids=None, draws=None)
    with pytest.raises(UsageError, match="cannot be bounded"):
        bound(coded, rows_per_unit=1)
    with pytest.raises(UsageError, match="cannot be split"):
        coded.split(2)
    with pytest.raises(UsageError, match="code them by unit"):
        agreed(coded, axes=[0])
    for step in (started, tallied, bucketed):
        with pytest.raises(UsageError, match="without"):
            step(coded)


UNIT_COUNT, UNIT_ROWS = 20_000, 5
PEOPLE_OF_FIVE = np.repeat(np.arange(UNIT_COUNT), UNIT_ROWS)


def p_value_of_uniform_pairs(kept: npt.NDArray[np.intp]) -> float:
    """Test whether every pair of the five rows of a unit was kept equally often."""
    pairs = np.sort(kept).reshape(UNIT_COUNT, 2) % UNIT_ROWS
    counts = Counter(map(tuple, pairs.tolist()))
    return float(stats.chisquare([counts[pair] for pair in combinations(range(UNIT_ROWS), 2)]).pvalue)


def test_every_pair_of_rows_is_equally_likely_to_be_kept() -> None:
    draws = Draws.fresh().words(0, 0, len(PEOPLE_OF_FIVE))
    assert p_value_of_uniform_pairs(kept_of(PEOPLE_OF_FIVE, draws, k=2)) > 1e-9


def test_the_check_of_uniformity_rejects_the_first_rows_and_a_slight_preference() -> None:
    first = np.flatnonzero(np.arange(len(PEOPLE_OF_FIVE)) % UNIT_ROWS < 2)
    assert p_value_of_uniform_pairs(first) < 1e-9

    draws = Draws.fresh().words(0, 0, len(PEOPLE_OF_FIVE)) / 2**64
    draws[::UNIT_ROWS] **= 1.15  # the first row's draw is a little smaller than it should be
    assert p_value_of_uniform_pairs(kept_of(PEOPLE_OF_FIVE, (draws * 2**63).astype(np.uint64), k=2)) < 1e-9
