"""Random columns, coarser versions and functions of them, and what follows from them by the plain computation over all cells."""

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models import Weights

Functions = dict[Axes, Weights]
Codes = Sequence[NDArray[np.int64]]

SEEDS = st.integers(0, 2**32)
WIDTHS = st.sampled_from([1.0, 1.0, 20.0])
# The exponential of -720 is hardly a number, and those beyond are none.
EXTREMES = st.sampled_from([0.0, 0.0, 200.0, -200.0, 720.0, -720.0, 5000.0, -5000.0])


def nested(cells: int, rng: np.random.Generator, *, versions: int) -> list[NDArray[np.intp]]:
    """Return the groups of so many coarser versions of a column, each made of the one before."""
    found, groups = [], np.arange(cells)
    for _ in range(versions):
        size = int(groups.max()) + 1
        merged = np.unique(rng.integers(0, size, size), return_inverse=True)[1]
        groups = merged[groups]
        found.append(groups)
    return found


@st.composite
def resolutions(draw: st.DrawFn, *, columns: int = 6, cells: int = 4, versions: int = 2) -> Resolutions:
    """Draw some columns, often of a single cell, and coarser versions of them in any order of columns."""
    made = Resolutions(draw(st.lists(st.integers(1, cells), min_size=1, max_size=columns)))
    waiting = []
    for column in range(made.columns):
        rng = np.random.default_rng(draw(SEEDS))
        groups = nested(made.shape[column], rng, versions=draw(st.integers(0, versions)))
        waiting.append((column, groups))
    while waiting := [(column, groups) for column, groups in waiting if groups]:
        column, groups = draw(st.sampled_from(waiting))
        made.coarsen(column, groups.pop(0))
    return made


@st.composite
def axes_of(draw: st.DrawFn, of: Resolutions, *, most: int) -> Axes:
    """Draw axes of different columns, each at any resolution."""
    columns = draw(st.lists(st.integers(0, of.columns - 1), unique=True, max_size=most))
    return tuple(sorted(draw(st.sampled_from(of.versions(column))) for column in columns))


@st.composite
def functions_of(draw: st.DrawFn, of: Resolutions, *, sets: int = 6, most: int = 4) -> Functions:
    """Draw functions of a few axes each: of normal entries, some twenty times as wide, some with an extreme entry or a row of them."""
    functions: Functions = {}
    for axes in draw(st.lists(axes_of(of, most=most), unique=True, max_size=sets)):
        rng = np.random.default_rng(draw(SEEDS))
        function = np.asarray(rng.normal(0, draw(WIDTHS), of.shape_of(axes)))
        if axes and draw(st.booleans()):
            function[rng.integers(function.shape[0])] += draw(EXTREMES)
        else:
            function.flat[rng.integers(function.size)] += draw(EXTREMES)
        functions[axes] = function
    return functions


def distribution(of: Resolutions, functions: Mapping[Axes, Weights]) -> Weights:
    """Return the probabilities of all cells of the columns."""
    shape = of.shape[: of.columns]
    every = np.indices(shape, sparse=True)
    logarithm = np.zeros(shape)
    for axes, function in functions.items():
        logarithm = logarithm + function[tuple(_at(of, axis, every) for axis in axes)]
    weights = np.exp(logarithm - logarithm.max())
    return np.asarray(weights / weights.sum())


def marginal_of(of: Resolutions, probabilities: Weights, axes: Axes) -> Weights:
    """Return the sums of the probabilities of all cells to axes of any resolution."""
    every = np.indices(probabilities.shape, sparse=True)
    found = np.zeros(of.shape_of(axes))
    at = tuple(np.broadcast_to(_at(of, axis, every), probabilities.shape).ravel() for axis in axes)
    np.add.at(found, at, probabilities.ravel() if axes else probabilities.sum())
    return found


def counted(of: Resolutions, rows: Codes, axes: Axes) -> Weights:
    """Return how many rows there are in every cell of axes of any resolution."""
    found = np.zeros(of.shape_of(axes))
    at = tuple(_at(of, axis, rows) for axis in axes)
    np.add.at(found, at, 1.0 if axes else float(len(rows[0])))
    return found


def _at(of: Resolutions, axis: int, codes: Codes) -> NDArray[np.intp]:
    column = of.column(axis)
    return of.groups(column, axis)[codes[column]]
