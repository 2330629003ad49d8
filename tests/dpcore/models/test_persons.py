"""Rows are divided into persons as they are: constants hold always, and sizes as far as the groups allow."""

import numpy as np
import pytest

from dpcore.models.persons import Division, NoisyPersons, PersonSizes, Shares, divide, size_ends


def divided(groups: int, *, rows: int, shares: Shares, seed: int = 1) -> tuple[Division, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, 5, rows), rng.integers(0, groups, rows)]
    return divide(codes, constant=[1], shares=shares, rng=rng), codes[1]


def gap(division: Division, shares: Shares) -> float:
    numbers = np.bincount(division.sizes, minlength=len(shares) + 1)[1:]
    return float(np.abs(np.cumsum(numbers) / numbers.sum() - np.cumsum(shares)).max())


@pytest.mark.parametrize(
    ("groups", "shares", "most"),
    [
        (1, (0.77, 0.15, 0.05, 0.03), 0.001),
        (5000, (0.77, 0.15, 0.05, 0.03), 0.001),  # groups of about four rows
        (50, (0.1, 0.0, 0.0, 0.3, 0.6), 0.01),
        (50, (0.0, 0.0, 1.0), 0.02),  # what is left of a group makes a smaller person
    ],
)
def test_sizes_are_as_wanted_and_constants_hold(groups: int, shares: tuple[float, ...], most: float) -> None:
    division, constant = divided(groups, rows=20_000, shares=np.array(shares))
    assert sorted(division.order.tolist()) == list(range(20_000))
    assert (constant[division.order] == constant[division.order][division.firsts][division.persons]).all()
    assert gap(division, np.array(shares)) < most


def test_where_groups_are_too_small_sizes_give_way_and_constants_hold() -> None:
    shares = np.full(20, 0.05)
    division, constant = divided(10_000, rows=20_000, shares=shares)
    assert (constant[division.order] == constant[division.order][division.firsts][division.persons]).all()
    assert gap(division, shares) > 0.3


def test_the_sizes_of_persons_do_not_depend_on_their_group() -> None:
    division, constant = divided(4, rows=40_000, shares=np.array([0.5, 0.2, 0.2, 0.1]))
    owners = constant[division.order][division.firsts]
    means = [division.sizes[owners == group].mean() for group in range(4)]
    assert max(means) - min(means) < 0.01


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_few_rows_are_divided_too(rows: int) -> None:
    division, _ = divided(2, rows=rows, shares=np.array([0.5, 0.5]))
    assert int(division.sizes.sum()) == len(division.order) == rows


@pytest.mark.parametrize("limit", [2, 5, 64, 256])
def test_noise_alone_still_makes_shares(limit: int) -> None:
    rng = np.random.default_rng(limit)
    numbers = [tuple(rng.integers(-50, 5, many).tolist()) for many in (limit, len(size_ends(limit)))]
    shares = PersonSizes(*(NoisyPersons(each, noise=20.0) for each in numbers)).shares()
    assert shares.shape == (limit,)
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)


def test_an_atom_within_a_class_is_kept_and_noise_within_it_is_smoothed() -> None:
    limit, noise, rng = 20, 20.0, np.random.default_rng(2)
    ends, true = size_ends(limit), np.zeros(limit)
    true[5] = 2000  # everybody has six rows
    true[8:16] = 30

    def noisy(numbers: np.ndarray) -> NoisyPersons:
        return NoisyPersons(tuple(np.rint(numbers + rng.normal(0, noise, len(numbers))).astype(int).tolist()), noise)

    sizes = PersonSizes(noisy(true), noisy(np.add.reduceat(true, (0, *ends[:-1]))))
    shares = sizes.shares()
    assert shares[5] == pytest.approx(2000 / 2240, abs=0.05)
    assert float(np.abs(np.cumsum(shares) - np.cumsum(true) / true.sum()).max()) < 0.05
    assert shares[8:16].std() < noise / 2240
