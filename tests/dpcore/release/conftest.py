"""Releases that many tests look at: made once in a session, at one place, which is put back before each test."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest

from dpcore import synthesize
from dpcore.ledger import open_ledger
from dpcore.object_store import ObjectPath
from dpcore.release import Draft, targets
from dpcore.release.signing import KEY_VARIABLE, new_key
from dpcore.runs import synthesis
from tests.conftest import Workspace, visits
from tests.dpcore.cli.ledgers import dpflow
from tests.rough_models import fit_roughly

VARIABLES = ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY", KEY_VARIABLE)
ONE_ROUND = ("rounds: 4", "rounds: 1")


@contextmanager
def working_in(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """Work in a folder, with the ledger and the private files that lie there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        yield patch


@dataclass(frozen=True)
class Site:
    """A project with a spec, a ledger, two pairs of keys, and releases of account `visits`."""

    folder: Path

    @property
    def spec(self) -> Path:
        return self.folder / "spec.yaml"

    @property
    def releases(self) -> Path:
        return self.folder / "releases" / "visits"

    def release(self, run: str) -> Path:
        """The release of a run, once the run is settled."""
        with open_ledger() as ledger:
            return self.releases / str(ledger.run(run).release)

    def make(self, run: str, *, resume: bool = False) -> Path:
        return Path(synthesize(self.spec, run_id=run, resume=resume).release).absolute()

    @property
    def newest(self) -> str:
        return str(json.loads((self.releases / "latest.json").read_bytes())["release"])

    @property
    def events(self) -> list[Any]:
        with open_ledger() as ledger:
            return list(ledger.history("visits"))


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Path]:
    """The site, and the folder of its states: without a release, with an open run, and with both runs settled."""
    site, states = Site(tmp_path_factory.mktemp("site")), tmp_path_factory.mktemp("states")
    with working_in(site.folder) as patch:
        fit_roughly(patch)
        (site.folder / ".dpflow").mkdir(mode=0o700)
        visits(300, seed=1).to_csv("visits.csv", index=False)
        space = Workspace(site.folder, site.spec)
        space.write_spec(ONE_ROUND)
        space.open_account(epsilon=1000)
        for name in ("steward", "stranger"):
            new_key(Path(name))
        shutil.copytree(site.folder, states / "empty")
        site.make("first")
        patch.setenv(KEY_VARIABLE, "steward.key")
        with patch.context() as killed, suppress(KeyboardInterrupt):
            killed.setattr(synthesis.Synthesis, "settle", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            site.make("second")
        shutil.copytree(site.folder, states / "open")
        site.make("second", resume=True)
        shutil.copytree(site.folder, states / "settled")
    return site, states


def put_back(folder: Path, kept: Path) -> None:
    """Let a folder hold what another one does."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    shutil.copytree(kept, folder, dirs_exist_ok=True)


@contextmanager
def _in_state(made: tuple[Site, Path], state: str) -> Iterator[Site]:
    site, states = made
    put_back(site.folder, states / state)
    with working_in(site.folder):
        yield site


@pytest.fixture
def paid(_made: tuple[Site, Path]) -> Iterator[Site]:
    """The site before its first run, with a budget for very many."""
    with _in_state(_made, "empty") as site:
        yield site


@pytest.fixture
def interrupted(_made: tuple[Site, Path]) -> Iterator[Site]:
    """The site with the settled run `first`, and with run `second`, which was killed after it had published a signed release."""
    with _in_state(_made, "open") as site:
        yield site


@pytest.fixture
def site(_made: tuple[Site, Path]) -> Iterator[Site]:
    """The site with the releases of runs `first`, which is not signed, and `second`, which is."""
    with _in_state(_made, "settled") as site:
        yield site


@contextmanager
def memory_store() -> Iterator[None]:
    """Keep all objects in memory. S3's own protocol is used by test_store_life.py and tests/faults/store_kills.py."""
    memory = fsspec.filesystem("memory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectPath, "_store", property(lambda _: memory))
        yield
        memory.store.clear()


class Kept:
    """Stands for `publish`, and keeps the drafts that it publishes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.drafts: list[Draft] = []
        patch.setattr(synthesis, "publish", self)

    def __call__(self, draft: Draft, **how: Any) -> Any:
        self.drafts.append(draft)
        return targets.publish(draft, **how)


Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return a function that runs a verb, which must end with a code, and returns what it prints."""

    def saying(*arguments: object, code: int = 0) -> str:
        capsys.readouterr()
        assert dpflow(*arguments) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return saying
