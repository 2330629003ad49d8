"""An output folder belongs to one ledger: no second one, and no copy, pays for releases of the same dataset unnoticed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dpcore.runs.synthesis
from dpcore.cli.output import UsedLedger
from dpcore.errors import UsageError
from dpcore.ledger import EventKind, Ledger, RunState, open_ledger
from dpcore.release import ownership
from dpcore.release.ownership import FILE, check_owner, claim_folder, owner_of
from tests.conftest import Workspace
from tests.dpcore.cli.ledgers import dpflow
from tests.dpcore.ledger.fixtures import assert_sound
from tests.dpcore.release.conftest import Said, Site

pytestmark = pytest.mark.usefixtures("rough_models")

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def second(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same site with another ledger, which has a whole budget."""
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{site.folder}/second/ledger.sqlite")
    Workspace(site.folder, site.spec).open_account(epsilon=100.0)
    return site


def identity(url: str | None = None) -> str:
    with open_ledger(url) as ledger:
        return ledger.identity()


def releases(site: Site) -> list[str]:
    return sorted(path.parent.name for path in site.releases.glob("*/manifest.json"))


def use_copy(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a copy of the ledger, in whose folder nobody has seen anything of what is to come."""
    aside = site.folder / "aside"
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{aside}/ledger.sqlite")
    monkeypatch.setenv("DPFLOW_PRIVATE", str(aside / "private"))


def test_the_folder_says_which_ledger_owns_it_and_how_far_that_was(site: Site) -> None:
    owner = owner_of(site.releases)
    assert owner is not None
    assert (owner.ledger, owner.account) == (identity(), "visits")
    with open_ledger() as ledger, ledger.reading() as rows:
        assert rows.hash_of(owner.seq) == owner.hash
    for release in site.releases.glob("*/manifest.json"):
        assert json.loads(release.read_bytes())["privacy"]["ledger"] == owner.ledger


def test_a_second_ledger_is_refused_before_anything_is_reserved_and_both_are_named(second: Site, said: Said) -> None:
    before = releases(second)
    text = said("run", second.spec, code=2)
    assert f"belong to ledger {identity(f'sqlite:///{second.folder}/.dpflow/ledger.sqlite')[:12]}..." in text
    assert f"this is ledger {identity()[:12]}..." in text
    assert "dpflow run SPEC --adopt REASON" in text
    with open_ledger() as ledger:
        assert [event.kind for event in ledger.history(None)] == [EventKind.ACCOUNT_OPENED]
    assert releases(second) == before


def test_the_steward_adopts_a_folder_on_record_and_the_first_ledger_is_refused_from_then_on(
    second: Site, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = f"sqlite:///{second.folder}/.dpflow/ledger.sqlite"
    assert dpflow("run", second.spec, "--adopt", "the first ledger was closed") == 0
    with open_ledger() as ledger:
        (event,) = [event for event in ledger.history(None) if event.kind is EventKind.ADOPTED]
        assert event.details == {
            "folder": str(second.releases),
            "owner": identity(first),
            "reason": "the first ledger was closed",
        }
        assert_sound(ledger)
    assert dpflow("ledger", "verify") == 0
    assert dpflow("run", second.spec, "--adopt", "not needed any more") == 0
    with open_ledger() as ledger:
        assert sum(event.kind is EventKind.ADOPTED for event in ledger.history(None)) == 1
    monkeypatch.delenv("DPFLOW_LEDGER_URL")
    assert "belong to ledger" in said("run", second.spec, code=2)
    assert len(releases(second)) == 4


def test_without_the_file_the_newest_release_tells_whose_the_folder_is(second: Site, said: Said) -> None:
    (second.releases / FILE).unlink()
    assert "belong to ledger" in said("run", second.spec, code=2)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", None])
def test_a_file_that_does_not_read_is_refused_until_the_steward_adopts_the_folder(
    site: Site, said: Said, content: bytes | None
) -> None:
    file = site.releases / FILE
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    assert f"{file} cannot be read" in said("run", site.spec, code=2)
    if content is not None:
        assert dpflow("run", site.spec, "--adopt", "it was damaged") == 0
        owner = owner_of(site.releases)
        assert owner is not None
        assert owner.ledger == identity()


def test_a_file_of_another_dataset_is_not_taken(site: Site, said: Said) -> None:
    file = site.releases / FILE
    file.write_text(file.read_text(encoding="utf-8").replace("visits", "others"), encoding="utf-8")
    assert "cannot be read" in said("run", site.spec, code=2)


def test_a_copy_that_lacks_what_a_release_was_made_from_is_refused(
    site: Site, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the same identity."""
    (site.folder / "aside").mkdir()
    shutil.copy(site.folder / ".dpflow" / "ledger.sqlite", site.folder / "aside")
    site.make("third")
    use_copy(site, monkeypatch)
    assert "but the copy at" in said("run", site.spec, code=4)
    assert len(releases(site)) == 3


def test_after_an_accepted_loss_the_ledger_goes_on_and_a_copy_of_it_is_noticed_as_before(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = site.folder / ".dpflow" / "ledger.sqlite"
    shutil.copy(place, "backup")
    for run in ("lost", "lost-too"):
        site.make(run)
    shutil.copy("backup", place)
    assert dpflow("run", site.spec) == 4
    assert dpflow("ledger", "accept-restoration", "--reason", "the disk broke") == 0
    (site.folder / "aside").mkdir()
    shutil.copy(place, "aside")
    before = owner_of(site.releases)
    site.make("third")
    now = owner_of(site.releases)
    assert before is not None
    assert now is not None
    assert now.seq < before.seq  # events with these numbers were lost, and it is another one of them
    with open_ledger() as ledger, ledger.reading() as rows:
        assert rows.hash_of(now.seq) == now.hash
    use_copy(site, monkeypatch)
    assert dpflow("run", site.spec) == 4
    accepted = ownership.loss_accepted  # planted: an old acceptance accounts for whatever is missing
    monkeypatch.setattr(ownership, "loss_accepted", lambda rows, **lost: accepted(rows, **{**lost, "since": 0}))
    assert dpflow("run", site.spec) == 0


def test_of_two_ledgers_that_claim_a_new_folder_one_gets_it(paid: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one gives its reservation back."""
    place = f"sqlite:///{paid.folder}/second/ledger.sqlite"
    with monkeypatch.context() as patch:
        patch.setenv("DPFLOW_LEDGER_URL", place)
        Workspace(paid.folder, paid.spec).open_account()
    with open_ledger(place) as other:
        claim: Callable[..., None] = claim_folder

        def late(ledger: Ledger, folder: Path) -> None:
            claim(other, folder)  # is quicker
            claim(ledger, folder)

        monkeypatch.setattr(dpcore.runs.synthesis, "claim_folder", late)
        assert dpflow("run", paid.spec) == 2
    with open_ledger() as ledger:
        (run,) = ledger.runs("visits")
        assert (run.state, run.spent, ledger.balance("visits").used) == (RunState.REFUNDED, 0, 0)


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
def test_a_release_of_another_ledger_is_named_unless_the_folder_was_adopted(second: Site, said: Said, how: str) -> None:
    shutil.move(second.folder / "releases", second.folder / "first")
    second.make("third")  # in a folder of the second ledger alone
    assert dpflow("ledger", "verify") == 0
    foreign = next((second.folder / "first" / "visits").glob("*/manifest.json")).parent
    stray = second.releases / "more"
    shutil.copytree(foreign, stray) if how == "copy" else stray.symlink_to(foreign)
    assert "more is a release of another ledger, but this ledger has not adopted the folder" in said(
        "ledger", "verify", code=4
    )
    (second.releases / FILE).write_text("{", encoding="utf-8")
    assert dpflow("run", second.spec, "--adopt", "both ledgers were used") == 0
    assert dpflow("ledger", "verify") == 0


def test_a_folder_that_is_a_link_with_another_name_is_verified_by_its_account(
    site: Site, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    store = site.folder / "bigdisk" / "store"
    store.parent.mkdir()
    site.releases.rename(store)
    site.releases.symlink_to(store)
    file, latest = site.releases / FILE, site.releases / "latest.json"
    older = latest.read_text(encoding="utf-8")
    site.make("third")
    assert dpflow("ledger", "verify") == 0
    sound = {path: path.read_text(encoding="utf-8") for path in (file, latest)}
    for path, changed in (
        (file, sound[file].replace('"visits"', '"store"')),
        (file, json.dumps({**json.loads(sound[file]), "hash": "0" * 64})),
        (latest, older),
    ):
        path.write_text(changed, encoding="utf-8")
        assert path.name in said("ledger", "verify", code=4)
        path.write_text(sound[path], encoding="utf-8")
    assert dpflow("ledger", "verify") == 0
