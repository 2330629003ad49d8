"""Evaluate a query on all replicates of a release: each has its own model, and its own distribution of values within cells."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dpcore.answers.cut_bins import cuts_bins, sides_of_bins
from dpcore.answers.cut_leaves import CutLeaves, Sides
from dpcore.answers.evaluate import Marginal, combined, quantiles
from dpcore.answers.leaf_tree import LeafTree, TreeNoise
from dpcore.answers.merging import Merged, Merging, stacked, summed
from dpcore.answers.query import Aggregate, Count, Mean, Number, Quantile, Query, Sum, aggregates
from dpcore.answers.release import Release
from dpcore.answers.replicates import seed_of
from dpcore.answers.spreads import noisy, skewed, varies, with_hidden, with_noisy_week
from dpcore.answers.tilting import Resolved, Tilting, Valued
from dpcore.answers.uncertainty import Fit, Uncertainty
from dpcore.marginals.resolutions import Groups
from dpcore.marginals.workload import Axes
from dpcore.models import Model
from dpcore.models.model import Weights
from dpcore.universe.fine_days import FineDays
from dpcore.universe.leaves import Fine
from dpcore.universe.spread import Spread
from dpcore.universe.spreading import spread_of

KEPT_BYTES = 1 << 29  # of all models together; if they are larger, they are built again for every new set of columns
BYTES = 8
MOST_AT_ONCE = 1 << 22  # cells of the models that are evaluated together


@dataclass(frozen=True, eq=False)
class Tilted:
    """A number whose groups are tilted within cells.

    Attributes:
        value: The number by the released model.
        differences: Its differences from the pilot's in each replicate.
        below: How far it may be below that, because it is uncertain how values lie within cells.
        above: How far it may be above that.
    """

    value: Weights
    differences: Weights
    below: Weights
    above: Weights


class Ensemble:
    """The model, the pilot and the replicates of a release, in this order. They are built when they are first used.

    A query is made ready once. Its linear forms are then evaluated on all models together.
    """

    def __init__(self, release: Release, known: Uncertainty) -> None:
        self._release = release
        self._known = known
        self._kept: dict[Axes, Weights] = {}
        self._parts: dict[range, Merged] = {}
        self._whole: dict[tuple[int, range], Weights] = {}
        self._spreads: dict[int, list[Spread | None]] = {}
        self._lost: dict[int, tuple[Spread, ...]] = {}

    def keep(self, sets: Iterable[Axes]) -> None:
        """Compute the marginals of some columns on all models at once, each of which is built once. Questions about them then take little time."""
        wanted = tuple(sets)
        found = [self._release.assigned(fit).marginals(wanted) for fit in self._fits]
        self._kept = {axes: np.stack([each[axes] for each in found]) for axes in wanted}

    @property
    def _fits(self) -> tuple[Fit, ...]:
        return self._known.model, self._known.pilot, *self._known.replicates

    @cached_property
    def _models(self) -> list[Callable[[], Model]]:
        """All models. If they are too large to be kept, each is built when it is used."""
        first = self._release.model
        cells = getattr(first, "cells", math.prod(first.shape))
        if BYTES * cells * len(self._fits) > KEPT_BYTES:
            others = [partial(self._release.assigned, fit) for fit in self._fits[1:]]
        else:
            others = [partial(_same, self._release.assigned(fit)) for fit in self._fits[1:]]
        return [partial(_same, first), *others]

    def _part(self, some: range) -> Merged:
        """Return the counts of some of the models, which a query may keep."""

        def merged(axes: Axes, classes: Sequence[Groups]) -> Weights:
            if axes in self._kept:
                return summed(self._kept[axes][some.start : some.stop], classes)
            return stacked((self._models[at]() for at in some), axes, classes)

        return self._parts.setdefault(some, merged)

    def _marginals(self, merging: Merging) -> list[tuple[range, Marginal]]:
        """Return the marginals of all models for a query: all together, unless that takes too much memory."""
        count = len(self._fits)
        step = min(count, max(1, MOST_AT_ONCE // merging.cells))
        parts = [range(start, min(start + step, count)) for start in range(0, count, step)]
        return [(some, partial(merging.marginal, self._part(some))) for some in parts]

    def has_leaves(self, column: int) -> bool:
        """Return whether a tree has measured how the values of a column lie within its cells."""
        attribute = self._release.universe.attributes[self._release.universe.names[column]]
        return isinstance(attribute, Fine) and attribute.leaves is not None

    def needs_unmeasured_values(self, merging: Merging, number: Number) -> bool:
        """Return whether a number depends on how values lie within declared bins, where nothing was measured."""
        valued = {each.column for each in aggregates(number) if not isinstance(each, Count)}
        columns = [merging.column(column) for column in sorted(valued)]
        return any(not isinstance(each.attribute, Fine) and varies(each.attribute, each.spread) for each in columns)

    def merging(self, query: Query) -> Merging:
        """Return a query made ready for this release."""
        return Merging(query, self._release.universe)

    def evaluated(self, merging: Merging) -> tuple[dict[Number, Weights], dict[Number, Weights]]:
        """Return all numbers of a query by the released model, and their differences from the pilot's in each replicate.

        A number has one entry for every group, and its differences have a row for every replicate.
        """
        columns = self._matters_within(merging)
        spreads = {column: self._spreads_of(column) for column in columns}
        found: dict[Number, list[Weights]] = {number: [] for number in merging.query.numbers()}
        for some, marginal in self._marginals(merging):
            varied = merging.varied({column: each[some.start : some.stop] for column, each in spreads.items()})
            for number, values in varied.evaluate(marginal).items():
                found[number].append(np.broadcast_to(values, (len(some), merging.groups)))
        every = {number: np.concatenate(each) for number, each in found.items()}
        return {number: each[0] for number, each in every.items()}, {
            number: each[2:] - each[1] for number, each in every.items()
        }

    def parts(self, merging: Merging, number: Number) -> dict[Aggregate, Weights]:
        """Return the aggregates that a number is computed from, by the released model."""
        _, marginal = self._marginals(merging)[0]
        return {each: merging.aggregate(each, marginal)[0] for each in aggregates(number)}

    def rows(self, merging: Merging, number: Aggregate) -> Weights:
        """Return the rows of an aggregate in each group, by the released model."""
        _, marginal = self._marginals(merging)[0]
        return np.asarray(merging.rows(number).totals(marginal)[0])

    def hidden(self, merging: Merging) -> dict[Number, Weights]:
        """Return by how much each number would change, in two cases, if the trees of its columns had lost as many rows as they may.

        There is none for a query that does not depend on how values lie within cells.
        """
        found = {column: self._with_hidden(column) for column in self._matters_within(merging)}
        spreads = {column: [None, *each] for column, each in found.items() if each}
        if not spreads:
            return {}
        _, marginal = self._marginals(merging)[0]
        values = merging.varied(spreads).evaluate(lambda axes: np.repeat(marginal(axes)[:1], 3, axis=0))
        every = {number: np.broadcast_to(each, (3, merging.groups)) for number, each in values.items()}
        return {number: np.nan_to_num(each[1:] - each[0]) for number, each in every.items()}

    def _with_hidden(self, column: int) -> tuple[Spread, ...]:
        """Return how the values of a column would lie within cells if its tree had lost as many rows as it may; nothing without a tree."""
        if column not in self._lost:
            name = self._release.universe.names[column]
            attribute, noise = self._release.universe.attributes[name], self._leaf_noise.get(name)
            self._lost[column] = (
                with_hidden(spread_of(attribute), attribute, noise) if isinstance(attribute, Fine) and noise else ()
            )
        return self._lost[column]

    def within_cells(self, merging: Merging, number: Count | Sum, *, errors: float) -> Sides:
        """Return how far a number may be off, in so many standard errors, because it is about only some of the values of a cell."""
        _, marginal = self._marginals(merging)[0]
        found = Sides(np.zeros(merging.groups), np.zeros(merging.groups))
        for column in self.cut_columns(merging, number):
            if column in self._leaf_trees and isinstance(number, Count):
                more = CutLeaves(self._leaf_trees[column], merging, column).sides(number, marginal, errors=errors)
            else:
                more = sides_of_bins(merging, column, number, marginal)
            found = Sides(found.below + more.below, found.above + more.above)
        return found

    def cut_columns(self, merging: Merging, number: Count | Sum) -> list[int]:
        """Return the columns of which a query cuts cells in a way that replicates do not show: bins of the calendar and, for a count, leaves.

        The times of the week were measured by a tree of their own.
        """
        found = []
        for column in merging.rows(number).axes:
            leaves = isinstance(number, Count) and column in self._leaf_trees
            if cuts_bins(merging, column) or (leaves and merging.is_cut(column) and not merging.is_of_week(column)):
                found.append(column)
        return found

    def asks_for_times_of_week(self, merging: Merging, axes: Axes) -> bool:
        """Return whether a query distinguishes the times of the week within cells of a column, which a tree of their own has measured."""
        return any(each in self._leaf_trees and merging.is_cut(each) and merging.is_of_week(each) for each in axes)

    def tilted(
        self, merging: Merging, number: Number, resolved: Mapping[Aggregate, Resolved], *, errors: float
    ) -> Tilted:
        """Return a number whose groups are tilted within cells, and how uncertain that is, in so many standard errors.

        Args:
            merging: The query.
            number: One of its numbers.
            resolved: For each aggregate whose groups are tilted, the measured cells of its column.
            errors: How many standard errors.
        """
        spreads = {column: self._spreads_of(column) for column in self._matters_within(merging)}
        found: list[Weights] = []
        first: dict[Aggregate, Weights] = {}
        moved: list[tuple[Aggregate, dict[int, Weights]]] = []
        for some, marginal in self._marginals(merging):
            varied = merging.varied({column: each[some.start : some.stop] for column, each in spreads.items()})
            tilting = {
                each: self._tilting(varied, each, cells, some, marginal)
                for each, cells in resolved.items()
                if not isinstance(each, Count)
            }
            own = {
                each: tilting[each].values() if each in tilting else varied.aggregate(each, marginal)
                for each in aggregates(number)
            }
            values = combined(number, own.__getitem__, groups=merging.groups)
            found.append(np.broadcast_to(values, (len(some), merging.groups)))
            if not first:
                first = {each: values[0] for each, values in own.items()}
                moved = [(each, {sign: one.moved(sign * errors) for sign in (-1, 1)}) for each, one in tilting.items()]
        every = np.concatenate(found)
        ends = [
            [
                combined(
                    number, {**first, each: by[sign]}.__getitem__, groups=merging.groups, overall=first.__getitem__
                )
                for sign in (-1, 1)
            ]
            for each, by in moved
        ]
        below = np.sqrt(np.sum([np.minimum(np.minimum(*pair) - every[0], 0.0) ** 2 for pair in ends], axis=0))
        above = np.sqrt(np.sum([np.maximum(np.maximum(*pair) - every[0], 0.0) ** 2 for pair in ends], axis=0))
        return Tilted(every[0], every[2:] - every[1], below, above)

    def _tilting(
        self, merging: Merging, number: Valued, resolved: Resolved, some: range, marginal: Marginal
    ) -> Tilting:
        inside, cells = merging.column(number.column).ascending, merging.column(number.column).attribute.size
        masses = merging.rows(number).totals(marginal, along=number.column)[..., inside]
        if (number.column, some) not in self._whole:
            self._whole[number.column, some] = self._part(some)((number.column,), [np.arange(cells)])
        whole = self._whole[number.column, some]
        columns = merging.on_models(number.column, models=len(some))
        return Tilting(number, columns, masses, whole, resolved)

    def sampling_variance(self, plain: Merging, number: Mean | Sum) -> Weights:
        """Return the variance that a mean or sum would have if the rows of each group were a random sample, of a random size for a sum."""
        _, marginal = self._marginals(plain)[0]
        masses = plain.rows(number).totals(marginal, along=number.column)[0]
        values, rows = plain.column(number.column).means, np.maximum(masses.sum(axis=1), 1.0)
        if isinstance(number, Sum):
            return np.asarray(masses @ values**2)
        means = (masses @ values) / rows
        found: Weights = np.maximum(masses @ values**2 / rows - means**2, 0.0) / rows
        return found

    def quantile_ends(
        self,
        merging: Merging,
        number: Quantile,
        errors: float,
        *,
        clumps: Weights | float = 0.0,
        resolved: Resolved | None = None,
    ) -> tuple[Weights, Weights]:
        """Return the ends of a quantile's interval, this many standard errors to either side, as if rows also came in clumps of so many.

        The standard error is that of the share of rows below the quantile. The ends are the model's quantiles at that share, less and
        more: values may be whole and far apart, so that all replicates have the same quantile and yet none is certain (Woodruff 1952).
        """
        every = self._marginals(merging)
        tilting = resolved and [self._tilting(merging, number, resolved, some, marginal) for some, marginal in every]
        if tilting:
            masses = np.concatenate([each.tilted_masses() for each in tilting])
        else:
            masses = np.concatenate([merging.masses(number, marginal) for _, marginal in every])
        ends = np.cumsum(masses[0], axis=1)
        wanted = number.share * ends[:, -1:]
        before = ends < wanted
        inside = np.clip(
            np.divide(wanted - (ends - masses[0]), masses[0], out=np.zeros(ends.shape), where=masses[0] > 0), 0.0, 1.0
        )
        below = np.where(before, 1.0, inside)  # the part of each piece that lies below the model's quantile
        shares = [_share(each, below) for each in masses[1:]]
        sampled = clumps * number.share * (1 - number.share) / np.maximum(ends[:, -1], 1.0)
        error = errors * np.sqrt(np.mean([(each - shares[0]) ** 2 for each in shares[1:]], axis=0) + sampled)
        low, high = np.clip(number.share - error, 0.0, 1.0), np.clip(number.share + error, 0.0, 1.0)
        if tilting:
            return tilting[0].quantiles(masses[0], low), tilting[0].quantiles(masses[0], high)
        column = merging.column(number.column)
        return quantiles(column, masses[0], low), quantiles(column, masses[0], high)

    def _matters_within(self, merging: Merging) -> tuple[int, ...]:
        """Return the columns whose distribution within cells a query depends on: it needs their values, or cuts their cells."""
        inner = [each for number in merging.query.numbers() for each in aggregates(number)]
        valued = {each.column for each in inner if not isinstance(each, Count)}
        concerned = {axis for each in inner for axis in merging.rows(each).axes}
        names = self._release.universe.names
        return tuple(
            axis
            for axis in sorted(concerned)
            if (axis in valued or merging.is_cut(axis))
            and varies(self._release.universe.attributes[names[axis]], merging.column(axis).spread)
        )

    def _spreads_of(self, column: int) -> list[Spread | None]:
        """Return how each model distributes a column's values within cells: the replicates each in its own way, the others as usual."""
        if column not in self._spreads:
            name = self._release.universe.names[column]
            attribute, noise = self._release.universe.attributes[name], self._leaf_noise.get(name)
            usual = spread_of(attribute)
            found: list[Spread | None] = [None, None]
            for replicate in range(1, 1 + len(self._known.replicates)):
                rng = np.random.default_rng([self._seed, replicate, column])
                if isinstance(attribute, FineDays) and noise:
                    varied = with_noisy_week(attribute, noise, rng)
                    found.append(noisy(spread_of(varied), varied, noise, rng))
                elif isinstance(attribute, Fine) and noise:
                    found.append(noisy(usual, attribute, noise, rng))
                else:
                    found.append(skewed(usual, rng))
            self._spreads[column] = found
        return self._spreads[column]

    @cached_property
    def _seed(self) -> int:
        return seed_of(self._release.transcript)

    @cached_property
    def _leaf_trees(self) -> dict[int, LeafTree]:
        """The tree of each column that has one."""
        found: dict[int, LeafTree] = {}
        for column, (name, attribute) in enumerate(self._release.universe.attributes.items()):
            if name in self._leaf_noise and isinstance(attribute, Fine) and attribute.leaves is not None:
                found[column] = LeafTree(
                    attribute.leaves, self._leaf_noise[name], summed=bool(self._release.manifest.get("parts"))
                )
        return found

    @cached_property
    def _leaf_noise(self) -> dict[str, TreeNoise]:
        """The noise of each column's tree."""
        levels = {each["column"]: each["levels"] for each in self._release.manifest["discovered"]}
        return {column: TreeNoise(float(each[-1]["noise"]), len(each)) for column, each in levels.items() if each}


def _same(model: Model) -> Model:
    return model


def _share(masses: Weights, below: Weights) -> Weights:
    """Return the share of each group's rows in parts of the pieces; one half where there are no rows."""
    rows = masses.sum(axis=1)
    found: Weights = np.divide((masses * below).sum(axis=1), rows, out=np.full(len(rows), 0.5), where=rows > 0)
    return found
