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

from dpcore import answer, open_release, sample
from dpcore.errors import DpflowError, LedgerDamaged, OutputError, UsageError
from dpcore.ledger import EventKind, open_ledger
from dpcore.release import withdrawal
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.release.problems import verify_release
from dpcore.release.withdrawal import SIGN, WITHDRAWN, withdraw
from dpcore.steward.verify import verify_ledger
from tests.dpcore.release.conftest import Said, Site, put_back

pytestmark = pytest.mark.usefixtures("rough_models")

REASON = "wrong diagnosis codes"
LEFT = {"manifest.json", WITHDRAWN, f"data/{SIGN}"}


@pytest.fixture
def first(site: Site) -> Path:
    return site.release("first")


@pytest.fixture
def second(site: Site) -> Path:
    return site.release("second")


def files(release: Path) -> set[str]:
    return {str(path.relative_to(release)) for path in release.rglob("*") if path.is_file()}


def withdrawals(site: Site) -> list[Any]:
    return [event for event in site.events if event.kind is EventKind.WITHDRAWN]


def take_back(release: Path, *, reason: str = REASON) -> None:
    with open_ledger() as ledger:
        withdraw(ledger, "second", release, reason=reason)


def test_the_data_is_gone_and_the_newest_of_the_others_is_the_latest(
    site: Site, first: Path, second: Path, said: Said
) -> None:
    assert said("latest", "visits") == f"releases/visits/{second.name}\n"
    with open_ledger() as ledger:
        before = ledger.balance("visits")
    text = said("withdraw", second, "--reason", REASON)
    assert f"release {second.name} was withdrawn on 20" in text
    assert text.count(REASON) == 1
    assert "no budget was refunded" in text
    assert files(second) == LEFT
    assert said("latest", site.releases) == f"{first}\n"
    with open_ledger() as ledger:
        assert ledger.balance("visits") == before
    (event,) = withdrawals(site)
    assert (event.run, event.details) == ("second", {"release": second.name, "reason": REASON})
    verified = verify_ledger(complete=[site.releases])
    assert (verified.withdrawn, verified.manifests) == (1, 2)
    written = {path: path.read_bytes() for path in site.releases.rglob("*") if path.is_file()}
    text = said("withdraw", second.name, "--reason", "another")
    assert f": {REASON}\n" in text
    assert "it was withdrawn before, so that reason stays" in text
    assert {path: path.read_bytes() for path in site.releases.rglob("*") if path.is_file()} == written
    assert len(withdrawals(site)) == 1


def test_every_reader_of_a_withdrawn_release_is_told(site: Site, first: Path, second: Path, said: Said) -> None:
    for each in (second, first):
        said("withdraw", each, "--reason", REASON)
    for place in (site.releases, first, second):
        for read in (
            open_release,
            lambda place: answer(place, "select count(*) from release"),
            lambda place: sample(place, rows=1),
            lambda place: verify_release(second),
        ):
            with pytest.raises(
                UsageError, match=f"was withdrawn on .*: {REASON}; list the others with: dpflow releases"
            ):
                read(place)
    assert "was withdrawn on 20" in said("latest", site.releases, code=2)
    assert REASON in said("answer", site.releases, "select count(*) from release", code=2)
    assert site.newest == second.name
    with pytest.raises(Exception, match=SIGN):
        pd.read_parquet(second / "data")
    with pytest.raises(duckdb.Error, match=SIGN):
        duckdb.read_parquet(f"{second}/data/*.parquet").fetchall()
    assert REASON in (second / "data" / SIGN).read_text(encoding="utf-8")
    listing = json.loads(said("releases", "visits", "--json"))["releases"]
    assert [each["withdrawn"]["reason"] for each in listing] == [REASON, REASON]
    assert {each["newest"] for each in listing} == {False}
    assert verify_ledger().withdrawn == 2


def test_a_withdrawn_release_is_never_written_again(site: Site, second: Path) -> None:
    take_back(second)
    with pytest.raises(UsageError, match=f"{REASON}; it cannot be written again, so start a new run"):
        site.make("second", resume=True)
    third = site.make("third")
    assert site.newest == third.name
    assert json.loads((third / "manifest.json").read_bytes())["version"]["before"] == second.name
    verify_ledger()


def test_a_release_whose_folder_is_gone_is_withdrawn_by_name(site: Site, second: Path, said: Said) -> None:
    shutil.rmtree(second)
    assert "its folder is not there" in said("withdraw", second.name, "--reason", REASON)
    assert len(withdrawals(site)) == 1
    verify_ledger()


