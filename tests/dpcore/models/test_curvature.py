"""Curvature: a few remembered steps make the next ones nearly those of Newton's method."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.models.curvature import MEMORY, Curvature, Vector

SIZE = 12


class Bowl:
    """A convex quadratic, x A x / 2 - b x, whose lowest point solves A x = b."""

    def __init__(self, seed: int, *, size: int = SIZE, widest: float = 1000.0) -> None:
        rng = np.random.default_rng(seed)
        turned = np.linalg.qr(rng.normal(size=(size, size)))[0]
        self.matrix = turned @ np.diag(np.geomspace(1.0, widest, size)) @ turned.T
        self.right = rng.normal(size=size)
        self.lowest = np.linalg.solve(self.matrix, self.right)
        self.diagonal = np.diag(self.matrix).copy()

    def scaled(self, slope: Vector) -> Vector:
        return slope / self.diagonal

    def slope(self, point: Vector) -> Vector:
        return np.asarray(self.matrix @ point - self.right)

    def best_length(self, point: Vector, direction: Vector) -> float:
        return -float(self.slope(point) @ direction) / float(direction @ self.matrix @ direction)


def halves_and_thirds(slope: Vector) -> Vector:
    return slope / np.array([2.0, 3.0])


def descend(bowl: Bowl, *, steps: int, learning: bool) -> list[float]:
    """Return how far the points are from the lowest one, step by step; without learning, each step is the diagonal's."""
    curvature, point = Curvature(), np.zeros(len(bowl.right))
    distances = []
    for _ in range(steps):
        slope = bowl.slope(point)
        if not slope.any():
            break
        direction = curvature.step(slope, bowl.scaled)
        step = bowl.best_length(point, direction) * direction
        if learning:
            curvature.learn(step, bowl.slope(point + step) - slope)
        point = point + step
        distances.append(float(np.linalg.norm(point - bowl.lowest) / np.linalg.norm(bowl.lowest)))
    return distances


@pytest.mark.parametrize("seed", range(5))
def test_steps_lead_to_the_solution_of_the_linear_system(seed: int) -> None:
    assert descend(Bowl(seed), steps=3 * SIZE, learning=True)[-1] < 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_they_get_there_ever_faster_and_steps_by_the_diagonal_alone_do_not(seed: int) -> None:
    learned, alone = (descend(Bowl(seed), steps=SIZE + 2, learning=learning) for learning in (True, False))
    assert learned[-1] < 1e-6
    assert alone[-1] > 1e-2
    early, late = learned[SIZE // 2] / learned[0], learned[-1] / learned[SIZE // 2]
    assert late < early**2
    assert alone[-1] / alone[SIZE // 2] > (alone[SIZE // 2] / alone[0]) ** 2


def test_more_arguments_than_are_remembered_will_do() -> None:
    size = 5 * MEMORY
    learned, alone = (descend(Bowl(1, size=size), steps=2 * size, learning=learning)[-1] for learning in (True, False))
    assert learned < 1e-6
    assert alone > 1e-2


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(0, 2 * MEMORY))
def test_a_step_is_always_downhill(seed: int, learned: int) -> None:
    rng, bowl = np.random.default_rng(seed), Bowl(seed)
    curvature = Curvature()
    for _ in range(learned):
        step = rng.normal(size=SIZE)
        curvature.learn(step, bowl.matrix @ step)
    slope = rng.normal(size=SIZE)
    assert slope @ curvature.step(slope, bowl.scaled) < 0


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 2 * MEMORY))
def test_what_was_learned_last_is_taken_back_exactly(seed: int, learned: int) -> None:
    rng, bowl = np.random.default_rng(seed), Bowl(seed)
    curvature = Curvature()
    for _ in range(learned):
        step = rng.normal(size=SIZE)
        curvature.learn(step, bowl.matrix @ step)
    np.testing.assert_allclose(curvature.step(bowl.matrix @ step, bowl.scaled), -step, rtol=1e-6, atol=1e-9)


def test_as_long_as_nothing_was_learned_a_step_is_a_part_of_the_diagonals() -> None:
    found = Curvature().step(np.array([4.0, -6.0]), halves_and_thirds, first=1 / 8)
    assert found.tolist() == [-0.25, 0.25]


@pytest.mark.parametrize("change", [[-1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [math.nan, 0.0]])
def test_a_change_that_no_convex_function_has_is_not_learned(change: list[float]) -> None:
    curvature, slope = Curvature(), np.array([4.0, -6.0])
    curvature.learn(np.array([1.0, 0.0]), np.array(change))
    assert curvature.step(slope, halves_and_thirds).tolist() == [-2.0, 2.0]
    curvature.learn(np.array([1.0, 0.0]), np.array([5.0, 0.0]))
    assert curvature.step(slope, halves_and_thirds)[0] == pytest.approx(-0.8)


def test_forgetting_starts_over() -> None:
    curvature, slope = Curvature(), np.array([4.0, -6.0])
    fresh = curvature.step(slope, halves_and_thirds)
    curvature.learn(np.array([1.0, 0.0]), np.array([5.0, 1.0]))
    assert not np.allclose(curvature.step(slope, halves_and_thirds), fresh)
    curvature.forget()
    assert np.array_equal(curvature.step(slope, halves_and_thirds), fresh)


def test_it_remembers_the_latest_steps_only() -> None:
    bowl, rng = Bowl(3), np.random.default_rng(3)
    steps = rng.normal(size=(MEMORY + 5, SIZE))
    one, other = Curvature(), Curvature()
    for step in steps:
        one.learn(step, bowl.matrix @ step)
    for step in steps[-MEMORY:]:
        other.learn(step, bowl.matrix @ step)
    slope = rng.normal(size=SIZE)
    assert np.array_equal(one.step(slope, bowl.scaled), other.step(slope, bowl.scaled))


def test_the_slope_is_left_as_it_was() -> None:
    curvature, slope = Curvature(), np.array([4.0, -6.0])
    curvature.learn(np.array([1.0, 0.0]), np.array([5.0, 1.0]))
    curvature.step(slope, halves_and_thirds)
    assert slope.tolist() == [4.0, -6.0]
