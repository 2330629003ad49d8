"""An output folder belongs to one ledger: no second one, and no copy, pays for releases of the same dataset unnoticed."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dpcore.runs.synthesis
from dpcore.cli.output import UsedLedger
from dpcore.errors import UsageError
from dpcore.ledger import EventKind, Ledger, RunState, open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.release import folder_problems, ownership
from dpcore.release.ownership import FILE, check_owner, claim_folder, owner_of
from tests.conftest import Workspace
from tests.dpcore.cli.ledgers import dpflow
from tests.dpcore.ledger.fixtures import assert_sound

pytestmark = pytest.mark.usefixtures("rough_models")

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def released(workspace: Workspace) -> Workspace:
    """A workspace with one release, paid from the ledger of its folder."""
    workspace.open_account(epsilon=100.0)
    assert dpflow("run", workspace.spec) == 0
    return workspace


@pytest.fixture
def second(released: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """The same workspace with another ledger, which has a whole budget."""
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{released.folder}/second/ledger.sqlite")
    released.open_account(epsilon=100.0)
    return released


def outputs(workspace: Workspace) -> Path:
    return workspace.folder / "releases" / "visits"


def identity(url: str | None = None) -> str:
    with open_ledger(url) as ledger:
        return ledger.identity()


def releases(workspace: Workspace) -> list[str]:
    return sorted(path.parent.name for path in outputs(workspace).glob("*/manifest.json"))


def test_the_folder_says_which_ledger_owns_it_and_how_far_that_was(released: Workspace) -> None:
    owner = owner_of(outputs(released))
    assert owner is not None
    assert (owner.ledger, owner.account) == (identity(), "visits")
    with open_ledger() as ledger, ledger.reading() as rows:
        assert rows.hash_of(owner.seq) == owner.hash
    (name,) = releases(released)
    manifest = json.loads((outputs(released) / name / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["privacy"]["ledger"] == owner.ledger


def test_a_second_ledger_is_refused_before_anything_is_reserved_and_both_are_named(
    second: Workspace, capsys: Capture
) -> None:
    before = releases(second)
    assert dpflow("run", second.spec) == 2
    said = capsys.readouterr().err
    assert f"belong to ledger {identity(f'sqlite:///{second.folder}/.dpflow/ledger.sqlite')[:12]}..." in said
    assert f"this is ledger {identity()[:12]}..." in said
    assert "dpflow run SPEC --adopt REASON" in said
    with open_ledger() as ledger:
        assert [event.kind for event in ledger.history(None)] == [EventKind.ACCOUNT_OPENED]
    assert releases(second) == before


def test_a_check_that_is_removed_lets_the_same_data_be_paid_for_twice(
    second: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dpcore.runs.synthesis, "check_owner", lambda *_: None)
    monkeypatch.setattr(dpcore.runs.synthesis, "claim_folder", lambda *_: None)
    assert dpflow("run", second.spec) == 0
    assert len(releases(second)) == 2


def test_the_steward_adopts_a_folder_on_record_and_the_first_ledger_is_refused_from_then_on(
    second: Workspace, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = f"sqlite:///{second.folder}/.dpflow/ledger.sqlite"
    assert dpflow("run", second.spec, "--adopt", "the first ledger was closed") == 0
    with open_ledger() as ledger:
        (event,) = [event for event in ledger.history(None) if event.kind is EventKind.ADOPTED]
        assert event.details == {
            "folder": str(outputs(second)),
            "owner": identity(first),
            "reason": "the first ledger was closed",
        }
        assert_sound_prices(ledger)
    assert dpflow("run", second.spec, "--adopt", "not needed any more") == 0
    with open_ledger() as ledger:
        assert sum(event.kind is EventKind.ADOPTED for event in ledger.history(None)) == 1
    monkeypatch.delenv("DPFLOW_LEDGER_URL")
    capsys.readouterr()
    assert dpflow("run", second.spec) == 2
    assert "belong to ledger" in capsys.readouterr().err
    assert len(releases(second)) == 3


def assert_sound_prices(ledger: Ledger) -> None:
    assert_sound(ledger)
    assert dpflow("ledger", "verify") == 0


def test_without_the_file_the_newest_release_tells_whose_the_folder_is(second: Workspace, capsys: Capture) -> None:
    (outputs(second) / FILE).unlink()
    assert dpflow("run", second.spec) == 2
    assert "belong to ledger" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[1]", None])
def test_a_file_that_does_not_read_is_refused_until_the_steward_adopts_the_folder(
    released: Workspace, capsys: Capture, content: bytes | None
) -> None:
    file = outputs(released) / FILE
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    assert dpflow("run", released.spec) == 2
    assert f"{file} cannot be read" in capsys.readouterr().err
    if content is not None:
        assert dpflow("run", released.spec, "--adopt", "it was damaged") == 0
        owner = owner_of(outputs(released))
        assert owner is not None
        assert owner.ledger == identity()


def test_a_file_of_another_dataset_is_not_taken(released: Workspace, capsys: Capture) -> None:
    file = outputs(released) / FILE
    file.write_text(file.read_text(encoding="utf-8").replace("visits", "others"), encoding="utf-8")
    assert dpflow("run", released.spec) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_copy_that_lacks_what_a_release_was_made_from_is_refused(
    released: Workspace, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same identity, and nobody has seen anything of it in its own folder."""
    aside = released.folder / "aside"
    aside.mkdir()
    shutil.copy(released.folder / ".dpflow" / "ledger.sqlite", aside)
    assert dpflow("run", released.spec) == 0
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{aside}/ledger.sqlite")
    monkeypatch.setenv("DPFLOW_PRIVATE", str(aside / "private"))
    capsys.readouterr()
    assert dpflow("run", released.spec) == 4
    assert "but the copy at" in capsys.readouterr().err
    assert len(releases(released)) == 2


