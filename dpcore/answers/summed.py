"""Add releases of disjoint blocks to one: its measurements are the sums of theirs, and its model is fitted to these sums.

The noise of a sum has the summed variance, so a sum of T blocks is known to within the square root of T times the error of one. Adding the
*answers* of T models would be worse: each model smooths away structure that its noise hides, in all blocks the same, so that these errors
grow as T (docs/decisions/0059). Everything is computed from released files: nothing is charged.

A marginal that one release has measured and another has not is filled in from the model of the other, as if it had the same noise. If the
other has measured it with other cells merged, its model is corrected by that. The releases may have found other values, bins or leaves in a
column. Then counts are moved to the cells of the sum, in parts if they have to be.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dpcore.answers.joined import joined_attribute, moved
from dpcore.answers.release import Release
from dpcore.answers.replicates import make_uncertainty
from dpcore.errors import UsageError
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Groups, Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.model import Weights
from dpcore.models.projection import contracted
from dpcore.models.start import UNIFORM
from dpcore.release.integrity import one_line
from dpcore.universe import Universe
from dpcore.universe.constraints import Constraint
from dpcore.universe.dependencies import Depends

MOST_CELLS = 1 << 20
"""The most cells of a marginal that is filled in from a model."""


def summed_release(releases: Sequence[Release]) -> Release:
    """Return the sum of releases of disjoint blocks, fitted and with replicates, which takes as long as these parts of a run.

    Args:
        releases: The releases, in the order of their blocks. The last one decides which marginals the sum has.

    Raises:
        UsageError: If they cannot be added.
    """
    if len(releases) == 1:
        return releases[0]
    total = _Sum(releases).release()
    return replace(total, unwritten_uncertainty=make_uncertainty(total))


def _declared(universe: Universe) -> tuple[Constraint, ...]:
    """Return the constraints as a spec declares them, without learned functions."""
    return tuple(
        replace(constraint, codes=None) if isinstance(constraint, Depends) else constraint
        for constraint in universe.constraints
    )


@dataclass(frozen=True, eq=False)
class _Sum:
    """Releases that are being added."""

    releases: Sequence[Release]

    @property
    def last(self) -> Release:
        return self.releases[-1]

    def release(self) -> Release:
        """Return the sum, without a model."""
        self._refuse_different()
        same = self.universe == self.last.universe
        return Release(
            self.last.folder,
            self._manifest(),
            self.universe,
            self.resolutions,
            tuple(map(self._measured, self._marginals())),
            # Its `news` is what one release has learned beyond the start. All of them together have learned more.
            begun=replace(self.last.start, news=UNIFORM.news) if same else UNIFORM,
        )

    def _refuse_different(self) -> None:
        last = self.last
        for release in self.releases:
            strategy, name = str(release.manifest["strategy"]), one_line(release.folder.name)
            if release.steps is not None:
                raise UsageError(
                    f"{name} was made by {one_line(strategy)}, and only releases by mwem or adaptive can be added; "
                    "ask about one release at a time"
                )
            for what, own, others in (
                ("columns", release.universe.names, last.universe.names),
                ("strategy", strategy, last.manifest["strategy"]),
                ("constraints", _declared(release.universe), _declared(last.universe)),
            ):
                if own != others:
                    raise UsageError(
                        f"{name} and {one_line(last.folder.name)} have different {what}, so they cannot be "
                        "added; ask about the periods before and after that change one by one"
                    )
            if release.universe.constraints != last.universe.constraints:
                raise UsageError(
                    f"{name} and {one_line(last.folder.name)} have learned different functions for `depends`, so they "
                    "cannot be added; ask about one release at a time, and list the pairs with `possible` in the spec of later ones"
                )

    @cached_property
    def universe(self) -> Universe:
        """The columns of the sum."""
        attributes = {
            name: joined_attribute(name, [release.universe.attributes[name] for release in self.releases])
            for name in self.last.universe.names
        }
        return Universe(attributes, self.last.universe.constraints)

    @cached_property
    def _moves(self) -> list[list[Weights]]:
        """For each release and column: which part of each of its cells lies in each cell of the sum."""
        joint = self.universe.attributes
        return [
            [moved(attribute, to=joint[name]) for name, attribute in release.universe.attributes.items()]
            for release in self.releases
        ]

    @cached_property
    def _versions(self) -> dict[int, int]:
        """For each axis of the last release that the sum has, too, its axis in the sum."""
        return self._resolved[1]

    @cached_property
    def resolutions(self) -> Resolutions:
        """The columns of the sum, and those coarser versions of the last release that have the same cells in the sum."""
        return self._resolved[0]

    @cached_property
    def _resolved(self) -> tuple[Resolutions, dict[int, int]]:
        summed, own = Resolutions(self.universe.shape), self.last.resolutions
        axes = {column: column for column in range(own.columns)}
        for axis in range(own.columns, len(own.shape)):
            column = own.column(axis)
            if own.is_version(axis) and own.shape_of((column,)) == summed.shape_of((column,)):
                axes[axis] = summed.coarsen(column, own.groups(column, axis))
        return summed, axes

    def _marginals(self) -> Iterable[Measurement]:
        """Return the measurements of the last release that the sum has, each marginal once, with axes of the sum."""
        marginals: dict[Axes, Measurement] = {}
        transcript = self.last.transcript
        for measured in (*transcript.first, *transcript.later):
            axes = tuple(self._versions.get(axis, self.last.resolutions.column(axis)) for axis in measured.axes)
            if measured.cell is None and self.resolutions.cells(axes) <= MOST_CELLS:
                marginals.setdefault(axes, replace(measured, axes=axes))
        return marginals.values()

    def _measured(self, marginal: Measurement) -> Measurement:
        """Return the sum of a marginal over all releases."""
        parts = [self._part(place, marginal) for place in range(len(self.releases))]
        values, variances = sum(counts for counts, _ in parts), sum(variances for _, variances in parts)
        noise = math.sqrt(float(np.mean(variances)))
        return replace(marginal, values=np.rint(values).astype(np.int64), noise=noise, each=None)

    def _part(self, place: int, marginal: Measurement) -> tuple[Weights, Weights]:
        """Return a release's counts in a marginal of the sum, and their variances: measured, or by its model."""
        release, columns = self.releases[place], [self.resolutions.column(axis) for axis in marginal.axes]
        moves = [
            self._merge(axis) @ self._moves[place][column] for axis, column in zip(marginal.axes, columns, strict=True)
        ]
        measurements = list(_measured_in(release, columns))
        for measured in measurements:
            merged = [_of_groups(move, groups) for move, groups in zip(moves, measured.groups, strict=True)]
            own = [move for move in merged if move is not None]
            if len(own) == len(merged):
                return _moved(measured.counts, own), _moved(measured.variances, [move**2 for move in own])
        finest = max(measurements, key=lambda measured: measured.counts.size, default=None)
        counts, noise = _modelled(release, columns, finest), marginal.noise if finest is None else finest.noise
        touched = _moved(np.ones(counts.shape), moves) > 0  # other cells are none of this release's
        return _moved(counts, moves), np.where(touched, noise**2, 0.0)

    def _merge(self, axis: int) -> Weights:
        """Return which cells of its column each cell of an axis of the sum merges."""
        column = self.resolutions.column(axis)
        groups = self.resolutions.groups(column, axis)
        return np.asarray(np.eye(self.resolutions.shape_of((axis,))[0])[:, groups])

    def _manifest(self) -> Mapping[str, Any]:
        """Return as much of a manifest as answers need. Noisy trees have the noise of a sum, too."""
        wider = math.sqrt(len(self.releases))
        discovered = [
            {**finding, "levels": [{**level, "noise": level["noise"] * wider} for level in finding["levels"]]}
            for finding in self.last.manifest["discovered"]
        ]
        parts = [{"release": release.manifest["release"]} for release in self.releases]
        return {**self.last.manifest, "discovered": discovered, "parts": parts}


