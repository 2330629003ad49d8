"""Convert arrays between sets of axes: sum to fewer and coarser axes, spread over more and finer axes.

Each conversion is planned once per pair of axes. Sums over whole columns come first and run at memory speed. Merging cells into groups and
looking groups up then work on the remaining small array.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights
from dpcore.models.passes import in_groups, looking_up, merging, reduced, sum_to


class _Coarser(NamedTuple):
    sums: Callable[[Weights], Weights]
    highest: Callable[[Weights], Weights]


class _Sum(NamedTuple):
    left: Axes  # places of the source
    dropped: Axes
    coarser: tuple[_Coarser, ...]
    turned: tuple[int, ...]  # places in the order of the target


class _Spread(NamedTuple):
    finer: tuple[Callable[[Weights], Weights], ...]
    turned: tuple[int, ...]
    shape: tuple[int, ...]


class Moves:
    """Sums and spreads arrays over the axes of some resolutions. An array has at most one axis per column."""

    def __init__(self, resolutions: Resolutions) -> None:
        self._resolutions = resolutions
        self._sums: dict[tuple[Axes, Axes], _Sum] = {}
        self._spreads: dict[tuple[Axes, Axes], _Spread] = {}

    def sum(self, array: Weights, source: Axes, target: Axes) -> Weights:
        """Sum an array to the target axes. Each target axis is an axis of the source or coarser than one."""
        if source == target:
            return array
        plan = self._sums.get((source, target)) or self._plan_sum(source, target)
        if plan.dropped:
            array = sum_to(np.ascontiguousarray(array), plan.left)
        for step in plan.coarser:
            array = step.sums(array)
        return array.transpose(plan.turned)

    def highest(self, array: Weights, source: Axes, target: Axes) -> Weights:
        """Return the maxima of an array where `sum` would return sums."""
        if source == target:
            return array.copy()
        plan = self._sums.get((source, target)) or self._plan_sum(source, target)
        array = np.asarray(np.maximum.reduce(array, axis=plan.dropped))
        for step in plan.coarser:
            array = step.highest(array)
        return array.transpose(plan.turned)

    def spread(self, array: Weights, source: Axes, target: Axes) -> Weights:
        """Reshape an array to broadcast over the target axes. Each is absent from the source, equal to a source axis, or finer."""
        if source == target:
            return array
        plan = self._spreads.get((source, target)) or self._plan_spread(source, target)
        for step in plan.finer:
            array = step(array)
        return array.transpose(plan.turned).reshape(plan.shape)

    def _plan_sum(self, source: Axes, target: Axes) -> _Sum:
        of = self._resolutions
        goals = {of.column(axis): axis for axis in target}
        left = tuple(place for place, axis in enumerate(source) if of.column(axis) in goals)
        coarser, result = [], []
        for place, axis in enumerate(source[at] for at in left):
            goal = goals[of.column(axis)]
            result.append(goal)
            if goal != axis:
                shape = of.shape_of((*result, *(source[at] for at in left[place + 1 :])))
                shape = (*shape[:place], of.shape[axis], *shape[place + 1 :])
                groups = of.groups(axis, goal)
                order, starts = in_groups(groups, of.shape[goal])
                highest = partial(reduced, place=place, order=order, starts=starts, reduce=np.maximum)
                coarser.append(_Coarser(merging(shape, place, groups, of.shape[goal]), highest))
        dropped = tuple(place for place in range(len(source)) if place not in left)
        plan = _Sum(left, dropped, tuple(coarser), tuple(result.index(axis) for axis in target))
        self._sums[source, target] = plan
        return plan

    def _plan_spread(self, source: Axes, target: Axes) -> _Spread:
        of = self._resolutions
        places = {of.column(axis): place for place, axis in enumerate(source)}
        turned: list[int] = []
        finer: list[Callable[[Weights], Weights]] = []
        own, shape = list(of.shape_of(source)), []
        for axis in target:
            place = places.get(of.column(axis))
            if place is None:
                shape.append(1)
                continue
            if source[place] != axis:
                finer.append(looking_up(own, place, of.groups(axis, source[place]), own[place]))
                own[place] = of.shape[axis]
            turned.append(place)
            shape.append(of.shape[axis])
        plan = _Spread(tuple(finer), tuple(turned), tuple(shape))
        self._spreads[source, target] = plan
        return plan
