"""The constraint that some columns determine another, such as `city -> state`: every released row obeys one function.

The spec names the columns, not the function. A run learns the function from noisy counts: each combination of the given columns determines
the value with the largest count. From then on, every other value is impossible, as if the spec had listed the possible pairs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import SpecError
from dpcore.universe.attribute import Attribute
from dpcore.universe.constraints import Columns, Constraint, Possible, checked_shape, names_of
from dpcore.universe.extremes import cell_intervals
from dpcore.universe.spread import null_codes
from dpcore.universe.spreading import spread_of

MOST_DETERMINED = 100_000
"""The most combinations of the given columns. The manifest lists them all."""

UNDETERMINED = -1
"""Stands for the value of a combination that no row can have."""

CLEAR = 4.0
"""A largest count that is this many standard deviations of the noise above the second one belongs to the true value, but for one case in 400."""


@dataclass(frozen=True, kw_only=True)
class Depends(Constraint):
    """The declared values of some columns determine the value of another one.

    Nulls and `other` among the given columns determine nothing. A null of the determined column is always possible.

    Attributes:
        given: The columns that determine it.
        determined: The determined column.
        share: The share of the budget for learning the function.
        codes: The determined code for each combination of declared cells of the given columns; None until it is learned.
    """

    given: Columns
    determined: str
    share: Fraction
    codes: tuple[int, ...] | None = None

    @property
    def columns(self) -> Columns:
        """The given columns, then the determined one."""
        return *self.given, self.determined

    @property
    def words(self) -> str:
        """The dependency as the spec writes it."""
        return _written(self.given, self.determined)

    def tables(self, attributes: Mapping[str, Attribute]) -> Iterator[tuple[Columns, Possible]]:
        """Yield one table, in which everything is possible until the function is learned."""
        _refuse_bins(self.determined, attributes[self.determined])
        possible = np.ones(checked_shape(self.columns, attributes), dtype=np.bool_)
        declared = [attributes[column].cells for column in self.given]
        if prod(declared) > MOST_DETERMINED:
            raise SpecError(
                f"{names_of(self.given)} have {prod(declared):,} combinations of cells, and a dependency may have at most {MOST_DETERMINED:,}; "
                "declare coarser columns"
            )
        if self.codes is not None:
            codes = np.array(self.codes).reshape(*declared, 1)
            allowed = (codes == np.arange(possible.shape[-1])) | (codes == UNDETERMINED)
            allowed[..., list(null_codes(attributes[self.determined]))] = True
            possible[tuple(map(slice, declared))] = allowed
        yield self.columns, possible

    def learned(
        self, counts: npt.NDArray[np.integer[Any]], possible: Possible | None, attributes: Mapping[str, Attribute]
    ) -> "Depends":
        """Return the dependency with the function that noisy counts suggest. This is post-processing.

        Args:
            counts: Noisy counts of all columns, in the order of `columns`.
            possible: Which of these cells other constraints allow; None if they allow all of them. Every combination of the given columns
                that had a possible row then keeps one.
            attributes: The columns.
        """
        ranked = self._ranked(counts, possible, attributes)
        best = ranked.argmax(axis=-1)
        return replace(self, codes=tuple(np.where(ranked.max(axis=-1) > -np.inf, best, UNDETERMINED).ravel().tolist()))

    def clear(
        self,
        counts: npt.NDArray[np.integer[Any]],
        possible: Possible | None,
        attributes: Mapping[str, Attribute],
        *,
        noise: float,
    ) -> int:
        """Return for how many combinations of the given columns, of those that are possible, the largest noisy count stands out clearly."""
        ranked = np.sort(self._ranked(counts, possible, attributes), axis=-1)
        ranked = ranked[ranked[..., -1] > -np.inf]
        return int((ranked[:, -1] - ranked[:, -2] > CLEAR * noise).sum()) if ranked.shape[-1] > 1 else len(ranked)

    def _ranked(
        self, counts: npt.NDArray[np.integer[Any]], possible: Possible | None, attributes: Mapping[str, Attribute]
    ) -> npt.NDArray[np.float64]:
        """Return the counts of declared cells of the given columns. Values that cannot be determined count less than any other."""
        ranked = counts.astype(np.float64) if possible is None else np.where(possible, counts, -np.inf)
        ranked[..., list(null_codes(attributes[self.determined]))] = -np.inf
        return ranked[tuple(slice(attributes[column].cells) for column in self.given)]

    def rows(self, attributes: Mapping[str, Attribute]) -> tuple[tuple[str, ...], ...]:
        """Return the learned function by the names of cells: each combination of the given columns, with its determined value."""
        declared = [attributes[column].cells for column in self.given]
        values, rows = attributes[self.determined].labels, []
        for place, code in enumerate(self.codes or ()):
            if code != UNDETERMINED:
                cells = np.unravel_index(place, declared)
                named = (attributes[column].labels[int(cell)] for column, cell in zip(self.given, cells, strict=True))
                rows.append((*named, values[code]))
        return tuple(rows)

    def restored(self, rows: Sequence[Sequence[str]], attributes: Mapping[str, Attribute]) -> "Depends":
        """Return the dependency with a function that `rows` has written.

        Raises:
            SpecError: If the rows are not of these columns.
        """
        places = [{label: code for code, label in enumerate(attributes[column].labels)} for column in self.columns]
        codes = np.full([attributes[column].cells for column in self.given], UNDETERMINED)
        try:
            for row in rows:
                *cells, value = (place[label] for place, label in zip(places, row, strict=True))
                codes[tuple(cells)] = value
        except (KeyError, IndexError, ValueError):
            raise SpecError(f"the function of `{self.words}` is not one of its columns") from None
        return replace(self, codes=tuple(codes.ravel().tolist()))


@dataclass(frozen=True)
class LearnedFunction:
    """A function that a run has learned for a dependency. All of it is public.

    Attributes:
        given: The columns that determine another one.
        determined: The determined column.
        rows: Each combination of the given columns, with its determined value.
        clear: For how many of them the largest noisy count stood out clearly. The others may be guesses.
        noise: The standard deviation of the noise in a count.
        spent: The price, as a share of the run's budget.
    """

    given: tuple[str, ...]
    determined: str
    rows: tuple[tuple[str, ...], ...]
    clear: int
    noise: float
    spent: float

    @classmethod
    def told(cls, written: Mapping[str, Any]) -> "LearnedFunction":
        """Return a function as a manifest describes it."""
        return cls(**{**written, "given": tuple(written["given"]), "rows": tuple(map(tuple, written["rows"]))})

    @property
    def words(self) -> str:
        """The dependency as the spec writes it."""
        return _written(self.given, self.determined)


def _written(determining: Columns, determined: str) -> str:
    return f"{', '.join(determining)} -> {determined}"


def refuse_circles(dependencies: Sequence[Depends]) -> None:
    """Raise if columns depend on themselves, directly or through others."""
    for start in dependencies:
        reached = {start.determined}
        while more := {
            further.determined
            for further in dependencies
            if further.determined not in reached and reached.intersection(further.given)
        }:
            reached |= more
        if circle := sorted(reached.intersection(start.given)):
            raise SpecError(
                f"the dependencies of `{circle[0]}` and `{start.determined}` form a circle; remove one of them, or list the pairs with `possible`"
            )


def refuse_shared_determined(constraints: Sequence[Constraint]) -> None:
    """Raise if a determined column is in another constraint, unless it determines a further column there.

    Otherwise two functions, or a function and a declared fact, could together leave no row for a value: which one, the noise would decide.
    """
    for dependency in constraints:
        if not isinstance(dependency, Depends):
            continue
        for constraint in constraints:
            determining = constraint.given if isinstance(constraint, Depends) else ()
            shared = set(constraint.columns).difference(determining)
            if constraint is not dependency and dependency.determined in shared:
                raise SpecError(
                    f"`{dependency.determined}` is determined by {names_of(dependency.given)}, so it cannot be in another constraint, unless it "
                    "determines a further column there; remove one of them, or list the pairs with `possible`"
                )


def _refuse_bins(column: str, attribute: Attribute) -> None:
    """Raise if a cell of a determined column stands for several values: a function of cells would be none of values."""
    if attribute.ordered:
        start, stop = cell_intervals(attribute)
        if (start < spread_of(attribute).before(stop)).any():
            raise SpecError(
                f"the bins of `{column}` have several values, so nothing determines one of them; make it categorical, or write `width: 1`"
            )
