"""From files to records: encoded by the universe, bounded by the unit."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpcore.errors import SourceError
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.spec.source import SourceSpec
from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Source, ingest
from dpcore.tables.ingest.records import Records
from dpcore.universe import Categorical, Integer, Outside, Universe
from tests.dpcore.models.row_draws import Piece

UNIVERSE = Universe(
    {"sex": Categorical(("F", "M"), missing=True), "age": Integer(minimum=0, maximum=99, outside=Outside.DROP)}
)
BY_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)


def by_person(rows: int) -> Protection:
    return Protection(unit="person", rows_per_unit=rows, neighbours=Neighbours.ADD_REMOVE)


def table(rows: int, *, people: int) -> pd.DataFrame:
    rng = np.random.default_rng(rows)
    return pd.DataFrame(
        {
            "person": rng.integers(0, people, rows),
            "age": rng.integers(-10, 110, rows),
            "sex": rng.choice(["F", "M", "X", None], rows),
            "note": "not declared",
        }
    )


def read(source: Source, *, protection: Protection, universe: Universe = UNIVERSE) -> Records:
    coding = Coding(universe=universe, protection=protection, window=None)
    return ingest(source, coding=coding, draws=Draws.fresh())


def rows_of(records: Records) -> list[tuple[int, ...]]:
    return [row for codes, _ in records.chunks() for row in zip(*(code.tolist() for code in codes), strict=True)]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet"])
def test_every_kind_of_file_gives_the_same_records_by_the_universe(tmp_path: Path, name: str) -> None:
    raw = table(5000, people=100)
    if name == "t.parquet":
        raw.to_parquet(tmp_path / name)
    else:
        raw.to_csv(tmp_path / name, index=False)
    records = read(Source.locate(SourceSpec(path=name), base=tmp_path), protection=BY_ROW)

    inside = raw[raw["age"].between(0, 99) & (raw["sex"] != "X")]
    codes = inside["sex"].map({"F": 0, "M": 1}).fillna(2).astype(int)
    assert rows_of(records) == list(zip(codes.tolist(), inside["age"].tolist(), strict=True))


def test_codes_take_the_smallest_unsigned_type_of_their_size(tmp_path: Path) -> None:
    pd.DataFrame({"a": [255], "b": [256], "c": [65536]}).to_parquet(tmp_path / "t.parquet")
    universe = Universe(
        {name: Integer(minimum=0, maximum=top) for name, top in zip("abc", (255, 256, 65536), strict=True)}
    )
    records = read(Source.locate(SourceSpec(path="t.parquet"), base=tmp_path), universe=universe, protection=BY_ROW)
    ((codes, _),) = records.chunks()
    assert [code.dtype for code in codes] == [np.uint8, np.uint16, np.uint32]
    assert rows_of(records) == [(255, 256, 65536)]


def test_each_person_keeps_at_most_k_rows_over_all_files(tmp_path: Path) -> None:
    universe = Universe({"person": Integer(minimum=0, maximum=49)})
    for name in ("1.parquet", "2.parquet", "3.parquet"):
        table(1000, people=50).to_parquet(tmp_path / name)
    records = read(Source.locate(SourceSpec(path="."), base=tmp_path), universe=universe, protection=by_person(3))
    assert np.bincount([row[0] for row in rows_of(records)]).tolist() == [3] * 50


def test_rows_outside_the_universe_do_not_use_up_a_persons_rows(tmp_path: Path) -> None:
    outside, inside = [("p", "F", 1000)] * 200, [("p", "F", 7)] * 2
    raw = pd.DataFrame(outside + inside, columns=["person", "sex", "age"])
    raw.to_csv(tmp_path / "t.csv", index=False)
    records = read(Source.locate(SourceSpec(path="t.csv"), base=tmp_path), protection=by_person(2))
    assert rows_of(records) == [(0, 7)] * 2


def test_rows_of_nobody_are_dropped_only_when_persons_are_protected(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("person,sex,age\n,F,1\n,F,2\np,F,3\n")
    source = Source.locate(SourceSpec(path="t.csv"), base=tmp_path)
    assert rows_of(read(source, protection=by_person(5))) == [(0, 3)]
    assert len(rows_of(read(source, protection=BY_ROW))) == 3


def test_the_id_column_is_needed_only_when_persons_are_protected(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("sex,age\nF,1\n")
    source = Source.locate(SourceSpec(path="t.csv"), base=tmp_path)
    assert rows_of(read(source, protection=BY_ROW)) == [(0, 1)]
    with pytest.raises(SourceError, match="lacks the declared column 'person'"):
        read(source, protection=by_person(1))


@pytest.mark.parametrize("protection", [BY_ROW, by_person(2)], ids=["row", "person"])
def test_a_table_without_rows_gives_records_and_a_histogram_without_rows(
    tmp_path: Path, protection: Protection
) -> None:
    (tmp_path / "t.csv").write_text("person,sex,age\n")
    records = read(Source.locate(SourceSpec(path="t.csv"), base=tmp_path), protection=protection)
    assert LocalHistogram.count(records, UNIVERSE).marginal((0,)).tolist() == [0, 0, 0]


def test_records_may_be_gone_through_again_and_their_blocks_are_neither_crumbs_nor_everything() -> None:
    raw = table(300_000, people=10**6)
    records = read(Source.of(raw), protection=BY_ROW)
    sizes = [len(codes[0]) for codes, weights in records.chunks() if weights is None]
    assert sizes == [len(codes[0]) for codes, _ in records.chunks()]
    assert 1 < len(sizes) <= 5
    assert sum(sizes) == len(rows_of(records)) < 300_000


def test_weights_come_with_their_rows_and_rows_that_weigh_nothing_do_not_use_up_a_persons() -> None:
    raw = pd.DataFrame({"person": 7, "sex": "F", "age": range(100), "days": [0.5] * 97 + [1.2, 7.9, 10.0]})
    weighed = Protection(unit="person", rows_per_unit=3, neighbours=Neighbours.ADD_REMOVE, weight="days", row_weight=9)
    ((codes, weights),) = read(Source.of(raw), protection=weighed).chunks()
    assert weights is not None
    assert sorted(zip(codes[1].tolist(), weights.tolist(), strict=True)) == [(97, 1), (98, 7), (99, 9)]
    assert weights.dtype == np.uint8


def test_a_damaged_piece_ends_the_reading_with_its_one_sentence(tmp_path: Path) -> None:
    pieces = [Piece(pa.table({"sex": ["F"] * 10, "age": [1] * 10}), 3), Broken(pa.table({"sex": ["F"], "age": [1]}), 3)]
    with pytest.raises(SourceError, match=r"^piece is damaged$") as caught:
        read(Source((*pieces, *pieces)), protection=BY_ROW)
    assert caught.value.__context__ is None


class Broken(Piece):
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from super().batches(columns)
        message = "could not convert 'Jane Doe'"
        raise ValueError(message)
