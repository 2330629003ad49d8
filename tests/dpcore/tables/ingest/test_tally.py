"""Units by their number of rows: each unit adds one to one count, however the table is cut up."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    """Persons with 1 to 6,000 rows each, some rows of nobody, some outside the universe, some that count 0 times."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 4, 8, 64, 6000], 12)
    who = rng.permutation(np.repeat(np.arange(len(sizes) + 1), [*sizes, 5]))
    names = [None if one == len(sizes) else f"p{one}" for one in who.tolist()]
    return pa.table({"who": names, "a": rng.integers(0, 5, len(who)), "w": rng.integers(-1, 5, len(who))})


def counts(
    rows: pa.Table, *, protection: Protection = PERSONS, batch: int = 1 << 16, draws: Draws | None = None
) -> list[int]:
    coding = Coding(universe=UNIVERSE, protection=protection, window=None, edges=EDGES)
    kept = ingest(Source((Piece(rows, batch),)), coding=coding, draws=Draws.fresh() if draws is None else draws)
    found: list[int] = LocalHistogram.count(kept, tally_universe(EDGES)).marginal((0,)).tolist()
    return found


def sizes_of(rows: pa.Table, *, weighted: bool) -> list[int]:
    """Return how many rows of each person count."""
    frame = rows.to_pandas()
    frame = frame[(frame["a"] <= 3) & ((frame["w"] > 0) | (not weighted))]
    return frame.groupby("who").size().tolist()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("protection", [PERSONS, WEIGHTED], ids=["plain", "weighted"])
def test_every_unit_counts_once_by_the_rows_of_it_that_count(
    seed: int, protection: Protection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BUCKETED_ROWS", 100)
    rows = table(seed)
    sizes = sizes_of(rows, weighted=protection.weight is not None)
    for batch in (37, 1 << 16):
        found = np.array(counts(rows, protection=protection, batch=batch))
        assert found.sum() == len(sizes)
        for edge in (1, 2, 4, 16, 1024, 4096):  # each is counted at the edge below or above its number of rows
            at_most, place = int(found[: EDGES.index(edge) + 1].sum()), EDGES.index(edge)
            assert sum(size <= edge for size in sizes) <= at_most
            assert at_most <= sum(size < (*EDGES, math.inf)[place + 1] for size in sizes)


def test_between_two_edges_units_have_the_right_number_of_rows_on_average() -> None:
    units = 4000
    rows = pa.table(
        {"who": np.repeat(np.arange(units), 7), "a": np.ones(7 * units, dtype=np.int64), "w": np.ones(7 * units)}
    )
    found = counts(rows)
    assert found[2] + found[3] == units
    assert 4 * found[2] + 8 * found[3] == pytest.approx(7 * units, rel=0.02)  # four standard deviations


@pytest.mark.parametrize("seed", range(2))
def test_removing_a_person_with_all_rows_changes_one_count_by_one(seed: int) -> None:
    of_canary = pa.array([name == "p3" for name in table(seed)["who"].to_pylist()])
    rest, canary = table(seed).filter(pc.invert(of_canary)), table(seed).filter(of_canary)
    draws = Draws(bytes(32))  # the same for all others, whose rows come first
    with_canary = pa.concat_tables([rest, canary])
    moved = np.array(counts(with_canary, draws=draws)) - np.array(counts(rest, draws=draws))
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
