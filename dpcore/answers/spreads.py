"""How the replicates of a release distribute values within the cells of a column, each in its own way."""

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpcore.answers.leaf_tree import LeafTree, TreeNoise
from dpcore.descent.partitions import DOUBT, FARTHER
from dpcore.descent.tree import MOST_SCALED, OF_AN_HOUR, THOUSANDTHS
from dpcore.models.model import Weights
from dpcore.universe import Attribute
from dpcore.universe.fine_days import STEPS, FineDays, weekday_of
from dpcore.universe.leaves import Fine, Leaves
from dpcore.universe.reading import DAY
from dpcore.universe.spread import Indices, Segments, Spread
from dpcore.universe.spreading import is_first_day

SKEW = 0.8  # the usual difference between the two halves of a declared bin, as a share of its rows
HIDDEN = DOUBT  # the most rows that a tree loses in nodes that do not stand out, in standard deviations of the sum of these nodes
MOST_HIDDEN = 0.5  # of the rows of a node
LEAST_LEFT = 0.01  # of the rows of a node, whatever the noise


def varies(attribute: Attribute, spread: Spread | None) -> bool:
    """Return whether values within a cell can be distributed otherwise. Dates in bins are released as the first day of their bin."""
    if spread is None or is_first_day(attribute):
        return False
    return not spread.whole or bool((np.diff(spread.bounds) > 1).any())


