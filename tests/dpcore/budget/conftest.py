"""A fresh ledger of each kind."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, whose ledger would be a SQLite file."""
    for variable in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, for each kind of ledger."""
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        url = server.new_database(template=request.getfixturevalue("postgres_template"))
        monkeypatch.setenv("DPFLOW_LEDGER_URL", url)
        monkeypatch.setenv("DPFLOW_PRIVATE", str(folder / "private"))
        monkeypatch.setenv("DPFLOW_REGISTRY", str(folder / "registry"))
    return folder
