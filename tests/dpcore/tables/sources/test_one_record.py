"""Whatever one record holds, no other record is read differently: in every kind of source, with planted readers that the check catches."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.dpcore.tables.sources.one_record import Kind, Tally, check, small_chunks
from tests.dpcore.tables.sources.one_record_kinds import (
    arrow_kinds,
    csv_kinds,
    encoding_kinds,
    listed_kinds,
    memory_kinds,
    parquet_kinds,
    partition_kinds,
    postgres_kind,
    quotation_kinds,
    sqlite_kinds,
)
from tests.dpcore.tables.sources.one_record_planted import PLANTED, Planted
from tests.postgres import PostgresServer

EACH = {
    "CSV": (csv_kinds(), 80),
    "quotation": (quotation_kinds(), 60),
    "encodings": (encoding_kinds(), 100),
    "Parquet": (parquet_kinds(), 40),
    "Arrow": (arrow_kinds(), 60),
    "memory": (memory_kinds(), 160),
    "partitions": (partition_kinds(), 100),
    "paths": (listed_kinds(), 10),
    "SQLite": (sqlite_kinds(), 300),
}


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let records lie on every border, and databases be the test's own."""
    small_chunks(monkeypatch)
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{tmp_path / 't.sqlite'}")


def checked(kinds: Sequence[Kind], folder: Path, *, count: int) -> Tally:
    whole = Tally()
    for kind in kinds:
        tally = check(kind, folder, count=count)
        whole.cases += tally.cases
        whole.refused += tally.refused
        whole.moved += tally.moved
        whole.violations += tally.violations
    return whole


def test_there_are_more_than_ten_thousand_cases() -> None:
    assert sum(len(kinds) * count for kinds, count in EACH.values()) > 10_000


@pytest.mark.parametrize("name", EACH)
def test_one_record_of_any_bytes_moves_the_counts_by_no_more_than_its_bound(tmp_path: Path, name: str) -> None:
    kinds, count = EACH[name]
    tally = checked(kinds, tmp_path, count=count)
    assert tally.violations == []
    assert tally.moved > tally.cases / 10  # the check sees records that count
    assert tally.refused < tally.cases


def test_likewise_in_postgres(postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres_server.new_database()
    monkeypatch.setenv("CLINIC_DB", url)
    tally = check(postgres_kind(url), tmp_path, count=100)
    assert tally.violations == []
    assert tally.moved > tally.cases / 10


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_reader_with_a_fault_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    planted.plant(monkeypatch)
    assert check(planted.kind, tmp_path, count=80).violations != []
