"""Starts of the weights: fitted to a public table, gated by noisy counts, and never evidence."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.priors import PseudoMeasured
from benchmarks.simulated import SeededCurator, Table, release
from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Workload
from dpcore.models import DenseModel, FactoredModel
from dpcore.models.start import PublicRows, dense_start, factored_start
from dpcore.release.measured import START, read_start
from dpcore.strategies import Adaptive, Column, Mwem, Strategy

SIZES = (4, 5, 3, 2)
PAIRS = Workload.all_of(attributes=4, order=2)


def table(rows: int, *, seed: int, turned: bool = False) -> Table:
    """Make rows in which each column depends on the one before; `turned` keeps the columns and reverses what they tell about others."""
    rng = np.random.default_rng(seed)
    one = rng.binomial(3, 0.4, rows)
    two = np.clip(one + rng.integers(0, 2, rows), 0, 4)
    three = np.minimum(two // 2, 2)
    four = (rng.random(rows) < np.where(three == 1, 0.9, 0.1)).astype(np.int64)
    if turned:
        order = np.argsort(one + rng.random(rows))
        two = np.sort(two)[::-1][np.argsort(order)]
        four = rng.permutation(four)
    return Table("t", (one, two, three, four), SIZES)


def public(rows: int, *, seed: int, turned: bool = False) -> PublicRows:
    return PublicRows(dict(enumerate(table(rows, seed=seed, turned=turned).codes)), rows)


def mwem(*, kind: type[Mwem] = Mwem) -> Mwem:
    columns = [Column(name, size, ordered=False) for name, size in zip("abcd", SIZES, strict=True)]
    return kind(columns, PAIRS, rounds=None, pure=False)


def adaptive() -> Adaptive:
    columns = [Column(name, size, ordered=True) for name, size in zip("abcd", SIZES, strict=True)]
    return Adaptive(columns, PAIRS, rounds=None, pure=False, model_mb=8.0)


def mean_error(
    make: Callable[[], Strategy], prior: PublicRows | None, *, epsilon: float = 0.1
) -> tuple[float, Strategy]:
    """Return the mean error of three releases, and the strategy of the last one."""
    private, errors = table(2000, seed=1), []
    for seed in range(3):
        strategy = make()
        strategy.prior = prior
        curator = SeededCurator(private, epsilon=epsilon, delta=1e-9, currency=None, seed=seed)
        errors.append(private.error(release(strategy, curator, seed=seed), order=2))
    return float(np.mean(errors)), strategy


@pytest.mark.parametrize("make", [mwem, adaptive])
def test_a_public_table_of_the_same_population_helps(make: Callable[[], Strategy]) -> None:
    plain, _ = mean_error(make, None)
    helped, strategy = mean_error(make, public(3000, seed=2))
    assert strategy.gate is not None
    assert strategy.gate.taken
    assert helped < 0.75 * plain


@pytest.mark.parametrize("make", [mwem, adaptive])
def test_a_table_with_other_relations_is_found_out_by_the_measurements(make: Callable[[], Strategy]) -> None:
    plain, _ = mean_error(make, None, epsilon=1.0)
    kept, strategy = mean_error(make, public(3000, seed=2, turned=True), epsilon=1.0)
    assert strategy.gate is not None
    assert strategy.gate.distance < strategy.gate.uniform_distance  # its columns are right
    assert not strategy.gate.taken
    assert not strategy.start.functions
    assert kept < 1.3 * plain  # other selections, other noise: the pseudo-measurements below are worse by far


def test_pseudo_measurements_are_caught() -> None:
    """The negative control: a variant that counts public rows as measurements does harm where the start does none."""
    plain, _ = mean_error(mwem, None, epsilon=1.0)
    wrong, _ = mean_error(lambda: mwem(kind=PseudoMeasured), public(3000, seed=2, turned=True), epsilon=1.0)
    assert wrong > 1.5 * plain


def test_a_model_starts_where_its_start_is_and_functions_are_relative_to_it() -> None:
    start = dense_start(SIZES, public(5000, seed=3), PAIRS.marginals)
    expected = table(5000, seed=3).shares((0, 1)).reshape(4, 5)
    dense = DenseModel(SIZES, total=1.0, start=start.functions)
    assert dense.marginal((0, 1)) == pytest.approx(expected, abs=0.02)
    factored = FactoredModel(Resolutions(SIZES), total=1.0, start=start.functions)
    assert factored.marginal((0, 1)) == pytest.approx(dense.marginal((0, 1)), abs=1e-9)
    for model in (dense, factored):
        model.assign({(3,): np.array([0.0, 1.0])})
    assert factored.marginal((0, 3)) == pytest.approx(dense.marginal((0, 3)), abs=1e-9)


def test_a_factored_start_has_the_pairs_that_tell_most_within_its_room() -> None:
    rows, resolutions = public(5000, seed=3), Resolutions(SIZES)
    wide = factored_start(resolutions, rows, PAIRS.marginals, room=1000)
    assert {(0, 1), (1, 2)} <= set(wide.functions)
    narrow = factored_start(resolutions, rows, PAIRS.marginals, room=sum(SIZES))
    assert all(len(axes) == 1 for axes in narrow.functions)


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / START).write_bytes(b"PAR1 or not")
    with pytest.raises(UsageError, match="copy the release again"):
        read_start(tmp_path / START)
