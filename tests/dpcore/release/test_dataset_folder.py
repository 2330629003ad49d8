"""`latest.json` names the release whose run was reserved last, whatever the clock said and whatever copies lie beside it."""

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from dpcore import open_release
from dpcore.errors import DpflowError, LedgerDamaged, ReleaseDamaged
from dpcore.ledger import open_ledger, writing
from dpcore.release import dataset_folder, publishing, targets
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.runs import steps
from dpcore.steward import verify
from dpcore.steward.verify import verify_ledger
from tests.dpcore.release.conftest import Said, Site

pytestmark = pytest.mark.usefixtures("rough_models")


def point(site: Site, name: str) -> None:
    (site.releases / "latest.json").write_bytes(encoded_pointer(name))


ALIASES: dict[str, Callable[[Path], object]] = {
    "copy": lambda first: shutil.copytree(first, first.with_name("approved-january")),
    "link": lambda first: first.with_name("approved-january").symlink_to(first.name),
}


@pytest.mark.parametrize("alias", ALIASES)
def test_a_copy_or_link_of_a_release_is_never_the_newest(site: Site, alias: str) -> None:
    ALIASES[alias](site.release("first"))
    third = site.make("third")
    assert site.newest == third.name
    verify_ledger()
    point(site, "approved-january")
    with pytest.raises(
        LedgerDamaged, match="approved-january, which is a copy of, or a link to, a release with another"
    ):
        verify_ledger()


class YearAhead(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(days=365)


def test_a_clock_that_was_ahead_does_not_pin_the_newest(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(writing, "datetime", YearAhead)
        ahead = site.make("ahead")
    assert site.newest == ahead.name
    later = site.make("later")
    assert later.name < ahead.name
    assert site.newest == later.name
    verify_ledger()
    point(site, ahead.name)
    with pytest.raises(LedgerDamaged, match="is newer"):
        verify_ledger()


@pytest.mark.parametrize("name", ["99991231T0000Z-ffffffffffff", ".."])
def test_a_pointer_that_names_nothing_is_replaced(site: Site, name: str) -> None:
    point(site, name)
    with pytest.raises(LedgerDamaged):
        verify_ledger()
    assert site.make("third").name == site.newest
    verify_ledger()


def test_releases_that_were_deleted_are_named_with_how_to_write_them_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    first, second = site.release("first"), site.release("second")
    for release in (first, second):
        shutil.rmtree(release)
    with pytest.raises(ReleaseDamaged, match=rf"{second.name} is damaged: it is missing; .*--resume RUN.*ledger show"):
        open_release(site.releases)
    monkeypatch.setattr(verify, "NAMED", 1)
    text = said("ledger", "verify")
    assert "2   releases were not found; name their folder with --releases\n" in text
    assert f" visits/{first.name}, of run first\n" in text
    assert second.name not in text
    assert " and 1 more\n" in text
    assert "written again for nothing: dpflow run SPEC --resume RUN\n" in text
    for run in ("second", "first"):  # the older run finishes last, and does not become the newest
        site.make(run, resume=True)
        assert site.newest == second.name
    assert open_release(site.releases).folder == second
    verify_ledger()
    (second / "manifest.json").unlink()  # the folder is there, but it holds no release
    with pytest.raises(ReleaseDamaged, match=r"manifest\.json is missing; restore it"):
        open_release(site.releases)


def test_of_two_runs_that_end_at_once_the_newer_becomes_the_latest(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer, write = site.release("first"), site.release("second"), dataset_folder.write_note
    (site.releases / "latest.json").unlink()
    newer.rename("aside")

    def ends(release: Path) -> None:
        dataset_folder.point_latest(site.releases, release.name, numbers=lambda: {older.name: 1, newer.name: 2})

    def while_another_ends(path: Path, content: bytes) -> None:
        """The newer release appears, and points to itself, between the older run's look at latest.json and its writing."""
        monkeypatch.setattr(dataset_folder, "write_note", write)
        Path("aside").rename(newer)
        ends(newer)
        write(path, content)

    monkeypatch.setattr(dataset_folder, "write_note", while_another_ends)
    ends(older)
    assert site.newest == newer.name


MOMENTS = {
    "before its files are written": (targets, "write_files"),
    "before it gets its name": (publishing, "sync_path"),
    "before it looks for the newest": (targets, "point_latest"),
    "before it writes latest.json": (dataset_folder, "write_note"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_overtaken_does_not_become_the_latest(
    site: Site, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A newer run begins and ends at some moment of an older one's publication."""
    module, step = MOMENTS[moment]
    real, newer = getattr(module, step), []

    def overtaken(*arguments: object, **named: object) -> object:
        monkeypatch.setattr(module, step, real)
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setattr(steps, "_open_runs", {})  # as in another process
            newer.append(site.make("newer"))
        return real(*arguments, **named)

    monkeypatch.setattr(module, step, overtaken)
    older = site.make("older")
    assert site.newest == newer[0].name != older.name
    verify_ledger()


def test_a_refunded_run_that_is_resumed_is_as_new_as_its_last_reservation(site: Site) -> None:
    table = site.folder / "visits.csv"
    good = table.read_text(encoding="utf-8")
    table.write_text(good.replace("person,sex", "person,gender", 1), encoding="utf-8")
    with pytest.raises(DpflowError):
        site.make("refunded")
    table.write_text(good, encoding="utf-8")
    with open_ledger() as ledger:
        assert ledger.run("refunded").state == "refunded"
    between = site.make("between")
    assert site.newest == between.name
    again = site.make("refunded", resume=True)
    assert site.newest == again.name
    verify_ledger()
    point(site, between.name)
    with pytest.raises(LedgerDamaged, match="is newer"):
        verify_ledger()
    for run in ("between", "refunded"):
        site.make(run, resume=True)
        assert site.newest == again.name
