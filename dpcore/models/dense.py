"""A model that stores the weight of every cell of the universe: exact, for universes of up to a hundred million cells."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models.exchange import Pairs, exchange, random_pairs, sets_worth
from dpcore.models.model import RowCodes, Weights, checked_total
from dpcore.models.passes import scale_along, sum_to
from dpcore.models.systematic import Cells, sample_cells, sample_chunks

MAX_CELLS = 100_000_000
AS_LIKELY = 0.1  # of two rows: the part of their likelihood that they keep, at least, when they exchange values

_SAFE = 1e-100, 1e100  # the array is normalised when its mass leaves this range


class DenseModel:
    """The multiplicative-weights distribution, as an n-dimensional array of weights.

    A marginal reads the array once; a multiplication reads and writes it once. Normalising needs no extra pass: the array need not add up
    to one, because the mass that a factor leaves is known in advance from the marginal on its axes. Every multiplication computes that mass
    afresh, so rounding errors do not accumulate over thousands of them. The array itself is normalised only when the mass leaves the range
    from 1e-100 to 1e100, and when `weights` is read.

    >>> model = DenseModel((2, 3), total=6.0)
    >>> model.multiply((0,), np.array([1.0, 2.0]))
    >>> model.marginal((0,)).round(6).tolist()
    [2.0, 4.0]
    """

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
        cells = math.prod(shape)
        if any(size < 1 for size in shape):
            raise UsageError("An axis of a model has no cells: give every column at least one.")
        if cells > MAX_CELLS:
            raise UsageError(
                f"A dense model of {cells:,} cells is too large, at most {MAX_CELLS:,} are possible: "
                "declare fewer columns, or coarser ones (larger widths, fewer categories)."
            )
        self._weights: Weights = np.full(shape, 1.0 / cells)
        self._mass = 1.0  # the sum of the weights
        self._known: tuple[Axes, Weights] | None = None  # the last marginal, until the weights change
        self._start = _shared_spread(start, shape) if start else None  # a logarithm
        self._zeros = zeros
        self._possible: dict[Axes, NDArray[np.bool_] | None] = {}
        self.rescale(total)
        if start or zeros.possible:
            self.assign({})

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of cells of every column."""
        return self._weights.shape

    @property
    def total(self) -> float:
        """Return the number of rows that all marginals add up to."""
        return self._total

    @property
    def weights(self) -> Weights:
        """Return the probabilities of all cells as a read-only view, which is valid until the next multiplication."""
        self._normalise(self._mass)
        view = self._weights.view()
        view.flags.writeable = False
        return view

    def rescale(self, total: float) -> None:
        """Set the number of rows. The distribution does not change."""
        self._total = checked_total(total)

    def marginal(self, axes: Axes) -> Weights:
        """Return the counts that the model expects in every cell of these columns, in one pass."""
        return self._counts(self._sums(axes))

    def marginals(self, sets: Iterable[Axes]) -> dict[Axes, Weights]:
        """Return several marginals, in the given order. Sets that lack an axis share the sums over it, which saves most passes."""
        wanted = tuple(dict.fromkeys(sets))
        found = {tuple(range(self._weights.ndim)): self._weights}
        _take_sums(self._weights, _shared_sums(self._weights.shape, wanted), found)
        return {axes: self._counts(found[axes]) for axes in wanted}

    def multiply(self, axes: Axes, factor: Weights) -> None:
        """Multiply the distribution by a function of these columns and renormalise it, in one pass if their marginal was read last.

        A weight of zero stays zero. A weight that underflows becomes zero.

        Raises:
            UsageError: The factor does not have the marginal's shape, has a negative or non-finite entry, or leaves no mass.
        """
        sums = self._sums(axes)
        factor = np.asarray(factor, dtype=np.float64, order="C")
        if factor.shape != sums.shape:
            raise UsageError(f"A factor of shape {factor.shape} does not suit a marginal of shape {sums.shape}.")
        mass = float(np.einsum("i,i->", sums.ravel(), factor.ravel()))
        if factor.min() >= 0 and _SAFE[0] < mass < _SAFE[1]:  # never true for a factor with a non-finite entry
            scale_along(self._weights, axes, factor=factor)
            self._mass = mass
        else:
            self._multiply_extreme(axes, factor)
        self._known = None

    def assign(self, functions: Mapping[Axes, Weights]) -> None:
        """Make the distribution proportional to the start times exp of a sum of functions, each of some columns."""
        for axes in functions:
            self._check(axes)
        logarithm = _shared_spread(self._zeros.added(functions), self._weights.shape)
        if self._start is not None:
            logarithm += self._start
        logarithm -= logarithm.max()
        np.exp(logarithm, out=self._weights)
        self._mass = float(self._weights.sum())
        self._known = None

    def possible(self, axes: Axes) -> NDArray[np.bool_] | None:
        """Return which cells of a marginal the constraints allow; None if all of them are possible."""
        if axes not in self._possible:
            self._possible[axes] = self._zeros.support(axes, Resolutions(self.shape))
        return self._possible[axes]

    def rows(self, count: int, *, rng: np.random.Generator) -> tuple[RowCodes, ...]:
        """Return the codes of `count` rows, one array per column, as close to the model as whole rows can be.

        >>> model = DenseModel((2, 2), total=1.0)
        >>> model.multiply((0,), np.array([1.0, 0.0]))
        >>> model.rows(3, rng=np.random.default_rng(1))[0].tolist()
        [0, 0, 0]
        """
        return self._codes(sample_cells(self.weights.ravel(), count, rng=rng))

    def row_chunks(
        self, count: int, *, rng: np.random.Generator, near: Sequence[Axes] = ()
    ) -> Iterator[tuple[RowCodes, ...]]:
        """Yield the same rows chunk by chunk, in memory that does not grow with their number.

        Unless there are many, they exchange values so that the marginals of `near` come closer to those of the model.
        """
        chunks = map(self._codes, sample_chunks(self.weights.ravel(), count, rng=rng))
        sets = sets_worth(near, self._cells_of, lambda _: True, count=count)
        return (self._exchanged(chunk, sets, rng=rng) for chunk in chunks) if sets else chunks

    def _cells_of(self, axes: Axes) -> int:
        return math.prod(self.shape[axis] for axis in axes)

    def _exchanged(
        self, rows: tuple[RowCodes, ...], sets: Sequence[Axes], *, rng: np.random.Generator
    ) -> tuple[RowCodes, ...]:
        """Exchange values between any two rows that stay about as likely as they were."""
        codes = [each.astype(np.int64) for each in rows]
        scale = len(codes[0]) / self._total
        wanted = {axes: scale * counts for axes, counts in self.marginals(sets).items()}
        weights, together = self.weights.ravel(), np.zeros(len(codes[0]), dtype=np.int64)

        def pairs(column: int) -> Pairs:
            one, two = random_pairs(codes[column], together, rng=rng)
            cells = np.ravel_multi_index(codes, self.shape)
            apart = (codes[column][two] - codes[column][one]) * math.prod(self.shape[column + 1 :])
            first, second = (
                weights[cells[row] + by] / weights[cells[row]] for row, by in ((one, apart), (two, -apart))
            )
            likely = first * second >= AS_LIKELY  # no drawn row has weight zero
            return one[likely], two[likely]

        exchange(codes, wanted, pairs, rng=rng)
        return tuple(codes)

    def _codes(self, cells: Cells) -> tuple[RowCodes, ...]:
        return tuple(codes.astype(np.int64, copy=False) for codes in np.unravel_index(cells, self.shape))

    def _multiply_extreme(self, axes: Axes, factor: Weights) -> None:
        """Multiply by a factor that leaves almost no mass or overflows: only where there is weight, scaled by its largest entry."""
        if not (np.isfinite(factor).all() and factor.min() >= 0):
            raise UsageError("A factor has a negative or non-finite entry: use finite numbers from zero up.")
        factor = np.where(self._sums(axes) > 0, factor, 0.0)
        highest = float(factor.max())
        if not highest:
            raise UsageError("A factor is zero wherever the model has weight: leave at least one possible cell.")
        scale_along(self._weights, axes, factor=factor / highest)
        self._normalise(float(self._weights.sum()))

    def _normalise(self, mass: float) -> None:
        if mass != 1.0:
            self._weights /= mass
        self._mass = 1.0
        self._known = None

    def _sums(self, axes: Axes) -> Weights:
        """Return the unscaled marginal, from the last call if the weights have not changed."""
        if self._known is None or self._known[0] != axes:
            self._check(axes)
            self._known = (axes, sum_to(self._weights, axes))
        return self._known[1]

    def _counts(self, sums: Weights) -> Weights:
        """Return an unscaled marginal as counts, in a new array."""
        return np.multiply(sums, self._total / self._mass, out=np.empty(sums.shape))

    def _check(self, axes: Axes) -> None:
        _check_axes(axes, self._weights.ndim)


