import os
from pathlib import Path

import pytest

from dpcore.places import absolute_places

NAMES = ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY")


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_what_is_not_set_gets_its_place_in_the_working_folder(tmp_path: Path) -> None:
    assert absolute_places() == {
        "DPFLOW_LEDGER_URL": f"sqlite:///{tmp_path}/.dpflow/ledger.sqlite",
        "DPFLOW_PRIVATE": f"{tmp_path}/.dpflow/private",
        "DPFLOW_REGISTRY": f"{tmp_path}/.dpflow/registry",
    }


def test_registry_and_private_folder_stay_beside_a_ledger_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", "sqlite:///books/ledger.sqlite")
    found = absolute_places()
    assert found["DPFLOW_LEDGER_URL"] == f"sqlite:///{tmp_path}/books/ledger.sqlite"
    assert found["DPFLOW_PRIVATE"] == f"{tmp_path}/books/private"
    assert found["DPFLOW_REGISTRY"] == f"{tmp_path}/books/registry"


def test_what_is_set_is_kept_and_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", "postgresql://steward@host/ledger")
    monkeypatch.setenv("DPFLOW_PRIVATE", "mine")
    monkeypatch.setenv("DPFLOW_REGISTRY", "/elsewhere")
    assert absolute_places() == {
        "DPFLOW_LEDGER_URL": "postgresql://steward@host/ledger",
        "DPFLOW_PRIVATE": f"{tmp_path}/mine",
        "DPFLOW_REGISTRY": "/elsewhere",
    }


def test_the_places_are_the_same_from_any_other_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = absolute_places()
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "other").mkdir()
    os.chdir(tmp_path / "other")
    assert absolute_places() == found
