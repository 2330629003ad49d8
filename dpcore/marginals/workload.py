"""Workloads: the marginals of the universe that analysts will query."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations, repeat
from types import MappingProxyType

Axes = tuple[int, ...]

MOST_WEIGHT = 100
"""The largest weight of a marginal. It keeps the weighted errors of selections within 64-bit integers."""


@dataclass(frozen=True)
class Workload:
    """The marginals that matter, each as the sorted indices of its attributes in the universe.

    A part of a marginal is a marginal over some of its attributes. There may be a million parts, so they are computed once, on
    first use.

    Attributes:
        marginals: The marginals, without duplicates.
        weights: The weight of each marginal, an integer from 1 to MOST_WEIGHT.
        target: The attribute whose pairs with others are learned first, if any.
        ranges: The attributes on which range counts (up to a value, or between two) matter.

    >>> Workload.all_of(attributes=3, order=2).marginals
    ((0, 1), (0, 2), (1, 2))
    """

    marginals: tuple[Axes, ...]
    weights: tuple[int, ...]
    target: int | None = None
    ranges: tuple[int, ...] = ()

    @classmethod
    def all_of(
        cls, *, attributes: int, order: int, target: int | None = None, ranges: Iterable[int] = ()
    ) -> "Workload":
        """Return all marginals of `order` attributes, or of all attributes if there are fewer. With a target, only those that contain it.

        >>> Workload.all_of(attributes=4, order=2, target=1).marginals
        ((0, 1), (1, 2), (1, 3))
        """
        every = combinations(range(attributes), min(order, attributes))
        return cls.of((axes for axes in every if target is None or target in axes), target=target, ranges=ranges)

    @classmethod
    def of(
        cls,
        marginals: Iterable[Iterable[int]],
        *,
        weights: Iterable[int] | None = None,
        target: int | None = None,
        ranges: Iterable[int] = (),
    ) -> "Workload":
        """Return the listed marginals without duplicates, each with the largest of its weights. Without weights, all weigh the same.

        >>> Workload.of([(0, 1), (2, 1), (1, 0)], weights=[1, 1, 3])
        Workload(marginals=((0, 1), (1, 2)), weights=(3, 1), target=None, ranges=())
        """
        listed = [tuple(sorted(set(marginal))) for marginal in marginals]
        heaviest: dict[Axes, int] = {}
        for axes, weight in zip(listed, [1] * len(listed) if weights is None else weights, strict=True):
            heaviest[axes] = max(weight, heaviest.get(axes, weight))
        return cls(tuple(heaviest), tuple(heaviest.values()), target=target, ranges=tuple(sorted(set(ranges))))

    def telling(self, sizes: Sequence[int]) -> "Workload":
        """Return the workload without columns of a single cell, which carry no information. If all columns have one cell, return it unchanged.

        >>> Workload.of([(0, 1), (1, 2)]).telling([2, 1, 3]).marginals
        ((0,), (2,))
        """
        if min(sizes) > 1:
            return self
        left = [tuple(axis for axis in axes if sizes[axis] > 1) for axes in self.marginals]
        weights = [weight for axes, weight in zip(left, self.weights, strict=True) if axes]
        if not weights:
            return self
        ranges = [axis for axis in self.ranges if sizes[axis] > 1]
        return Workload.of(filter(None, left), weights=weights, target=self.target, ranges=ranges)

    def weighted_parts(self) -> Mapping[Axes, int]:
        """Return every part of the workload's marginals, with the sum of the weights of the marginals that contain it.

        >>> Workload.all_of(attributes=3, order=2).weighted_parts()[(0,)]
        2
        """
        return MappingProxyType(self._weighted_parts)

    def largest_weights(self) -> dict[Axes, int]:
        """Return every part of the workload's marginals, with the largest weight of the marginals that contain it.

        >>> Workload.of([(0, 1), (1, 2)], weights=[3, 1]).largest_weights()
        {(0,): 3, (1,): 3, (0, 1): 3, (2,): 1, (1, 2): 1}
        """
        if len(set(self.weights)) == 1:
            return dict.fromkeys(self._weighted_parts, self.weights[0])
        largest: dict[Axes, int] = {}
        for axes, weight in zip(self.marginals, self.weights, strict=True):
            for part in _parts_of(axes):
                largest[part] = max(weight, largest.get(part, weight))
        return largest

    def parts(self) -> tuple[Axes, ...]:
        """Return every part of the workload's marginals, smaller ones first.

        >>> Workload.of([(0, 1)]).parts()
        ((0,), (1,), (0, 1))
        """
        return self._sorted_parts

    def target_pairs(self) -> tuple[Axes, ...]:
        """Return the pairs of the target with another column that are parts of the workload. These are learned first.

        >>> Workload.all_of(attributes=4, order=3, target=1).target_pairs()
        ((0, 1), (1, 2), (1, 3))
        """
        return tuple(part for part in self.parts() if len(part) == 2 and self.target in part)

    @cached_property
    def _weighted_parts(self) -> dict[Axes, int]:
        if len(set(self.weights)) == 1:  # counting is enough, and much faster
            counted: Counter[Axes] = Counter()
            for size in range(1, max(map(len, self.marginals)) + 1):
                counted.update(chain.from_iterable(map(combinations, self.marginals, repeat(size))))
            return {part: count * self.weights[0] for part, count in counted.items()}
        sums: dict[Axes, int] = {}
        for axes, weight in zip(self.marginals, self.weights, strict=True):
            for part in _parts_of(axes):
                sums[part] = sums.get(part, 0) + weight
        return sums

    @cached_property
    def _sorted_parts(self) -> tuple[Axes, ...]:
        return tuple(sorted(sorted(self._weighted_parts), key=len))


def _parts_of(axes: Axes) -> Iterator[Axes]:
    return chain.from_iterable(combinations(axes, size) for size in range(1, len(axes) + 1))
