"""Rows that are drawn in more than one chunk: as many as asked for, still near the model, and with no dependence that it does not have."""

import math

import numpy as np
import pytest

from dpcore.marginals.resolutions import Resolutions
from dpcore.models import FactoredModel
from dpcore.models.factored import sampling
from tests.dpcore.models.factored_reference import Codes, Functions
from tests.dpcore.models.test_factored_sampling import (
    FORK,
    FREEDOM,
    SAME,
    fork,
    in_the_same_order,
    independent_columns,
    independent_draws,
    largest_error,
    least_likely_pair,
    mean_dependence,
    ours,
)


@pytest.fixture(params=[50, 1000])
def chunk_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have rows drawn in small chunks."""
    monkeypatch.setattr(sampling, "CHUNK_ROWS", request.param)
    return int(request.param)


@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_there_are_exactly_as_many_rows_as_asked_for_in_any_number_of_blocks(chunk_rows: int, beyond: int) -> None:
    for chunks in (1, 2, 5):
        count = chunks * chunk_rows + beyond
        assert [column.shape for column in ours(fork(), count, 1)] == [(count,)] * 3


def test_marginals_of_cliques_are_off_by_a_few_rows_for_each_block(chunk_rows: int) -> None:
    chunks = 9
    for seed in range(5):
        model = fork(seed=seed)
        # The chunks' errors have different signs: together they grow with the root of their number.
        assert largest_error(model, ours, FORK, rows=chunks * chunk_rows + 3) < 6 * math.sqrt(chunks + 1)


def test_the_check_of_blocks_rejects_independent_draws() -> None:
    assert largest_error(fork(), independent_draws, FORK, rows=9 * 1000 + 3) > 6 * math.sqrt(10)


def test_columns_that_are_independent_given_their_separator_stay_so_across_blocks(chunk_rows: int) -> None:
    for seed in range(3):
        found = mean_dependence(fork(seed=seed), ours, rows=5000, draws=10)
        assert found < FREEDOM + 3 * math.sqrt(2 * FREEDOM / 10)


def in_the_same_order_in_chunks(model: FactoredModel, count: int, seed: int) -> Codes:
    """Draw a fork wrongly, in chunks of a thousand."""
    chunks = [in_the_same_order(model, 1000, seed + start) for start in range(0, count, 1000)]
    return tuple(np.concatenate(columns) for columns in zip(*chunks, strict=True))


def test_the_check_of_independence_rejects_blocks_each_of_which_is_in_the_same_order() -> None:
    for seed in range(3):
        model = fork(seed=seed)
        assert mean_dependence(model, in_the_same_order_in_chunks, rows=5000, draws=2) > 5 * FREEDOM


def test_independent_columns_stay_independent_across_blocks(chunk_rows: int) -> None:
    for seed in range(5):
        model = independent_columns(seed=seed)
        assert least_likely_pair(model.resolutions, ours(model, 5000, seed)) > 1e-5


def test_what_is_more_than_one_block_comes_out_right_at_any_resolution(chunk_rows: int) -> None:
    of = Resolutions((6, 3, 5))
    thirds = of.coarsen(0, [0, 0, 1, 1, 2, 2])
    rng = np.random.default_rng(2)
    model = FactoredModel(of, total=1.0)
    functions: Functions = {(1, 2, thirds): rng.normal(size=(3, 5, 3)), (0,): rng.normal(size=6), (1, thirds): SAME}
    model.assign(functions)
    sampled = ours(model, 4 * chunk_rows, 5)
    assert (sampled[0] // 2 == sampled[1]).all()
    assert largest_error(model, ours, list(functions), rows=4 * chunk_rows) < 12 * 2
