"""Tilted distributions: how a group's values may lie within a cell, if its share of the cells before and after is another one.

A model knows how many rows of a group each cell has. Within a cell it has the distribution of the whole table. If a group's share of all rows
grows from cell to cell, it most likely grows within a cell, too. The simplest way is exponential: relative to the whole table, the density of
the group grows by the factor e^b across the cell, where b is the slope of the logarithm of the share. A tilt moves no row to another cell.
"""

import numpy as np
import numpy.typing as npt

from dpcore.models.model import Weights

STEEPEST = 8.0
"""The largest slope. Nearly all values are at one end of the cell then."""

EVENLY = 12**0.5
"""The standard deviation of values that are spread evenly over a cell of width 1 is one divided by this."""


def share_tilted(below: Weights, slope: Weights) -> Weights:
    """Return the share of a group below places of a cell, given the share of the whole table below them.

    >>> share_tilted(np.array([0.0, 0.5, 1.0]), np.array(2.0)).round(3).tolist()
    [0.0, 0.269, 1.0]
    """
    slope = _nonzero(slope)
    return np.asarray(np.expm1(slope * below) / np.expm1(slope))


def share_untilted(below: Weights, slope: Weights) -> Weights:
    """Return the share of the whole table below places of a cell, given the share of a group below them.

    >>> share_untilted(np.array([0.0, 0.269, 1.0]), np.array(2.0)).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    slope = _nonzero(slope)
    return np.clip(np.log1p(below * np.expm1(slope)) / slope, 0.0, 1.0)


def _nonzero(slope: Weights) -> Weights:
    """Return a slope that can be divided by: with the least ones, values are as in the whole table."""
    return np.where(slope == 0, 1e-9, slope)


def shift(slope: Weights) -> Weights:
    """Return by how many standard deviations of a cell the mean of a group is above that of the whole table.

    It is exact for values that are spread evenly over the cell.

    >>> shift(np.array([0.0, 0.1, 2.0, -2.0])).round(3).tolist()
    [0.0, 0.029, 0.542, -0.542]
    """
    is_flat = np.abs(slope) < 0.01
    steep = np.where(is_flat, 1.0, slope)
    return np.asarray(EVENLY * np.where(is_flat, slope / 12, 0.5 / np.tanh(steep / 2) - 1 / steep))


def slopes(shares: Weights, counted: npt.NDArray[np.bool_]) -> tuple[Weights, npt.NDArray[np.bool_]]:
    """Return how a logarithm changes across each cell, by the cells before and after, and which cells have a known neighbour.

    Args:
        shares: The logarithm in each cell, in the last dimension.
        counted: Whether it is known there.

    >>> found, has = slopes(np.array([0.0, 1.0, 4.0, 9.0]), np.array([True, True, True, False]))
    >>> found.tolist(), has.tolist()
    ([1.0, 2.0, 3.0, 0.0], [True, True, True, False])
    """
    both = counted[..., 1:] & counted[..., :-1]
    steps = np.where(both, np.diff(shares, axis=-1), 0.0)
    edge = [(0, 0)] * (shares.ndim - 1)
    before, after = np.pad(steps, [*edge, (1, 0)]), np.pad(steps, [*edge, (0, 1)])
    neighbours = np.pad(both, [*edge, (1, 0)]).astype(np.int64) + np.pad(both, [*edge, (0, 1)])
    return np.clip((before + after) / np.maximum(neighbours, 1), -STEEPEST, STEEPEST), neighbours > 0
