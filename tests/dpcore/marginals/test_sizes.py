"""Counts of some rows become counts of all by public figures: how many rows each class of units has, and how its rows differ."""

import numpy as np
import pytest

from dpcore.marginals.sizes import Sizes, ratios, shares_by_class

SIZES = Sizes((1, 8), rows=(1000.0, 4000.0, 9000.0), units=(1000.0, 1000.0, 300.0), deviation=0.01)


@pytest.mark.parametrize("most", [0.5, 1.0, 2.0, 4.0, 10.0, 29.0])
def test_of_every_unit_at_most_as_many_rows_are_counted(most: float) -> None:
    rows, units = np.array(SIZES.rows), np.array(SIZES.units)
    expected = np.minimum(rows, most * units)
    assert SIZES.counted(float(expected.sum())) == pytest.approx(expected)


def test_if_as_many_rows_were_counted_as_there_are_all_of_each_class_were() -> None:
    assert SIZES.counted(SIZES.total).tolist() == list(SIZES.rows)
    assert SIZES.counted(2 * SIZES.total).tolist() == list(SIZES.rows)


def test_the_ratio_restores_a_marginal_whose_columns_are_independent_within_a_class() -> None:
    rng = np.random.default_rng(0)
    rows, counted = np.array(SIZES.rows), SIZES.counted(5000.0)
    shares = [rng.dirichlet(np.ones(size), 3).T for size in (4, 5)]
    whole, part = (np.einsum("as,bs,s->ab", *shares, total) for total in (rows, counted))
    restored = part * ratios(shares, rows=rows, counted=counted)
    assert restored == pytest.approx(whole)
    assert np.abs(part * rows.sum() / counted.sum() - whole).sum() > 0.05 * whole.sum()  # without classes it would not


def test_classes_differ_only_as_far_as_they_stand_out_of_the_noise() -> None:
    counts = np.array([[100.0, 520.0], [100.0, 480.0]])
    together = counts.sum(axis=1) / counts.sum()
    counted = counts.sum(axis=0)
    exact, noisy = (shares_by_class(counts, counted=counted, variance=variance) for variance in (0.0, 10_000.0))
    assert exact == pytest.approx(counts / counts.sum(axis=0))
    assert noisy == pytest.approx(np.column_stack([together, together]))


def test_shares_are_shares_whatever_the_noise_is() -> None:
    rng = np.random.default_rng(1)
    for variance in (1.0, 100.0):
        shares = shares_by_class(rng.normal(0.0, 10.0, (6, 3)), counted=np.array([5.0, 0.0, 1.0]), variance=variance)
        assert shares.min() >= 0
        assert shares.sum(axis=0) == pytest.approx(1.0)


def test_cells_that_nobody_is_expected_in_get_the_usual_ratio() -> None:
    empty = np.array([[1.0, 1.0], [0.0, 0.0]])
    assert ratios([empty], rows=np.array([10.0, 30.0]), counted=np.array([10.0, 10.0])).tolist() == [2.0, 2.0]


def test_a_class_in_one_cell_of_many_is_found_there_if_that_cell_is_clear() -> None:
    """The noise of a hundred cells together hides what one of them shows clearly."""
    rng, cells, noise = np.random.default_rng(2), 100, 10.0
    counts = np.zeros((cells, 2))
    counts[:-1, 0], counts[-1, 1] = 200.0, 150.0
    shares = shares_by_class(
        counts + rng.normal(0.0, noise, counts.shape), counted=np.array([19_800.0, 150.0]), variance=noise**2
    )
    assert shares[-1, 1] > 0.25
    flat = shares_by_class(
        counts + rng.normal(0.0, 60.0, counts.shape), counted=np.array([19_800.0, 150.0]), variance=3600.0
    )
    assert flat[-1, 1] < 0.2  # the control: noise that could have made the cell
