"""A model that stores functions of measured marginals instead of cells: exact, for universes of any size.

Repeated multiplication by functions of marginals leaves a distribution that is proportional to a product of one function per marginal.
Such a distribution factorises along a junction tree: each clique holds the marginal of its axes, and neighbouring cliques are independent
given the axes they share. Memory and time grow with the cells of the cliques, never with those of the universe.

References: Lauritzen and Spiegelhalter 1988 (message passing); McKenna, Sheldon and Miklau 2019 (private marginals by graphical models).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.marginals.zeros import NO_ZEROS, Zeros, added
from dpcore.models.exchange import Codes, Pairs, numbered, random_pairs
from dpcore.models.factored.across import Across
from dpcore.models.factored.calibration import Calibration
from dpcore.models.factored.moves import Moves
from dpcore.models.factored.projection import projection
from dpcore.models.factored.sampling import draw_chunks
from dpcore.models.factored.scopes import Scope, Scopes, inside
from dpcore.models.factored.tree import JunctionTree, cliques_of
from dpcore.models.model import Matrix, Model, Rows, Weights

BYTES_PER_CELL = 8
# The cells of all arrays that a marginal takes by which rows exchange values. One in ten takes more, up to a hundred times as many.
MOST_WORK = 1 << 24


class FactoredModel(Model):
    """The distribution proportional to exp of a sum of functions, each of a few axes.

    >>> model = FactoredModel(Resolutions((2, 3, 10)), total=6.0)
    >>> model.assign({(0, 1): np.log([[1.0, 1.0, 1.0], [1.0, 1.0, 7.0]])})
    >>> model.marginal((0,)).round(6).tolist()
    [1.5, 4.5]
    >>> model.cells
    16
    """

    PER_CELL = 0.9

    def __init__(
        self,
        resolutions: Resolutions,
        *,
        total: float,
        start: Mapping[Axes, Weights] = MappingProxyType({}),
        zeros: Zeros = NO_ZEROS,
    ) -> None:
        """Start from the uniform distribution over all possible cells, or from the one proportional to exp of the sum of `start`.

        The columns of a constraint lie in one clique.
        """
        super().__init__(resolutions, total=total, zeros=zeros)
        self._scopes = Scopes(resolutions)
        self._moves = Moves(resolutions)
        self._needed: list[Scope] = list(self._scopes.single)
        self._covered: set[Scope] = set()  # scopes known to lie within one of the needed ones
        self._orders: dict[tuple[Axes, ...], list[tuple[Axes, Axes | None]]] = {}
        self._plant(cliques_of(self._needed, self._scopes.cells))
        self._start = start
        self.make_room_in_turn(start)
        self.assign({})

    def __copy__(self) -> "FactoredModel":
        """Return a model with the same tree and distribution. Either can change without the other; trees themselves never change."""
        twin = object.__new__(FactoredModel)
        twin.__dict__.update(self.__dict__)
        twin._covered = set(self._covered)
        return twin

    @property
    def cells(self) -> int:
        """The number of cells of all cliques together."""
        return self._tree.cells

    def cells_with(self, axes: Axes) -> int:
        """Return an upper bound on the number of cells after adding a function of these axes. Nothing is built."""
        scope = self._scopes.of(axes)
        if scope not in self._forecasts:
            self._forecasts[scope] = self._tree.cells_with(scope)
        return self._forecasts[scope]

    def scope(self, axes: Axes) -> Scope:
        """Return the axes that these axes determine: a column determines its coarser versions."""
        return self._scopes.of(axes)

    def assign(self, functions: Mapping[Axes, Weights]) -> None:
        """Make the distribution proportional to the start times exp of a sum of functions, each of some axes.

        Raises:
            UsageError: Two axes of a function are of the same column, its shape does not match its axes, or an entry is not finite.
        """
        for axes, function in functions.items():
            self._check(axes, function)
        logarithms = self._zeros.added(added(self._start, functions))
        self.make_room(logarithms)
        self._beliefs = self._calibration(tuple(logarithms)).beliefs(logarithms)
        self._across = Across(self._tree, self._beliefs.cliques, self._scopes, self._moves)

    def make_room(self, sets: Iterable[Axes]) -> None:
        """Rebuild the tree so that every set lies in a clique.

        A single new set is added by changing part of the old tree or by a new tree, whichever is smaller. Several sets need a new tree.
        The distribution is undefined until it is assigned again.
        """
        homeless: list[Scope] = []
        for scope in map(self._scopes.of, sets):
            if scope in self._covered:
                continue
            self._covered.add(scope)
            if any(inside(scope, part) for part in self._needed):
                continue
            self._needed = [*(part for part in self._needed if not inside(part, scope)), scope]
            if self._tree.home(scope) is None:
                homeless.append(scope)
        if homeless:
            cells = self._scopes.cells
            choices = [cliques_of(self._needed, cells)]
            if len(homeless) == 1:
                choices.insert(0, self._tree.cliques_with(homeless[0]))
            self._plant(min(choices, key=lambda cliques: sum(map(cells, cliques))))

    def marginal(self, axes: Axes) -> Weights:
        """Return the counts that the model expects in every cell of these axes, which must be of different columns.

        The array has the axes in the given order. Without axes it is a scalar array with the total.

        Raises:
            UsageError: There is no such axis, or two axes are of the same column.
        """
        known = self._beliefs.functions.get(axes)
        if known is not None:
            return self._counts(known)
        home = self._home(axes)
        if home is None:
            return self._counts(self._across.marginal(axes))
        return self._counts(self._moves.sum(self._beliefs.cliques[home], self._tree.axes[home], axes))

    def projected(self, columns: Axes, matrices: Sequence[Matrix]) -> Weights:
        """Return a marginal of some columns, multiplied along each by a matrix, without computing it cell by cell.

        >>> model = FactoredModel(Resolutions((2, 4)), total=8.0)
        >>> model.projected((0, 1), [None, np.array([[1.0], [1.0], [1.0], [0.0]])]).tolist()
        [[3.0], [3.0]]
        """
        return self._counts(projection(self._across, columns, matrices)) if columns else self.marginal(columns)

    def marginals(self, sets: Iterable[Axes]) -> dict[Axes, Weights]:
        """Return several marginals, in the given order. One that lies within another is summed from it, not from a whole clique."""
        asked = tuple(sets)
        marginals: dict[Axes, Weights] = {}
        for axes, larger in self._sources(asked):
            if larger is None or axes in self._beliefs.functions:
                marginals[axes] = self.marginal(axes)
            else:
                marginals[axes] = np.array(self._moves.sum(marginals[larger], larger, axes), order="C")
        return {axes: marginals[axes] for axes in asked}

    def _sources(self, sets: tuple[Axes, ...]) -> list[tuple[Axes, Axes | None]]:
        """Return each set once, with the smallest other set that contains it, if any. That set comes first."""
        if sets not in self._orders:
            largest_first = sorted(dict.fromkeys(sets), key=self.resolutions.cells, reverse=True)
            self._orders[sets] = [
                (axes, self._smallest_around(axes, largest_first[:place])) for place, axes in enumerate(largest_first)
            ]
        return self._orders[sets]

    def _drawn(self, count: int, *, rng: np.random.Generator) -> Iterator[Rows]:
        return draw_chunks(self._tree, self._beliefs.cliques, self._scopes, count, rng=rng)

    def _is_worth_exchanging(self, axes: Axes) -> bool:
        """Return whether a marginal lies in no clique, and can be computed with little memory."""
        return self._home(axes) is None and self._across.work(axes) <= MOST_WORK

    def _pairs(self, codes: Sequence[Codes], column: int, *, rng: np.random.Generator) -> Pairs:
        """Pair rows that agree on all axes in a clique with the column.

        Given these, the column is independent of all others. So the rows stay as likely as they were, and no clique changes.
        """
        return random_pairs(codes[column], self._agreeing(codes, column), rng=rng)

    def _agreeing(self, codes: Sequence[Codes], column: int) -> Codes:
        """Number the groups of rows that agree on all axes in a clique with a column."""
        of, scope = self.resolutions, 0
        for clique, axes in zip(self._tree.cliques, self._tree.axes, strict=True):
            if any(of.column(axis) == column for axis in axes):
                scope |= clique
        others = [(of.column(axis), axis) for axis in self._scopes.axes(scope) if of.column(axis) != column]
        return numbered(((of.groups(its, axis)[codes[its]], of.shape[axis]) for its, axis in others), len(codes[0]))

    def _check(self, axes: Axes, function: Weights) -> None:
        self._scopes.of(axes)  # raises unless these are axes of different columns
        shape = self.resolutions.shape_of(axes)
        if function.shape != shape:
            raise UsageError(
                f"A function of shape {function.shape} does not match axes of shape {shape}: give it one entry per cell."
            )
        if not np.isfinite(function).all():
            raise UsageError(
                "A function has an entry that is not finite: use a low number, such as -1000, where there can be no rows."
            )

    def _plant(self, cliques: list[Scope]) -> None:
        self._tree = JunctionTree(cliques, self._scopes)
        self._homes: dict[Axes, int | None] = {}
        self._forecasts: dict[Scope, int] = {}
        self._calibrations: dict[tuple[Axes, ...], Calibration] = {}

    def _home(self, axes: Axes) -> int | None:
        if axes not in self._homes:
            self._homes[axes] = self._tree.home(self._scopes.of(axes))
        return self._homes[axes]

    def _calibration(self, sets: tuple[Axes, ...]) -> Calibration:
        if sets not in self._calibrations:
            homes = {axes: home for axes in sets if (home := self._home(axes)) is not None}
            if len(homes) < len(sets):
                raise AssertionError("a triangulated graph has a clique for every set that it was built from")
            self._calibrations[sets] = Calibration(homes, self._tree, self._scopes, self._moves)
        return self._calibrations[sets]

    def _smallest_around(self, axes: Axes, largest_first: Sequence[Axes]) -> Axes | None:
        scope = self._scopes.of(axes)
        return next((larger for larger in reversed(largest_first) if inside(scope, self._scopes.of(larger))), None)
