"""Turbo's PMW-Bypass for one table, for `benchmarks.curator`: an own implementation of its paper, with the configuration that it published.

Kostopoulou, Tholoniat, Cidon, Geambasu, Lecuyer: Turbo: Effective Caching in Differentially-Private Databases, SOSP 2023, Algorithm 1. An
exact cache is asked first. Then, if the histogram is ready for a query, a sparse vector gate compares its answer with the truth. If it is
not ready, the query bypasses the gate and is answered with Laplace noise, from which the histogram learns.

- Ready: each cell of the query was updated `READY` times, or, after the gate has failed on it, `STEP` times more than before.
- The gate costs 3 epsilon until it fails, with epsilon = 4 ln(1 / beta) / (n alpha).
- A bypass costs ln(1 / beta) / (n alpha), the least for that accuracy. The paper's algorithm takes four times as much for simplicity.
- Updates are multiplicative, by 1/8 of a rate that falls with the number of updates, if the answer differs by more than tau alpha.

The constants are those of its experiments on one table (the Covid data: alpha 0.05, beta 0.001, `bin_visits:100-5`, rates 2, 0.5 and 0.2,
tau 0.05). Everything is counted in zCDP here, in which an epsilon costs epsilon^2 / 2, because the other curators are.
"""

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.curator_questions import Stream

BETA = 0.001
TAU = 0.05
READY, STEP = 100, 5
RATES = ((100, 0.2), (50, 0.5), (0, 2.0))
PUBLISHED = 0.05
ALPHAS = (0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1)


@dataclass(frozen=True)
class Outcome:
    """How far the budget went: how many questions of the stream were answered, their mean absolute error, and the share that was spent."""

    alpha: float
    answered: int
    error: float
    spent: float
    free: int


class Turbo:
    """One session of it, on a dense histogram."""

    def __init__(self, shape: tuple[int, ...], *, rows: int, alpha: float, rho: float, seed: int) -> None:
        self._weights = np.full(shape, 1 / math.prod(shape))
        self._updates = np.zeros(shape)
        self._needed = np.full(shape, float(READY))
        self._rows, self._alpha = rows, alpha
        self._gate = 4 * math.log(1 / BETA) / (rows * alpha)
        self._direct = math.log(1 / BETA) / (rows * alpha)
        self._threshold: float | None = None
        self._rng = np.random.default_rng([seed, 41])
        self.rho, self.spent, self.free = rho, 0.0, 0

    def run(self, asked: Stream) -> Outcome:
        """Answer the stream until the budget is spent."""
        cache: dict[int, float] = {}
        errors: list[float] = []
        for place in asked.places.tolist():
            if place not in cache:
                found = self._answer(asked, place)
                if found is None:
                    break
                cache[place] = found
            errors.append(abs(cache[place] - asked.pool[place].truth))
        error = float(np.mean(errors)) if errors else math.nan
        return Outcome(self._alpha, len(errors), error, self.spent / self.rho, self.free)

    def _answer(self, asked: Stream, place: int) -> float | None:
        """Return an answer in rows; None if it cannot be paid for."""
        query, every = asked.pool[place], [np.arange(size) for size in self._weights.shape]
        for axis, cells in zip(query.axes, query.cells, strict=True):
            every[axis] = np.flatnonzero(cells)
        box = np.ix_(*every)
        known = float(self._weights[box].sum())
        if bool((self._updates[box] >= self._needed[box]).all()):
            if self._threshold is None:
                if not self._pay(3 * self._gate):
                    return None
                self._threshold = self._alpha / 2 + self._rng.laplace(0, 1 / (self._gate * self._rows))
            noise = self._rng.laplace(0, 1 / (self._gate * self._rows))
            if abs(query.truth / self._rows - known) + noise < self._threshold:
                self.free += 1
                return known * self._rows
            self._threshold = None
            self._needed[box] = self._updates[box].min() + STEP
        if not self._pay(self._direct):
            return None
        noisy = query.truth / self._rows + self._rng.laplace(0, 1 / (self._direct * self._rows))
        self._learn(box, noisy - known)
        return min(max(noisy, 0.0), 1.0) * self._rows

    def _learn(self, box: tuple[np.ndarray, ...], difference: float) -> None:
        if abs(difference) <= TAU * self._alpha:
            return
        least = self._updates[box].min()
        rate = next(rate for updates, rate in RATES if least >= updates) / 8
        self._weights[box] *= math.exp(math.copysign(rate, difference))
        self._weights /= self._weights.sum()
        self._updates[box] += 1

    def _pay(self, epsilon: float) -> bool:
        price = epsilon**2 / 2
        if self.spent + price > self.rho:
            return False
        self.spent += price
        return True


def published_and_best(
    asked: Stream, shape: tuple[int, ...], *, rows: int, rho: float, seed: int
) -> tuple[Outcome, Outcome | None]:
    """Return the outcome for the published alpha, and for the smallest alpha with which the budget lasts for the whole stream."""

    def outcome(alpha: float) -> Outcome:
        return Turbo(shape, rows=rows, alpha=alpha, rho=rho, seed=seed).run(asked)

    # A budget that cannot even pay for each distinct question directly may still last, if the gate lets many through.
    found = (outcome(alpha) for alpha in ALPHAS)
    return outcome(PUBLISHED), next((each for each in found if each.answered == len(asked.places)), None)
