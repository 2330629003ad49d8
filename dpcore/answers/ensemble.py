"""Evaluate a query on all replicates of a release: each has its own model, and its own distribution of values within cells."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from dpcore.answers.evaluate import Prepared
from dpcore.answers.merging import Merged, Merging, merged_by
from dpcore.answers.query import Count, Number, Query, aggregates
from dpcore.answers.release import Release
from dpcore.answers.replicates import seed_of
from dpcore.answers.uncertainty import Fit, Uncertainty
from dpcore.models.model import Weights
from dpcore.universe.leaves import Fine
from dpcore.universe.spread import Segments, Spread
from dpcore.universe.spreading import spread_of
from dpcore.universe.temporal import CalendarColumn

KEPT_BYTES = 1 << 29  # of all models together; if they are larger, they are built again for every new set of columns
SKEW = 0.5  # the usual difference between the two halves of a declared bin, as a share of its rows
BYTES = 8


class Ensemble:
    """The model, the pilot and the replicates of a release. They are built when they are first used."""

    def __init__(self, release: Release, known: Uncertainty) -> None:
        self._release = release
        self._known = known

    @cached_property
    def _models(self) -> list[Merged]:
        fits = [self._known.pilot, *self._known.replicates]
        first = self._release.assigned(fits[0])
        cells = getattr(first, "cells", math.prod(first.shape))
        if BYTES * cells * len(fits) > KEPT_BYTES:
            return [self._rebuilt(fit) for fit in fits]
        return [merged_by(first), *(merged_by(self._release.assigned(fit)) for fit in fits[1:])]

    def _rebuilt(self, fit: Fit) -> Merged:
        return lambda axes, classes: merged_by(self._release.assigned(fit))(axes, classes)

    def values(self, query: Query) -> dict[Number, Weights]:
        """Return all numbers of a query by the released model, each with one entry for every group."""
        return _evaluated(Merging(query, self._release.universe), merged_by(self._release.model))

    def differences(self, query: Query) -> dict[Number, Weights]:
        """Return, for every number of a query, its difference from the pilot's in each replicate and each group."""
        plain = Merging(query, self._release.universe)
        within = self._matters_within(plain)
        pilot = _evaluated(plain, self._models[0])
        found: dict[Number, list[Weights]] = {number: [] for number in pilot}
        for at, model in enumerate(self._models[1:], start=1):
            varied = Merging(query, self._release.universe, spreads=self._spreads(at, within)) if within else plain
            for number, values in _evaluated(varied, model).items():
                found[number].append(values - pilot[number])
        return {number: np.array(each) for number, each in found.items()}

    def _matters_within(self, prepared: Prepared) -> tuple[int, ...]:
        """Return the columns whose distribution within cells a query depends on: it needs their values, or cuts their cells."""
        inner = [each for number in prepared.query.numbers() for each in aggregates(number)]
        valued = {each.column for each in inner if not isinstance(each, Count)}
        concerned = {axis for each in inner for axis in prepared.rows(each).axes}
        names = self._release.universe.names
        return tuple(
            axis
            for axis in sorted(concerned)
            if (axis in valued or prepared.column(axis).pieces > prepared.column(axis).attribute.size)
            and prepared.column(axis).spread is not None
            and _varies(self._release.universe.attributes[names[axis]])
        )

    def _spreads(self, replicate: int, columns: tuple[int, ...]) -> Mapping[int, Spread]:
        names, found = self._release.universe.names, {}
        for column in columns:
            attribute = self._release.universe.attributes[names[column]]
            rng = np.random.default_rng([self._seed, replicate, column])
            spread = spread_of(attribute)
            noise = self._leaf_noise.get(names[column])
            found[column] = _noisy(spread, attribute, noise, rng) if isinstance(attribute, Fine) and noise else _skewed(spread, rng)
        return found

    @cached_property
    def _seed(self) -> int:
        return seed_of(self._release.transcript)

    @cached_property
    def _leaf_noise(self) -> dict[str, float]:
        """The noise of the last level of each column's tree."""
        levels = {each["column"]: each["levels"] for each in self._release.manifest["discovered"]}
        return {column: float(each[-1]["noise"]) for column, each in levels.items() if each}


def _evaluated(merging: Merging, model: Merged) -> dict[Number, Weights]:
    return merging.evaluate(lambda axes: model(axes, [merging.classes(axis) for axis in axes]))


def _varies(attribute: Any) -> bool:
    """Return whether values within a cell can be distributed otherwise. Dates in bins are released as the first day of their bin."""
    return isinstance(attribute, Fine) or not isinstance(attribute, CalendarColumn)


def _skewed(spread: Spread, rng: np.random.Generator) -> Spread:
    """Return a spread whose cells all have more values in one half, or all in the other: nothing was measured within them."""
    segments = spread.segments
    width = segments.high - segments.low
    middle = segments.low + (width // 2 if spread.whole else width / 2)
    skew = float(np.clip(rng.normal(0.0, SKEW), -0.9, 0.9))
    left = np.where(middle > segments.low, (middle - segments.low) / width * (1 + skew * (segments.high - middle) / width), 0.0)
    low, high = np.stack([segments.low, middle], axis=1).ravel(), np.stack([middle, segments.high], axis=1).ravel()
    mass = np.stack([left, 1 - left], axis=1).ravel() * np.repeat(segments.mass, 2)
    return _with(spread, Segments.of(low, high, np.repeat(segments.cell, 2), mass))


def _noisy(spread: Spread, attribute: Fine, noise: float, rng: np.random.Generator) -> Spread:
    """Return a spread of leaves with fresh noise. A leaf's estimate was clipped at zero, so its error is at most about its size."""
    segments, leaves = spread.segments, attribute.leaves
    if leaves is None:
        return spread
    held = np.array(leaves.masses, dtype=np.float64) / 1000
    bounds = np.searchsorted(np.array([*leaves.starts, leaves.size]), attribute.cell_bounds)
    in_cell = np.add.reduceat(np.append(held, 0.0), bounds[:-1]) if len(bounds) > 1 else held.sum(keepdims=True)
    counts = segments.mass * np.maximum(in_cell[segments.cell], 1.0)
    error = np.minimum(noise, counts / 2)
    varied = np.maximum(counts + rng.normal(0.0, 1.0, len(counts)) * error, 1e-9)
    return _with(spread, Segments.of(segments.low, segments.high, segments.cell, varied))


def _with(spread: Spread, segments: Segments) -> Spread:
    return Spread(segments, spread.bounds, whole=spread.whole, place=spread.place, value=spread.value, edges=spread.edges)
