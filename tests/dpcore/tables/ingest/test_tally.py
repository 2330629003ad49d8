"""Units by their number of rows: each unit adds one to one count, however the table is cut up."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, ingest, records
from dpcore.tables.ingest.tally import BUCKETS, EDGES, tally_universe
from dpcore.universe import Integer, Outside, Universe
from tests.dpcore.models.row_draws import Piece

UNIVERSE = Universe({"a": Integer(minimum=0, maximum=3, outside=Outside.DROP)})
PERSONS = Protection(unit="who", rows_per_unit=64, neighbours=Neighbours.ADD_REMOVE)
WEIGHTED = Protection(unit="who", rows_per_unit=64, neighbours=Neighbours.ADD_REMOVE, weight="w", row_weight=3)


def table(seed: int) -> pa.Table:
    """Persons with 1 to about 200 rows each, some rows of nobody, some outside the universe, some that count 0 times."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 3, 4, 5, 60, 70, 200], 12)
    who = rng.permutation(np.repeat(np.arange(len(sizes) + 1), [*sizes, 5]))
    names = [None if one == len(sizes) else f"p{one}" for one in who.tolist()]
    return pa.table({"who": names, "a": rng.integers(0, 5, len(who)), "w": rng.integers(-1, 5, len(who))})


def counts(rows: pa.Table, *, protection: Protection = PERSONS, batch: int = 1 << 16) -> list[int]:
    coding = Coding(universe=UNIVERSE, protection=protection, window=None, edges=EDGES)
    kept = ingest(Source((Piece(rows, batch),)), coding=coding, draws=Draws.fresh())
    found: list[int] = LocalHistogram.count(kept, tally_universe(EDGES)).marginal((0,)).tolist()
    return found


def expected(rows: pa.Table, *, weighted: bool) -> list[int]:
    frame = rows.to_pandas()
    frame = frame[(frame["a"] <= 3) & ((frame["w"] > 0) | (not weighted))]
    sizes = frame.groupby("who").size()
    return pd.cut(sizes, [0, *EDGES, np.inf], labels=BUCKETS).value_counts(sort=False).tolist()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("protection", [PERSONS, WEIGHTED], ids=["plain", "weighted"])
def test_every_unit_counts_once_by_the_rows_of_it_that_count(
    seed: int, protection: Protection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BUCKETED_ROWS", 100)
    rows = table(seed)
    wanted = expected(rows, weighted=protection.weight is not None)
    assert counts(rows, protection=protection, batch=37) == wanted
    assert counts(rows, protection=protection) == wanted


@pytest.mark.parametrize("seed", range(2))
def test_removing_a_person_with_all_rows_changes_one_count_by_one(seed: int) -> None:
    rows = table(seed)
    rest = rows.filter(pa.array([name != "p3" for name in rows["who"].to_pylist()]))
    moved = np.array(counts(rows)) - np.array(counts(rest))
    assert sorted(moved.tolist()) == [0] * (len(BUCKETS) - 1) + [1]


def test_no_rows_make_no_units() -> None:
    assert counts(table(0).slice(0, 0)) == [0] * len(BUCKETS)


def test_the_version_of_the_data_is_that_of_the_pass_that_keeps_the_rows() -> None:
    rows, fingerprint = Source.of(table(1)), Fingerprint(bytes(32))
    versions = {
        ingest(
            rows,
            coding=Coding(universe=UNIVERSE, protection=PERSONS, window=None, edges=edges),
            draws=Draws.fresh(unit_key=b"k" * 32),
            fingerprint=fingerprint,
        ).version
        for edges in (None, EDGES)
    }
    assert len(versions) == 1
