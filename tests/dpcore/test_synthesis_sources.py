"""Runs from every kind of source, and from a table that a program hands over."""

import sqlite3
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpcore
from dpcore.errors import SourceError, SpecError, UsageError
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