def skewed(spread: Spread, rng: np.random.Generator) -> Spread:
    """Return a spread whose cells all have more values in one half, or all in the other: nothing was measured within them."""
    segments = spread.segments
    width = segments.high - segments.low
    middle = segments.low + (width // 2 if spread.whole else width / 2)
    skew = float(np.clip(rng.normal(0.0, SKEW), -0.9, 0.9))
    left = np.where(
        middle > segments.low, (middle - segments.low) / width * (1 + skew * (segments.high - middle) / width), 0.0
    )
    low, high = np.stack([segments.low, middle], axis=1).ravel(), np.stack([middle, segments.high], axis=1).ravel()
    mass = np.stack([left, 1 - left], axis=1).ravel() * np.repeat(segments.mass, 2)
    return _with(spread, Segments.of(low, high, np.repeat(segments.cell, 2), mass))


def noisy(spread: Spread, attribute: Fine, noise: TreeNoise, rng: np.random.Generator) -> Spread:
    """Return a spread of leaves with fresh noise. A leaf's estimate was clipped at zero, so its error is at most about its size."""
    segments, leaves = spread.segments, attribute.leaves
    if leaves is None:
        return spread
    held = np.array(leaves.masses, dtype=np.float64) / THOUSANDTHS
    bounds = np.searchsorted(np.array([*leaves.starts, leaves.size]), attribute.cell_bounds)
    in_cell = np.add.reduceat(np.append(held, 0.0), bounds[:-1]) if len(bounds) > 1 else held.sum(keepdims=True)
    counts = segments.mass * np.maximum(in_cell[segments.cell], 1.0)
    error = np.minimum(noise.deviation, counts / 2)
    varied = np.maximum(counts + rng.normal(0.0, 1.0, len(counts)) * error, 1e-9)
    if isinstance(attribute, FineDays):
        varied = varied * _as_weekdays(segments, varied, attribute)
    return _with(spread, Segments.of(segments.low, segments.high, segments.cell, varied))


def _as_weekdays(segments: Segments, rows: Weights, attribute: FineDays) -> Weights:
    """Return by how much the rows of days are scaled so that weekdays have their shares, as those of a release are (`descent.tree`)."""
    places = DAY // STEPS[attribute.step]  # of a day
    wanted = attribute.weekday_rows
    if wanted is None or (segments.high - segments.low > places).any():
        return np.ones(len(rows))
    weekday = weekday_of(segments.low // places)
    held = np.bincount(weekday, weights=rows, minlength=7)
    scale = np.divide(wanted * (held.sum() / wanted.sum()), held, out=np.ones(7), where=held > 0)
    return np.asarray(np.clip(scale, 1 / MOST_SCALED, MOST_SCALED)[weekday])


def with_noisy_week(attribute: FineDays, noise: TreeNoise, rng: np.random.Generator) -> FineDays:
    """Return a column whose tree of the week has fresh noise: that of one count in each node, whose parts add up to it.

    An estimate was clipped at zero, so its error is at most about its size.
    """
    if attribute.week is None:
        return attribute
    week, parts = attribute.week, (7, *OF_AN_HOUR[attribute.step])
    starts, rows = np.array(week.starts, dtype=np.int64), np.array(week.masses, dtype=np.float64)
    node, varied = np.zeros(len(starts), dtype=np.intp), rows.sum(keepdims=True)
    for level in range(len(parts)):
        parent = node
        found, node = np.unique(starts // math.prod(parts[level + 1 :]), return_inverse=True)
        above = np.zeros(len(found), dtype=np.intp)
        above[node] = parent
        own = np.bincount(node, weights=rows)
        error = rng.normal(0.0, THOUSANDTHS * noise.deviation, len(found))
        drawn = own + np.clip(error, LEAST_LEFT * own - own, own)
        whole = np.bincount(above, weights=drawn)[above]
        varied = varied[above] * np.divide(drawn, whole, out=np.zeros(len(found)), where=whole > 0)
    return replace(attribute, week=replace(week, masses=tuple(np.rint(varied[node]).astype(int).tolist())))


def with_hidden(spread: Spread, attribute: Fine, noise: TreeNoise) -> Spread:
    """Return a spread of leaves that has the most rows that its tree may have lost: in leaves that do not stand out of the noise."""
    leaves = attribute.leaves
    if leaves is None or isinstance(attribute, FineDays):  # the segments of days are times of the week, too
        return spread
    starts = np.array(leaves.starts, dtype=np.int64)
    widths = np.diff(np.append(starts, leaves.size))
    cell = np.searchsorted(attribute.cell_bounds, starts, side="right") - 1
    rows = _rows_with_hidden(leaves, noise)
    empty = np.bincount(cell, weights=rows, minlength=attribute.cells) <= 0
    low = starts + spread.bounds[0]
    return _with(spread, Segments.of(low, low + widths, cell, np.where(empty[cell], widths, rows)))


def _rows_with_hidden(leaves: Leaves, noise: TreeNoise) -> Weights:
    """Return the rows of leaves, with more in those that do not stand out, and fewer in their siblings.

    A tree gives the rows of such leaves to their siblings, unless all of them together stand out (`descent.partitions.divide`). So a long
    tail is lost, and no fresh noise around the leaves would show that. As in a tree, lost rows of the first level are expected near those
    that stand out, and those of a node anywhere within it.
    """
    tree = LeafTree(leaves, noise)
    starts, widths, level, found = tree.starts, tree.widths, tree.level, tree.rows
    for at in range(int(level.max()), -1, -1):
        parent, own = tree.parents(at), tree.light & (level == at)
        count = np.bincount(parent, weights=own)
        rows = np.bincount(parent, weights=found)
        variance = np.bincount(parent, weights=np.where(own, tree.deviations**2, 0.0))
        hidden = HIDDEN * np.sqrt(variance)
        hidden = np.where(count > 0, np.minimum(hidden, MOST_HIDDEN * rows), 0.0)
        near = _nearness(starts, widths, own, tree.node_widths[0]) if at == 0 else 1.0
        weights = np.where(own, widths * near, 0.0)
        total = np.bincount(parent, weights=weights)
        added = weights * np.divide(hidden, total, out=np.zeros(len(total)), where=total > 0)[parent]
        kept = np.divide(rows - hidden, rows, out=np.ones(len(rows)), where=rows > 0)
        found = found * kept[parent] + added
    return found


def _nearness(starts: Indices, widths: Indices, own: npt.NDArray[np.bool_], width: int) -> Weights:
    """Return the density that is expected of each leaf of the first level: it falls with the distance from the nearest one that stands out."""
    large = np.flatnonzero(~own)
    if not len(large):
        return np.ones(len(starts))
    middle = starts + widths / 2
    after = np.clip(np.searchsorted(large, np.arange(len(starts))), 0, len(large) - 1)
    before = np.maximum(after - 1, 0)
    gaps = [np.abs(middle - middle[near]) - (widths + widths[near]) / 2 for near in (large[before], large[after])]
    away: Weights = np.maximum(np.minimum(*gaps), 0.0)
    return np.asarray(FARTHER ** np.minimum(away / width, 60.0))


def _with(spread: Spread, segments: Segments) -> Spread:
    return Spread(
        segments, spread.bounds, whole=spread.whole, place=spread.place, value=spread.value, edges=spread.edges
    )
