"""Evaluate a query on all replicates of a release: each has its own model, and its own distribution of values within cells."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpcore.answers.cut_cells import CutLeaves, cuts_bins, sides_of_bins
from dpcore.answers.evaluate import Prepared, Projection, combined, quantiles
from dpcore.answers.leaf_tree import LeafTree, TreeNoise
from dpcore.answers.query import Aggregate, Count, Mean, Number, Quantile, Query, Sum, aggregates
from dpcore.answers.release import Release
from dpcore.answers.replicates import seed_of
from dpcore.answers.sides import Sides, carried, moved
from dpcore.answers.spreads import noisy, skewed, varies, with_hidden, with_noisy_week
from dpcore.answers.tilting import Resolved, Tilting, Valued
from dpcore.answers.uncertainty import Uncertainty
from dpcore.marginals.workload import Axes
from dpcore.models import Model
from dpcore.models.model import Matrix, Weights
from dpcore.models.projection import contracted, projected
from dpcore.universe.fine_days import FineDays
from dpcore.universe.leaves import Fine
from dpcore.universe.spread import Spread
from dpcore.universe.spreading import spread_of

MOST_CELLS = 1 << 26
"""If all models together have more cells, which are 512 MB, each is built again for every new set of columns."""


@dataclass(frozen=True, eq=False)
class Tilted:
    """A number whose groups are tilted within cells.

    Attributes:
        value: The number by the released model.
        differences: Its differences from the pilot's in each replicate.
        sides: How far it may be off because it is uncertain how values lie within cells.
    """

    value: Weights
    differences: Weights
    sides: Sides


class Ensemble:
    """The model, the pilot and the replicates of a release, in this order. They are built when they are first used.

    A query is made ready once. Its linear forms are then evaluated on all models together.
    """

    def __init__(self, release: Release, uncertainty: Uncertainty) -> None:
        self._release = release
        self._attributes = list(release.universe.attributes.values())
        self._fits = (uncertainty.model, uncertainty.pilot, *uncertainty.replicates)
        self._built: dict[int, Model] = {}
        self._marginals: dict[Axes, Weights] = {}
        self._whole: dict[int, Weights] = {}
        self._spreads: dict[int, list[Spread | None]] = {}
        self._lost: dict[int, tuple[Spread, ...]] = {}

    def keep(self, sets: Iterable[Axes]) -> None:
        """Compute the marginals of some columns on all models, one after the other in one tree. Questions about them then take little time."""
        sets = (*sets, ())  # every question asks for the whole table, too
        model, of_models = self._release.assigned(self._fits[1]), [self._release.model.marginals(sets)]
        for fit in self._fits[1:]:  # all have functions of the same marginals
            model.rescale(fit.total)
            model.assign(fit.functions)
            of_models.append(model.marginals(sets))
        self._marginals = {axes: np.stack([marginals[axes] for marginals in of_models]) for axes in sets}

    @cached_property
    def _are_kept(self) -> bool:
        """Whether models are built only once."""
        released = self._release.model
        return len(self._fits) * getattr(released, "cells", math.prod(released.shape)) <= MOST_CELLS

    def _model(self, place: int) -> Model:
        if place == 0:
            return self._release.model
        model = self._built.get(place) or self._release.assigned(self._fits[place])
        if self._are_kept:
            self._built[place] = model
        return model

    @cached_property
    def project(self) -> Projection:
        """The projection of all models together, in their order."""
        return self._projection(range(len(self._fits)))

    @cached_property
    def released(self) -> Projection:
        """The projection of the released model, as the only one of several."""
        return self._projection([0])

    def _projection(self, models: Sequence[int]) -> Projection:
        def project(axes: Axes, matrices: Sequence[Matrix]) -> Weights:
            marginals = self._marginals.get(axes)
            arrays = []
            for place, model in enumerate(models):
                own = [matrix[place] if matrix is not None and matrix.ndim == 3 else matrix for matrix in matrices]
                if marginals is None:
                    arrays.append(projected(self._model(model), axes, own))
                else:
                    arrays.append(contracted(marginals[model], own))
            return np.stack(arrays)

        return project

    def has_leaves(self, column: int) -> bool:
        """Return whether a tree has measured how the values of a column lie within its cells."""
        attribute = self._attributes[column]
        return isinstance(attribute, Fine) and attribute.leaves is not None

    def needs_unmeasured_values(self, prepared: Prepared, number: Number) -> bool:
        """Return whether a number depends on how values lie within declared bins, where nothing was measured."""
        columns = [prepared.column(part.column) for part in aggregates(number) if not isinstance(part, Count)]
        return any(not isinstance(seen.attribute, Fine) and varies(seen.attribute, seen.spread) for seen in columns)

    def prepared(self, query: Query) -> Prepared:
        """Return a query made ready for this release."""
        return Prepared(query, self._release.universe)

    def evaluated(self, prepared: Prepared) -> tuple[dict[Number, Weights], dict[Number, Weights]]:
        """Return all numbers of a query by the released model, and their differences from the pilot's in each replicate.

        A number has one entry for every group, and its differences have a row for every replicate.
        """
        values, differences = {}, {}
        for number, by_model in self._varied(prepared).evaluate(self.project).items():
            values[number], differences[number] = self._compared(prepared, by_model)
        return values, differences

    def _compared(self, prepared: Prepared, by_model: Weights) -> tuple[Weights, Weights]:
        """Return a number by the released model, and the differences of the replicates from the pilot. A constant is the same on all models."""
        released, pilot, *replicates = np.broadcast_to(by_model, (len(self._fits), prepared.groups))
        return released, np.array(replicates) - pilot

    def parts(self, prepared: Prepared, number: Number) -> dict[Aggregate, Weights]:
        """Return the aggregates that a number is computed from, by the released model."""
        return {part: prepared.aggregate(part, self.released)[0] for part in aggregates(number)}

    def rows(self, prepared: Prepared, number: Aggregate) -> Weights:
        """Return the rows of an aggregate in each group, by the released model."""
        return np.asarray(prepared.rows(number).totals(self.released)[0])

    def hidden(self, prepared: Prepared) -> dict[Number, Sides]:
        """Return how far each number may be off because the trees of its columns may have lost rows in their noise, or made rows of it.

        There is none for a query that does not depend on how values lie within cells.
        """
        lost = {column: self._with_hidden(column) for column in self._matters_within(prepared)}
        spreads = {column: [None, *cases] for column, cases in lost.items() if cases}
        if not spreads:
            return {}
        sides = {}
        for number, by_case in prepared.varied(spreads).evaluate(self._projection([0] * 3)).items():
            usual, *cases = np.broadcast_to(by_case, (3, prepared.groups))
            sides[number] = Sides.of(np.nan_to_num(np.array(cases) - usual))
        return sides

    def _with_hidden(self, column: int) -> tuple[Spread, ...]:
        """Return how the values of a column would lie within cells if its tree had lost, or made, as many rows as it may; nothing without one."""
        if column not in self._lost:
            attribute, noise = self._attributes[column], self._leaf_noise.get(column)
            self._lost[column] = with_hidden(attribute, noise) if isinstance(attribute, Fine) and noise else ()
        return self._lost[column]

    def cut_cells(self, prepared: Prepared, number: Number, *, errors: float) -> Sides:
        """Return how far a number may be off, in so many standard errors, because it counts or sums only some of the values of a cell."""
        none = Sides.none(prepared.groups)
        parts = [part for part in aggregates(number) if isinstance(part, Count | Sum)]
        cut = {part: list(self._cut_columns(prepared, part)) for part in parts}
        if not any(cut.values()):
            return none
        values, sides = self.parts(prepared, number), dict.fromkeys(cut, none)
        for part, columns in cut.items():
            for column in columns:
                if isinstance(part, Count) and column in self._leaf_trees:
                    leaves = CutLeaves(self._leaf_trees[column], prepared, column)
                    sides[part] += leaves.sides(part, self.released, errors=errors)
                else:
                    sides[part] += sides_of_bins(prepared, column, part, self.released)
        return carried(number, values, moved(number, values, sides), groups=prepared.groups)

    def _cut_columns(self, prepared: Prepared, number: Count | Sum) -> Iterable[int]:
        """Yield the columns of which a query cuts cells in a way that replicates do not show: bins of the calendar and, for a count, leaves.

        The times of the week were measured by a tree of their own.
        """
        for column in prepared.rows(number).axes:
            leaves = isinstance(number, Count) and column in self._leaf_trees
            if cuts_bins(prepared, column) or (leaves and prepared.is_cut(column) and not prepared.is_of_week(column)):
                yield column

    def asks_for_times_of_week(self, prepared: Prepared, axes: Axes) -> bool:
        """Return whether a query distinguishes the times of the week within cells of a column, which a tree of their own has measured."""
        return any(axis in self._leaf_trees and prepared.is_cut(axis) and prepared.is_of_week(axis) for axis in axes)

    def tilted(
        self, prepared: Prepared, number: Number, resolved: Mapping[Valued, Resolved], *, errors: float
    ) -> Tilted:
        """Return a number whose groups are tilted within cells, and how uncertain that is, in so many standard errors.

        Args:
            prepared: The query.
            number: One of its numbers.
            resolved: For each aggregate whose groups are tilted, the measured cells of its column.
            errors: How many standard errors.
        """
        varied = self._varied(prepared)
        tilting: dict[Aggregate, list[Tilting]] = {
            part: self._tilting(varied, part, cells) for part, cells in resolved.items()
        }
        by_model = {
            part: np.stack([tilt.value for tilt in tilting[part]])
            if part in tilting
            else varied.aggregate(part, self.project)
            for part in aggregates(number)
        }
        combination = combined(number, by_model.__getitem__, groups=prepared.groups)
        values = {part: models[0] for part, models in by_model.items()}
        moves = (
            [{**values, part: released.moved(end * errors)} for end in (-1, 1)]
            for part, (released, *_) in tilting.items()
        )
        sides = carried(number, values, moves, groups=prepared.groups)
        return Tilted(*self._compared(prepared, combination), sides)

    def _tilting(self, prepared: Prepared, number: Valued, resolved: Resolved) -> list[Tilting]:
        if number.column not in self._whole:
            self._whole[number.column] = self.project((number.column,), [None])
        columns = prepared.on_models(number.column, models=len(self._fits))
        by_model = zip(columns, prepared.masses(number, self.project), self._whole[number.column], strict=True)
        return [Tilting(number, column, masses, whole, resolved) for column, masses, whole in by_model]

    def sampling_variance(self, prepared: Prepared, number: Mean | Sum) -> Weights:
        """Return the variance that a mean or sum would have if the rows of each group were a random sample, of a random size for a sum.

        For a sum, a group in which the model expects less than a row is taken to have one, with a value like those of the other groups.
        """
        form = prepared.rows(number)
        masses = form.totals(self.released, along=number.column)[0]
        values, rows = prepared.column(number.column).means, np.maximum(masses.sum(axis=1), 1.0)
        if isinstance(number, Sum):
            every = masses.sum(axis=0)
            missing = np.where(form.possible, rows - masses.sum(axis=1), 0.0)
            return np.asarray(masses @ values**2 + missing * (every @ values**2 / max(every.sum(), 1.0)))
        means = (masses @ values) / rows
        return np.asarray(np.maximum(masses @ values**2 / rows - means**2, 0.0) / rows)

    def quantile_ends(
        self,
        prepared: Prepared,
        number: Quantile,
        errors: float,
        *,
        clumps: Weights | float,
        resolved: Resolved | None,
    ) -> tuple[Weights, Weights]:
        """Return the ends of a quantile's interval, this many standard errors to either side, as if rows also came in clumps of so many.

        The standard error is that of the share of rows below the quantile. The ends are the model's quantiles at that share, less and
        more: values may be whole and far apart, so that all replicates have the same quantile and yet none is certain (Woodruff 1952).
        """
        tilting = self._tilting(prepared, number, resolved) if resolved else []
        released, *others = [tilt.tilted for tilt in tilting] or prepared.masses(number, self.project)
        ends = np.cumsum(released, axis=1)
        rank = number.share * ends[:, -1:]
        inside = np.divide(rank - (ends - released), released, out=np.zeros(ends.shape), where=released > 0)
        below = np.where(
            ends < rank, 1.0, np.clip(inside, 0.0, 1.0)
        )  # the part of each piece that lies below the model's quantile
        pilot, *replicates = [_share(masses, below) for masses in others]
        sampled = clumps * number.share * (1 - number.share) / np.maximum(ends[:, -1], 1.0)
        error = errors * np.sqrt(np.mean([(share - pilot) ** 2 for share in replicates], axis=0) + sampled)
        low, high = (np.clip(number.share + sign * error, 0.0, 1.0) for sign in (-1, 1))
        if tilting:
            return tilting[0].quantiles(low), tilting[0].quantiles(high)
        column = prepared.column(number.column)
        return quantiles(column, released, low), quantiles(column, released, high)

    def _varied(self, prepared: Prepared) -> Prepared:
        """Return a query as each model distributes values within cells."""
        return prepared.varied({column: self._spreads_of(column) for column in self._matters_within(prepared)})

    def _matters_within(self, prepared: Prepared) -> tuple[int, ...]:
        """Return the columns whose distribution within cells a query depends on: it needs their values, or cuts their cells."""
        parts = prepared.query.aggregates()
        valued = {part.column for part in parts if not isinstance(part, Count)}
        concerned = sorted({axis for part in parts for axis in prepared.rows(part).axes})
        return tuple(
            axis
            for axis in concerned
            if (axis in valued or prepared.is_cut(axis))
            and varies(self._attributes[axis], prepared.column(axis).spread)
        )

    def _spreads_of(self, column: int) -> list[Spread | None]:
        """Return how each model distributes a column's values within cells: the replicates each in its own way, the others as usual."""
        if column not in self._spreads:
            seed, replicates = seed_of(self._release.transcript), range(1, len(self._fits) - 1)
            own = [self._spread(column, np.random.default_rng([seed, replicate, column])) for replicate in replicates]
            self._spreads[column] = [None, None, *own]
        return self._spreads[column]

    def _spread(self, column: int, rng: np.random.Generator) -> Spread:
        attribute, noise = self._attributes[column], self._leaf_noise.get(column)
        if noise is None or not isinstance(attribute, Fine):
            return skewed(spread_of(attribute), rng)
        if isinstance(attribute, FineDays):
            attribute = with_noisy_week(attribute, noise, rng)
        return noisy(attribute, noise, rng)

    @cached_property
    def _leaf_trees(self) -> dict[int, LeafTree]:
        """The tree of each column that has one."""
        trees = {}
        for column, noise in self._leaf_noise.items():
            attribute = self._attributes[column]
            if isinstance(attribute, Fine) and attribute.leaves is not None:
                trees[column] = LeafTree(attribute.leaves, noise, summed=self._release.parts > 1)
        return trees

    @cached_property
    def _leaf_noise(self) -> dict[int, TreeNoise]:
        """The noise of each column's tree."""
        levels = {finding["column"]: finding["levels"] for finding in self._release.manifest["discovered"]}
        return {
            column: TreeNoise(float(levels[name][-1]["noise"]), len(levels[name]))
            for column, name in enumerate(self._release.universe.names)
            if levels.get(name)
        }


def _share(masses: Weights, below: Weights) -> Weights:
    """Return the share of each group's rows in parts of the pieces; one half where there are no rows."""
    rows = masses.sum(axis=1)
    return np.asarray(np.divide((masses * below).sum(axis=1), rows, out=np.full(len(rows), 0.5), where=rows > 0))
