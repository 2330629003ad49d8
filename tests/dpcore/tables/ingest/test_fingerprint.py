"""The data's version tells whether the rows that a run may read are the same, and nothing else; its key is made once."""

import os
import pickle
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpcore.errors import LedgerError
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, ingest, readable_version
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.fingerprint import KEY_NAME, check_key, fingerprint_key
from dpcore.tables.ingest.window import Window
from dpcore.tables.reading.encoding import encode
from dpcore.universe import Attribute, Categorical, Every, Integer, Outside, Universe
from dpcore.universe.blocks import Calendar
from dpcore.universe.fine_days import FineDatetime, WeekTimes
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Fine, Scale
from tests.conftest import read_only
from tests.dpcore.models.row_draws import Piece

KEY = bytes(range(32))
UNIVERSE = Universe({"sex": Categorical(values=("F", "M")), "age": Integer(minimum=0, maximum=99, width=10)})
BY_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
BY_PERSON = replace(BY_ROW, unit="person", rows_per_unit=1, weight="times", row_weight=3)
CALENDAR = Calendar("day", Every.MONTH, start=date(2026, 1, 1), arrived=None, grace_days=0)
CODING = Coding(universe=UNIVERSE, protection=BY_PERSON, window=Window.of(CALENDAR, ["2026-02"]))
TABLE = pd.DataFrame(
    {
        "sex": ["F", "M", "M", "F", "F", "x"],
        "age": ["41", "42", "7", "8", "9", "10"],
        "person": ["a", "b", "b", "c", "d", "e"],
        "times": ["1", "2", "1", "1", "0", "1"],
        "day": ["2026-02-01", "2026-02-02", "2026-02-03", "2026-01-31", "2026-02-04", "2026-02-05"],
        "note": ["n", "", "o", "p", "q", "r"],
    }
)


def versions(table: pd.DataFrame, *, run: str = "r1", key: bytes = KEY, coding: Coding = CODING) -> tuple[str, str]:
    """Return the version of a table, and that with the ages still to be found."""
    fingerprint = Fingerprint.of_run(run, key=key)
    draws = Draws.fresh(unit_key=fingerprint.unit_key())
    read = ingest(Source.of(table), coding=coding, draws=draws, fingerprint=fingerprint).version
    assert read is not None
    return read, readable_version(Source.of(table), coding=coding, undecided={"age"}, fingerprint=fingerprint)


def changed(row: int, column: str, value: str) -> pd.DataFrame:
    table = TABLE.copy()
    table.loc[row, column] = value
    return table


UNSEEN = {
    "another order": TABLE[::-1],
    "an undeclared column": changed(0, "note", "changed"),
    "a row outside the window": changed(3, "sex", "M"),
    "one more row outside the window": pd.concat([TABLE, TABLE[3:4]]),
    "no row outside the window": TABLE.drop(index=3),
    "a row that never counts": changed(4, "sex", "M"),
    "another day of the same block": changed(1, "day", "2026-02-27"),
    "a column more": TABLE.assign(more=1),
}
SEEN = {
    "another cell": changed(0, "sex", "M"),
    "another person": changed(0, "person", "z"),
    "another weight": changed(0, "times", "2"),
    "a row less": TABLE.drop(index=0),
    "a row twice": pd.concat([TABLE, TABLE[:1]]),
    "a row that leaves the window": changed(0, "day", "2026-03-01"),
    "a row that comes into the window": changed(3, "day", "2026-02-28"),
    "values of two rows exchanged": TABLE.assign(age=["42", "7", "41", "8", "9", "10"]),
    "no rows": TABLE[:0],
}


@pytest.mark.parametrize("change", UNSEEN)
def test_what_a_run_may_not_read_is_no_part_of_its_version(change: str) -> None:
    assert versions(UNSEEN[change]) == versions(TABLE)


def test_a_version_is_that_of_all_batches_and_pieces() -> None:
    fingerprint, table = Fingerprint.of_run("r1", key=KEY), pa.Table.from_pandas(TABLE)
    source = Source((Piece(table[:3], 1), Piece(table[3:], 2)))
    draws = Draws.fresh(unit_key=fingerprint.unit_key())
    read = ingest(source, coding=CODING, draws=draws, fingerprint=fingerprint).version
    assert (read, readable_version(source, coding=CODING, undecided={"age"}, fingerprint=fingerprint)) == versions(
        TABLE
    )


@pytest.mark.parametrize("change", SEEN)
def test_every_change_of_a_row_that_it_may_read_is(change: str) -> None:
    for before, after in zip(versions(TABLE), versions(SEEN[change]), strict=True):
        assert before != after