def _check_axes(axes: Axes, dimensions: int) -> None:
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < dimensions for axis in axes):
        raise UsageError(f"axes must be ascending positions from 0 to {dimensions - 1}, each named once")


class _Sum(NamedTuple):
    """A step of a plan: keep some axes of an array, by their place in it, and go on from the result."""

    kept: Axes
    axes: Axes
    is_wanted: bool
    further: tuple["_Sum", ...]


@lru_cache(maxsize=64)  # a fit takes the same sums thousands of times
def _shared_sums(shape: tuple[int, ...], wanted: tuple[Axes, ...]) -> tuple[_Sum, ...]:
    """Plan the sums of an array to each wanted set of its axes."""
    for axes in wanted:
        _check_axes(axes, len(shape))
    return tuple(_sums_from(tuple(range(len(shape))), shape, wanted=set(wanted)))


def _sums_from(axes: Axes, shape: tuple[int, ...], *, wanted: set[Axes]) -> Iterator[_Sum]:
    """Yield the sums that lead from an array with these axes to each wanted set of them."""
    left = wanted - {axes}
    while left:
        # Sum out the axis that most sets lack; among equals the longest, which leaves the smallest array.
        _, _, absent = max((sum(axis not in one for one in left), shape[axis], axis) for axis in axes)
        group = {one for one in left if absent not in one}
        union = tuple(axis for axis in axes if any(axis in one for one in group))
        further = tuple(_sums_from(union, shape, wanted=group))
        yield _Sum(tuple(axes.index(axis) for axis in union), union, union in group, further)
        left -= group


def _take_sums(array: Weights, plan: tuple[_Sum, ...], found: dict[Axes, Weights]) -> None:
    """Add the wanted sums of an array to those found."""
    for each in plan:
        reduced = sum_to(array, each.kept)
        if each.is_wanted:
            found[each.axes] = reduced
        _take_sums(reduced, each.further, found)


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
