"""The project in `deployments/dbt`: dbt builds and tests it on two successive releases of the sample, and refuses a broken one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dpcore import synthesize
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from tests.deployments.facts import DEPLOYMENTS, ROOT

# One process for all builds: dbt takes longer to start than to build.
BUILDS = """\
import json, os, socket, sys
import duckdb
from dbt.cli.main import dbtRunner

def refused(*_):
    raise AssertionError("dbt called somebody")

socket.socket.connect = socket.getaddrinfo = refused
project, *releases = sys.argv[1:]
for release in releases:
    os.environ["DPFLOW_RELEASE"] = release
    places = ["--project-dir", project, "--profiles-dir", project, "--target-path", os.getcwd(), "--log-path", os.getcwd()]
    built = dbtRunner().invoke(["build", "--quiet", *places])
    if built.exception:
        raise built.exception
    with duckdb.connect("warehouse.duckdb") as warehouse:
        departments = warehouse.sql("select department, visits from departments").fetchall()
    print(json.dumps([{each.node.name.split("__")[0]: each.status for each in built.result}, dict(departments)]))
"""


def two_releases(folder: Path) -> list[Path]:
    """Make two releases of the sample: of its first half, and of the whole of it."""
    program = [
        sys.executable,
        ROOT / "data" / "clinic_visits.py",
        "--rows",
        "2000",
        "--out",
        folder / "clinic-visits.csv",
    ]
    subprocess.run(program, check=True, capture_output=True)
    table = (folder / "clinic-visits.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    text = (ROOT / "data" / "clinic-visits.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("../releases", "releases"),
        ("# rounds: 12", "rounds: 1"),
        ("step: 0.01", "bins: 4"),
        ("marginals: 2 ", "marginals: 1 "),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    currency, cap = budget_of(10.0, delta=1e-9)
    terms: dict[str, Any] = {"unit": "patient_id", "neighbours": Neighbours.ADD_REMOVE, "epsilon": 10.0, "delta": 1e-9}
    with open_ledger(create=True) as ledger:
        ledger.open_account("clinic-visits", currency=currency, cap=cap, **terms)
    made = []
    for rows in (len(table) // 2, len(table)):
        (folder / "clinic-visits.csv").write_text("".join(table[:rows]), encoding="utf-8")
        made.append(Path(synthesize(folder / "spec.yaml").release))
    return made


def counted(release: Path) -> dict[str, int]:
    return dict(pd.read_parquet(release / "data")["department"].value_counts())


def test_dbt_builds_its_tables_from_each_new_release_and_finds_a_value_that_the_spec_does_not_declare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    first, second = two_releases(tmp_path)
    broken = tmp_path / "broken"
    (broken / "data").mkdir(parents=True)
    rows = pd.read_parquet(second / "data").assign(department="astrology")
    rows.to_parquet(broken / "data" / "part.parquet")
    ran = subprocess.run(
        [sys.executable, "-c", BUILDS, DEPLOYMENTS / "dbt", first, second, broken],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
    for release, (results, departments) in zip((first, second), told[:2], strict=True):
        assert results.pop("departments") == "success"
        assert set(results.values()) == {"pass"}
        assert departments == counted(release)
    assert counted(first) != counted(second)
    results, departments = told[2]
    assert results["source_accepted_values_dpflow_clinic_visits_department"] == "fail"
    assert results["departments"] == "skipped"
    assert departments == counted(second), "the table of the last good release stays"
    assert not (tmp_path / "home").exists(), "dbt's usage statistics have an id there"
