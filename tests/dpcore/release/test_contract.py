"""What a release says of itself is what its contracts say: the manifest follows its model and schema, and descriptors those of others."""

import itertools
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import jsonschema
import mlcroissant
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from docs.programs import manifest_schema
from dpcore import synthesize
from dpcore.release import Draft
from dpcore.release.descriptors import descriptors
from dpcore.release.manifest import Manifest
from tests.conftest import Workspace, visits
from tests.dpcore.release.conftest import ONE_ROUND, Kept, working_in

FACTS = Path(__file__).parents[2] / "facts"
MORE = """\
  day: {type: date, min: 2025-01-01, max: 2025-12-31, every: month, missing: true}
  at: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-01-02T00:00:00, every: hour}
  cost: {type: number, edges: [0, 10, 100], description: "Price of the visit, <b>before</b> refunds", measured_in: EUR}
  grade: {type: categorical, values: [0.5, 1.5], outside: drop, missing: true}
about:
  title: Visits
  description: Visits of patients
  curators: [Health Office, Clinics of the North]
  intended_use: Teaching
  region: Nowhere
  authors: [Ann Miller]
  sector: Healthcare
  sources: ["https://visits.example"]
workload"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Draft]:
    """A release, and the draft that it was written from."""
    folder = tmp_path_factory.mktemp("contract")
    table, rng = visits(500, seed=1), np.random.default_rng(3)
    table["day"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, len(table)), unit="D")
    table["at"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 86400, len(table)), unit="s")
    table["grade"] = rng.choice([0.5, 1.5], len(table))
    table["cost"] = rng.uniform(0, 100, len(table))
    table.to_parquet(folder / "visits.parquet")
    with working_in(folder) as patch:
        kept, space = Kept(patch), Workspace(folder, folder / "spec.yaml")
        space.write_spec(("visits.csv", "visits.parquet"), ("workload", MORE), ONE_ROUND)
        space.open_account()
        return Path(synthesize(space.spec).release).resolve(), kept.drafts[0]


@pytest.fixture(scope="module")
def release(made: tuple[Path, Draft]) -> Path:
    return made[0]


def read(release: Path, name: str) -> Any:
    return json.loads((release / name).read_text(encoding="utf-8"))


def test_the_model_of_the_manifest_knows_every_key_and_changes_none(release: Path) -> None:
    written = (release / "manifest.json").read_text(encoding="utf-8")
    known = Manifest.model_validate_json(written).model_dump(mode="json", exclude_unset=True)
    assert known == json.loads(written), "add what is new to dpcore/release/manifest.py"


def test_the_schema_of_manifests_is_up_to_date_and_a_manifest_follows_it(release: Path) -> None:
    kept = manifest_schema.PATH.read_text(encoding="utf-8")
    assert kept == manifest_schema.text(), "run: python -m docs.programs.manifest_schema"
    validator = jsonschema.Draft202012Validator(json.loads(kept))
    validator.check_schema(validator.schema)
    told = read(release, "manifest.json")
    assert [error.message for error in validator.iter_errors(told)] == []
    del told["privacy"]["epsilon"]
    told["files"][0]["sha256"] = "ab"
    assert {error.json_path for error in validator.iter_errors(told)} == {"$.privacy", "$.files[0].sha256"}


def test_the_data_package_follows_the_official_schema_and_lists_every_file_with_its_hash(release: Path) -> None:
    validator = jsonschema.Draft7Validator(
        json.loads((FACTS / "datapackage-2.0.schema.json").read_text(encoding="utf-8"))
    )
    told = read(release, "datapackage.json")
    assert [error.message for error in validator.iter_errors(told)] == []
    listed = {each["path"]: each for each in told["resources"]}
    for path, each in listed.items():
        content = (release / path).read_bytes()
        assert (each["bytes"], each["hash"]) == (len(content), f"sha256:{sha256(content).hexdigest()}")
    every = {each["path"] for each in read(release, "manifest.json")["files"]}
    assert set(listed) == every - {"datapackage.json", "croissant.json", "deployment.yaml"}
    told["resources"][0]["schema"]["fields"][1]["type"] = "whole"
    assert list(validator.iter_errors(told))


def test_the_released_rows_keep_what_the_data_package_says_of_their_columns(release: Path) -> None:
    fields = {each["name"]: each for each in read(release, "datapackage.json")["resources"][0]["schema"]["fields"]}
    table = pq.read_table(release / "data")
    assert list(fields) == table.column_names
    kinds = [each["type"] for each in fields.values()]
    assert kinds == ["string", "integer", "boolean", "string", "date", "datetime", "number", "number"]
    assert fields["city"]["categories"] == ["north", "south", "west", "other"]
    assert fields["grade"]["constraints"] == {"enum": [0.5, 1.5]}
    for name, field in fields.items():
        limits, column = field.get("constraints", {}), table[name]
        values = [each.isoformat() if hasattr(each, "isoformat") else each for each in column.drop_null().to_pylist()]
        assert not limits.get("required") or column.null_count == 0
        assert set(values) <= set(field.get("categories", limits.get("enum", values)))
        assert all(value >= limits["minimum"] for value in values if "minimum" in limits)
        assert all(value <= limits["maximum"] for value in values if "maximum" in limits)
        assert all(value < limits["exclusiveMaximum"] for value in values if "exclusiveMaximum" in limits)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the libraries of the reader
def test_the_official_reader_of_croissant_finds_no_error_and_reads_the_rows(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # for what it may keep
    found = mlcroissant.Dataset(jsonld=str(release / "croissant.json"))
    issues = found.metadata.ctx.issues
    assert set(issues.errors) == set()
    missing = {warning.partition('Property "')[2].partition('"')[0].rpartition("/")[2] for warning in issues.warnings}
    assert missing == {"citeAs", "license", "version"}  # of what is recommended, dpflow does not know these
    assert "not standard" not in caplog.text
    for each in read(release, "croissant.json")["distribution"]:
        assert each["sha256"] == sha256((release / each["contentUrl"]).read_bytes()).hexdigest()
    rows = pq.read_table(release / "data").to_pylist()
    read_rows = list(itertools.islice(found.records(record_set="rows"), 5))
    assert [each["rows/age"] for each in read_rows] == [row["age"] for row in rows[:5]]
    assert list(read_rows[0]) == [f"rows/{name}" for name in rows[0]]


def test_the_words_of_the_spec_about_a_column_are_with_the_column_wherever_a_reader_looks(release: Path) -> None:
    words = {"description": "Price of the visit, <b>before</b> refunds", "unit": "EUR"}
    schema = pq.read_schema(release / "data" / "part-00000.parquet")
    assert schema.field("cost").metadata == {key.encode(): text.encode() for key, text in words.items()}
    assert schema.field("age").metadata is None
    fields = {each["name"]: each for each in read(release, "datapackage.json")["resources"][0]["schema"]["fields"]}
    assert words.items() <= fields["cost"].items()
    (field,) = (each for each in read(release, "croissant.json")["recordSet"][0]["field"] if each["name"] == "cost")
    assert field["description"] == "Price of the visit, <b>before</b> refunds. Measured in EUR."
    page = (release / "card.html").read_text(encoding="utf-8")
    assert "Price of the visit, &lt;b&gt;before&lt;/b&gt; refunds. Measured in EUR." in page


def entry_of(release: Path) -> tuple[dict[str, Any], jsonschema.Draft7Validator]:
    entry = yaml.safe_load((release / "deployment.yaml").read_text(encoding="utf-8"))
    facts = json.loads((FACTS / "deployments-registry.schema.json").read_text(encoding="utf-8"))
    return entry, jsonschema.Draft7Validator(facts, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER)


def test_the_entry_for_the_deployments_registry_follows_its_schema_and_promises_what_the_manifest_does(
    release: Path,
) -> None:
    entry, validator = entry_of(release)
    assert [error.message for error in validator.iter_errors(entry)] == []
    told, privacy = entry["deployment"], read(release, "manifest.json")["privacy"]
    assert (entry["url_slug"], entry["tier"]) == (
        f"visits-health-office-clinics-of-the-north-{read(release, 'manifest.json')['created'][:4]}",
        2,
    )
    assert told["product"]["data_curators"] == ["Health Office", "Clinics of the North"]
    stated = told["privacy_loss"]["privacy_parameters"]
    assert stated["epsilon"] == privacy["epsilon"]
    assert privacy["delta"] + privacy["sampler_delta"] <= stated["delta"] < privacy["delta"] * (1 + 1e-6)
    assert told["privacy_loss"]["privacy_unit_description"] == (
        "Neighbouring tables differ by adding or removing one person with all its rows, of which at most 2 count."
    )
    assert privacy["guarantee"] in told["privacy_loss"]["privacy_parameters_description"]
    assert "release_type" not in told["model"], "nobody knows whether there will be another"
    assert "deployment.yaml" in (release / "SHA256SUMS").read_text(encoding="utf-8")


def test_a_sum_of_releases_has_no_entry_because_its_limit_on_rows_holds_in_each_part(made: tuple[Path, Draft]) -> None:
    alone = dict(descriptors(made[1], created="2026-01-01", files=()))
    summed = dict(descriptors(replace(made[1], parts=({"release": "one"},)), created="2026-01-01", files=()))
    assert set(alone) - set(summed) == {"deployment.yaml"}
