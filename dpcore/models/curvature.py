"""The curvature of a smooth convex function, estimated from past steps: limited-memory BFGS."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def dot(one: Vector, other: Vector) -> float:
    """Return the inner product, computed on one thread: synchronising several would take longer than the product."""
    return float(np.einsum("i,i->", one, other))


MEMORY = 20  # steps that are remembered; with 10, a fit was measured to take twice as many


class Curvature:
    """Turn a gradient into a step, by the limited-memory BFGS method with a given initial diagonal.

    Reference: Nocedal and Wright 2006, algorithm 7.4.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[Vector, Vector, float]] = deque(maxlen=MEMORY)

    def learn(self, step: Vector, change: Vector) -> None:
        """Record by how much the gradient has changed along a step."""
        product = dot(step, change)
        if product > 0:  # always, by convexity, unless float precision is exhausted
            self._seen.append((step, change, product))

    def forget(self) -> None:
        """Discard all recorded steps."""
        self._seen.clear()

    def step(self, slope: Vector, diagonal: Vector, *, first: float) -> Vector:
        """Return a descent step.

        Args:
            slope: The gradient here.
            diagonal: An estimate of the Hessian's diagonal.
            first: The fraction of the diagonal's step to take while no steps are recorded.
        """
        direction = -slope
        shares = []
        for step, change, product in reversed(self._seen):
            share = dot(step, direction) / product
            shares.append(share)
            direction = direction - share * change
        direction = direction / diagonal
        if self._seen:
            _, change, product = self._seen[-1]
            direction *= product / dot(change, change / diagonal)
        else:
            direction *= first
        for (step, change, product), share in zip(self._seen, reversed(shares), strict=True):
            direction += (share - dot(change, direction) / product) * step
        return direction
