"""Quantiles: scores and their sensitivity by exhaustion, answers near the truth, refusals before anything is read."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpcore.errors import UsageError
from dpcore.mechanisms import NoisyQuantiles
from dpcore.mechanisms.exponential import ExponentialMechanism
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.universe import Boolean, Integer, Number
from tests.contracts.mechanism_catalogue import PERSON, ROW, SWAPPED_PERSON, SWAPPED_ROW, WEIGHTED

AGE = Integer(minimum=0, maximum=99)


def made(shares, protection=ROW, *, epsilon=8.0, attribute=AGE, step=1):
    return NoisyQuantiles.for_epsilon(
        epsilon, delta=0, attribute=attribute, step=step, shares=shares, protection=protection
    )


def test_quantiles_are_near_the_true_ones_and_ascend():
    values = np.random.default_rng(1).integers(0, 100, 20_000)
    found = made(["0.9", "0.1", "0.5"]).draw(values)
    assert list(found) == sorted(found)
    assert np.abs(np.array(found) - np.quantile(values, [0.1, 0.5, 0.9])).max() <= 2


def test_half_of_the_rows_at_one_value_make_it_the_median():
    values = np.array([0] * 400 + [50] * 600 + [99] * 200)
    assert made(["0.5"]).draw(values) == (50.0,)


def test_values_are_clipped_and_rounded_to_the_grid():
    money = Number((0.0, 10.0))
    kept = made(["0.5"], attribute=money, step="0.5", epsilon=50.0)
    assert kept.draw(np.array([3.3] * 500)) == (3.5,)
    assert kept.draw([None, "none"] * 5 + ["7"] * 500) == (7.0,)


def scores_of(monkeypatch, quantiles, values, ids=None):
    seen = []
    monkeypatch.setattr(ExponentialMechanism, "draw", lambda self, scores: seen.append((self, scores.copy())) or 0)
    quantiles.draw(values, ids=ids)
    return seen


@pytest.mark.parametrize("share", ["0.5", "0.1", "3/4"])
def test_no_neighbour_moves_a_score_by_more_than_the_sensitivity_and_one_moves_it_as_far(monkeypatch, share):
    small = Integer(minimum=0, maximum=3)
    for protection, neighbours in ((ROW, Neighbours.ADD_REMOVE), (SWAPPED_ROW, Neighbours.REPLACE_ONE)):
        quantiles = made([share], protection, attribute=small)
        farthest = 0
        for table in product(range(4), repeat=3):
            [(selection, here)] = scores_of(monkeypatch, quantiles, np.array(table))
            for value in [*range(4), -5]:  # one below the range, which has no usable value
                other = [*table, value] if neighbours is Neighbours.ADD_REMOVE else [*table[1:], value]
                [(_, there)] = scores_of(monkeypatch, quantiles, np.array(other))
                farthest = max(farthest, int(np.abs(here - there).max()))
        assert farthest == selection.sensitivity == quantiles.sensitivity(Fraction(share))


def test_a_unit_of_several_rows_multiplies_the_sensitivity(monkeypatch):
    half = Fraction(1, 2)
    assert made(["0.5"], PERSON).sensitivity(half) == 2
    assert made(["0.5"], SWAPPED_PERSON).sensitivity(half) == 4
    assert made(["0.5"], WEIGHTED).sensitivity(half) == 6
    [(_, scores)] = scores_of(monkeypatch, made(["0.5"], PERSON), [7] * 10, ids=["one"] * 10)
    assert scores[0] == -2  # of ten rows of a person, two count


@pytest.mark.parametrize("shares", [[], ["0"], ["1"], ["-0.1"], ["x"], "0.5", 0.5, ["1e-9"], [None], ["1/0"]])
def test_shares_that_mean_nothing_are_refused(shares):
    with pytest.raises(UsageError, match="share"):
        made(shares)


def test_grids_and_weights_that_are_too_large_are_refused():
    with pytest.raises(UsageError, match="coarser step"):
        made(["0.5"], attribute=Integer(minimum=0, maximum=5_000_000))
    heavy = Protection(unit="row", rows_per_unit=1, neighbours="add-remove", weight="w", row_weight=1 << 20)
    with pytest.raises(UsageError, match="fewer decimals"):
        made(["0.1234"], heavy)
    with pytest.raises(UsageError, match="Integer or a Number"):
        made(["0.5"], attribute=Boolean())
