"""A ledger's file that is deleted, replaced, linked, overwritten or put back from a backup, at every moment of a run.

Each swap is made at each moment of a run. Then nothing more is drawn or published, the exit code is 4, and no later run starts on a
ledger that does not know what was drawn. The checks themselves are then removed, one at a time, and the same cases must notice.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dpcore.errors import DpflowError
from dpcore.ledger import Ledger, open_ledger
from dpcore.ledger.connection import Connection
from dpcore.ledger.heads import HeadMemory
from dpcore.ledger.sqlite import identity
from dpcore.ledger.sqlite.identity import LedgerFiles
from dpcore.ledger.writing import WritingTransaction
from dpcore.release import targets
from dpcore.runs.synthesis import Synthesis
from tests.campaign import CAMPAIGN
from tests.conftest import Workspace
from tests.dpcore.cli.ledgers import dpflow
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened

STEPS = ("first", "second", "third")
MOMENTS = ("before open", "before the first charge", "between charges", "before publishing", "before settling")
SOME_MOMENTS = MOMENTS if CAMPAIGN else ("before open", "between charges", "before publishing")


@dataclass
class Site:
    """A ledger, older copies of it and another ledger, and what a run on it has done."""

    folder: Path
    drawn: list[str] = field(default_factory=list)
    published: list[int] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / "books" / "ledger.sqlite"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def sh(self, command: str) -> None:
        """Do something to the files, in another process: closing one of them here would end SQLite's locks."""
        subprocess.run(["/bin/sh", "-ec", command], cwd=self.path.parent, check=True)

    def spend(self, ledger: Ledger, run: str, amount: int) -> None:
        ledger.reserve(run, account="clinic", amount=amount, claim="claim")
        lease = ledger.lease(run)
        ledger.commit(ledger.charge(lease, step="only", amount=amount, mechanism=MECHANISM), b"x")
        ledger.settle(run, release=None, lease=lease)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A ledger that has spent, with two copies from before: a file that was closed, and one in use, with its log."""
    site = Site(tmp_path)
    with open_ledger(site.url, create=True) as ledger:
        opened(ledger)
    site.sh("cp ledger.sqlite ../old.sqlite")
    with open_ledger(site.url) as ledger:
        site.spend(ledger, "earlier", 100)
        site.sh("cp ledger.sqlite ../used.sqlite; cp ledger.sqlite-wal ../used.sqlite-wal")
        site.spend(ledger, "later", 300)
    with open_ledger(f"sqlite:///{tmp_path}/other/ledger.sqlite", create=True) as other:
        opened(other, description="another ledger")
    return site


WHOLE = "ledger.sqlite ledger.sqlite-wal ledger.sqlite-shm"
SWAPS = {
    "the file is deleted": "rm ledger.sqlite",
    "all files are deleted": f"rm -f {WHOLE}",
    "another ledger is moved over it": "cp ../other/ledger.sqlite new; mv new ledger.sqlite",
    "another ledger takes the place of all files": f"rm -f {WHOLE}; cp ../other/ledger.sqlite .",
    "an old copy is moved over it": "cp ../old.sqlite new; mv new ledger.sqlite",
    "an old copy takes the place of all files": f"rm -f {WHOLE}; cp ../old.sqlite ledger.sqlite",
    "an old copy comes back with its log": f"rm -f {WHOLE}; cp ../used.sqlite ledger.sqlite; cp ../used.sqlite-wal ledger.sqlite-wal",
    "an old copy is written into it": "cat ../old.sqlite > ledger.sqlite",
    "another ledger is written into it": "cat ../other/ledger.sqlite > ledger.sqlite",
    "an old copy and its log are written into it": "cat ../used.sqlite > ledger.sqlite; cat ../used.sqlite-wal > ledger.sqlite-wal",
    "it is emptied": ": > ledger.sqlite",
    "it gets a second name": "ln ledger.sqlite second.sqlite",
    "it is moved and a link put in its place": "mkdir away; mv ledger.sqlite* away; ln -s away/ledger.sqlite .",
    "its log is deleted": "rm -f ledger.sqlite-wal",
    "its shared memory is deleted": "rm -f ledger.sqlite-shm",
    "its log is emptied": ": >> ledger.sqlite-wal; : > ledger.sqlite-wal",
    "its log is cut": "truncate -c -s 5000 ledger.sqlite-wal",
    "its folder is renamed": "mv ../books ../renamed",
}
HARMLESS_BEFORE_OPEN = {
    "it is moved and a link put in its place",
    "its log is deleted",
    "its shared memory is deleted",
    "its log is emptied",
    "its log is cut",
}
WRITTEN_INTO = {SWAPS[name] for name in SWAPS if "written into" in name}
"""Where the log holds all that differs, SQLite has mended the file before anybody could notice."""
HARMLESS = {
    "it is touched": "touch ledger.sqlite",
    "its mode is changed": "chmod 640 ledger.sqlite; chmod 600 ledger.sqlite",
    "it is copied": "cp ledger.sqlite ../copy.sqlite",
    "another process checkpoints and cuts the log": (
        f"{sys.executable} -c \"import sqlite3; c = sqlite3.connect('ledger.sqlite'); c.execute('PRAGMA wal_checkpoint(TRUNCATE)')\""
    ),
    "another process writes and checkpoints": (
        f"{sys.executable} -c \"import sqlite3; c = sqlite3.connect('ledger.sqlite'); c.execute('PRAGMA wal_checkpoint(FULL)')\""
    ),
}


def run_with(site: Site, moment: str, swap: str) -> None:
    """Make a run as a driver does: charge, then draw, then keep; publish; settle. At one moment the files are swapped."""

    def reach(here: str) -> None:
        if here == moment:
            site.sh(swap)

    reach("before open")
    with open_ledger(site.url) as ledger:
        ledger.reserve("run", account="clinic", amount=90, claim="claim")
        lease = ledger.lease("run")
        reach("before the first charge")
        for step in STEPS:
            operation = ledger.charge(lease, step=step, amount=30, mechanism=MECHANISM)
            site.drawn.append(step)
            ledger.commit(operation, b"noisy")
            if step == STEPS[0]:
                reach("between charges")
        reach("before publishing")
        ledger.confirm()
        site.published.append(1)
        reach("before settling")
        ledger.settle("run", release="release", lease=lease)


def misses(site: Site, moment: str, swap: str) -> str | None:
    """Return what went wrong, if anything: a run that went on, or a later one on a ledger that does not know the first."""
    try:
        run_with(site, moment, swap)
    except DpflowError as error:
        if error.exit_code != 4:
            return f"exit code {error.exit_code}: {error}"
    else:
        return forgets(site, must_open=True) if swap in WRITTEN_INTO else "the run went on"
    reached = {"before open": 0, "before the first charge": 0, "between charges": 1}.get(moment, len(STEPS))
    if len(site.drawn) > reached or (site.published and moment != "before settling"):
        return f"drew {site.drawn} and published {len(site.published)} times"
    return forgets(site)


def forgets(site: Site, *, must_open: bool = False) -> str | None:
    """Return what a run that starts now would not know, if it could start; or that it can't, though it must."""
    try:
        with open_ledger(site.url) as ledger:
            ledger.reserve("next", account="clinic", amount=1, claim="claim")
            known = {operation.step for operation in ledger.transcript("run")} if site.drawn else set()
            spent = ledger.balance("clinic").spent
            assert_sound(ledger)
    except DpflowError as error:
        return f"the run went on, and then: {error}" if must_open else None
    if known != set(site.drawn) or spent < 400 + 30 * len(site.drawn):
        return f"a later run starts with {spent} of {CAP} spent, and {known} of {site.drawn} known"
    return None


