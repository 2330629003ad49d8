"""Smoothing: noise between similar cells goes, peaks and sums stay, and only ordered columns that a strategy has measured are smoothed."""

import numpy as np
from numpy.typing import NDArray

from dpcore.marginals.measurements import Measurement
from dpcore.models import Evidence
from dpcore.models.fitting import How, Transcript, fit
from dpcore.models.smoothing import smoothed

CELLS, NOISE = 64, 40.0


def hill() -> NDArray[np.float64]:
    places = np.arange(CELLS)
    return 1000 * np.exp(-(((places - 20) / 12.0) ** 2))


def noisy(counts: NDArray[np.float64], *, seed: int) -> NDArray[np.float64]:
    return counts + np.random.default_rng(seed).normal(0, NOISE, len(counts))


def distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.abs(one - other).sum())


def test_a_smooth_column_loses_much_of_its_noise_and_keeps_its_sum() -> None:
    for seed in range(10):
        counts = noisy(hill(), seed=seed)
        smooth, kept = smoothed(counts, deviation=NOISE)
        assert distance(smooth, hill()) < 0.9 * distance(counts, hill())
        assert kept < 0.5
        np.testing.assert_allclose(smooth.sum(), counts.sum())


def test_a_peak_in_a_single_cell_stays() -> None:
    counts = hill()
    counts[40] += 3000
    smooth, _ = smoothed(noisy(counts, seed=1), deviation=NOISE)
    assert abs(smooth[40] - counts[40]) < 4 * NOISE
    assert abs(smooth[39] - counts[39]) < 4 * NOISE


def test_structure_in_every_cell_is_left_as_it_is() -> None:
    counts = np.where(np.arange(CELLS) % 2 == 0, 0.0, 2000.0)
    raw = noisy(counts, seed=2)
    smooth, kept = smoothed(raw, deviation=NOISE)
    assert kept > 0.5
    assert distance(smooth, counts) < 1.2 * distance(raw, counts)


def test_a_flat_column_keeps_a_fifth_of_its_noise() -> None:
    left = []
    for seed in range(200):
        smooth, _ = smoothed(noisy(np.full(CELLS, 500.0), seed=seed), deviation=NOISE)
        left.append(float(np.mean((smooth - 500.0) ** 2)) / NOISE**2)
    assert 0.05 < np.mean(left) < 0.25


def column(step: str, values: NDArray[np.float64]) -> Measurement:
    return Measurement(step, (0,), cell=None, values=np.rint(values).astype(np.int64), noise=NOISE)


def evidence_of(
    *measurements: Measurement, inside: int | None = CELLS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    evidence = Evidence({} if inside is None else {0: inside})
    for each in measurements:
        evidence.add(each)
    ((_, target),) = evidence
    return target.counts, target.variance


def test_evidence_smooths_the_measurements_of_an_ordered_column_together() -> None:
    first, second = (
        column(f"one-way/01-age{again}", noisy(hill(), seed=seed)) for seed, again in ((1, ""), (2, "-again"))
    )
    counts, variance = evidence_of(first, second)
    mean = (first.values + second.values) / 2
    expected, kept = smoothed(mean, deviation=NOISE / np.sqrt(2))
    np.testing.assert_allclose(counts, expected)
    np.testing.assert_allclose(variance, kept * NOISE**2 / 2)


def test_cells_outside_the_order_keep_their_counts_and_their_noise() -> None:
    counts, variance = evidence_of(column("one-way/01-age", np.append(noisy(hill(), seed=3), 777.0)))
    assert counts[-1] == 777.0
    assert variance[-1] == NOISE**2
    assert variance[0] < NOISE**2


def test_other_measurements_are_left_as_they_are() -> None:
    raw = column("one-way/01-age", noisy(hill(), seed=4))
    for counts, variance in (
        evidence_of(raw, inside=None),  # not ordered
        evidence_of(raw, inside=12),  # too few cells in order
        evidence_of(column("discover/01-age", raw.values.astype(np.float64))),  # the leaves of a tree
    ):
        np.testing.assert_array_equal(counts, raw.values)
        np.testing.assert_array_equal(variance, np.full(CELLS, NOISE**2))


def test_a_pilot_keeps_what_smoothing_drops() -> None:
    """Every fifth cell has more rows by 1.5 standard deviations: no single difference stands out, but all of them together do."""
    heaped = np.where(np.arange(CELLS) % 5 == 0, 1000 + 1.5 * NOISE, 1000.0)
    transcript = Transcript((column("one-way/01-age", noisy(heaped, seed=5)),), ())
    extra = {}
    for smooth in (True, False):
        model, _ = fit((CELLS,), transcript, orders={0: CELLS}, how=How(per_cell=2.0, smooth=smooth))
        counts = model.marginal((0,))
        extra[smooth] = float(counts[::5].mean() - np.delete(counts, np.s_[::5]).mean())
    assert extra[False] > 0.75 * NOISE
    assert extra[True] < 0.5 * extra[False]
