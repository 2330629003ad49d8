"""Rows of a unit count as far as the norm of their counts stays within a limit: that bounds what one unit adds, and touches no other."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from dpcore.marginals.workload import Axes
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.counting import Counts, count_by_norm
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Source, ingest, records
from dpcore.universe import Integer, Outside, Universe

NORM = 3
UNIVERSE = Universe(
    {
        "a": Integer(minimum=0, maximum=3, outside=Outside.DROP),
        "b": Integer(minimum=0, maximum=4, outside=Outside.DROP),
    }
)
PROTECTION = Protection(unit="who", rows_per_unit=NORM, neighbours=Neighbours.ADD_REMOVE)
CODING = Coding(universe=UNIVERSE, protection=PROTECTION, window=None, ends=(1, 4, 10))
MARGINALS: tuple[Axes, ...] = ((0,), (1,), (0, 1))
WORDS = bytes(range(32))
Rows = list[tuple[str, int, int]]


def people(seed: int) -> Rows:
    """Persons with 1 to 30 rows each, and rows outside the universe."""
    rng = np.random.default_rng(seed)
    sizes = [1, 1, 2, 3, 5, 11, 30]
    return [
        (f"p{one}", int(rng.integers(0, 5)), int(rng.integers(0, 5)))
        for one, size in enumerate(sizes)
        for _ in range(size)
    ]


CANARIES: dict[str, Rows] = {
    "all rows in one cell": [("canary", 2, 2)] * 40,
    "all rows in different cells": [("canary", cell % 4, cell // 4) for cell in range(20)],
    "rows that are dropped": [("canary", 4, 0)] * 40 + [("canary", 1, 1)],
    "one row": [("canary", 0, 0)],
}


def histogram(rows: Rows) -> Histogram:
    names, a, b = zip(*rows, strict=True)
    table = pa.table({"who": names, "a": a, "b": b})
    return LocalHistogram.count(ingest(Source.of(table), coding=CODING, draws=Draws(WORDS)), UNIVERSE)


def counted(rows: Rows, axes: Axes, *, by_class: bool = False) -> Counts:
    return histogram(rows).contributions(axes, by_class=by_class, by_norm=True)


@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("axes", MARGINALS)
@pytest.mark.parametrize("by_class", [False, True])
def test_a_person_moves_no_counts_by_more_than_the_stated_norms_and_moves_those_of_nobody_else(
    canary: str, axes: Axes, by_class: bool
) -> None:
    without, with_canary = people(1), people(1) + CANARIES[canary]
    moved = counted(with_canary, axes, by_class=by_class) - counted(without, axes, by_class=by_class)
    stated = PROTECTION.norm_sensitivity
    assert moved.min() >= 0  # nobody else's rows count less
    assert 0 < int((moved**2).sum()) <= stated.l2_squared
    assert int(moved.sum()) <= stated.l1
    assert int(moved.max()) <= stated.linf


def test_the_worst_persons_reach_the_stated_norms() -> None:
    """All rows in one cell reach the largest count, all in different cells the largest sum: no smaller sensitivity is true."""
    for canary, axes in (("all rows in one cell", (0, 1)), ("all rows in different cells", (0, 1))):
        moved = counted(people(1) + CANARIES[canary], axes) - counted(people(1), axes)
        assert int((moved**2).sum()) == NORM**2
        assert int(moved.sum()) == (NORM if canary == "all rows in one cell" else NORM**2)


def by_hand(cells: npt.NDArray[np.int64], ranks: npt.NDArray[np.int64], *, size: int) -> Counts:
    """Count row by row."""
    total, own = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    full = False
    for cell, rank in zip(cells.tolist(), ranks.tolist(), strict=True):
        if rank == 0:
            own, full = np.zeros(size, dtype=np.int64), False
        own[cell] += 1
        full = full or int((own**2).sum()) > NORM**2
        total[cell] += not full
    return total


@pytest.mark.parametrize("seed", range(5))
def test_rows_count_in_their_order_until_the_norm_is_reached(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.choice(200, 12, replace=False))
    ranks = np.concatenate([np.arange(high - low) for low, high in pairwise((0, *ends.tolist()))])
    cells = rng.integers(0, 3 + 4 * seed, len(ranks))
    size = 3 + 4 * seed
    found = count_by_norm([((cells.astype(np.uint8),), ranks)], (0,), shape=(size,), coarse=(), norm=NORM)
    assert found.tolist() == by_hand(cells, ranks, size=size).tolist()


def test_the_norm_is_each_persons_and_not_that_of_a_chunk() -> None:
    """The control: counting all rows as those of one person loses nearly all of them."""
    cells, each, one = np.zeros(60, dtype=np.uint8), np.tile(np.arange(3), 20), np.arange(60)
    counts = [count_by_norm([((cells,), ranks)], (0,), shape=(1,), coarse=(), norm=NORM) for ranks in (each, one)]
    assert [int(total[0]) for total in counts] == [60, NORM]


def test_a_person_is_in_the_class_of_all_rows_that_count_and_dropped_rows_do_not() -> None:
    rows = histogram(CANARIES["all rows in one cell"] + [("other", 4, 4)] * 9 + [("other", 1, 1)] * 3)
    by_class = rows.contributions((0,), by_class=True, by_norm=True)
    assert by_class.tolist() == [[0, 0, 0, 0], [0, 3, 0, 0], [0, 0, 0, NORM], [0, 0, 0, 0]]


def test_selections_count_as_many_rows_as_the_limit_says() -> None:
    assert histogram(CANARIES["all rows in different cells"]).marginal((0, 1)).sum() == NORM
    limited = histogram(people(3)).contributions((0,), by_class=False, by_norm=False)
    assert limited.sum() == sum(
        min(NORM, size) for size in np.unique([row[0] for row in people(3) if row[1] < 4], return_counts=True)[1]
    )


def test_how_the_table_is_cut_up_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [counted(people(2), axes, by_class=True).tolist() for axes in MARGINALS]
    monkeypatch.setattr(records, "BUCKETED_ROWS", 4)
    monkeypatch.setattr(records, "CHUNK_ROWS", 3)
    assert [counted(people(2), axes, by_class=True).tolist() for axes in MARGINALS] == whole


def test_merged_cells_are_counted_by_norm_as_well() -> None:
    rows = histogram(CANARIES["all rows in different cells"])
    rows.coarsen(1, np.array([0, 0, 1, 1, 1]))
    merged = rows.contributions((0, 2), by_class=True, by_norm=True)
    assert merged.shape == (4, 2, 4)
    assert int((merged**2).sum()) <= NORM**2
    assert merged.sum() > NORM
    assert rows.marginal((2,)).shape == (2,)
