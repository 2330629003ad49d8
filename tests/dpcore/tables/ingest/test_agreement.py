"""Kept rows of a person agree in constant columns, whatever the order of the rows, and no other person is read differently."""

import numpy as np
import pyarrow as pa
import pytest

from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Source, ingest
from dpcore.universe import Integer, Outside, Universe
from tests.dpcore.models.row_draws import Piece

UNIVERSE = Universe({name: Integer(minimum=0, maximum=9, outside=Outside.DROP) for name in ("who_copy", "sex", "ward")})
PERSONS = Protection(unit="who", rows_per_unit=3, neighbours=Neighbours.ADD_REMOVE)


def counted(rows: pa.Table, *, constant: tuple[str, ...], batch: int = 1 << 16) -> np.ndarray:
    coding = Coding(universe=UNIVERSE, protection=PERSONS, window=None, constant=constant)
    kept = ingest(Source((Piece(rows, batch),)), coding=coding, draws=Draws.fresh())
    return LocalHistogram.count(kept, UNIVERSE).marginal((0, 1, 2))


def table(seed: int, *, persons: int = 10) -> pa.Table:
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(persons), 5))
    return pa.table(
        {"who": who, "who_copy": who, "sex": rng.integers(0, 10, len(who)), "ward": rng.integers(0, 10, len(who))}
    )


@pytest.mark.parametrize("batch", [7, 1 << 16])
def test_contradicting_rows_take_the_value_of_one_of_them(batch: int) -> None:
    by_person = counted(table(1), constant=("sex",), batch=batch).sum(axis=2)
    assert ((by_person > 0).sum(axis=1) == 1).all()
    assert (by_person.sum(axis=1) == 3).all()
    assert ((counted(table(1), constant=()).sum(axis=2) > 0).sum(axis=1) > 1).any()
