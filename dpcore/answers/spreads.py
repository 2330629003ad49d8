"""How the replicates of a release distribute values within the cells of a column, each in its own way."""

import math
from dataclasses import replace

import numpy as np

from dpcore.answers.leaf_tree import LeafTree, TreeNoise
from dpcore.descent.partitions import DOUBT, STANDS_OUT
from dpcore.descent.tree import MOST_SCALED, OF_AN_HOUR, THOUSANDTHS
from dpcore.models.model import Weights
from dpcore.universe import Attribute
from dpcore.universe.attribute import DAY
from dpcore.universe.fine_days import STEPS, FineDays, weekday_of
from dpcore.universe.leaves import Fine, nearness
from dpcore.universe.spread import Segments, Spread
from dpcore.universe.spreading import is_first_day, spread_of

HIDDEN = DOUBT  # the most rows that a tree loses in nodes that do not stand out, in standard deviations of the sum of these nodes


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
    # The two halves of a declared bin usually differ by 0.8 of its rows.
    skew = float(np.clip(rng.normal(0.0, 0.8), -0.9, 0.9))
    left = np.where(
        middle > segments.low, (middle - segments.low) / width * (1 + skew * (segments.high - middle) / width), 0.0
    )
    low, high = np.stack([segments.low, middle], axis=1).ravel(), np.stack([middle, segments.high], axis=1).ravel()
    mass = np.stack([left, 1 - left], axis=1).ravel() * np.repeat(segments.mass, 2)
    return _with(spread, Segments.of(low, high, np.repeat(segments.cell, 2), mass))


def noisy(attribute: Fine, noise: TreeNoise, rng: np.random.Generator) -> Spread:
    """Return a spread of leaves with fresh noise. A leaf's estimate was clipped at zero, so its error is at most about its size."""
    spread, leaves = spread_of(attribute), attribute.leaves
    if leaves is None:
        return spread
    segments = spread.segments
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
    shares = attribute.weekday_rows
    if shares is None or (segments.high - segments.low > places).any():
        return np.ones(len(rows))
    weekday = weekday_of(segments.low // places)
    held = np.bincount(weekday, weights=rows, minlength=7)
    scale = np.divide(shares * (held.sum() / shares.sum()), held, out=np.ones(7), where=held > 0)
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
        nodes, node = np.unique(starts // math.prod(parts[level + 1 :]), return_inverse=True)
        above = np.zeros(len(nodes), dtype=np.intp)
        above[node] = parent
        own = np.bincount(node, weights=rows)
        error = rng.normal(0.0, THOUSANDTHS * noise.deviation, len(nodes))
        drawn = own + np.clip(error, -0.99 * own, own)
        whole = np.bincount(above, weights=drawn)[above]
        varied = varied[above] * np.divide(drawn, whole, out=np.zeros(len(nodes)), where=whole > 0)
    return replace(attribute, week=replace(week, masses=tuple(np.rint(varied[node]).astype(int).tolist())))


def with_hidden(attribute: Fine, noise: TreeNoise) -> tuple[Spread, ...]:
    """Return spreads of leaves with the most rows that a tree may have lost in its noise, and without the most that noise may have made.

    If the second leaves a cell without rows, nothing is known of how they lie in it. In the first spread they lie evenly then, in the
    second in the leaves that meet other cells.
    """
    leaves = attribute.leaves
    if leaves is None or isinstance(attribute, FineDays):  # the segments of days are times of the week, too
        return ()
    spread, tree = spread_of(attribute), LeafTree(leaves, noise)
    low, cell = tree.starts + spread.bounds[0], np.searchsorted(attribute.cell_bounds, tree.starts, side="right") - 1
    fewer = _rows_without_made(tree)
    unknown = (np.bincount(cell, weights=fewer, minlength=attribute.cells) <= 0)[cell]
    meets = np.diff(cell, prepend=cell[0]) + np.diff(cell, append=cell[-1]) + (attribute.cells == 1)
    masses = np.where(unknown, tree.widths, _rows_with_hidden(tree)), np.where(unknown, meets, fewer)
    return tuple(_with(spread, Segments.of(low, low + tree.widths, cell, mass)) for mass in masses)


def _rows_with_hidden(tree: LeafTree) -> Weights:
    """Return the rows of leaves, with more in those that do not stand out, and fewer in their siblings.

    A tree gives the rows of such leaves to their siblings, unless all of them together stand out (`descent.partitions.divide`). So a long
    tail is lost, and no fresh noise around the leaves would show that. As in a tree, lost rows of the first level are expected near those
    that stand out, and those of a node anywhere within it.
    """
    leaves = tree.rows
    for at in range(int(tree.level.max()), -1, -1):
        parent, own = tree.parents(at), tree.light & (tree.level == at)
        rows = np.bincount(parent, weights=leaves)
        variance = np.bincount(parent, weights=np.where(own, tree.deviations**2, 0.0))
        hidden = np.minimum(HIDDEN * np.sqrt(variance), rows / 2)
        near = nearness(np.append(tree.starts, tree.leaves.size), ~own) if at == 0 else 1.0
        weights = np.where(own, tree.widths * near, 0.0)
        total = np.bincount(parent, weights=weights)
        added = weights * np.divide(hidden, total, out=np.zeros(len(total)), where=total > 0)[parent]
        left = np.divide(rows - hidden, rows, out=np.ones(len(rows)), where=rows > 0)
        leaves = leaves * left[parent] + added
    return leaves


def _rows_without_made(tree: LeafTree) -> Weights:
    """Return the rows of leaves, with fewer in nodes that do not stand out, and more in their siblings: noise also makes nodes larger."""
    leaves = tree.rows
    for at in range(int(tree.level.max()), -1, -1):
        parent, node = tree.parents(at), np.unique(tree.nodes(at), return_inverse=True)[1]
        deviation = tree.deviation(at)
        own = np.bincount(node, weights=leaves)[node] < STANDS_OUT * deviation
        rows, light = np.bincount(parent, weights=leaves), np.bincount(parent, weights=leaves * own)
        nodes = np.bincount(parent, weights=own / np.bincount(node)[node])  # those that do not stand out
        gained = np.where(rows > light, np.minimum(HIDDEN * deviation * np.sqrt(nodes), light), 0.0)
        others = np.divide(gained, rows - light, out=np.zeros(len(rows)), where=rows > light)
        theirs = np.divide(gained, light, out=np.zeros(len(rows)), where=light > 0)
        leaves = leaves * np.where(own, 1 - theirs[parent], 1 + others[parent])
    return leaves


def _with(spread: Spread, segments: Segments) -> Spread:
    return Spread(
        segments, spread.bounds, whole=spread.whole, place=spread.place, value=spread.value, edges=spread.edges
    )