def test_an_accepted_loss_is_accepted_for_the_releases_too(released: Workspace) -> None:
    place = released.folder / ".dpflow" / "ledger.sqlite"
    shutil.copy(place, released.folder / "backup")
    assert dpflow("run", released.spec) == 0
    shutil.copy(released.folder / "backup", place)
    assert dpflow("run", released.spec) == 4
    assert dpflow("ledger", "accept-restoration", "--reason", "the disk broke") == 0
    assert dpflow("run", released.spec) == 0


@pytest.mark.parametrize("matched", ["only what was lost", "any number in the range"])
def test_after_an_accepted_loss_a_copy_is_noticed_as_before(
    released: Workspace, monkeypatch: pytest.MonkeyPatch, matched: str
) -> None:
    place, aside = released.folder / ".dpflow" / "ledger.sqlite", released.folder / "aside"
    shutil.copy(place, released.folder / "backup")
    assert [dpflow("run", released.spec) for _ in range(2)] == [0, 0]
    shutil.copy(released.folder / "backup", place)
    assert dpflow("ledger", "accept-restoration", "--reason", "the disk broke") == 0
    aside.mkdir()
    shutil.copy(place, aside)
    before = owner_of(outputs(released))
    assert dpflow("run", released.spec) == 0
    now = owner_of(outputs(released))
    assert before is not None
    assert now is not None
    assert now.seq < before.seq  # events with these numbers were lost, and it is another one of them
    with open_ledger() as ledger, ledger.reading() as rows:
        assert rows.hash_of(now.seq) == now.hash
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{aside}/ledger.sqlite")
    monkeypatch.setenv("DPFLOW_PRIVATE", str(aside / "private"))
    if matched == "any number in the range":  # planted: an old acceptance accounts for whatever is missing
        accepted = ownership.loss_accepted
        monkeypatch.setattr(ownership, "loss_accepted", lambda rows, **lost: accepted(rows, **{**lost, "since": 0}))
    assert dpflow("run", released.spec) == (4 if matched == "only what was lost" else 0)


