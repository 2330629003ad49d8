"""The curvature of a smooth convex function, estimated from past steps: limited-memory BFGS."""

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


MEMORY = 20  # steps that are remembered; with 10, a fit was measured to take twice as many


def dot(left: Vector, right: Vector) -> float:
    """Return the inner product, computed on one thread: synchronising several would take longer than the product."""
    return float(np.einsum("i,i->", left, right))


class Curvature:
    """Turn a gradient into a step, by the limited-memory BFGS method with a given first estimate.

    Reference: Nocedal and Wright 2006, algorithm 7.4.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[Vector, Vector, float]] = deque(maxlen=MEMORY)

    def search(  # noqa: PLR0913  a point, its slope, and how to go on from there
        self,
        here: Vector,
        slope: Vector,
        direction: Vector,
        *,
        reach: float,
        slope_at: Callable[[Vector], Vector],
        tries: int,
    ) -> tuple[Vector, Vector, int]:
        """Return a point along a direction that is not far beyond the minimum there, the slope at it, and the tries that are left.

        Args:
            here: Where the search starts.
            slope: The gradient there.
            direction: A descent step.
            reach: The largest change of a logarithm along it.
            slope_at: Returns the gradient at a point, which is a try.
            tries: The most tries.
        """
        falls, length = dot(slope, direction), min(1.0, 4.0 / reach)  # no try changes a logarithm by more than 4
        while True:
            there = here + length * direction
            new = slope_at(there)
            tries -= 1
            rises = dot(new, direction)
            if rises <= -0.9 * falls or tries <= 0:  # otherwise it has gone too far
                break
            length *= min(0.7, max(0.2, falls / (falls - rises)))
        self.learn(there - here, new - slope)
        return there, new, tries

    def learn(self, step: Vector, change: Vector) -> None:
        """Record by how much the gradient has changed along a step."""
        product = dot(step, change)
        if product > 0:  # always, by convexity, unless float precision is exhausted
            self._seen.append((step, change, product))

    def forget(self) -> None:
        """Discard all recorded steps."""
        self._seen.clear()

    def step(self, slope: Vector, scaled: Callable[[Vector], Vector], *, first: float = 1.0) -> Vector:
        """Return a descent step.

        Args:
            slope: The gradient here.
            scaled: Multiplies by an estimate of the inverse of the Hessian.
            first: The fraction of that estimate's step to take while no steps are recorded.
        """
        direction = -slope
        shares = []
        for step, change, product in reversed(self._seen):
            share = dot(step, direction) / product
            shares.append(share)
            direction = direction - share * change
        direction = scaled(direction)
        if self._seen:
            _, change, product = self._seen[-1]
            direction *= product / dot(change, scaled(change))
        else:
            direction *= first
        for (step, change, product), share in zip(self._seen, reversed(shares), strict=True):
            direction += (share - dot(change, direction) / product) * step
        return direction
