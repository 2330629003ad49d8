"""Runs from every kind of source, and from a table that a program hands over."""

import errno
import os
import sqlite3
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpcore
from dpcore.errors import SourceBroken, SourceError, SpecError, UsageError
from dpcore.ledger import open_ledger
from tests.conftest import Workspace, visits

FILE = "{path: visits.csv}"


@pytest.fixture(autouse=True)
def account(workspace: Workspace) -> None:
    """All of these runs pay from one account."""
    workspace.open_account()


def data_versions() -> list[str | None]:
    with open_ledger() as ledger:
        return [run.data_version for run in ledger.runs("visits")]


def test_a_query_is_a_source(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(workspace.folder / "clinic.sqlite") as connection:
        visits(3000, seed=1).to_sql("visits", connection, index=False)
    connection.close()
    spec = workspace.write_spec((FILE, "{sql: select * from visits, url_env: CLINIC_DB}"))
    with pytest.raises(SourceError, match="CLINIC_DB is not set"):
        dpcore.synthesize(spec)
    monkeypatch.setenv("CLINIC_DB", "sqlite:///clinic.sqlite")
    outcome = dpcore.synthesize(spec)
    assert Path(outcome.release, "manifest.json").exists()
    assert "sqlite" not in Path(outcome.release, "manifest.json").read_text(encoding="utf-8")


FAILING = "{sql: \"select *, json_extract(note, '$.a') as sex from notes\", url_env: CLINIC_DB}"


@pytest.fixture
def notes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database in which one person's note decides whether a query can be answered."""
    place = workspace.folder / "clinic.sqlite"
    table = visits(300, seed=1).drop(columns="sex").assign(note='{"a": "F"}')
    table.loc[7, "note"] = "none"
    with sqlite3.connect(place) as connection:
        table.to_sql("notes", connection, index=False)
    connection.close()
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{place}")
    return place


def test_a_query_that_a_value_makes_fail_keeps_the_reservation(workspace: Workspace, notes: Path) -> None:
    spec = workspace.write_spec((FILE, FAILING))
    for run_id in ("r1", "r2"):
        with pytest.raises(SourceBroken, match=f"--resume {run_id}.*`dpflow ledger release {run_id}`") as refusal:
            dpcore.synthesize(spec, run_id=run_id)
        assert refusal.value.__context__ is refusal.value.__cause__ is None
    with open_ledger() as ledger:
        runs = [ledger.run(name) for name in ("r1", "r2")]
        assert [(run.state, run.spent) for run in runs] == [("open", 0)] * 2
        assert ledger.balance("visits").used == sum(run.reserved for run in runs) > 0
    with sqlite3.connect(notes) as connection:
        connection.execute("update notes set note = '{}' where note = 'none'")
    connection.close()
    assert dpcore.synthesize(spec, run_id="r1", resume=True).run == "r1"
    with open_ledger() as ledger:
        ledger.release_run("r2", lease=ledger.lease("r2"))  # as the steward does
        assert ledger.balance("visits").used == ledger.run("r1").spent


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize(
    "wrong", ["select person from notes", "select *, no_such_function(note) as sex from notes", "select * from nowhere"]
)
def test_a_query_that_is_wrong_whatever_the_values_are_costs_nothing(workspace: Workspace, wrong: str) -> None:
    with pytest.raises(SourceError) as refusal:
        dpcore.synthesize(workspace.write_spec((FILE, f'{{sql: "{wrong}", url_env: CLINIC_DB}}')), run_id="r1")
    assert type(refusal.value) is SourceError
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("released", 0)


def test_a_reservation_that_is_kept_does_not_come_back_by_another_failure(
    workspace: Workspace, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = workspace.write_spec((FILE, FAILING))
    with pytest.raises(SourceBroken):
        dpcore.synthesize(spec, run_id="r1")
    notes.with_name("empty.sqlite").touch()
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{notes.with_name('empty.sqlite')}")
    with pytest.raises(SourceBroken, match="the reservation is kept"):
        dpcore.synthesize(spec, run_id="r1", resume=True)
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("open", ledger.run("r1").reserved)


def test_a_connection_that_is_lost_after_rows_were_read_keeps_the_reservation(
    workspace: Workspace, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise SourceError("the database that CLINIC_DB names cannot be reached")

    with sqlite3.connect(notes) as connection:
        connection.execute("update notes set note = '{}'")
    connection.close()
    monkeypatch.setattr("dpcore.engines.ingest", gone)
    with pytest.raises(SourceBroken, match="the reservation is kept"):
        dpcore.synthesize(workspace.write_spec((FILE, FAILING)), run_id="r1")
    with open_ledger() as ledger:
        assert ledger.run("r1").state == "open"


def test_a_disk_that_the_rows_fill_keeps_the_reservation(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr("dpcore.ingest.spool.MEMORY_BYTES", 0)
        patch.setattr(os, "pwrite", full)
        with pytest.raises(SourceBroken, match=r"make room on its disk.*--resume r1"):
            dpcore.synthesize(workspace.spec, run_id="r1")
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("open", ledger.run("r1").reserved)
    assert dpcore.synthesize(workspace.spec, run_id="r1", resume=True).rows > 0


@pytest.mark.parametrize(
    "kind", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"]
)
def test_a_table_is_handed_over_and_the_spec_may_leave_its_source_out(workspace: Workspace, kind: object) -> None:
    table = visits(3000, seed=1)
    spec = workspace.write_spec((f"source: {FILE}\n", ""))
    with pytest.raises(SpecError, match="`source` is missing"):
        dpcore.synthesize(spec)
    outcome = dpcore.synthesize(spec, table=kind(table))  # type: ignore[operator]
    assert outcome.rows > 1500


def test_a_table_that_is_handed_over_goes_before_the_specs_source(workspace: Workspace) -> None:
    (workspace.folder / "visits.csv").unlink()
    with pytest.raises(SourceError, match="leads to no table"):
        dpcore.synthesize(workspace.spec)
    assert dpcore.synthesize(workspace.spec, table=visits(3000, seed=1)).rows > 1500


def test_a_run_on_a_table_goes_on_with_the_same_table_only(workspace: Workspace) -> None:
    dpcore.synthesize(workspace.spec, table=visits(3000, seed=1))
    dpcore.synthesize(workspace.spec, table=visits(3000, seed=1).assign(other="not declared"))
    dpcore.synthesize(workspace.spec, table=visits(3000, seed=2))
    first, second, third = data_versions()
    assert first == second != third


def test_what_is_no_table_costs_nothing(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="pandas, polars or Arrow"):
        dpcore.synthesize(workspace.spec, table=[1, 2])
    with pytest.raises(SourceError, match="the table lacks the declared columns"):
        dpcore.synthesize(workspace.spec, table=pd.DataFrame({"sex": ["F"]}))
    with open_ledger() as ledger:
        assert ledger.balance("visits").spent == 0


def test_a_partitioned_folder_is_a_source_and_its_keys_are_columns(workspace: Workspace) -> None:
    visits(3000, seed=1).to_parquet(workspace.folder / "parts", partition_cols=["city"])
    assert dpcore.synthesize(workspace.write_spec((FILE, "{path: parts}"))).rows > 1500
