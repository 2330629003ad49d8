"""Whatever one record holds, no other record is read differently: in every kind of source, with planted readers that the check catches."""

import inspect
import random
from pathlib import Path

import pytest

from dpcore.tables.sources.part import FilePart, Part
from tests.campaign import often
from tests.dpcore.tables.sources.one_record import PERSON, check, good_record, small_chunks
from tests.dpcore.tables.sources.one_record_kinds import (
    arrow_kinds,
    csv_kinds,
    encoding_kinds,
    listed_kinds,
    memory_kinds,
    other_kinds,
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
    "elsewhere, and in two types": (other_kinds(), 60),
}
"""Kinds of sources of each family, and how many cases a campaign tries in each of them."""
STRIDE = 5  # every fifth kind meets every delimiter, compression, encoding, layout and type: their periods share no factor with it


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let records lie on every border, and databases be the test's own."""
    small_chunks(monkeypatch)
    monkeypatch.setenv("DPFLOW_PRIVATE", str(tmp_path / "private"))
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{tmp_path / 't.sqlite'}")


def test_a_campaign_has_more_than_ten_thousand_cases() -> None:
    assert sum(len(kinds) * count for kinds, count in EACH.values()) > 10_000


def test_every_kind_of_part_is_among_them(tmp_path: Path) -> None:
    record = good_record(random.Random(1), "w1", "p")  # noqa: S311  not for secrets
    pieces = [piece for kinds, _ in EACH.values() for piece in kinds[-1].write(tmp_path, [record]).pieces(ids=PERSON)]
    parts = [Part, *Part.__subclasses__(), *FilePart.__subclasses__()]
    concrete = {kind for kind in parts if kind.__module__.startswith("dpcore.") and not inspect.isabstract(kind)}
    assert {type(part) for piece in pieces for part in (piece, getattr(piece, "inner", piece))} == concrete


@pytest.mark.campaign
@pytest.mark.parametrize("name", EACH)
def test_one_record_of_any_bytes_moves_the_counts_by_no_more_than_its_bound(tmp_path: Path, name: str) -> None:
    kinds, count = EACH[name]
    stride = often(STRIDE if len(kinds) > 2 * STRIDE else 1, campaign=1)
    tallies = [
        check(kind, tmp_path, count=often(20 if kind.worlds > 1 else 4, campaign=count)) for kind in kinds[::stride]
    ]
    cases = sum(tally.cases for tally in tallies)
    assert [violation for tally in tallies for violation in tally.violations] == []
    assert sum(tally.moved for tally in tallies) > cases / 10  # the check sees records that count
    assert sum(tally.refused for tally in tallies) < cases


@pytest.mark.campaign
def test_likewise_in_postgres(postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres_server.new_database()
    monkeypatch.setenv("CLINIC_DB", url)
    tally = check(postgres_kind(url), tmp_path, count=often(20, campaign=100))
    assert tally.violations == []
    assert tally.moved > tally.cases / 10


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_reader_with_a_fault_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    planted.plant(monkeypatch)
    assert any(check(planted.kind, tmp_path, count=20, seed=seed).violations for seed in range(4))
