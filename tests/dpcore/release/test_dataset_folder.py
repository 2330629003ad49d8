"""`latest.json` names the release whose run was reserved last, whatever the clock said and whatever copies lie beside it."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from dpcore import open_release, synthesize
from dpcore.cli.main import main
from dpcore.errors import DpflowError, LedgerDamaged, ReleaseDamaged
from dpcore.ledger import Run, open_ledger, writing
from dpcore.release import dataset_folder, publishing, release_id, withdrawal
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.runs import steps, synthesis
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace

pytestmark = pytest.mark.usefixtures("rough_models")


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
    (folder / "latest.json").write_bytes(encoded_pointer(name))


class YearAhead(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(days=365)


def a_year_ahead(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    with monkeypatch.context() as patch:
        patch.setattr(writing, "datetime", YearAhead)
        return release(workspace)


def by_name(folder: Path, _numbers: object) -> str:
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
    monkeypatch.setattr(dataset_folder, "newest_release", by_name)
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
    monkeypatch.setattr(dataset_folder, "newest_release", by_name)
    release(paid)
    assert named(ahead.parent) == ahead.name
    with pytest.raises(LedgerDamaged, match="is newer"):
        verify_ledger()


@pytest.mark.parametrize("name", ["99991231T0000Z-ffffffffffff", "..", "latest.json"])
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


def test_a_newest_release_that_was_deleted_is_named_with_how_to_write_it_again(
    paid: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    deleted = release(paid, run_id="r1")
    shutil.rmtree(deleted)
    with pytest.raises(ReleaseDamaged, match=rf"{deleted.name} is damaged: it is missing; .*--resume RUN.*ledger show"):
        open_release(deleted.parent)
    assert main(["ledger", "verify"], runner=None) == 0  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "1   release was not found; name its folder with --releases\n" in said
    assert f" visits/{deleted.name}, of run r1\n" in said
    assert "written again for nothing: dpflow run SPEC --resume RUN\n" in said
    assert release(paid, run_id="r1", resume=True) == deleted
    assert open_release(deleted.parent).folder == deleted
    (deleted / "manifest.json").unlink()  # the folder is there, but it holds no release
    with pytest.raises(ReleaseDamaged, match=r"manifest\.json is missing; restore it"):
        open_release(deleted.parent)


def test_of_many_deleted_releases_a_few_are_named(paid: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    deleted = [release(paid, run_id=f"r{number}") for number in range(7)]
    for each in deleted:
        shutil.rmtree(each)
    assert main(["ledger", "verify"], runner=None) == 0  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "7   releases were not found; name their folder with --releases\n" in said
    assert [each.name in said for each in deleted] == [True] * 5 + [False] * 2
    assert " and 2 more\n" in said


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
    folder, write = older.parent, dataset_folder.write_note
    (folder / "latest.json").unlink()
    newer.rename("aside")

    def while_another_ends(path: Path, content: bytes) -> None:
        """The newer release appears, and points to itself, between the older run's look at latest.json and its writing."""
        monkeypatch.setattr(dataset_folder, "write_note", write)
        Path("aside").rename(newer)
        dataset_folder.point_latest(folder, newer.name, numbers=lambda: {older.name: 1, newer.name: 2})
        write(path, content)

    monkeypatch.setattr(dataset_folder, "write_note", while_another_ends)
    dataset_folder.point_latest(folder, older.name, numbers=lambda: {older.name: 1, newer.name: 2})
    assert named(folder) == newer.name


MOMENTS = {
    "before its files are written": (publishing, "write_files"),
    "before it gets its name": (publishing, "_renamed"),
    "before it looks for the newest": (publishing, "point_latest"),
    "before it writes latest.json": (dataset_folder, "write_note"),
}


