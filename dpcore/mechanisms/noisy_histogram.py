"""Noisy counts of a whole table by cell: its histogram, chosen marginals, or all marginals of a given order."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from dpcore.errors import UsageError
from dpcore.marginals.workload import Axes, Workload
from dpcore.mechanisms.descriptions import Description
from dpcore.mechanisms.query import Exact, NoisyNumbers, Query
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection, Sensitivity
from dpcore.scalars import is_whole
from dpcore.tables.counting import Counts, count_sets
from dpcore.tables.ingest import Coding, Draws, Source, ingest
from dpcore.tables.sources.source import check_columns, check_types
from dpcore.universe import Universe

Marginals: TypeAlias = dict[tuple[str, ...], Counts]

MOST_CELLS = 1 << 27
"""The most cells of all marginals together: a gigabyte of counts."""


@dataclass(frozen=True, kw_only=True)
class NoisyHistogram(NoisyNumbers, Query[Marginals]):
    """Count a table's rows in the cells of some marginals, with noise on each count: one draw, one charge.

    >>> from dpcore.privacy.protection import Neighbours
    >>> from dpcore.universe import Boolean, Integer
    >>> universe = Universe({"smoker": Boolean(), "age": Integer(minimum=0, maximum=99, width=10), "old": Boolean()})
    >>> rows = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.REPLACE_ONE)
    >>> pairs = NoisyHistogram.for_epsilon(1.0, delta=0, universe=universe, order=2, protection=rows)
    >>> pairs.marginals, pairs.sensitivity, pairs.scale
    (((0, 1), (0, 2), (1, 2)), Sensitivity(l1=6, l2_squared=6, linf=1), 6.0)

    Guarantee:
        That of its noise on the counts of all marginals as one vector: pure epsilon for discrete Laplace, rho for the
        Gaussian ones, mu^2 for the rounded one.

    Sensitivity:
        For one marginal, the sensitivity of the protection. For c marginals as one vector: a unit moves each of them by as
        much, so c times its L1, c times the square of its L2, and its Linf. This mechanism bounds a unit's rows itself.

    Randomness:
        The operating system's, through `entropy`, for the noise. Which rows of a unit are kept is decided by 32 bytes of
        it, expanded as in a run.

    Reference:
        Dwork, McSherry, Nissim and Smith 2006; Barak et al. 2007 for sets of marginals.

    Attributes:
        noise: The kind of noise on each count.
        scale: The scale, or sigma, of the noise.
        marginals: The axes of each marginal, in the order of the universe's columns; () is the number of rows.
        protection: The unit to protect, and the neighbouring relation.
        universe: The declared columns of the table. None if the mechanism was rebuilt from a description: it then has a
            price but cannot draw.
    """

    name: ClassVar[str] = "noisy-histogram"
    otherwise: ClassVar[str] = "count fewer marginals"

    marginals: tuple[Axes, ...]
    protection: Protection
    universe: Universe | None = field(compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check, before any draw, that there are marginals, that they fit in memory, and that the noise is valid."""
        _check(self.marginals, universe=self.universe)
        super().__post_init__()

    @classmethod
    def for_amount(  # noqa: PLR0913  `order` and `axes` are alternatives
        cls,
        amount: int,
        *,
        currency: Currency,
        universe: Universe,
        protection: Protection,
        order: int | None = None,
        axes: Iterable[Iterable[str]] | None = None,
    ) -> Self:
        """Return the counts with the least noise that cost at most `amount`.

        Args:
            amount: The amount to spend.
            currency: The currency of the amount.
            universe: The declared columns of the table.
            protection: The unit to protect, and the neighbouring relation.
            order: Count all marginals of this many columns.
            axes: Or count these marginals, each a list of column names. With neither, count the full histogram.
        """
        marginals = _wanted(universe, order=order, axes=axes)
        return cls._bought(amount, currency=currency, marginals=marginals, protection=protection, universe=universe)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one neighbour step can move the counts of all marginals together."""
        single, count = self.protection.sensitivity, len(self.marginals)
        return Sensitivity(l1=count * single.l1, l2_squared=count * single.l2_squared, linf=single.linf)

    def read(self, table: Any) -> Exact:
        """Return the exact counts of the kept rows, for `answer` to add noise. Raise for an unusable table.

        Args:
            table: A pandas, polars or Arrow table with the universe's columns and those that the protection names.
        """
        universe = self._declared()
        coding = Coding(universe=universe, protection=self.protection, window=None)
        source = Source.of(table)
        check_columns(source, columns=coding.columns)
        check_types(source, reads=coding.reads)
        rows = ingest(source, coding=coding, draws=Draws(entropy.random_words(4).tobytes()))
        true = count_sets(list(rows.chunks()), shape=universe.shape, sets=self.marginals)
        return Exact(np.concatenate([counts.ravel() for counts in true]), protection=rows.protection)

    def answer(self, exact: Exact) -> Marginals:
        """Return the noisy counts of each marginal, keyed by column names, as arrays with one axis per column."""
        universe = self._declared()
        shapes = [tuple(universe.shape[axis] for axis in axes) for axes in self.marginals]
        noisy = np.split(
            self.on_numbers.draw(exact.for_noise()), np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        )
        names = [tuple(universe.names[axis] for axis in axes) for axes in self.marginals]
        return {name: part.reshape(shape) for name, part, shape in zip(names, noisy, shapes, strict=True)}

    def describe(self) -> Description:
        """Return the public parameters, from which anyone can recompute the price."""
        return super().describe() | {"marginals": json.dumps(self.marginals, separators=(",", ":"))}

    def _declared(self) -> Universe:
        if self.universe is None:
            raise UsageError(
                "a histogram rebuilt from its description has a price only; make it from its universe to draw"
            )
        return self.universe


def _wanted(universe: Universe, *, order: int | None, axes: Iterable[Iterable[str]] | None) -> tuple[Axes, ...]:
    if not isinstance(universe, Universe):
        raise UsageError("universe must be a Universe; declare the name and the attribute of each column")
    if axes is not None and (isinstance(axes, str) or not isinstance(axes, Iterable)):
        raise UsageError("axes must be a list of marginals, each a list of column names")
    columns = len(universe.names)
    if order is not None and axes is not None:
        raise UsageError(
            "give either order, to count all marginals of a number of columns, or axes, to name them; not both"
        )
    if order is not None:
        if not is_whole(order) or not 1 <= order <= columns:
            raise UsageError(
                f"the order of marginals must be a whole number from 1 to the universe's {columns} columns"
            )
        return Workload.all_of(attributes=columns, order=order).marginals
    listed = (
        [universe.names] if axes is None else [(names,) if isinstance(names, str) else tuple(names) for names in axes]
    )
    if unknown := {name for names in listed for name in names} - set(universe.names):
        raise UsageError(f"the universe declares no column {min(map(repr, unknown))}; name columns that it declares")
    return Workload.of([map(universe.names.index, names) for names in listed]).marginals


def _check(marginals: tuple[Axes, ...], *, universe: Universe | None) -> None:
    if not marginals:
        raise UsageError("there is nothing to count; name at least one marginal")
    for axes in marginals:
        if not all(is_whole(axis) and axis >= 0 for axis in axes) or list(axes) != sorted(set(axes)):
            raise UsageError("a marginal must list the positions of its columns in the universe, ascending, each once")
    if len(set(marginals)) < len(marginals):
        raise UsageError("a marginal is named twice; name each marginal once")
    if universe is not None:
        shape = universe.shape
        if max((axis for axes in marginals for axis in axes), default=0) >= len(shape):
            raise UsageError("a marginal names a position beyond the universe's columns; use column names instead")
        cells = sum(math.prod(shape[axis] for axis in axes) for axes in marginals)
        if cells > MOST_CELLS:
            raise UsageError(
                f"these marginals have {cells} cells, and at most {MOST_CELLS} fit; count fewer or smaller ones"
            )
