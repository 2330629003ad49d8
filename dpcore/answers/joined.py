"""The cells of a column in several releases together, and how the cells of one release lie in them.

Releases of one spec can have different cells: each finds its own values, bins or leaves, and its days are those of its own blocks.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpcore.errors import UsageError
from dpcore.models.model import Weights
from dpcore.release.integrity import one_line
from dpcore.universe import Attribute, Categorical, Date, Datetime
from dpcore.universe.fine_days import FineDate, FineDatetime
from dpcore.universe.leaves import MOST_CELLS, Fine, Leaves
from dpcore.universe.spreading import spread_of


def joined_attribute(name: str, attributes: Sequence[Attribute]) -> Attribute:
    """Return a column with the values of all releases: their categories, days or leaves together. Bins are those of the last release.

    >>> joined_attribute("city", [Categorical(("a", "b")), Categorical(("b", "c"))]).labels
    ('a', 'b', 'c')

    Raises:
        UsageError: If the column was declared otherwise.
    """
    last = attributes[-1]
    if all(own == last for own in attributes):
        return last
    if any(
        type(own) is not type(last) or own.missing != last.missing or _extra(own) != _extra(last) for own in attributes
    ):
        raise UsageError(
            f"{one_line(name)} was declared otherwise in some of the releases; ask about the periods before and after that change one by one"
        )
    match last:
        case Categorical():
            values = dict.fromkeys(value for own in attributes if isinstance(own, Categorical) for value in own.values)
            return replace(last, values=tuple(values))
        case Fine():
            return _joined_fine([own for own in attributes if isinstance(own, Fine)])
        case Date() | Datetime():
            return _longer(last, attributes)
    return last


def _extra(attribute: Attribute) -> int:
    """Return the number of cells for other and for missing values."""
    return attribute.size - attribute.cells


def _longer(last: Date | Datetime, attributes: Sequence[Attribute]) -> Date | Datetime:
    """Return a column of days from the first day of all to the last."""
    days = [own for own in attributes if isinstance(own, type(last))]
    first, final = min(own.minimum for own in days), max(own.maximum for own in days)
    return replace(last, minimum=first, maximum=final)  # type: ignore[arg-type]  # both are days, or both are moments


def _joined_fine(attributes: Sequence[Fine]) -> Attribute:
    """Return a column at full resolution with the leaves of all releases. Its cells are those of the last one, or those of all days."""
    last = attributes[-1]
    days = [own for own in attributes if isinstance(own, FineDate | FineDatetime)]
    if not days:
        return last.cut_at(last.starts, leaves=_summed_leaves(attributes, [0] * len(attributes), last.places))
    whole = _longer(days[-1].cut_at(None), days)
    if not isinstance(whole, FineDate | FineDatetime):
        raise TypeError(type(whole))
    offsets = [own.first_day - whole.first_day for own in days]
    bounds = {offset + int(bound) for own, offset in zip(days, offsets, strict=True) for bound in own.cell_bounds}
    inner = sorted(bounds - {0, whole.places})
    if len(inner) >= MOST_CELLS:
        inner = sorted({*offsets} - {0})[: MOST_CELLS - 1]
    return whole.cut_at(inner, leaves=_summed_leaves(days, offsets, whole.places, inner), week=days[-1].week)


def _summed_leaves(
    attributes: Sequence[Fine], offsets: Sequence[int], places: int, inner: Sequence[int] = ()
) -> Leaves | None:
    """Return the sum of leaves. A leaf that another release divides further is divided by length."""
    parts = [(own.leaves, offset) for own, offset in zip(attributes, offsets, strict=True) if own.leaves is not None]
    if len(parts) < len(attributes):
        return None
    bounds = {0, *inner}
    bounds |= {offset + place for leaves, offset in parts for place in (*leaves.starts, leaves.size)}
    if not inner:
        bounds |= {int(bound) for bound in attributes[-1].cell_bounds}
    starts = np.array(sorted(bound for bound in bounds if bound < places))
    edges = np.append(starts, places)
    masses = np.zeros(len(starts))
    for leaves, offset in parts:
        own_edges = np.array([*leaves.starts, leaves.size]) + offset
        below = np.concatenate([[0.0], np.cumsum(leaves.masses, dtype=np.float64)])
        masses += np.diff(np.interp(edges, own_edges, below))
    return Leaves(tuple(starts.tolist()), tuple(np.rint(masses).astype(int).tolist()), places)


def moved(attribute: Attribute, *, to: Attribute) -> Weights:
    """Return which part of each cell of a column, by their values, lies in each cell of another: a row for each of the latter.

    >>> moved(Categorical(("a", "b")), to=Categorical(("c", "b", "a"))).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    if attribute == to:
        return np.eye(to.size)
    shares = np.zeros((to.size, attribute.size))
    if isinstance(attribute, Categorical) and isinstance(to, Categorical):
        for code, value in enumerate(attribute.values):
            shares[to.values.index(value), code] = 1.0
    else:
        bounds, cells = spread_of(to).bounds, np.arange(attribute.cells)
        below = spread_of(attribute).below(bounds)[:, None] - cells[None, :]
        parts = np.clip(below, 0.0, 1.0)
        parts[0], parts[-1] = 0.0, 1.0  # beyond the ends, values are clipped to them
        shares[: to.cells, : attribute.cells] = np.diff(parts, axis=0)
    for extra in range(_extra(attribute)):  # other and missing
        shares[to.cells + extra, attribute.cells + extra] = 1.0
    return shares