def test_a_change_within_a_cell_is_seen_only_while_cells_are_still_to_be_found() -> None:
    (coded, stored), (coded_after, stored_after) = versions(TABLE), versions(changed(0, "age", "43"))
    assert coded == coded_after
    assert stored != stored_after


FINE = Universe(
    {
        "sex": Categorical(values=("F", "M")),
        "cost": FineNumber(
            scale=Scale.of(Fraction(0), Fraction(20), step=Fraction("0.01")), missing=True, nulls=("NA",)
        ),
        "hours": FineInteger(minimum=0, maximum=99, outside=Outside.DROP),
        "at": FineDatetime(
            minimum=datetime(2026, 1, 1), maximum=datetime(2026, 12, 31), step="hour", outside=Outside.OTHER
        ),
    }
)
FINE_TABLE = pd.DataFrame(
    {
        "sex": ["F", "M", "x", "M"],
        "cost": ["12.34", "2000", "5.00", "NA"],
        "hours": ["40", "41", "42", "100"],
        "at": ["2026-02-03T10:20:00", "2020-01-01", "2026-02-03", "2026-02-03"],
    }
)


def at_full_resolution(table: pd.DataFrame) -> str:
    coding = Coding(universe=FINE, protection=BY_ROW, window=None)
    undecided = {"cost", "hours", "at"}
    return readable_version(Source.of(table), coding=coding, undecided=undecided, fingerprint=Fingerprint(KEY))


def every_place(column: Attribute) -> Attribute:
    return column.cut_at(range(1, column.places)) if isinstance(column, Fine) else column


def times_of_week(column: Attribute) -> Attribute:
    assert isinstance(column, FineDatetime)
    starts = tuple(range(1, column.week_places))
    return WeekTimes(column=column, starts=starts, missing=column.missing, outside=column.outside)


COUNTED = [(name, every_place(each)) for name, each in FINE.attributes.items()]
COUNTED.append(("at", times_of_week(FINE.attributes["at"])))


def counted(table: pd.DataFrame) -> Counter[tuple[int, ...]]:
    """Count what a run may see of its rows: the codes of the finest cells, and the times of the week, of rows that no column drops."""
    codes = [encode(each, pa.array(table[name])).tolist() for name, each in COUNTED]
    return Counter(row for row in zip(*codes, strict=True) if min(row) >= 0)


VALUES: dict[str, Sequence[str | None]] = {
    "sex": ["F", "M", "x", "y", None],
    "cost": ["12.34", "12.340", "12.341", "1234e-2", "12.35", "2000", "3000", "20", "-1", "0", "NA", "", "?", None],
    "hours": ["40", "40.0", "40.9", "41", "100", "200", "-1", "x", None],
    "at": [
        "2026-02-03T10:20:00",
        "2026-02-03 10:59",
        "2026-02-03T11:00:00",
        "2026-02-10T10:20:00",
        "2020-01-01",
        "2021-01-01",
        "x",
    ],
}


def tables_one_change_apart() -> Iterator[list[pd.DataFrame]]:
    """Yield groups of tables. Within a group, any two tables differ by one value, or by at most two rows."""
    for (name, values), row in product(VALUES.items(), FINE_TABLE.index[::2]):
        group = [FINE_TABLE.copy() for _ in values]
        for table, value in zip(group, values, strict=True):
            table.loc[row, name] = value
        yield group
    yield [FINE_TABLE, *(FINE_TABLE.drop(index=row) for row in FINE_TABLE.index)]


def wrong_versions() -> int:
    """Count the pairs of tables whose versions are equal although a run may see the change, or differ although it may not."""
    groups = [[(counted(table), at_full_resolution(table)) for table in group] for group in tables_one_change_apart()]
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    return sum((one[0] == other[0]) != (one[1] == other[1]) for one, other in pairs)


def test_at_full_resolution_a_version_covers_what_a_run_may_count_and_nothing_else() -> None:
    assert counted(FINE_TABLE).total() == 2
    assert wrong_versions() == 0


def test_a_version_of_stored_values_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpcore.tables.ingest.coding.Fine", str)  # no column is one
    assert wrong_versions() > 50


def test_versions_of_two_runs_or_two_keys_cannot_be_compared() -> None:
    assert len({*versions(TABLE), *versions(TABLE, run="r2"), *versions(TABLE, key=bytes(32))}) == 6


