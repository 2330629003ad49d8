"""A session on a small table, opened once, and copies of its folder for tests that change it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.coverage_releases import seeded
from dpcore.session.session import Session
from dpcore.tables.ingest.draws import Draws
from tests.conftest import SPEC, Workspace, visits

EPSILON = 2.0
FIRST_SHARE = 0.3  # most is left for questions
GROUPED = "select city, count(*) as n from release where smoker group by city"


@contextmanager
def same_draws(seed: int) -> Iterator[None]:
    """Draw the same noise, and keep the same rows of each person, in every run of the tests."""
    with seeded(seed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draws, "fresh", lambda unit_key=None: Draws(bytes(32), unit_key=unit_key))
        yield


@pytest.fixture(autouse=True)
def _draws() -> Iterator[None]:
    with same_draws(7):
        yield


def narrower(session: Session, query: str, share: float = 0.6) -> float:
    """Return a share of the half width that an answer has for nothing, so that it must be bought."""
    return share * session.price(query, within=1e9).half_width


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger, and the open session `s` in it."""
    folder = tmp_path_factory.mktemp("session")
    visits(3000, seed=1).to_csv(folder / "visits.csv", index=False)
    before = Path.cwd()
    os.chdir(folder)
    try:
        with pytest.MonkeyPatch.context() as patch, same_draws(3):
            for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
                patch.delenv(name, raising=False)
            (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
            Workspace(folder, folder / "spec.yaml").open_account(epsilon=100)
            Session.open("spec.yaml", epsilon=EPSILON, first_share=FIRST_SHARE, session="s").leave()
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def copied(opened: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Path]:
    """Copy that folder, and work in the copy."""
    count = 0

    def copy() -> Path:
        nonlocal count
        count += 1
        folder = tmp_path / f"copy-{count}"
        shutil.copytree(opened, folder)
        monkeypatch.chdir(folder)
        return folder

    return copy


@pytest.fixture
def session(copied: Callable[[], Path]) -> Iterator[Session]:
    """The session `s` in a copy of the folder."""
    copied()
    with Session.join("spec.yaml") as joined:
        yield joined
