"""Sample rows from a calibrated tree, clique by clique, each as close to its distribution as whole rows can be.

Rows that agree on a clique's separator form a group. The clique's new axes are drawn for each row by a share between 0 and 1, which the
group's distribution converts to a cell. Random shares would add sampling noise to every marginal. Instead, the rows of a group are ordered
so that similar rows are neighbours, and row i gets the share i x golden ratio, modulo 1. In any run of neighbours such shares are spread
evenly, so each cell is drawn about as often as expected (Weyl's sequence; van der Corput 1935).

Rows are ordered by one column, within that by another, and so on. So the rows that agree on the first columns are neighbours, and within
them those that also agree on the next. Columns are in a new random order for every clique, and so are the values of each column, anew among
any rows that agree on the columns before. Otherwise two cliques could order the rows the same way, and columns that are independent given
their separator would be correlated.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models.factored.scopes import Scopes
from dpcore.models.factored.tree import JunctionTree
from dpcore.models.model import Rows, Weights

Codes = NDArray[np.int64]

GOLDEN = (math.sqrt(5) - 1) / 2
LEVELS = 8  # columns by which rows are ordered: then hardly any two rows still agree
CHUNK_ROWS = 1 << 18  # rows drawn at a time: bounds the memory, and shifts a cell's count by a few rows per chunk


def draw_chunks(
    tree: JunctionTree, beliefs: list[Weights], scopes: Scopes, count: int, *, rng: np.random.Generator
) -> Iterator[Rows]:
    """Return an iterator over the codes of `count` rows in chunks, each in random order."""
    if count < 0:
        raise UsageError("The number of rows must not be negative: use 0 or more.")
    of = scopes.resolutions
    kinds = [np.min_scalar_type(of.cells((column,)) - 1) for column in range(of.columns)]
    sizes = (min(CHUNK_ROWS, count - start) for start in range(0, count, CHUNK_ROWS))
    drawn = (_draw_chunk(tree, beliefs, scopes, size, rng=rng) for size in sizes)
    return (tuple(codes.astype(kind) for codes, kind in zip(chunk, kinds, strict=True)) for chunk in drawn)


def _draw_chunk(
    tree: JunctionTree, beliefs: list[Weights], scopes: Scopes, count: int, *, rng: np.random.Generator
) -> tuple[Codes, ...]:
    of = scopes.resolutions
    drawn: dict[int, Codes] = {}
    for clique in tree.order:
        axes = tree.axes[clique]
        new = tuple(axis for axis in axes if axis not in drawn)
        if not new:
            continue
        shared = () if clique == tree.root else scopes.axes(tree.separator(clique, tree.parents[clique]))
        same = tuple(axis for axis in shared if axis in axes)
        coarser = tuple(axis for axis in shared if axis not in axes)
        cells = _cells_by_group(of, new, coarser)
        table = beliefs[clique].transpose([axes.index(axis) for axis in same + new]).reshape(of.cells(same), -1)
        lines = _flat([drawn[axis] for axis in same], of.shape_of(same), count)
        groups = _flat([drawn[axis] for axis in coarser], of.shape_of(coarser), count)
        finest = {of.column(axis): axis for axis in sorted(drawn, reverse=True)}
        similar = [drawn[axis] for axis in finest.values() if axis not in shared]
        order = _similar_together(lines * of.cells(coarser) + groups, similar, rng=rng)
        shares = np.empty(count)
        shares[order] = (np.arange(count) * GOLDEN + rng.random()) % 1.0
        flat = cells.order[_draw(table[:, cells.order], lines, groups, cells.starts, shares)]
        for axis, codes in zip(new, np.unravel_index(flat, of.shape_of(new)), strict=True):
            for version in of.versions(of.column(axis)):
                if version >= axis:
                    drawn[version] = of.groups(axis, version)[codes]
    shuffled = rng.permutation(count)
    return tuple(drawn[column][shuffled] for column in range(of.columns))


class _CellsByGroup(NamedTuple):
    """The cells of new axes, ordered by their already known coarser group, and the start of each group."""

    order: Codes
    starts: Codes


def _cells_by_group(of: Resolutions, new: Axes, coarser: Axes) -> _CellsByGroup:
    """Group the cells of the new axes by coarser versions of these axes."""
    shape = of.shape_of(new)
    digits = np.unravel_index(np.arange(math.prod(shape)), shape) if new else ()
    codes = []
    for axis in coarser:
        finer = next(place for place, fine in enumerate(new) if of.column(fine) == of.column(axis))
        codes.append(of.groups(new[finer], axis)[digits[finer]])
    groups = _flat(codes, of.shape_of(coarser), math.prod(shape))
    order = np.argsort(groups, kind="stable")
    return _CellsByGroup(order, np.searchsorted(groups[order], np.arange(of.cells(coarser) + 1)))


def _flat(codes: list[Codes], shape: tuple[int, ...], count: int) -> Codes:
    flat = np.zeros(count, dtype=np.int64)
    for column, size in zip(codes, shape, strict=True):
        flat *= size
        flat += column
    return flat


def _similar_together(groups: Codes, columns: list[Codes], *, rng: np.random.Generator) -> Codes:
    """Return rows in the order of their groups, and within each by one column after the other. The order of columns and values is random.

    Rows that agree so far get a new random number for each value of the next column. So the same values are in another order elsewhere.
    """
    keys: list[NDArray[Any]] = [rng.permutation(len(groups))]
    agree = _scattered(groups.astype(np.uint64))
    for place in rng.permutation(len(columns))[:LEVELS].tolist():
        agree = _scattered(agree + columns[place].astype(np.uint64) + rng.integers(1 << 63, dtype=np.uint64))
        keys.insert(1, (agree >> np.uint64(48)).astype(np.uint16))
    return np.lexsort((*keys, groups))


def _scattered(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a number that looks random for each number (the finaliser of SplitMix64, Steele, Lea and Flood 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _draw(table: Weights, lines: Codes, groups: Codes, starts: Codes, shares: Weights) -> Codes:
    """Return a column of the table for each row: in its line and its group of columns, at its share of their mass."""
    width = table.shape[1]
    ends = np.cumsum(table)
    begin, end = lines * width + starts[groups], lines * width + starts[groups + 1]  # of the flat table
    below = np.where(begin > 0, ends[begin - 1], 0.0)
    mass = ends[end - 1] - below
    # Rounding may move a share to the very end of its group, where the next one begins.
    positions = np.minimum(below + shares * mass, np.nextafter(ends[end - 1], 0.0))
    places = np.searchsorted(ends, positions, side="right")
    places = np.clip(places, begin, end - 1)
    for row in np.flatnonzero(mass <= 0).tolist():
        places[row] = begin[row] + _faint(table.ravel()[begin[row] : end[row]], float(shares[row]))
    columns: Codes = places - lines * width
    return columns


def _faint(weights: Weights, share: float) -> int:
    """Return the cell at a share of weights that are too small for a sum over the whole table. If all are zero, they count alike.

    >>> _faint(np.array([0.0, 1e-300, 0.0]), 0.9), _faint(np.zeros(4), 0.9)
    (1, 3)
    """
    ends = np.cumsum(weights / weights.max()) if weights.max() > 0 else np.arange(1.0, len(weights) + 1)
    return int(np.searchsorted(ends, min(share * float(ends[-1]), float(np.nextafter(ends[-1], 0.0))), side="right"))