def test_of_two_ledgers_that_claim_a_new_folder_one_gets_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one gives its reservation back."""
    workspace.open_account(epsilon=100.0)
    with open_ledger(f"sqlite:///{workspace.folder}/second/ledger.sqlite", create=True) as other:
        other.open_account("visits", **terms())
        claim: Callable[..., None] = claim_folder

        def late(ledger: Ledger, folder: Path) -> None:
            claim(other, folder)  # is quicker
            claim(ledger, folder)

        monkeypatch.setattr(dpcore.runs.synthesis, "claim_folder", late)
        assert dpflow("run", workspace.spec) == 2
    with open_ledger() as ledger:
        (run,) = ledger.runs("visits")
        assert (run.state, run.spent, ledger.balance("visits").used) == (RunState.REFUNDED, 0, 0)


def terms() -> dict[str, object]:
    currency, cap = budget_of(10.0, delta=0.0, currency=None)
    return {
        "currency": currency,
        "cap": cap,
        "epsilon": 10.0,
        "delta": 0.0,
        "unit": "person",
        "neighbours": Neighbours.ADD_REMOVE,
    }


def test_a_refused_run_leaves_no_folder(workspace: Workspace) -> None:
    workspace.open_account(epsilon=0.5)
    assert dpflow("run", workspace.spec) == 3
    assert not (workspace.folder / "releases").exists()


def test_a_folder_that_nobody_owns_is_anybodys(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite", create=True) as ledger:
        check_owner(ledger, tmp_path / "releases" / "visits")
    assert owner_of(tmp_path / "nowhere") is None


def test_a_ledger_without_events_has_no_name_yet() -> None:
    assert UsedLedger("/x", None).text == "ledger /x, identity none yet"
    with pytest.raises(UsageError):
        open_ledger("sqlite:///")


@pytest.mark.parametrize("how", ["copy", "link"])
def test_a_release_of_another_ledger_is_named_unless_the_folder_was_adopted(
    second: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: Capture, how: str
) -> None:
    shutil.move(second.folder / "releases", second.folder / "first")
    assert dpflow("run", second.spec) == 0  # in a folder of the second ledger alone
    assert dpflow("ledger", "verify") == 0
    (foreign,) = (path.parent for path in (second.folder / "first" / "visits").glob("*/manifest.json"))
    stray = outputs(second) / "more"
    shutil.copytree(foreign, stray) if how == "copy" else stray.symlink_to(foreign)
    capsys.readouterr()
    assert dpflow("ledger", "verify") == 4
    assert "more is a release of another ledger, but this ledger has not adopted the folder" in capsys.readouterr().err
    with monkeypatch.context() as planted:
        planted.setattr(folder_problems, "owner_problems", lambda *_, **__: iter(()))
        assert dpflow("ledger", "verify") == 0
    (outputs(second) / FILE).write_text("{", encoding="utf-8")
    assert dpflow("run", second.spec, "--adopt", "both ledgers were used") == 0
    assert dpflow("ledger", "verify") == 0


def link_under_another_name(workspace: Workspace) -> None:
    """Keep the dataset's folder elsewhere, under another name, and leave a link at its place."""
    store = workspace.folder / "bigdisk" / "store"
    store.parent.mkdir()
    outputs(workspace).parent.mkdir(exist_ok=True)
    if outputs(workspace).exists():
        outputs(workspace).rename(store)
    else:
        store.mkdir()
    outputs(workspace).symlink_to(store)


@pytest.mark.parametrize("first", [False, True], ids=["before the first run", "after it"])
def test_a_folder_that_is_a_link_with_another_name_is_verified_by_its_account(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: Capture, first: bool
) -> None:
    workspace.open_account(epsilon=100.0)
    if first:
        assert dpflow("run", workspace.spec) == 0
    link_under_another_name(workspace)
    assert dpflow("run", workspace.spec) == 0
    file, latest = outputs(workspace) / FILE, outputs(workspace) / "latest.json"
    older = latest.read_text(encoding="utf-8")
    assert dpflow("run", workspace.spec) == 0
    assert dpflow("ledger", "verify") == 0
    with monkeypatch.context() as planted:
        by_name: Callable[..., Iterator[str]] = lambda ledger, folder, **_: ownership.owner_problems(  # noqa: E731
            ledger, folder, accounts={folder.name}, foreign=()
        )
        planted.setattr(folder_problems, "owner_problems", by_name)
        assert dpflow("ledger", "verify") == 4
    sound = {path: path.read_text(encoding="utf-8") for path in (file, latest)}
    for path, changed in (
        (file, sound[file].replace('"visits"', '"store"')),
        (file, json.dumps({**json.loads(sound[file]), "hash": "0" * 64})),
        (latest, older),
    ):
        path.write_text(changed, encoding="utf-8")
        capsys.readouterr()
        assert dpflow("ledger", "verify") == 4
        assert path.name in capsys.readouterr().err
        path.write_text(sound[path], encoding="utf-8")
    assert dpflow("ledger", "verify") == 0