class _Measured(NamedTuple):
    """A measurement of some columns, its dimensions in their order, with the merged cell of every cell of each column."""

    counts: Weights
    groups: tuple[Groups, ...]
    noise: float
    variances: Weights


def _measured_in(release: Release, columns: Sequence[int]) -> Iterator[_Measured]:
    """Yield a release's measurements of exactly these columns, at any resolutions."""
    of = release.resolutions
    for measured in release.measurements:
        own = {of.column(axis): axis for axis in measured.axes}
        if measured.cell is None and set(own) == set(columns) and len(measured.axes) == len(columns):
            turn = [measured.axes.index(own[column]) for column in columns]
            turned, variances = measured.values.transpose(turn), measured.variances.transpose(turn)
            groups = tuple(of.groups(column, own[column]) for column in columns)
            yield _Measured(turned.astype(np.float64), groups, measured.noise, variances)


def _modelled(release: Release, columns: Sequence[int], measured: _Measured | None) -> Weights:
    """Return what a release's model expects in a marginal, corrected by what the release has measured there with merged cells.

    The model leaves out what could be noise. In a sum of many releases it would stand out, so the sum gets the measured counts. Within
    merged cells, rows are divided as the model divides them.
    """
    axes = tuple(sorted(columns))
    if math.prod(release.universe.shape[axis] for axis in axes) > MOST_CELLS:
        names = ", ".join(one_line(release.universe.names[axis]) for axis in axes)
        raise UsageError(
            f"{one_line(release.folder.name)} has too many cells in {names} to be added; ask about one release at a time"
        )
    counts: Weights = release.model.marginal(axes).transpose([axes.index(column) for column in columns])
    return counts if measured is None else corrected(counts, measured.groups, measured.counts)


def corrected(counts: Weights, groups: Sequence[Groups], merged: Weights) -> Weights:
    """Return counts that add up to other ones in merged cells, and are divided within these as before.

    >>> corrected(np.array([1.0, 3.0, 2.0]), [np.array([0, 0, 1])], np.array([8.0, 1.0])).tolist()
    [2.0, 6.0, 1.0]

    Args:
        counts: The counts.
        groups: For each dimension, the merged cell of every cell.
        merged: The counts of merged cells. Noisy ones can be negative.
    """
    places = np.ravel_multi_index(np.ix_(*groups), merged.shape)
    expected = np.bincount(places.ravel(), weights=counts.ravel(), minlength=merged.size)[places]
    cells = np.bincount(places.ravel(), minlength=merged.size)[places]
    # Where a model expects next to no rows in merged cells, it does not say how rows lie within them: they are divided equally.
    shares = np.divide(counts, expected, out=1 / cells, where=expected > 1e-6)
    return np.asarray(counts + (merged.ravel()[places] - expected) * shares)


def _of_groups(move: Weights, groups: Any) -> Weights | None:
    """Return where the merged cells of a coarser version go; None if some that were merged go to different cells.

    >>> _of_groups(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), np.array([0, 0, 1])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> _of_groups(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 0])) is None
    True
    """
    _, first = np.unique(groups, return_index=True)
    merged: Weights = move[:, first]
    return merged if np.array_equal(merged[:, groups], move) else None


def _moved(array: Weights, moves: Sequence[Weights]) -> Weights:
    """Move the counts along each dimension to other cells."""
    return contracted(array, [None if np.array_equal(move, np.eye(len(move))) else move.T for move in moves])
