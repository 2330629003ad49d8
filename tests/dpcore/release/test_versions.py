"""Releases of one spec keep one schema; a changed spec starts a version and says what changed; twelve months are read as one table."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from dpcore import synthesize
from dpcore.ledger import open_ledger
from dpcore.release.versions import version_of
from dpcore.release.withdrawal import SIGN, withdraw
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.docs.pages import blocks, python
from tests.dpcore.release.conftest import ONE_ROUND, Said
from tests.dpcore.runs.test_synthesis_blocks import MONTHS, Site, site

pytestmark = pytest.mark.usefixtures("rough_models")

__all__ = ["site"]

DOWNSTREAM = "docs/how-to/downstream.md"


def manifest(release: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    return content


def test_a_changed_spec_starts_a_version_with_its_differences(paid: Site, said: Said) -> None:
    space = Workspace(paid.folder, paid.spec)

    def release(*changes: tuple[str, str]) -> Path:
        return Path(synthesize(space.write_spec(ONE_ROUND, *changes)).release)

    larger = (("epsilon: 1.0", "epsilon: 2.0"), ("values: [F, M]", "values: [F, X]"), ("width: 25", "width: 20"))
    kept = ("delta: 1e-9}", "delta: 1e-9}\noutput: {keep: 9}")
    made = [paid.make("first"), release(kept), release(*larger), release()]
    told = [manifest(each)["version"] for each in made]
    assert [each["number"] for each in told] == [1, 1, 2, 3]
    assert [each["before"] for each in told] == [None, *(each.name for each in made[:-1])]
    assert [bool(each["changes"]) for each in told] == [False, False, True, True]
    assert told[2]["changes"] == [
        "privacy.epsilon: 1.0 -> 2.0",
        'universe.sex.values: added "X"; removed "M"',
        "universe.age.width: 25 -> 20",
    ]
    schemas = [pq.read_schema(each / "data" / "part-00000.parquet").remove_metadata() for each in made]
    assert schemas[0].equals(schemas[1])
    text = said("releases", "visits")
    assert f"version 2 from {made[2].name} on: privacy.epsilon: 1.0 -> 2.0\n" in text
    assert [line.split()[7] for line in text.splitlines()[1:5]] == ["1", "1", "2", "3"]
    verify_ledger()


COLUMNS = {"spec": {"universe": {"age": {"max": 9}}}, "universe": {}, "columns": {"age": "int64"}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"columns": {"age": "int32"}}, ('columns.age: "int64" -> "int32"',)),
        (
            {"columns": {"sex": "bool", "age": "int64"}},
            ('order of columns: added "sex"', 'columns.sex: added "bool"'),
        ),
        ({"spec": {"universe": {"age": {"max": 9}}, "output": {"keep": 3, "path": "b"}, "analyst": "ann"}}, ()),
        ({"spec": {"universe": {"age": {"max": 9, "missing": True}}}}, ("universe.age.missing: added true",)),
        ({"spec": {"universe": {"age": {"max": 9, "description": "Age at the visit"}}}}, ()),
        (
            {"spec": {"universe": {"age": {"max": 9, "measured_in": "year"}}}},
            ('universe.age.measured_in: added "year"',),
        ),
    ],
)
def test_what_changes_the_rows_is_told(tmp_path: Path, change: dict[str, Any], told: tuple[str, ...]) -> None:
    (tmp_path / "one").mkdir()
    earlier = {"release": "one", "version": {"number": 4}, **COLUMNS}
    (tmp_path / "one" / "manifest.json").write_text(json.dumps(earlier), encoding="utf-8")
    found = version_of({**COLUMNS, **change}, tmp_path, before="one")
    assert set(found.changes) == set(told)
    assert (found.number, found.before) == (5 if told else 4, "one")


@pytest.mark.parametrize("earlier", ['{"release": "one"}', '{"release": "two"}', "[", "{}"])
def test_an_unreadable_release_before_it_is_none(tmp_path: Path, earlier: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "manifest.json").write_text(earlier, encoding="utf-8")
    found = version_of(COLUMNS, tmp_path, before="one")
    assert (found.number, found.before, found.changes) == (1, None, ())


def test_twelve_monthly_releases_are_read_as_one_table(site: Site) -> None:
    site.write(("start: 2024-01-01}", "start: 2024-01-01, window: new}"))
    site.open_account()
    days = [f"2024-{month:02}-02" for month in range(2, 13)] + ["2025-01-02"]
    made = [Path(site.run(day).release) for day in days]
    rows = {month: manifest(each)["rows"] for month, each in zip(MONTHS, made, strict=True)}
    first, *others = (block.replace("clinic-visits", "visits") for block in blocks(DOWNSTREAM, "python"))
    names: dict[str, Any] = {}
    python(first, site.folder, names)
    by_pandas, *by_duckdb = [block for block in others if "period" in block]
    python(by_pandas, site.folder, names)
    series = names["series"]
    assert series.groupby("period").size().to_dict() == rows
    assert set(series["version"]) == {1}
    assert series.groupby("period")["ward"].agg(lambda wards: wards.mode()[0]).tolist() == list("abcdefghijkl")
    (code,) = by_duckdb
    names["duckdb"] = duckdb
    python(code, site.folder, names)
    assert {period: count for period, _, count in names["by_period"].fetchall()} == rows
    with open_ledger() as ledger:
        withdraw(ledger, run_of(made[4]), made[4], reason="wrong codes")
    python(by_pandas, site.folder, names)
    assert set(names["series"]["period"]) == set(MONTHS) - {"2024-05"}
    python(code, site.folder, names)
    assert {period for period, *_ in names["by_period"].fetchall()} == set(MONTHS) - {"2024-05"}
    with pytest.raises(duckdb.Error, match=SIGN):
        duckdb.read_parquet(f"{site.folder}/releases/visits/*/data/*.parquet").fetchall()


def run_of(release: Path) -> str:
    return str(manifest(release)["privacy"]["run"])