def test_a_fingerprint_shows_nothing_of_its_key_and_travels_to_workers() -> None:
    fingerprint = Fingerprint(KEY)
    again = pickle.loads(pickle.dumps(fingerprint))  # noqa: S301  our own
    assert again.unit_key() == fingerprint.unit_key()
    assert repr(fingerprint) == "<Fingerprint: private, not shown>"


def rows_of(chance: random.Random, shape: Sequence[int], count: int) -> np.ndarray:
    return np.array([[chance.randrange(size) for size in shape] for _ in range(count)], dtype=np.uint32)


def sums(rows: np.ndarray, shape: Sequence[int]) -> tuple[int, ...]:
    coded = Coded(list(rows.reshape(-1, len(shape)).T), weights=None, ids=None, draws=None)
    return tuple(Fingerprint(KEY).of(coded, shape=shape).tolist())


@pytest.mark.parametrize("shape", [(2,), (3, 2, 5), (1 << 30, 1 << 30, 1 << 30), (2,) * 70])
def test_small_differences_of_tables_never_cancel(shape: tuple[int, ...]) -> None:
    """Each table a few rows off another: exchanged values, rows that stand in for others, rows twice."""
    chance = random.Random(f"{shape}")  # noqa: S311  not for secrets
    seen: dict[tuple[int, ...], Any] = {}
    base = rows_of(chance, shape, 6)
    for _ in range(500):
        table = base[[chance.randrange(6) for _ in range(chance.randrange(7))]].copy()
        for _ in range(chance.randrange(3) if len(table) else 0):
            axis, (one, other) = chance.randrange(len(shape)), (chance.randrange(len(table)) for _ in range(2))
            table[[one, other], axis] = table[[other, one], axis]
        multiset = sorted(map(tuple, table.tolist()))
        assert seen.setdefault(sums(table, shape), multiset) == multiset


def test_sums_of_parts_are_those_of_the_whole() -> None:
    rows = rows_of(random.Random(1), (3, 7), 40_000)  # noqa: S311  not for secrets
    whole = np.array(sums(rows, (3, 7)), dtype=np.uint64)
    parts = (np.array(sums(part, (3, 7)), dtype=np.uint64) for part in np.split(rows, [1, 17_000, 39_000]))
    assert np.array_equal(sum(parts, start=Fingerprint.nothing()), whole)


def test_a_digest_that_adds_up_columns_would_not_tell_exchanged_values() -> None:
    """The control: what is mixed row by row here is not, and two tables look alike."""
    one, other = np.array([[0, 0], [1, 1]], dtype=np.uint64), np.array([[0, 1], [1, 0]], dtype=np.uint64)
    linear = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], dtype=np.uint64)
    assert (one * linear).sum() == (other * linear).sum()
    assert sums(one, (2, 2)) != sums(other, (2, 2))


def test_the_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    key = fingerprint_key(folder)
    assert len(key) == 32
    assert fingerprint_key(folder) == key
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / KEY_NAME).stat().st_mode & 0o777 == 0o600
    assert fingerprint_key(tmp_path / "other") != key


def test_all_who_make_the_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for round_ in range(20):
            folder, together = tmp_path / str(round_), Barrier(8)

            def make(_: int, folder: Path = folder, together: Barrier = together) -> bytes:
                together.wait()
                return fingerprint_key(folder)

            assert len(set(pool.map(make, range(8)))) == 1
            assert [path.name for path in folder.iterdir()] == [KEY_NAME]


def test_a_failure_while_making_the_key_leaves_no_half_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(LedgerError, match="cannot be stored"):
        fingerprint_key(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_or_open_key_is_refused_with_what_to_do(tmp_path: Path) -> None:
    fingerprint_key(tmp_path)
    (tmp_path / KEY_NAME).chmod(0o640)
    with pytest.raises(LedgerError, match="chmod 600"):
        fingerprint_key(tmp_path)
    (tmp_path / KEY_NAME).write_bytes(b"short")
    with pytest.raises(LedgerError, match="damaged; restore it"):
        fingerprint_key(tmp_path)


def test_a_key_is_checked_without_creating_it(tmp_path: Path) -> None:
    check_key(tmp_path / "private")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(LedgerError, match="cannot be stored"):
        check_key(tmp_path / "file" / "private")
    fingerprint_key(tmp_path)
    check_key(tmp_path)
    (tmp_path / KEY_NAME).chmod(0o604)
    with pytest.raises(LedgerError, match="chmod 600"):
        check_key(tmp_path)


def test_a_folder_that_cannot_take_a_key_is_refused(tmp_path: Path) -> None:
    with read_only(tmp_path / "private"), pytest.raises(LedgerError, match="cannot be stored"):
        check_key(tmp_path / "private")