@pytest.mark.campaign
@pytest.mark.parametrize("moment", SOME_MOMENTS)
@pytest.mark.parametrize("swap", SWAPS)
def test_a_swap_ends_the_run_with_nothing_more_drawn_or_published(site: Site, swap: str, moment: str) -> None:
    if moment == "before open" and swap in HARMLESS_BEFORE_OPEN:
        run_with(site, moment, SWAPS[swap])
        assert (len(site.drawn), len(site.published)) == (3, 1)
        assert forgets(site, must_open=True) is None
        return
    wrong = misses(site, moment, SWAPS[swap])
    if moment == "before open" and swap == "its folder is renamed":  # what was seen is gone with it
        assert str(wrong).startswith("exit code 2: no ledger at")
        return
    assert wrong is None


@pytest.mark.parametrize("moment", SOME_MOMENTS[-1:])
@pytest.mark.parametrize("what", HARMLESS)
def test_what_does_not_change_the_ledger_is_no_reason_to_stop(site: Site, what: str, moment: str) -> None:
    run_with(site, moment, HARMLESS[what])
    assert (len(site.drawn), len(site.published)) == (3, 1)
    with open_ledger(site.url) as ledger:
        assert ledger.balance("clinic").spent == 490
        assert_sound(ledger)


@contextmanager
def planted(monkeypatch: pytest.MonkeyPatch, *removed: tuple[type, str, object]) -> Iterator[None]:
    with monkeypatch.context() as patch:
        for owner, name, nothing in removed:
            patch.setattr(owner, name, nothing)
        yield


