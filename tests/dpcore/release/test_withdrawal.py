"""A withdrawn release: its data is gone, every reader is told why, the ledger knows, and no interruption leaves anything between."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from dpcore import answer, open_release, sample, synthesize
from dpcore.errors import DpflowError, LedgerDamaged, OutputError, UsageError
from dpcore.ledger import EventKind, open_ledger
from dpcore.release import withdrawal
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.release.withdrawal import SIGN, WITHDRAWN, withdraw
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits
from tests.dpcore.cli.ledgers import dpflow

pytestmark = pytest.mark.usefixtures("rough_models")

VARIABLES = ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY")
REASON = "wrong diagnosis codes"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A folder with a ledger and two releases, and a copy of it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        (folder / ".dpflow").mkdir(mode=0o700)
        visits(500, seed=1).to_csv("visits.csv", index=False)
        space = Workspace(folder, folder / "spec.yaml")
        space.write_spec(("rounds: 4", "rounds: 1"))
        space.open_account()
        synthesize(space.spec, run_id="first")
        synthesize(space.spec, run_id="second")
    kept = shutil.copytree(folder, tmp_path_factory.mktemp("kept") / "made")
    return folder, folder / "releases" / "visits", kept


def put_back(folder: Path, kept: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(kept, folder, dirs_exist_ok=True)


@pytest.fixture
def releases(made: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the two releases, put back after the test."""
    folder, found, kept = made
    monkeypatch.chdir(folder)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield found
    put_back(folder, kept)


def named(releases: Path, run: str) -> Path:
    with open_ledger() as ledger:
        return releases / str(ledger.run(run).release)


def newest(releases: Path) -> str:
    return str(json.loads((releases / "latest.json").read_text(encoding="utf-8"))["release"])


def files(release: Path) -> set[str]:
    return {str(path.relative_to(release)) for path in release.rglob("*") if path.is_file()}


def events() -> list[Any]:
    with open_ledger() as ledger:
        return [event for event in ledger.history("visits") if event.kind in {EventKind.WITHDRAWN, EventKind.REMOVED}]


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int) -> str:
    assert dpflow(*arguments) == code
    found = capsys.readouterr()
    return found.err if code else found.out


