"""What a release says of itself is what its contracts say: the manifest follows its model and schema."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs.programs import manifest_schema
from dpcore import synthesize
from dpcore.release.manifest import Manifest
from tests.conftest import Workspace, visits


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contract")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE"):
            patch.delenv(name, raising=False)
        visits(500, seed=1).to_csv("visits.csv", index=False)
        space = Workspace(folder, folder / "spec.yaml")
        space.write_spec(("rounds: 4", "rounds: 1"))
        space.open_account()
        return Path(synthesize(space.spec).release).resolve()


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