def release_overtaken(workspace: Workspace, patch: pytest.MonkeyPatch, moment: str) -> tuple[Path, Path]:
    """Let a newer run begin and end at some moment of an older one's publication; return both releases, the older one first."""
    (module, step), newer = MOMENTS[moment], []
    real = getattr(module, step)

    def overtaken(*arguments: object, **named: object) -> object:
        patch.setattr(module, step, real)
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setattr(steps, "_open_runs", {})  # as in another process
            newer.append(release(workspace))
        return real(*arguments, **named)

    patch.setattr(module, step, overtaken)
    return release(workspace), newer[0]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_overtaken_does_not_become_the_latest(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    older, newer = release_overtaken(paid, monkeypatch, moment)
    assert older != newer
    assert named(newer.parent) == newer.name
    verify_ledger()


def test_knowing_the_runs_only_as_they_were_before_the_writing_would_not_do(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: a run that was reserved while the release was written is unknown."""
    publish = synthesis.publish

    def numbered_early(*arguments: Any, numbers: Callable[[], Mapping[str, int]], **more: Any) -> Any:
        early = numbers()
        return publish(*arguments, numbers=lambda: early, **more)

    monkeypatch.setattr(synthesis, "publish", numbered_early)
    older, _ = release_overtaken(paid, monkeypatch, "before its files are written")
    assert named(older.parent) == older.name
    with pytest.raises(LedgerDamaged, match="is newer"):
        verify_ledger()


def refund(workspace: Workspace, run: str) -> None:
    """Let a run find that its table lacks a column, which refunds its reservation; then put the table back."""
    table = workspace.folder / "visits.csv"
    good = table.read_text(encoding="utf-8")
    table.write_text(good.replace("person,sex", "person,gender", 1), encoding="utf-8")
    with pytest.raises(DpflowError):
        release(workspace, run_id=run)
    table.write_text(good, encoding="utf-8")
    with open_ledger() as ledger:
        assert ledger.run(run).state == "refunded"


def resume_refunded(workspace: Workspace) -> list[bool]:
    """Resume runs that were refunded, between others; after each release, tell whether it is named as the latest."""
    refund(workspace, "a")
    refund(workspace, "b")
    latest = []
    for run in ("c", "b", "d", "a"):
        made = release(workspace, run_id=run, resume=run in {"a", "b"})
        latest.append(named(made.parent) == made.name)
    return latest


def test_a_refunded_run_that_is_resumed_is_as_new_as_its_last_reservation(paid: Workspace) -> None:
    assert resume_refunded(paid) == [True] * 4
    verify_ledger()
    newest = named(paid.folder / "releases" / "visits")
    for run in ("a", "b", "c", "d"):
        release(paid, run_id=run, resume=True)
        assert named(paid.folder / "releases" / "visits") == newest
    verify_ledger()


def test_ordering_runs_by_their_first_reservation_would_not_do(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: for latest.json, a run is as old as its row, which outlives a refund. `verify` knows better."""

    def by_row(runs: Iterable[Run]) -> dict[str, int]:
        return {release_id(run.id, opened_at=run.opened_at): row for row, run in enumerate(runs)}

    monkeypatch.setattr(withdrawal, "reservation_numbers", by_row)
    assert resume_refunded(paid) == [True, False, True, False]
    with pytest.raises(LedgerDamaged, match="is newer"):
        verify_ledger()


def drafts(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith((".latest", ".ledger"))}


LEFT = {".latest.json-0123abcd", ".latest.json-4567cdef", ".ledger.json-89ab0123"}
FRESH = {".latest.json-89abcdef", ".ledger.json-01234567"}  # which another run may be about to use
OF_OTHERS = {
    ".latest-notes",
    ".latest.json-0123abcd.bak",
    ".latest.json-0123ABCD",
    ".latest.json-0123abcde",
    ".ledger.json-mine",
    ".ledger.json",
}


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "planted: never removed"])
def test_a_draft_that_a_killed_run_left_behind_is_removed_by_a_later_one(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    folder = release(paid).parent
    (folder / ".latest.json-4567cdef").symlink_to("nowhere")
    for name in (LEFT | FRESH | OF_OTHERS) - {".latest.json-4567cdef"}:
        (folder / name).touch()
    for name in LEFT | OF_OTHERS:
        os.utime(folder / name, (0, 0), follow_symlinks=False)
    if not removed:
        monkeypatch.setattr(dataset_folder, "_remove_leftovers", lambda folder: None)
    release(paid)
    assert drafts(folder) == FRESH | OF_OTHERS | (set() if removed else LEFT)
    verify_ledger()
