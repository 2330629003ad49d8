"""`latest.json` names the release whose run was reserved last, whatever the clock said and whatever copies lie beside it."""

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from dpcore import synthesize
from dpcore.errors import LedgerDamaged
from dpcore.ledger import writing
from dpcore.release import dataset_folder
from dpcore.release.dataset_folder import pointer
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace


@pytest.fixture
def paid(workspace: Workspace) -> Workspace:
    workspace.write_spec(("rounds: 4", "rounds: 1"))
    workspace.open_account()
    return workspace


def release(workspace: Workspace, **more: object) -> Path:
    return Path(synthesize(workspace.spec, **more).release)  # type: ignore[arg-type]


def named(folder: Path) -> str:
    return str(json.loads((folder / "latest.json").read_text(encoding="utf-8"))["release"])


def point(folder: Path, name: str) -> None:
    (folder / "latest.json").write_text(json.dumps(pointer(name)) + "\n", encoding="utf-8")


class YearAhead(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(days=365)


def a_year_ahead(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    with monkeypatch.context() as patch:
        patch.setattr(writing, "datetime", YearAhead)
        return release(workspace)


def by_name(folder: Path, _known: object) -> str:
    """The planted defect: the newest is the folder whose name comes last."""
    return max(path.parent.name for path in folder.glob("[!.]*/manifest.json"))


ALIASES: dict[str, Callable[[Path], object]] = {
    "copy": lambda first: shutil.copytree(first, first.with_name("approved-january")),
    "link": lambda first: first.with_name("approved-january").symlink_to(first.name),
}


@pytest.mark.parametrize("alias", ALIASES)
def test_a_copy_or_link_of_a_release_is_never_the_newest(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch, alias: str
) -> None:
    first = release(paid)
    ALIASES[alias](first)
    second = release(paid)
    assert named(first.parent) == second.name
    verify_ledger()
    monkeypatch.setattr(dataset_folder, "_newest", by_name)
    release(paid)
    assert named(first.parent) == "approved-january"
    with pytest.raises(
        LedgerDamaged, match="approved-january, which is a copy of, or a link to, a release with another"
    ):
        verify_ledger()


def test_a_clock_that_was_ahead_does_not_pin_the_newest(paid: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = a_year_ahead(paid, monkeypatch)
    assert named(ahead.parent) == ahead.name
    second = release(paid)
    assert second.name < ahead.name
    assert named(ahead.parent) == second.name
    verify_ledger()
    monkeypatch.setattr(dataset_folder, "_newest", by_name)
    release(paid)
    assert named(ahead.parent) == ahead.name
    with pytest.raises(LedgerDamaged, match="is newer"):
        verify_ledger()


@pytest.mark.parametrize("name", ["99991231T000000Z-ffffffffffff", "..", "latest.json"])
def test_a_pointer_that_names_nothing_is_replaced(paid: Workspace, name: str) -> None:
    first = release(paid)
    point(first.parent, name)
    with pytest.raises(LedgerDamaged):
        verify_ledger()
    second = release(paid)
    assert named(first.parent) == second.name
    verify_ledger()


def test_a_newest_release_that_was_deleted_is_followed_by_the_next(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = a_year_ahead(paid, monkeypatch)
    shutil.rmtree(ahead)
    second = release(paid)
    assert named(ahead.parent) == second.name
    assert verify_ledger().absent == 1


def test_an_older_run_that_finishes_late_does_not_become_the_latest(paid: Workspace) -> None:
    older = release(paid, run_id="older")
    newer = release(paid)
    shutil.rmtree(older)
    release(paid, run_id="older", resume=True)
    assert older.is_dir()
    assert named(newer.parent) == newer.name
    verify_ledger()


def test_of_two_runs_that_end_at_once_the_newer_becomes_the_latest(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = release(paid), release(paid)
    folder, known, write = older.parent, [older.name, newer.name], dataset_folder._write
    (folder / "latest.json").unlink()
    newer.rename("aside")

    def while_another_ends(path: Path, content: bytes) -> None:
        """The newer release appears, and points to itself, between the older run's look at latest.json and its writing."""
        monkeypatch.setattr(dataset_folder, "_write", write)
        Path("aside").rename(newer)
        dataset_folder.point_latest(folder, newer.name, known=known)
        write(path, content)

    monkeypatch.setattr(dataset_folder, "_write", while_another_ends)
    dataset_folder.point_latest(folder, older.name, known=known)
    assert named(folder) == newer.name
