"""Code what becomes of each row: it is kept, kept with a value that is not declared, or dropped, and by which column first.

Each row has one fate, and one row of each unit counts, chosen at random among all its rows. A histogram of fates is therefore a histogram to
which each unit adds one. A row's fate depends on that row alone. A row without an id, or of no block that the run reads, has none: nobody
knows whose it is, or which block pays for it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.coding import Coding, read_weights
from dpcore.tables.ingest.draws import Draws
from dpcore.tables.reading.encoding import encode
from dpcore.tables.sources.ids import hash_ids
from dpcore.universe import Categorical, Universe, code_type

KEPT, OTHER_IN, MISSING_IN, DROPPED_BY = "kept", "other in ", "missing in ", "dropped by "
VIOLATED, WEIGHTLESS = "a constraint", "its weight"


@dataclass(frozen=True, kw_only=True)
class Fates(Coding):
    """The public rules by which each row of a batch becomes its fate.

    Attributes:
        reading: The rules by which the run reads the table. `universe` is that of fates, and `protection` that of one row of each unit.
        undecided: The columns whose values are still to be found, so that none is `other` yet.
    """

    reading: Coding
    undecided: frozenset[str] = frozenset()

    @classmethod
    def of(cls, reading: Coding, *, undecided: Collection[str] = ()) -> Self:
        """Return how the fates of rows are coded that a run reads in this way."""
        as_fates = replace(
            reading,
            universe=fate_universe(reading.universe),
            protection=reading.protection.of_one_answer,
            constant=(),
            rules=None,
        )
        return cls(**{**vars(as_fates), "reading": reading, "undecided": frozenset(undecided)})

    @property
    def reads(self) -> Mapping[str, Callable[[pa.DataType], bool]]:
        """For each column to read, a function that tells whether it can be read from a type."""
        return self.reading.reads

    def code(self, batch: pa.RecordBatch, *, draws: Draws, piece: int, start: int) -> Coded:
        """Code the fate of each row in the window, with its id if units are declared."""
        batch, places = self.windowed(batch)
        universe, rules, protection = self.reading.universe, self.reading.rules, self.reading.protection
        size = len(universe.names)
        violated, weightless = range(3 * size + 1, 3 * size + 3)
        ids = words = None
        if self.by_unit:
            ids, has_id = hash_ids(batch.column(protection.unit), key=draws.unit_key())
            words = draws.words(piece, start, int(places.max(initial=-1)) + 1)[places]
            batch, ids, words = batch.filter(pa.array(has_id)), ids[has_id], words[has_id]
        fate = np.zeros(batch.num_rows, dtype=code_type(*self.universe.shape))
        if protection.weight is not None:
            fate[read_weights(batch.column(protection.weight), protection=protection) == 0] = weightless
        read = {} if rules is None else rules.read(batch, universe)
        for codes in read.values():
            fate[codes < 0] = violated
        columns = [encode(attribute, batch.column(name)) for name, attribute in universe.attributes.items()]
        attributes = universe.attributes.values()
        without = (
            (1, [attribute.other_cell for attribute in attributes]),
            (1 + size, [attribute.missing_cell for attribute in attributes]),
        )
        for first, cells in without:
            for place, (name, cell) in enumerate(zip(universe.names, cells, strict=True)):
                if cell is not None and name not in self.undecided:
                    fate[(fate == 0) & (columns[place] == cell)] = first + place
        for place in reversed(range(size)):
            fate[columns[place] < 0] = 1 + 2 * size + place  # the first such column is written last
        return Coded([fate], weights=None, ids=ids, draws=words)


def fate_universe(universe: Universe) -> Universe:
    """Return the universe of fates: kept, kept with `other` or `missing` in a column, dropped by a column, or by something else."""
    fates = [f"{what}{name}" for what in (OTHER_IN, MISSING_IN, DROPPED_BY) for name in universe.names]
    rest = [f"{DROPPED_BY}{what}" for what in (VIOLATED, WEIGHTLESS)]
    return Universe({"fate": Categorical((KEPT, *fates, *rest), exact=True)})
