"""Partitioned folders: what the folders are called are columns of all that lies in them."""

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from dpcore.errors import SourceBroken, SourceError
from tests.dpcore.tables.sources.sources import CANARY, check_silent, data_version, located, parquet_bytes, rows, write

KEY = bytes(range(32))


def partitioned(folder: Path) -> None:
    for month, value in (("2025-01", 1), ("2025-02", 2)):
        for region in ("north", "Ost%20see", "__HIVE_DEFAULT_PARTITION__"):
            write(folder, f"visits/month={month}/region={region}/x.parquet", parquet_bytes(pa.table({"a": [value]})))
    write(folder, "visits/_metadata", b"")
    write(folder, "visits/_temporary=1/x.parquet", b"not a table")
    write(folder, "visits/notes/x.parquet", b"not a part of it")


@pytest.mark.parametrize("path", ["visits", "visits/*/*/*.parquet", "visits/month=*/region=*/x.parquet"])
def test_the_keys_of_the_folders_are_columns_of_text(tmp_path: Path, path: str) -> None:
    partitioned(tmp_path)
    assert rows(located(tmp_path, path), "region", "a", "month") == [
        (region, value, month)
        for month, value in (("2025-01", 1), ("2025-02", 2))
        for region in ("Ost see", None, "north")
    ]


def test_keys_count_only_where_they_are_declared(tmp_path: Path) -> None:
    partitioned(tmp_path)
    source = located(tmp_path, "visits")
    assert rows(source, "a") == [(1,)] * 3 + [(2,)] * 3
    assert rows(source, "month") == [("2025-01",)] * 3 + [("2025-02",)] * 3
    assert source.parts[0].column_types(("month", "a")) == [pa.string(), pa.int64()]


def test_a_column_that_the_file_has_itself_is_the_files(tmp_path: Path) -> None:
    write(tmp_path, "visits/month=1/x.parquet", parquet_bytes(pa.table({"a": [1], "month": [1]})))
    assert rows(located(tmp_path, "visits"), "month", "a") == [(1, 1)]


def test_what_pandas_writes_in_partitions_is_read_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(6), "sex": ["F", "M", "F", None, "M", "F"], "city": list("nsnsns")})
    frame.to_parquet(tmp_path / "visits", partition_cols=["sex", "city"])
    found = rows(located(tmp_path, "visits"), "a", "sex", "city")
    assert sorted(found) == [(a, None if sex != sex else sex, city) for a, sex, city in frame.itertuples(index=False)]  # noqa: PLR0124  null is NaN


def test_pieces_of_a_partitioned_file_keep_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpcore.tables.sources.parquet_file.PIECE_ROWS", 2)
    write(tmp_path, "v/m=1/x.parquet", parquet_bytes(pa.table({"a": range(5)}), row_group_size=1))
    source = located(tmp_path, "v")
    assert len(source.pieces(ids=None)) == 3
    assert rows(source, "a", "m") == [(place, "1") for place in range(5)]
    assert source.local_files == (tmp_path / "v/m=1/x.parquet",)


def test_another_name_of_a_folder_is_another_version_where_it_is_read(tmp_path: Path) -> None:
    for name in ("1/m=1", "2/m=2"):
        write(tmp_path, f"{name}/x.csv", "a\n1\n")
    first, second = (located(tmp_path, name) for name in ("1", "2"))
    assert data_version(first, columns=("a",), key=KEY) == data_version(second, columns=("a",), key=KEY)
    assert data_version(first, columns=("a", "m"), key=KEY) != data_version(second, columns=("a", "m"), key=KEY)


def test_an_error_names_the_file_and_not_its_folders(tmp_path: Path) -> None:
    write(tmp_path, f"visits/patient={CANARY}/x.parquet", b"PAR1 no more")
    with pytest.raises(SourceError, match=r"'x\.parquet' is not a complete Parquet file") as refusal:
        rows(located(tmp_path, "visits"), "a")
    check_silent(refusal.value)
    write(tmp_path, f"visits/patient={CANARY}/x.parquet", parquet_bytes(pa.table({})))
    with pytest.raises(SourceError, match="has no column of its own"):
        rows(located(tmp_path, "visits"), "patient")


@pytest.mark.parametrize("content", [("x.csv", b"a\n1\n"), ("x.parquet", parquet_bytes(pa.table({"a": ["1"]})))])
@pytest.mark.parametrize(
    ("name", "value"),
    [(b"Z\xfcrich", "Zürich"), ("Zürich".encode(), "Zürich"), (b"Z%FCrich", "Zürich"), (b"a::b", "a::b")],
)
def test_a_folder_may_be_named_by_any_bytes(
    tmp_path: Path, content: tuple[str, bytes], name: bytes, value: str
) -> None:
    for folder in (b"Bern", name):
        write(tmp_path, os.fsdecode(b"v/city=" + folder + b"/" + content[0].encode()), content[1])
    source = located(tmp_path, "v")
    assert sorted(rows(source, "city", "a")) == [("Bern", "1"), (value, "1")]
    assert data_version(source, columns=("city",), key=KEY)


def test_a_listed_file_that_cannot_be_opened_may_have_failed_by_its_folders_name(tmp_path: Path) -> None:
    file = write(tmp_path, f"v/name={CANARY}/x.csv", b"a\n1\n")
    source = located(tmp_path, "v")
    file.unlink()
    with pytest.raises(SourceBroken, match=r"'x\.csv' cannot be opened") as refusal:
        rows(source, "a")
    check_silent(refusal.value)
