"""Retention: the newest releases keep their data, older ones their manifest and the reason."""

import os
from pathlib import Path

import pytest

from dpcore import open_release
from dpcore.errors import OutputError, SpecError, UsageError
from dpcore.ledger import EventKind, open_ledger
from dpcore.release import withdrawal
from dpcore.release.withdrawal import WITHDRAWN, retain
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.dpcore.release.conftest import Site

pytestmark = pytest.mark.usefixtures("rough_models")

KEPT = ("rounds: 4}", "rounds: 1}\noutput: {keep: 2}")


@pytest.fixture
def keeping(site: Site) -> Site:
    """The site with runs `first` and `second`, which are kept from now on until there are newer ones."""
    Workspace(site.folder, site.spec).write_spec(KEPT)
    return site


def with_data(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/data")}


def removals(site: Site) -> list[str]:
    return [str(event.run) for event in site.events if event.kind is EventKind.REMOVED]


def test_the_newest_are_kept(keeping: Site) -> None:
    first, second = keeping.release("first"), keeping.release("second")
    third, fourth = keeping.make("third"), keeping.make("fourth")
    assert with_data(keeping.releases) == {third.name, fourth.name}
    assert removals(keeping) == ["first", "second"]
    assert {path.name for path in first.iterdir()} == {"manifest.json", WITHDRAWN}
    assert keeping.newest == fourth.name
    with pytest.raises(
        UsageError, match=f"the data of release {second.name} was removed on .*: retention: the newest 2 are kept"
    ):
        open_release(second)
    verified = verify_ledger(complete=[keeping.releases])
    assert (verified.withdrawn, verified.manifests) == (2, 4)
    with open_ledger() as ledger:  # a steward may still withdraw it, with a reason of their own
        withdrawal.withdraw(ledger, "first", first, reason="wrong codes")
    assert "wrong codes" in (first / WITHDRAWN).read_text(encoding="utf-8")
    verify_ledger()


def test_a_withdrawn_release_does_not_count(keeping: Site) -> None:
    with open_ledger() as ledger:
        withdrawal.withdraw(ledger, "second", keeping.release("second"), reason="wrong codes")
    third = keeping.make("third")
    assert removals(keeping) == []
    open_release(keeping.release("first"))
    assert keeping.newest == third.name
    verify_ledger()


def test_two_runs_that_end_at_once_remove_the_same(site: Site) -> None:
    third, folder = site.make("third"), site.releases
    gate, opener = os.pipe()
    children = []
    for _ in range(2):
        child = os.fork()
        if not child:
            code = 1
            try:
                os.close(opener)
                with open_ledger() as ledger:
                    os.read(gate, 1)  # until the parent opens the gate for both
                    retain(ledger, "visits", folder, keep=1)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(opener)
    os.close(gate)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert with_data(folder) == {third.name}
    assert removals(site) == ["first", "second"]
    assert not list(folder.rglob(".*"))
    verify_ledger()


def test_an_interrupted_removal_is_finished_by_the_next_run(keeping: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OutputError("the disk is full; free some space")

    before = with_data(keeping.releases)
    with monkeypatch.context() as patch:
        patch.setattr(withdrawal, "remove_data", fails)
        third = keeping.make("third")  # the publication itself is not affected
    assert with_data(keeping.releases) == before | {third.name}
    assert removals(keeping) == ["first"]
    fourth = keeping.make("fourth")
    assert with_data(keeping.releases) == {third.name, fourth.name}
    verify_ledger()


@pytest.mark.parametrize("keep", ["0", "-1", "1.5", "all", "true"])
def test_a_number_that_keeps_nothing_is_refused(workspace: Workspace, keep: str) -> None:
    workspace.write_spec((KEPT[0], KEPT[1].replace("keep: 2", f"keep: {keep}")))
    with pytest.raises(SpecError, match=r"spec\.yaml:\d+:\d+: `keep` must be (>= 1|a whole number)"):
        load_spec(workspace.spec)


def test_a_spec_without_it_has_the_same_hash_as_before(workspace: Workspace) -> None:
    plain = load_spec(workspace.write_spec()).digest
    assert plain == load_spec(workspace.write_spec(("rounds: 4}", "rounds: 4}\noutput: {path: releases}"))).digest
    assert plain != load_spec(workspace.write_spec(("rounds: 4}", "rounds: 4}\noutput: {keep: 12}"))).digest
