"""Choose the marginals that are worth their noise, and how many of them to measure, by the error that the noise would cause.

All of it is public: it follows from the sizes of the columns, the budget, and the noisy number of rows.
"""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from dpcore.marginals.measurements import LEAST_NOISE
from dpcore.marginals.workload import Axes

ABSOLUTE = math.sqrt(2 / math.pi)  # the mean absolute value of noise of standard deviation 1
ROOM = 1.0  # a marginal is worth measuring while its expected noise in all cells is below this many times the rows
# Chosen on the tables of benchmarks/never_less.py and on Adult with seven columns, see docs/decisions/0006.
TOLERABLE = 1.15  # larger marginals are measured only if they make smaller ones at most this many times as noisy
ORDER_WITHOUT_PARTS = 3  # marginals of more columns are measured only together with their parts
FEWER_CELLS = 4  # and only if they have this many times fewer cells than others may have
MANY = 3  # smaller ones too are measured with their parts, unless each part lies within this many of them


def worth_cells(rows: float, noise: float) -> float:
    """Return the most cells of a marginal that is worth measuring with this noise."""
    return ROOM * rows / (ABSOLUTE * max(noise, LEAST_NOISE))


@dataclass(frozen=True)
class Budget:
    """What the rounds of a run have to spend, and on how many rows.

    Attributes:
        rows: About how many rows there are.
        alone: The noise of one marginal that got all of the rounds' budget.
        power: The noise grows with this power of the number of rounds: 1/2 for Gaussian noise, 1 for Laplace noise.
        most: The most rounds.
    """

    rows: float
    alone: float
    power: float
    most: int

    def most_cells(self, rounds: int) -> float:
        """Return the most cells of a marginal that is worth its noise, if so many are measured."""
        return worth_cells(self.rows, self.alone * math.pow(rounds, self.power))


@dataclass(frozen=True)
class Choice:
    """The marginals that rounds select from, and the number of rounds. There are none if the noise would swamp every marginal.

    `worth` are all marginals that are worth their noise: also those within a larger one, which need not be measured themselves.
    """

    sets: tuple[Axes, ...]
    worth: frozenset[Axes]
    rounds: int


def choose(sets: Iterable[Axes], shape: Sequence[int], *, weights: Mapping[Axes, int], budget: Budget) -> Choice:
    """Choose among a workload's marginals of two columns or more, with all their parts.

    Start with pairs, and go on to larger marginals, which contain their parts, as long as they are worth their noise and leave about as
    much information on the smaller ones: a count that is a sum of many noisy counts has more noise than a count that was measured itself.
    If they leave less, measure the smaller ones too; and if that is not enough, leave the larger ones out.

    Args:
        sets: The marginals, of two columns or more. All parts of a marginal that have two columns or more are in it.
        shape: The number of cells of each column.
        weights: The weight of each marginal. A part that weighs more than the whole counts as a marginal of its own.
        budget: The budget, the rows and the limits.
    """
    by_order: defaultdict[int, list[Axes]] = defaultdict(list)
    for axes in sets:
        by_order[len(axes)].append(axes)
    cells = {axes: math.prod(map(shape.__getitem__, axes)) for axes in chain.from_iterable(by_order.values())}
    chosen: tuple[Axes, ...] = ()
    worth: frozenset[Axes] = frozenset()
    candidates: list[Axes] = []
    for order in sorted(by_order):
        candidates += by_order[order]
        fitting = _fitting(candidates, cells, budget)
        if chosen and not any(len(axes) == order for axes in fitting):
            break
        larger = _largest(fitting, weights)
        both = tuple(dict.fromkeys([*chosen, *larger]))
        tried = (larger, both) if order <= ORDER_WITHOUT_PARTS and _within_many(chosen, larger) else (both,)
        better = next((option for option in tried if _noise_ratio(option, chosen, cells, budget) <= TOLERABLE), None)
        if better is None:
            break
        chosen, worth = better, frozenset(fitting)
    return Choice(chosen, worth, rounds=min(budget.most, len(chosen)))


def _fitting(sets: Sequence[Axes], cells: Mapping[Axes, int], budget: Budget) -> list[Axes]:
    """Return the marginals that are worth their noise, if as many rounds are made as there are of them."""
    sizes = sorted(cells[axes] for axes in sets)
    for rounds in range(min(budget.most, len(sets)), 0, -1):
        most = budget.most_cells(rounds)
        if bisect_right(sizes, most) >= rounds:
            large = most / FEWER_CELLS
            return [axes for axes in sets if cells[axes] <= (most if len(axes) <= ORDER_WITHOUT_PARTS else large)]
    return []


def _largest(sets: Collection[Axes], weights: Mapping[Axes, int]) -> tuple[Axes, ...]:
    """Drop each marginal that lies within another of at least its weight.

    >>> _largest([(0, 1), (1, 2), (0, 1, 3)], {(0, 1): 1, (1, 2): 1, (0, 1, 3): 1})
    ((1, 2), (0, 1, 3))
    """
    # All parts of a marginal weigh no less, and are here too: so it suffices to compare with one column more.
    inside = {
        part
        for axes in sets
        for part in combinations(axes, len(axes) - 1)
        if weights.get(part, 1) == weights.get(axes, 1)
    }
    return tuple(axes for axes in sets if axes not in inside)


def _within_many(sets: Iterable[Axes], larger: Sequence[Axes]) -> bool:
    """Return whether each set is one of the larger ones, or lies within several of them.

    >>> pairs, triples = ([tuple(axes) for axes in combinations(range(5), order)] for order in (2, 3))
    >>> _within_many(pairs, triples), _within_many(pairs, triples[:-1])
    (True, False)
    """
    around = Counter(part for axes in larger for part in combinations(axes, len(axes) - 1))
    among_larger = set(larger)
    return all(axes in among_larger or around[axes] >= MANY for axes in sets)


def _noise_ratio(sets: Sequence[Axes], before: Sequence[Axes], cells: Mapping[Axes, int], budget: Budget) -> float:
    """Return how many times as much noise the marginals of `before` get on average, if `sets` are measured instead of them."""
    if not before:
        return 0.0
    return _noise(sets, before, cells, budget) / _noise(before, before, cells, budget)


def _noise(measured: Sequence[Axes], asked: Sequence[Axes], cells: Mapping[Axes, int], budget: Budget) -> float:
    """Return the sum of the expected noise of the asked marginals in all their cells, up to a factor, from the measured ones that contain them."""
    precisions: dict[Axes, float] = dict.fromkeys(asked, 0.0)
    orders = {len(axes) for axes in asked}
    for axes in measured:
        for order in orders:
            for part in combinations(axes, order):
                if part in precisions:
                    precisions[part] += cells[part] / cells[axes]
    rounds = min(len(measured), budget.most)
    fraction = rounds / len(measured)  # that is really measured
    return sum(
        cells[axes] * rounds**budget.power / math.sqrt(fraction * precision) if precision else math.inf
        for axes, precision in precisions.items()
    )