NO_FILES = (
    (LedgerFiles, "require_same", lambda _self: None),
    (LedgerFiles, "content_changed", lambda _self: False),
    (LedgerFiles, "note_content", lambda _self: None),
)
NO_CONTENT = ((LedgerFiles, "content_changed", lambda _self: False),)
NO_LOG = ((LedgerFiles, "log_shrank", lambda _self: False),)
NO_MEMORY = ((HeadMemory, "recall", lambda _self, _ledger: None),)
NO_HEAD = ((WritingTransaction, "_continuing", lambda _self, head: head),)
NO_CONFIRM = ((Connection, "confirm", lambda _self: None),)


@pytest.mark.parametrize(
    ("removed", "swap", "moment"),
    [
        (NO_FILES, "all files are deleted", "between charges"),
        (NO_FILES, "all files are deleted", "before publishing"),
        (NO_FILES, "another ledger is moved over it", "before the first charge"),
        (NO_FILES, "it gets a second name", "between charges"),
        (NO_FILES, "its log is deleted", "between charges"),
        (NO_FILES, "its folder is renamed", "between charges"),
        (NO_CONTENT, "an old copy is written into it", "before the first charge"),
        (NO_CONTENT, "another ledger is written into it", "between charges"),
        (NO_CONTENT, "another ledger is written into it", "before publishing"),
        (NO_CONTENT, "it is emptied", "between charges"),
        (NO_LOG, "its log is emptied", "between charges"),
        (NO_LOG, "its log is cut", "before publishing"),
        (NO_MEMORY, "an old copy takes the place of all files", "before open"),
        (NO_MEMORY, "an old copy comes back with its log", "before open"),
        (NO_CONFIRM, "the file is deleted", "before publishing"),
    ],
)
def test_a_check_that_is_removed_is_missed(
    site: Site, monkeypatch: pytest.MonkeyPatch, removed: tuple[tuple[type, str, object], ...], swap: str, moment: str
) -> None:
    with planted(monkeypatch, *removed):
        assert misses(site, moment, SWAPS[swap]) is not None


