"""Each row has one fate, by that row alone, and one row of each unit counts."""

from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Source, ingest
from dpcore.tables.ingest.fates import Fates, fate_universe
from dpcore.tables.ingest.window import Window
from dpcore.universe import Categorical, Every, Integer, Outside, Universe
from dpcore.universe.blocks import Calendar

UNIVERSE = Universe(
    {
        "kind": Categorical(("a", "b")),
        "city": Categorical(("north", "south"), outside=Outside.OTHER),
        "age": Integer(minimum=0, maximum=99, outside=Outside.DROP),
    }
)
ROWS = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
PERSONS = Protection(unit="who", rows_per_unit=3, neighbours=Neighbours.REPLACE_ONE, weight="times", row_weight=4)


def fates(
    table: pa.Table, protection: Protection = ROWS, *, undecided: tuple[str, ...] = (), window: Window | None = None
) -> dict[str, int]:
    reading = Coding(universe=UNIVERSE, protection=protection, window=window)
    coding = Fates.of(reading, undecided=undecided)
    assert coding.counted == protection.of_one_answer
    cells = fate_universe(UNIVERSE)
    counted = LocalHistogram.count(ingest(Source.of(table), coding=coding, draws=Draws.fresh()), cells).marginal((0,))
    labels = cells.attributes["fate"].labels
    return {name: int(count) for name, count in zip(labels, counted, strict=True) if count}


def table(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


def test_the_first_column_that_drops_a_row_is_its_fate() -> None:
    rows = table(kind=["a", "x", "x", "b", "b"], city=["north", "z", None, "z", "south"], age=[1, 2, 300, 4, -1])
    assert fates(rows) == {"kept": 1, "other in city": 1, "dropped by kind": 2, "dropped by age": 1}
    assert fates(rows, undecided=("city",)) == {"kept": 2, "dropped by kind": 2, "dropped by age": 1}


def test_one_row_of_each_unit_counts_and_no_row_of_nobody() -> None:
    who = [1] * 50 + [2] * 3 + [None, None]
    rows = table(who=who, times=[1] * 55, kind=["a"] * 53 + ["x", "a"], city=["north"] * 55, age=[1] * 55)
    assert fates(rows, PERSONS) == {"kept": 2}


@pytest.mark.parametrize("protection", [ROWS, PERSONS], ids=["rows", "persons"])
def test_only_rows_of_the_blocks_that_pay_have_a_fate(protection: Protection) -> None:
    calendar = Calendar(column="day", every=Every.MONTH, start=date(2025, 1, 1), arrived=None, grace_days=0)
    rows = table(
        who=[1, 2, 3, 4, 5],
        times=[1] * 5,
        kind=["a", "x", "a", "x", "a"],
        city=["north"] * 5,
        age=[1] * 5,
        day=["2025-02-03", "2025-02-28", "2025-03-01", "2025-01-31", "02/03/2025"],
    )
    assert fates(rows, protection, window=Window.of(calendar, ["2025-02"])) == {"kept": 1, "dropped by kind": 1}
    assert fates(rows, protection, window=Window.of(calendar, ["2025-04"])) == {}


def test_a_row_without_a_weight_is_dropped_by_it_unless_a_column_drops_it() -> None:
    rows = table(who=[1, 2, 3], times=[0, 1, 0], kind=["a", "a", "x"], city=["north"] * 3, age=[1] * 3)
    assert fates(rows, PERSONS) == {"kept": 1, "dropped by kind": 1, "dropped by its weight": 1}


@pytest.mark.parametrize("protection", [ROWS, PERSONS], ids=["rows", "persons"])
def test_one_unit_more_changes_one_count_by_one(protection: Protection) -> None:
    rng = np.random.default_rng(3)
    size = 300
    rows = table(
        who=list(range(size)),
        times=[1] * size,
        kind=rng.choice(["a", "b", "x"], size).tolist(),
        city=rng.choice(["north", "z"], size).tolist(),
        age=rng.integers(-20, 120, size).tolist(),
    )
    more = table(who=[-1] * 9, times=[4] * 9, kind=["x"] * 9, city=["z"] * 9, age=[7] * 9)
    added = more.slice(0, 1) if protection is ROWS else more
    before, after = fates(rows, protection), fates(pa.concat_tables([rows, added]), protection)
    assert {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)} == {
        "dropped by kind": 1
    }


def test_a_row_alone_has_the_fate_that_it_has_among_others() -> None:
    rng = np.random.default_rng(8)
    size = 200
    rows = table(
        kind=rng.choice(["a", "b", "x", None], size).tolist(),
        city=rng.choice(["north", "z", None], size).tolist(),
        age=rng.choice([-1, 5, 300, None], size).tolist(),
    )
    coding = Fates.of(Coding(universe=UNIVERSE, protection=ROWS, window=None))

    def coded(part: pa.Table) -> list[int]:
        (batch,) = part.combine_chunks().to_batches()
        found: list[int] = coding.code(batch, draws=Draws.fresh(), piece=0, start=0).codes[0].tolist()
        return found

    together = coded(rows)
    assert together == [fate for place in range(size) for fate in coded(rows.slice(place, 1))]
    assert len(set(together)) == 4  # kept, other in city, dropped by kind and by age
