"""The recipes for readers, on folders with the layout of releases: two successive ones, and twelve months of which one was withdrawn."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pytest

from dpcore.release.withdrawal import SIGN
from tests.docs.pages import ROOT, blocks, python

PAGE = "docs/how-to/downstream.md"
MONTHS = [f"2026-{month:02}" for month in range(1, 13)]


def release(folder: Path, name: str, *, rows: int, month: str) -> None:
    """Write the files that the recipes read, and let `latest.json` name them."""
    data = folder / name / "data"
    data.mkdir(parents=True)
    pd.DataFrame({"department": ["oncology"] * rows, "cost": range(rows)}).to_parquet(data / "part-00000.parquet")
    told = {
        "release": name,
        "created": f"{month}-28T00:00:00+00:00",
        "privacy": {"epsilon": 1.0, "blocks": {"first": month}},
        "version": {"number": 1},
    }
    (folder / name / "manifest.json").write_text(json.dumps(told), encoding="utf-8")
    newest = {"release": name, "data": f"{name}/data", "manifest": f"{name}/manifest.json"}
    (folder / "latest.json").write_text(json.dumps(newest), encoding="utf-8")


def withdraw(folder: Path, name: str) -> None:
    """Leave what a withdrawal leaves."""
    (folder / name / "withdrawn.json").write_text("{}", encoding="utf-8")
    (folder / name / "data" / "part-00000.parquet").unlink()
    (folder / name / "data" / SIGN).write_text("This is not a Parquet file", encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "releases" / "clinic-visits"


def recipe(containing: str) -> str:
    (found,) = (block for block in blocks(PAGE, "python") if containing in block)
    return found


def test_a_view_in_duckdb_follows_the_newest_of_two_successive_releases(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, rows in ((1, 3), (2, 5)):
        release(folder, f"release-{number}", rows=rows, month=MONTHS[number])
        python(recipe("set variable newest"), tmp_path, {})
        python(recipe("create or replace view"), tmp_path, {"duckdb": duckdb})
        newest = folder / json.loads((folder / "latest.json").read_text("utf-8"))["data"]
        assert duckdb.sql("select count(*) from newest_visits").fetchall() == [(rows,)]
        assert len(pl.read_parquet(newest / "*.parquet")) == rows


def test_twelve_months_are_one_table_with_a_period_without_those_withdrawn(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, month in enumerate(MONTHS, start=1):
        release(folder, f"release-{number:02}", rows=number, month=month)
    withdraw(folder, "release-07")
    expected = {month: number for number, month in enumerate(MONTHS, start=1) if number != 7}
    names: dict[str, Any] = {"json": json, "pd": pd, "duckdb": duckdb, "folder": folder}
    python(recipe("def every_period"), tmp_path, names)
    assert names["series"].groupby("period").size().to_dict() == expected
    assert list(names["series"].columns) == ["department", "cost", "period", "version"]
    python(recipe("by_period = duckdb.sql"), tmp_path, names)
    assert {period: rows for period, _, rows in names["by_period"].fetchall()} == expected


def test_the_page_shows_the_location_that_the_dbt_project_reads() -> None:
    sources = (ROOT / "deployments" / "dbt" / "models" / "sources.yml").read_text(encoding="utf-8")
    (location,) = (line.strip() for line in sources.splitlines() if "external_location" in line)
    assert location in (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