def test_a_chain_that_lost_what_this_process_has_seen_is_not_written_to(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were put back through SQLite itself leave the files as they are; only the head tells."""
    back = "import sqlite3; old = sqlite3.connect('../old.sqlite'); now = sqlite3.connect('ledger.sqlite'); old.backup(now)"
    swap = f'{sys.executable} -c "{back}"'
    assert misses(site, "between charges", swap) is None
    again = Site(site.folder / "again")
    again.path.parent.mkdir(parents=True)
    for path in ("old.sqlite", "used.sqlite"):
        (again.folder / path).write_bytes((site.folder / path).read_bytes())
    again.path.write_bytes((site.folder / "used.sqlite").read_bytes())
    with planted(monkeypatch, *NO_HEAD, *NO_CONTENT, *NO_CONFIRM, *NO_MEMORY):
        assert misses(again, "between charges", swap) is not None


def test_a_ledger_has_one_name_whatever_link_leads_to_it(site: Site, tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "ledger.sqlite").symlink_to(site.path)
    large = b"noisy" * (1 << 18)
    with open_ledger(f"sqlite:///{tmp_path}/linked/ledger.sqlite") as ledger:
        ledger.reserve("run", account="clinic", amount=90, claim="claim")
        ledger.commit(ledger.charge(ledger.lease("run"), step="large", amount=30, mechanism=MECHANISM), large)
    assert [path.name for path in (tmp_path / "linked").iterdir()] == ["ledger.sqlite"]
    with open_ledger(site.url) as ledger:
        assert ledger.transcript("run")[0].output == large
        assert_sound(ledger)


MOUNTED = "22 27 0:21 / /proc rw - proc proc rw\n36 35 98:0 /some/file {} rw,noatime master:1 - ext4 /dev/root rw\n"


@pytest.mark.parametrize("name", ["ledger.sqlite", "my ledger\\.sqlite", "b\u00fccher.sqlite"])
def test_a_file_that_is_mounted_by_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It has the inode of the file elsewhere, and a log of its own."""
    path, mounts = tmp_path / name, tmp_path / "mountinfo"
    monkeypatch.setattr(identity, "MOUNTS", mounts)
    written = str(path).replace("\\", "\\134").replace(" ", "\\040")
    for other in (str(tmp_path), f"{written}-wal", f"{written}.old"):
        mounts.write_text(MOUNTED.format(other), encoding="utf-8")
        open_ledger(f"sqlite:///{path}", create=True).close()
    mounts.write_text(MOUNTED.format(written), encoding="utf-8")
    with pytest.raises(DpflowError, match="is a file that is mounted by itself") as refused:
        open_ledger(f"sqlite:///{path}")
    assert refused.value.exit_code == 4
    mounts.unlink()  # a machine that has no such list
    open_ledger(f"sqlite:///{path}").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file")
def test_a_ledger_that_is_really_mounted_by_itself_is_refused(site: Site, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "ledger.sqlite"
    other.parent.mkdir()
    other.touch()
    if subprocess.run(
        ["/bin/mount", "--bind", str(site.path), str(other)], check=False, capture_output=True
    ).returncode:
        pytest.skip("this machine lets nobody mount a file")
    try:
        with pytest.raises(DpflowError, match="is a file that is mounted by itself"):
            open_ledger(f"sqlite:///{other}")
        open_ledger(site.url).close()
    finally:
        subprocess.run(["/bin/umount", str(other)], check=True)


def test_a_maker_that_died_before_it_removed_its_own_name_leaves_a_ledger_that_opens(site: Site) -> None:
    site.sh("ln ledger.sqlite .ledger.sqlite-ab12cd")
    with open_ledger(site.url) as ledger:
        site.spend(ledger, "run", 10)
    assert not site.path.with_name(".ledger.sqlite-ab12cd").exists()


@pytest.mark.parametrize("write", [Ledger.raise_cap, Ledger.close_account])
def test_two_copies_side_by_side_are_told_apart_by_what_was_seen(
    site: Site, monkeypatch: pytest.MonkeyPatch, write: Callable[..., object]
) -> None:
    """Both have the same identity; the one that lacks an event that was seen, or has another in its place, is refused."""
    monkeypatch.setenv("DPFLOW_PRIVATE", str(site.folder / "shared"))
    copy = site.folder / "copy"
    copy.mkdir()
    site.sh("cp ledger.sqlite ../copy")
    with open_ledger(site.url) as ledger:
        site.spend(ledger, "here", 200)
    arguments = {"reason": "why"} | ({"cap": 2 * CAP, "epsilon": 2.0} if write is Ledger.raise_cap else {})
    with open_ledger(f"sqlite:///{copy}/ledger.sqlite") as ledger:
        assert ledger.balance("clinic").spent == 400  # it can be read
        assert ledger.warning
        with pytest.raises(DpflowError, match="this is an old or a different copy") as refused:
            write(ledger, "clinic", **arguments)
    assert refused.value.exit_code == 4


RELEASE_SWAPS = ("rm ledger.sqlite", "cp ../backup new; mv new ledger.sqlite", "ln ledger.sqlite second.sqlite")


def released(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, swap: str, *, after: tuple[object, str]) -> int:
    """Make a release from the command line, with the files swapped after one of its steps; return the exit code."""
    workspace.open_account()
    subprocess.run(["/bin/cp", ".dpflow/ledger.sqlite", "backup"], cwd=workspace.folder, check=True)
    owner, name = after
    step = getattr(owner, name)

    def then_swapped(*arguments: object, **more: object) -> object:
        result = step(*arguments, **more)
        subprocess.run(["/bin/sh", "-ec", swap], cwd=workspace.folder / ".dpflow", check=True)
        return result

    monkeypatch.setattr(owner, name, then_swapped)
    return dpflow("run", workspace.spec)


def names_in_releases(workspace: Workspace) -> list[str]:
    return sorted(path.name for path in (workspace.folder / "releases" / "visits").iterdir())


@pytest.mark.parametrize(
    ("swap", "after"),
    [*zip(RELEASE_SWAPS, [(Synthesis, "ingest"), (Synthesis, "sample"), (targets, "write_files")], strict=True)],
)
def test_a_release_does_not_appear_without_its_ledger(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, swap: str, after: tuple[object, str]
) -> None:
    assert released(workspace, monkeypatch, swap, after=after) == 4
    assert names_in_releases(workspace) == ["ledger.json"]


def test_a_release_that_nobody_confirms_would_appear(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "confirm", lambda _self: None)
    assert released(workspace, monkeypatch, RELEASE_SWAPS[0], after=(targets, "write_files")) == 4  # at its end
    assert (
        len(names_in_releases(workspace)) == 2
    )  # the release, without a latest.json, for which the ledger is asked again
