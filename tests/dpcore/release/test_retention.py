"""Retention: the newest releases keep their data, older ones their manifest and the reason."""

import json
import os
from pathlib import Path

import pytest

from dpcore import open_release, synthesize
from dpcore.errors import OutputError, SpecError, UsageError
from dpcore.ledger import EventKind, open_ledger
from dpcore.release import retention, withdrawal
from dpcore.release.retention import retain
from dpcore.release.withdrawal import WITHDRAWN
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits

pytestmark = pytest.mark.usefixtures("rough_models")

KEPT = ("rounds: 4}", "rounds: 1}\noutput: {keep: 2}")


@pytest.fixture
def paid(workspace: Workspace) -> Workspace:
    visits(300, seed=1).to_csv(workspace.folder / "visits.csv", index=False)
    workspace.write_spec(KEPT)
    workspace.open_account(epsilon=100)
    return workspace


def release(space: Workspace, run: str) -> Path:
    return Path(synthesize(space.spec, run_id=run).release)


def with_data(folder: Path) -> set[str]:
    return {path.parent.name for path in folder.glob("*/data")}


def removals() -> list[str]:
    with open_ledger() as ledger:
        return [str(event.run) for event in ledger.history("visits") if event.kind is EventKind.REMOVED]


def test_the_newest_are_kept(paid: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = release(paid, "a"), release(paid, "b")
    assert removals() == []
    third, fourth = release(paid, "c"), release(paid, "d")
    folder = first.parent
    assert with_data(folder) == {third.name, fourth.name}
    assert removals() == ["a", "b"]
    assert {path.name for path in first.iterdir()} == {"manifest.json", WITHDRAWN}
    assert json.loads((folder / "latest.json").read_text(encoding="utf-8"))["release"] == fourth.name
    with pytest.raises(
        UsageError, match=f"the data of release {second.name} was removed on .*: retention: the newest 2 are kept"
    ):
        open_release(second)
    verified = verify_ledger(complete=[folder])
    assert (verified.withdrawn, verified.manifests) == (2, 4)
    with open_ledger() as ledger:  # a steward may still withdraw it, with a reason of their own
        withdrawal.withdraw(ledger, "a", first, reason="wrong codes")
    assert "wrong codes" in (first / WITHDRAWN).read_text(encoding="utf-8")
    verify_ledger()


def test_a_withdrawn_release_does_not_count(paid: Workspace) -> None:
    first, second = release(paid, "a"), release(paid, "b")
    with open_ledger() as ledger:
        withdrawal.withdraw(ledger, "b", second, reason="wrong codes")
    third = release(paid, "c")
    assert removals() == []
    open_release(first)
    assert json.loads((first.parent / "latest.json").read_text(encoding="utf-8"))["release"] == third.name
    verify_ledger()


def test_two_runs_that_end_at_once_remove_the_same(paid: Workspace) -> None:
    paid.write_spec(("rounds: 4", "rounds: 1"))
    names = [release(paid, run).name for run in "abcd"]
    folder = paid.folder / "releases" / "visits"
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
                    retain(ledger, "visits", folder, keep=2)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(opener)
    os.close(gate)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert with_data(folder) == set(names[2:])
    assert removals() == ["a", "b"]
    assert not list(folder.rglob(".*"))
    verify_ledger()


def test_an_interrupted_removal_is_finished_by_the_next_run(paid: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = release(paid, "a"), release(paid, "b")

    def fails(*_: object, **__: object) -> None:
        raise OutputError("the disk is full; free some space")

    with monkeypatch.context() as patch:
        patch.setattr(withdrawal, "remove_data", fails)
        patch.setattr(retention, "remove_data", fails)
        third = release(paid, "c")  # the publication itself is not affected
    assert with_data(first.parent) == {first.name, second.name, third.name}
    assert removals() == ["a"]
    fourth = release(paid, "d")
    assert with_data(first.parent) == {third.name, fourth.name}
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