def test_the_data_is_gone_and_the_newest_of_the_others_is_the_latest(
    releases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = named(releases, "first"), named(releases, "second")
    assert said(capsys, "latest", "visits", code=0) == f"releases/visits/{second.name}\n"
    with open_ledger() as ledger:
        before = ledger.balance("visits")
    text = said(capsys, "withdraw", second, "--reason", REASON, code=0)
    assert f"release {second.name} was withdrawn on 20" in text
    assert text.count(REASON) == 1
    assert "no budget was refunded" in text
    assert files(second) == {"manifest.json", WITHDRAWN, f"data/{SIGN}"}
    assert newest(releases) == first.name
    assert said(capsys, "latest", releases, code=0) == f"{first}\n"
    with open_ledger() as ledger:
        assert ledger.balance("visits") == before
    (event,) = events()
    assert (event.run, event.details) == ("second", {"release": second.name, "reason": REASON})
    verified = verify_ledger(complete=[releases])
    assert (verified.withdrawn, verified.manifests) == (1, 2)
    assert "withdrawn" in said(capsys, "ledger", "verify", code=0)


def test_every_reader_of_a_withdrawn_release_is_told(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = named(releases, "first"), named(releases, "second")
    for each in (second, first):
        said(capsys, "withdraw", each, "--reason", REASON, code=0)
    for place in (releases, first, second):
        for read in (
            open_release,
            lambda place: answer(place, "select count(*) from release"),
            lambda place: sample(place, rows=1),
        ):
            with pytest.raises(
                UsageError, match=f"was withdrawn on .*: {REASON}; list the others with: dpflow releases"
            ):
                read(place)
    assert "was withdrawn on 20" in said(capsys, "latest", releases, code=2)
    assert REASON in said(capsys, "answer", releases, "select count(*) from release", code=2)
    pointed = json.loads((releases / "latest.json").read_text(encoding="utf-8"))
    assert pointed["release"] == second.name
    with pytest.raises(Exception, match=SIGN):
        pd.read_parquet(releases / pointed["data"])
    with pytest.raises(duckdb.Error, match=SIGN):
        duckdb.read_parquet(f"{releases / pointed['data']}/*.parquet").fetchall()
    assert REASON in (releases / pointed["data"] / SIGN).read_text(encoding="utf-8")
    listing = json.loads(said(capsys, "releases", "visits", "--json", code=0))["releases"]
    assert [each["withdrawn"]["reason"] for each in listing] == [REASON, REASON]
    assert {each["newest"] for each in listing} == {False}
    assert verify_ledger().withdrawn == 2


def test_withdrawing_again_changes_nothing(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = named(releases, "second")
    said(capsys, "withdraw", second, "--reason", REASON, code=0)
    before = {path: path.read_bytes() for path in releases.rglob("*") if path.is_file()}
    text = said(capsys, "withdraw", second.name, "--reason", "another", code=0)
    assert f": {REASON}\n" in text
    assert "it was withdrawn before, so that reason stays" in text
    assert {path: path.read_bytes() for path in releases.rglob("*") if path.is_file()} == before
    assert len(events()) == 1


def test_a_withdrawn_release_is_never_written_again(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = named(releases, "second")
    said(capsys, "withdraw", second, "--reason", REASON, code=0)
    with pytest.raises(UsageError, match=f"{REASON}; it cannot be written again, so start a new run"):
        synthesize("spec.yaml", run_id="second", resume=True)
    third = Path(synthesize("spec.yaml", run_id="third").release)
    assert newest(releases) == third.name
    assert json.loads((third / "manifest.json").read_text(encoding="utf-8"))["version"]["before"] == second.name
    verify_ledger()


def test_a_release_whose_folder_is_gone_is_withdrawn_by_name(
    releases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = named(releases, "second")
    shutil.rmtree(second)
    assert "its folder is not there" in said(capsys, "withdraw", second.name, "--reason", REASON, code=0)
    assert len(events()) == 1
    verify_ledger()


def test_what_is_no_release_of_this_ledger_is_refused(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = named(releases, "second")
    assert "is the folder of a dataset; name one of its releases" in said(
        capsys, "withdraw", releases, "--reason", REASON, code=2
    )
    assert "there is no release at nothing" in said(capsys, "withdraw", "nothing", "--reason", REASON, code=2)
    assert "a reason must be printable text" in said(capsys, "withdraw", second, "--reason", " ", code=2)
    manifest = second / "manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps(content), encoding="utf-8")
    assert "was changed; see: dpflow ledger verify" in said(capsys, "withdraw", second, "--reason", REASON, code=2)
    content["privacy"]["ledger"] = "f" * 64
    manifest.write_text(json.dumps(content), encoding="utf-8")
    assert "belongs to ledger ffffffffffff" in said(capsys, "withdraw", second, "--reason", REASON, code=2)
    assert not events()
    with open_ledger() as ledger, pytest.raises(UsageError, match="run 'none'"):
        ledger.withdraw("none", reason=REASON)


def test_files_that_cannot_be_removed_are_named_and_the_rest_is_finished_later(
    releases: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    second = named(releases, "second")

    def failing(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(withdrawal, "_remove", failing)
        text = said(capsys, "withdraw", second, "--reason", REASON, code=1)
        assert "cannot be removed (Permission denied); make the folder writable, and run the same command again" in text
    said(capsys, "withdraw", second, "--reason", REASON, code=0)
    verify_ledger()


def test_a_folder_that_was_replaced_meanwhile_is_left_alone(releases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = named(releases, "first"), named(releases, "second")
    moved, kept = second.with_name("moved"), files(first)
    locked = withdrawal._locked

    @contextmanager
    def replaced(folder: Path) -> Iterator[None]:
        with locked(folder):
            second.rename(moved)
            shutil.copytree(first, second)
            yield

    with monkeypatch.context() as patch, open_ledger() as ledger:
        patch.setattr(withdrawal, "_locked", replaced)
        with pytest.raises(OutputError, match="holds something else, so nothing was removed"):
            withdraw(ledger, "second", second, reason=REASON)
    assert files(second) == kept
    shutil.rmtree(second)
    moved.rename(second)
    with open_ledger() as ledger:
        withdraw(ledger, "second", second, reason="repeated")
    assert files(second) == {"manifest.json", WITHDRAWN, f"data/{SIGN}"}
    verify_ledger()


PLANTED = {
    "withdrawn without a record": ("first", "withdrawn.json says that it was withdrawn, but the ledger has no record"),
    "another reason": (
        "second",
        "withdrawn.json is not what was published, but the release was withdrawn; finish it with: dpflow withdraw",
    ),
    "data is back": ("second", "card.html is still there, but the release was withdrawn; finish it with"),
    "sign is gone": ("second", f"data/{SIGN} is missing, but the release was withdrawn"),
    "other data": ("second", "data/part-00007.parquet is still there, but the release was withdrawn"),
    "latest": ("second", "latest.json points to .*, which was withdrawn"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_verify_notices(releases: Path, planted: str) -> None:
    run, problem = PLANTED[planted]
    release = named(releases, run)
    with open_ledger() as ledger:
        withdraw(ledger, "second", named(releases, "second"), reason=REASON)
    verify_ledger()
    match planted:
        case "withdrawn without a record":
            shutil.rmtree(release / "data")
            shutil.copy(named(releases, "second") / WITHDRAWN, release)
        case "another reason":
            notice = release / WITHDRAWN
            notice.write_text(notice.read_text(encoding="utf-8").replace(REASON, "no reason"), encoding="utf-8")
        case "data is back":
            (release / "card.html").write_text("here I am", encoding="utf-8")
        case "sign is gone":
            shutil.rmtree(release / "data")
        case "other data":
            (release / "data" / "part-00007.parquet").write_bytes(b"PAR1")
        case "latest":
            (releases / "latest.json").write_bytes(encoded_pointer(release.name))
    with pytest.raises(LedgerDamaged, match=problem):
        verify_ledger()
    if planted != "withdrawn without a record":
        with open_ledger() as ledger:
            withdraw(ledger, "second", release, reason="repeated")
        verify_ledger()


CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link"}


def killed_at(number: int, release: Path) -> bool:
    """Withdraw a release in another process, which dies without cleaning up before its n-th change to a file. Return whether it died."""
    child = os.fork()
    if not child:
        left = number

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            creates = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
            if (event in CHANGES or creates) and "releases" in str(arguments[0]):
                left -= 1
                if left < 0:
                    os._exit(9)

        code = 1
        try:
            sys.addaudithook(count)
            with open_ledger() as ledger:
                withdraw(ledger, "second", release, reason=REASON)
            code = 0
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, 9}
    return status == 9


def told(action: Callable[[], object]) -> str:
    """Return the result of an action, or what its error says, as text."""
    try:
        return repr(action())
    except DpflowError as error:
        return str(error)


def test_killed_at_any_change_it_is_finished_by_the_next_call(made: tuple[Path, Path, Path], releases: Path) -> None:
    folder, _, kept = made
    second, first = named(releases, "second"), named(releases, "first")
    number = 0
    while killed_at(number, second):
        number += 1
        assert "measurements" in told(lambda: open_release(second)) or REASON in told(lambda: open_release(second))
        assert newest(releases) in {first.name, second.name}
        assert any(each in told(verify_ledger) for each in ("Verified(", "dpflow withdraw", "which was withdrawn"))
        with open_ledger() as ledger:
            withdraw(ledger, "second", second, reason="repeated")
        assert (len(events()), newest(releases)) == (1, first.name)
        assert files(second) == {"manifest.json", WITHDRAWN, f"data/{SIGN}"}
        assert REASON in (second / WITHDRAWN).read_text(encoding="utf-8")
        assert verify_ledger().withdrawn == 1
        put_back(folder, kept)
    assert number > 10
    assert not list(releases.rglob(".*"))


def test_a_link_in_a_release_is_removed_and_not_followed(releases: Path, tmp_path: Path) -> None:
    second, elsewhere = named(releases, "second"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "part-00000.parquet").write_bytes(b"not ours")
    shutil.rmtree(second / "data")
    (second / "data").symlink_to(elsewhere)
    with open_ledger() as ledger:
        withdraw(ledger, "second", second, reason=REASON)
    assert (elsewhere / "part-00000.parquet").read_bytes() == b"not ours"
    verify_ledger()
