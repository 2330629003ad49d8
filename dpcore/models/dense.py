"""A model that stores the weight of every cell of the universe: exact, for universes of up to a hundred million cells."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models.exchange import Codes, Pairs, random_pairs
from dpcore.models.model import Model, Rows, Weights
from dpcore.models.passes import sum_to
from dpcore.models.systematic import sample_chunks

MAX_CELLS = 100_000_000
AS_LIKELY = 0.1  # of two rows: the part of their likelihood that they keep, at least, when they exchange values


class DenseModel(Model):
    """The multiplicative-weights distribution, as an n-dimensional array of weights. A marginal reads the array once.

    >>> model = DenseModel((2, 3), total=6.0)
    >>> model.assign({(0,): np.log([1.0, 2.0])})
    >>> model.marginal((0,)).round(6).tolist()
    [2.0, 4.0]
    """

    PER_CELL = 0.5

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        total: float,
        start: Mapping[Axes, Weights] = MappingProxyType({}),
        zeros: Zeros = NO_ZEROS,
    ) -> None:
        """Start from the uniform distribution over all possible cells, or from the one proportional to exp of the sum of `start`.

        Raises:
            UsageError: The universe has too many cells, an axis is empty, or the total is not a positive number.
        """
        super().__init__(Resolutions(shape), total=total, zeros=zeros)
        cells = math.prod(shape)
        if cells > MAX_CELLS:
            raise UsageError(
                f"A dense model of {cells:,} cells is too large, at most {MAX_CELLS:,} are possible: "
                "declare fewer columns, or coarser ones (larger widths, fewer categories)."
            )
        self._weights: Weights = np.full(shape, 1.0 / cells)
        self._mass = 1.0  # the sum of the weights
        self._start = _shared_spread(start, shape) if start else None  # a logarithm
        if start or zeros.possible:
            self.assign({})

    @property
    def weights(self) -> Weights:
        """The probabilities of all cells as a read-only view, which is valid until the model is assigned again."""
        if self._mass != 1.0:
            self._weights /= self._mass
            self._mass = 1.0
        view = self._weights.view()
        view.flags.writeable = False
        return view

    def marginal(self, axes: Axes) -> Weights:
        """Return the counts that the model expects in every cell of these columns, in one pass."""
        _check_axes(axes, self._weights.ndim)
        return self._counts(sum_to(self._weights, axes), mass=self._mass)

    def marginals(self, sets: Iterable[Axes]) -> dict[Axes, Weights]:
        """Return several marginals, in the given order. Sets that lack an axis share the sums over it, which saves most passes."""
        asked = tuple(dict.fromkeys(sets))
        sums = {tuple(range(self._weights.ndim)): self._weights}
        _take_sums(self._weights, _shared_sums(self._weights.shape, asked), sums)
        return {axes: self._counts(sums[axes], mass=self._mass) for axes in asked}

    def assign(self, functions: Mapping[Axes, Weights]) -> None:
        """Make the distribution proportional to the start times exp of a sum of functions, each of some columns."""
        for axes in functions:
            _check_axes(axes, self._weights.ndim)
        logarithm = _shared_spread(self._zeros.added(functions), self._weights.shape)
        if self._start is not None:
            logarithm += self._start
        logarithm -= logarithm.max()
        np.exp(logarithm, out=self._weights)
        self._mass = float(self._weights.sum())

    def _drawn(self, count: int, *, rng: np.random.Generator) -> Iterator[Rows]:
        return (np.unravel_index(cells, self.shape) for cells in sample_chunks(self.weights.ravel(), count, rng=rng))

    def _is_worth_exchanging(self, axes: Axes) -> bool:
        del axes
        return True

    def _pairs(self, codes: Sequence[Codes], column: int, *, rng: np.random.Generator) -> Pairs:
        """Pair any two rows that stay about as likely as they were."""
        rows, partners = random_pairs(codes[column], np.zeros(len(codes[column]), dtype=np.int64), rng=rng)
        weights, cells = self.weights.ravel(), np.ravel_multi_index(codes, self.shape)
        apart = (codes[column][partners] - codes[column][rows]) * math.prod(self.shape[column + 1 :])
        first, second = (
            weights[cells[places] + step] / weights[cells[places]]
            for places, step in ((rows, apart), (partners, -apart))
        )
        likely = first * second >= AS_LIKELY  # no drawn row has weight zero
        return rows[likely], partners[likely]


def _check_axes(axes: Axes, dimensions: int) -> None:
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < dimensions for axis in axes):
        raise UsageError(f"axes must be ascending positions from 0 to {dimensions - 1}, each named once")


class _Sum(NamedTuple):
    """A step of a plan: keep some axes of an array, by their place in it, and go on from the result."""

    places: Axes
    axes: Axes
    is_asked: bool
    further: tuple["_Sum", ...]


@lru_cache(maxsize=64)  # a fit takes the same sums thousands of times
def _shared_sums(shape: tuple[int, ...], asked: tuple[Axes, ...]) -> tuple[_Sum, ...]:
    """Plan the sums of an array to each asked set of its axes."""
    for axes in asked:
        _check_axes(axes, len(shape))
    return tuple(_sums_from(tuple(range(len(shape))), shape, asked=set(asked)))


def _sums_from(axes: Axes, shape: tuple[int, ...], *, asked: set[Axes]) -> Iterator[_Sum]:
    """Yield the sums that lead from an array with these axes to each asked set of them."""
    left = asked - {axes}
    while left:
        # Sum out the axis that most sets lack; among equals the longest, which leaves the smallest array.
        _, _, absent = max((sum(axis not in target for target in left), shape[axis], axis) for axis in axes)
        group = {target for target in left if absent not in target}
        union = tuple(axis for axis in axes if any(axis in target for target in group))
        further = tuple(_sums_from(union, shape, asked=group))
        yield _Sum(tuple(axes.index(axis) for axis in union), union, union in group, further)
        left -= group


def _take_sums(array: Weights, plan: tuple[_Sum, ...], sums: dict[Axes, Weights]) -> None:
    """Add the asked sums of an array to `sums`."""
    for step in plan:
        reduced = sum_to(array, step.places)
        if step.is_asked:
            sums[step.axes] = reduced
        _take_sums(reduced, step.further, sums)


def _shared_spread(functions: Mapping[Axes, Weights], shape: tuple[int, ...]) -> Weights:
    """Return the sum of functions, broadcast to all axes. Functions that lack an axis are added up before they are broadcast along it."""
    shapes, added, spread = _spreads(shape, tuple(functions))
    sums: dict[int, Weights] = {0: np.zeros(shape)}

    def add(to: int, function: Weights) -> None:
        if to not in sums:
            sums[to] = np.zeros(shapes[to])
        sums[to] += function

    for function, (to, functions_shape) in zip(functions.values(), added, strict=True):
        add(to, function.reshape(functions_shape))
    for source, to in spread:
        add(to, sums.pop(source))
    return sums[0]


@lru_cache(maxsize=64)  # likewise
def _spreads(
    shape: tuple[int, ...], sets: tuple[Axes, ...]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, tuple[int, ...]], ...], tuple[tuple[int, int], ...]]:
    """Plan the sum of functions of sets of axes.

    Return the shapes of the sums that it takes, of which the first is the result; for each function the sum that it is added to, and its
    shape there; and then which sums are added to which.
    """
    everywhere = range(len(shape))
    longest_first = sorted(everywhere, key=lambda axis: -shape[axis])
    places: dict[Axes, int] = {(): 0}

    def place(absent: Axes) -> int:
        return places.setdefault(absent, len(places))

    added = tuple(
        (
            place(tuple(axis for axis in longest_first if axis not in axes)),
            tuple(shape[axis] if axis in axes else 1 for axis in everywhere),
        )
        for axes in sets
    )
    spread = tuple(
        (places[absent], place(absent[:-1]))
        for count in range(len(shape), 0, -1)
        for absent in [key for key in places if len(key) == count]
    )
    shapes = tuple(tuple(1 if axis in absent else shape[axis] for axis in everywhere) for absent in places)
    return shapes, added, spread