def test_what_is_no_release_of_this_ledger_is_refused(site: Site, second: Path, said: Said) -> None:
    assert "is the folder of a dataset; name one of its releases" in said(
        "withdraw", site.releases, "--reason", REASON, code=2
    )
    assert "there is no release at nothing" in said("withdraw", "nothing", "--reason", REASON, code=2)
    assert "a reason must be printable text" in said("withdraw", second, "--reason", " ", code=2)
    manifest = second / "manifest.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps(content), encoding="utf-8")
    assert "was changed; see: dpflow ledger verify" in said("withdraw", second, "--reason", REASON, code=2)
    content["privacy"]["ledger"] = "f" * 64
    manifest.write_text(json.dumps(content), encoding="utf-8")
    assert "belongs to ledger ffffffffffff" in said("withdraw", second, "--reason", REASON, code=2)
    assert not withdrawals(site)
    with open_ledger() as ledger, pytest.raises(UsageError, match="run 'none'"):
        ledger.withdraw("none", reason=REASON)


def test_files_that_cannot_be_removed_are_named_and_the_rest_is_finished_later(
    second: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    def failing(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(withdrawal, "_remove", failing)
        text = said("withdraw", second, "--reason", REASON, code=1)
        assert "cannot be removed (Permission denied); make the folder writable, and run the same command again" in text
    said("withdraw", second, "--reason", REASON)
    verify_ledger()


def test_a_folder_that_was_replaced_meanwhile_is_left_alone(
    first: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, kept = second.with_name("moved"), files(first)
    locked = withdrawal._locked

    @contextmanager
    def replaced(folder: Path) -> Iterator[None]:
        with locked(folder):
            second.rename(moved)
            shutil.copytree(first, second)
            yield

    with monkeypatch.context() as patch:
        patch.setattr(withdrawal, "_locked", replaced)
        with pytest.raises(OutputError, match="holds something else, so nothing was removed"):
            take_back(second)
    assert files(second) == kept
    shutil.rmtree(second)
    moved.rename(second)
    take_back(second, reason="repeated")
    assert files(second) == LEFT
    verify_ledger()


def pretend(first: Path, second: Path) -> None:
    """Let a release look withdrawn that is not."""
    shutil.rmtree(first / "data")
    shutil.copy(second / WITHDRAWN, first)


def rewrite(notice: Path) -> None:
    notice.write_text(notice.read_text(encoding="utf-8").replace(REASON, "no reason"), encoding="utf-8")


PLANTED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "no record": (pretend, "withdrawn.json says that it was withdrawn, but the ledger has no record"),
    "another reason": (
        lambda first, second: rewrite(second / WITHDRAWN),
        "withdrawn.json is not what was published, but the release was withdrawn; finish it with: dpflow withdraw",
    ),
    "data is back": (
        lambda first, second: (second / "card.html").write_bytes(b"here I am"),
        "card.html is still there, but the release was withdrawn; finish it with",
    ),
    "sign is gone": (
        lambda first, second: shutil.rmtree(second / "data"),
        f"data/{SIGN} is missing, but the release was withdrawn",
    ),
    "other data": (
        lambda first, second: (second / "data" / "part-00007.parquet").write_bytes(b"PAR1"),
        "data/part-00007.parquet is still there, but the release was withdrawn",
    ),
    "latest": (
        lambda first, second: (second.parent / "latest.json").write_bytes(encoded_pointer(second.name)),
        "latest.json points to .*, which was withdrawn",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_verify_notices(first: Path, second: Path, planted: str) -> None:
    plant, problem = PLANTED[planted]
    take_back(second)
    plant(first, second)
    with pytest.raises(LedgerDamaged, match=problem):
        verify_ledger()
    if planted != "no record":
        take_back(second, reason="repeated")
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
            take_back(release)
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


def test_killed_at_any_change_it_is_finished_by_the_next_call(
    site: Site, first: Path, second: Path, tmp_path: Path
) -> None:
    kept, number = shutil.copytree(site.folder, tmp_path / "kept"), 0
    while killed_at(number, second):
        number += 1
        assert "measurements" in told(lambda: open_release(second)) or REASON in told(lambda: open_release(second))
        assert site.newest in {first.name, second.name}
        assert any(each in told(verify_ledger) for each in ("Verified(", "dpflow withdraw", "which was withdrawn"))
        take_back(second, reason="repeated")
        assert (len(withdrawals(site)), site.newest) == (1, first.name)
        assert files(second) == LEFT
        assert REASON in (second / WITHDRAWN).read_text(encoding="utf-8")
        assert verify_ledger().withdrawn == 1
        put_back(site.folder, kept)
    assert number > 10
    assert not list(site.releases.rglob(".*"))


def test_a_link_in_a_release_is_removed_and_not_followed(second: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "part-00000.parquet").write_bytes(b"not ours")
    shutil.rmtree(second / "data")
    (second / "data").symlink_to(elsewhere)
    take_back(second)
    assert (elsewhere / "part-00000.parquet").read_bytes() == b"not ours"
    verify_ledger()
