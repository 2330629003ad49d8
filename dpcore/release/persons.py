"""Write rows with a synthetic id, so that the rows of one synthetic person stay together. This is post-processing."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.models.persons import divide
from dpcore.release.draft import Persons, SyntheticRows
from dpcore.release.statement import FAINT
from dpcore.universe import Universe

CLEARLY_OTHER = 0.05
"""The distance between the learned and the released distribution of rows per person that readers are warned about."""


class PersonRows:
    """The rows of a release by person. Its figures are complete once all tables were taken."""

    def __init__(self, persons: Persons, universe: Universe) -> None:
        self.persons = persons
        self._universe = universe
        self._numbers = np.zeros(persons.sizes.limit, dtype=np.int64)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows: the id first."""
        return self._universe.schema.insert(0, pa.field(self.persons.column, pa.int64()))

    def tables(self, rows: SyntheticRows, rng: np.random.Generator, *, most_rows: int) -> Iterator[pa.Table]:
        """Yield the rows as values with their ids, at most so many at a time. The rows of a person follow each other.

        Rows are divided chunk by chunk, so memory does not depend on their number. A person's constant values are drawn once.
        """
        divided_by, shares = np.random.default_rng(self.persons.seed), self.persons.sizes.shares()
        attributes = list(self._universe.attributes.items())
        constant = [axis for axis, (name, _) in enumerate(attributes) if name in self.persons.constant]
        written = 0
        for chunk in rows.chunks():
            division = divide(chunk, constant=constant, shares=shares, rng=divided_by)
            self._numbers += np.bincount(division.sizes - 1, minlength=len(self._numbers))
            codes, owners = [axis[division.order] for axis in chunk], division.persons
            drawn = {axis: attributes[axis][1].decode(codes[axis][division.firsts], rng) for axis in constant}
            for start in range(0, len(owners), most_rows):
                own = owners[start : start + most_rows]
                table = self._universe.decode([axis[start : start + most_rows] for axis in codes], rng)
                for axis, values in drawn.items():
                    table = table.set_column(axis, table.schema.field(axis), values.take(pa.array(own)))
                yield table.add_column(0, self.schema.field(0), pa.array(written + 1 + own))
            written += len(division.sizes)

    @property
    def number(self) -> int:
        """How many persons were written."""
        return int(self._numbers.sum())

    @property
    def distance(self) -> float:
        """The largest distance between the learned and the released cumulative shares of persons by their number of rows."""
        released = np.cumsum(self._numbers) / max(self.number, 1)
        return float(np.abs(released - np.cumsum(self.persons.sizes.shares())).max()) if self.number else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return what the manifest says about the persons."""
        persons, sizes = self.persons, self.persons.sizes
        return {
            "column": persons.column,
            "constant": list(persons.constant),
            "persons": self.number,
            "sizes": self._numbers.tolist(),
            "measured": None
            if not persons.spent  # a person with one row at most needs no measurement
            else {"by_size": asdict(sizes.by_size), "by_class": asdict(sizes.by_class)},
            "classes": list(sizes.classes),
            "spent": persons.spent,
        }

    def by_class(self) -> Iterator[tuple[str, float, float]]:
        """Yield each class of sizes, with its share of the persons as learned, and here."""
        sizes = self.persons.sizes
        learned, here = (sizes.in_classes(shares) for shares in (sizes.shares(), self._numbers / max(self.number, 1)))
        return zip(sizes.classes, learned.tolist(), here.tolist(), strict=True)

    def warnings(self) -> Iterator[str]:
        """Yield warnings for readers of the release, from public figures alone."""
        measured, column = self.persons.sizes.by_class, self.persons.column
        total, noise = sum(measured.numbers), measured.noise * len(measured.numbers) ** 0.5
        if total < FAINT * noise and self.persons.spent:
            yield (
                f"the noisy number of persons is {total:,}, which is small compared with its noise of {noise:,.1f}: the numbers of rows of "
                f"each {column} may be mostly noise; give `persons` a larger `share`, or the run a larger epsilon"
            )
        if self.distance > CLEARLY_OTHER and not self.persons.constant:
            yield (
                f"the release has too few rows to give each {column} as many rows as were learned; publish more rows (`rows` in `output`), or "
                "declare a smaller `max_rows_per_unit`"
            )
        elif self.distance > CLEARLY_OTHER:
            yield (
                f"the constant columns have so many combinations of values that each {column} has fewer rows here than in the table; name "
                "fewer columns in `constant`, or declare them with fewer values"
            )
