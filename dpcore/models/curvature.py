"""How a smooth convex function bends, learned from the steps that were taken on it: what Newton's method would need to know, for a few vectors."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def dot(one: Vector, other: Vector) -> float:
    """Return the inner product, on this thread alone: several would wait for one another longer than it takes."""
    return float(np.einsum("i,i->", one, other))


MEMORY = 20  # steps that are remembered; measured: with 10 it takes twice as many


class Curvature:
    """Turns a slope into a step, by the limited-memory BFGS method with a diagonal to start from.

    Reference: Nocedal and Wright 2006, algorithm 7.4.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[Vector, Vector, float]] = deque(maxlen=MEMORY)

    def learn(self, step: Vector, change: Vector) -> None:
        """Take in by how much the slope has changed along a step."""
        product = dot(step, change)
        if product > 0:  # as convexity says; else the numbers have come to their end
            self._seen.append((step, change, product))

    def forget(self) -> None:
        """Start over."""
        self._seen.clear()

    def step(self, slope: Vector, diagonal: Vector, *, first: float) -> Vector:
        """Return a step downhill.

        Args:
            slope: here.
            diagonal: about how much each slope changes with its own argument.
            first: how much of the diagonal's step to take as long as nothing was learned.
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
