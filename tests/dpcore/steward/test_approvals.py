"""Approvals: what is above the threshold needs a yes, and a file that does not read is never one."""

from collections.abc import Callable

import pytest

from dpcore.errors import UsageError
from dpcore.spec import Changes, Declaration, changed, load_spec
from dpcore.steward.approvals import Approval, approval_for, approval_of, check_approved, require_approval, require_none
from dpcore.steward.registry import register, registered_names, registry_folder
from tests.conftest import Workspace


@pytest.fixture
def spec(workspace: Workspace) -> Declaration:
    """Return the declaration of account visits, which asks for epsilon 1."""
    return load_spec(workspace.spec)


def test_without_a_policy_no_run_needs_approval(spec: Declaration) -> None:
    assert approval_for(spec) is None
    check_approved(spec, approved=False)
    assert not registry_folder().exists()


@pytest.mark.parametrize(("above", "needed"), [(0.0, True), (0.999999, True), (1.0, False), (5.0, False)])
def test_a_run_needs_approval_above_the_threshold_and_not_at_it(spec: Declaration, above: float, needed: bool) -> None:
    approval = require_approval("visits", above=above, delta=1e-9, within_seconds=60)
    assert approval_for(spec) == (approval if needed else None)


def test_what_one_run_changes_counts(spec: Declaration) -> None:
    require_approval("visits", above=1.0, delta=1e-9, within_seconds=60)
    assert approval_for(spec) is None
    assert approval_for(changed(spec, Changes(epsilon=1.5))) is not None
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
    assert approval_for(changed(spec, Changes(epsilon=0.5))) is None


def test_a_larger_delta_needs_approval_at_any_epsilon(spec: Declaration) -> None:
    """With it the same epsilon takes more of the account."""
    require_approval("visits", above=1.0, delta=1e-9, within_seconds=60)
    small = changed(spec, Changes(epsilon=0.5, delta=1e-6))
    assert approval_for(small) is not None
    with pytest.raises(
        UsageError, match=r"above epsilon 1 at delta 1e-09, and this run asks for epsilon 0\.5 at delta 1e-06"
    ):
        check_approved(small, approved=False)
    assert approval_for(changed(spec, Changes(epsilon=0.5, delta=1e-12))) is None


def test_the_approval_of_another_account_does_not_count(spec: Declaration) -> None:
    require_approval("Visits", above=0.0, delta=1e-9, within_seconds=60)
    require_approval("visits.2", above=0.0, delta=1e-9, within_seconds=60)
    assert approval_for(spec) is None


def test_an_unapproved_run_is_told_what_to_do(spec: Declaration) -> None:
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
    with pytest.raises(
        UsageError, match=r"above epsilon 0\.5, and this run asks for epsilon 1; .* run it again with --approve"
    ):
        check_approved(spec, approved=False)
    check_approved(spec, approved=True)


def test_a_policy_is_replaced_and_removed(spec: Declaration) -> None:
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
    require_approval("visits", above=2.5, delta=1e-9, within_seconds=90)
    assert approval_of("visits") == Approval(account="visits", above=2.5, delta=1e-9, within_seconds=90)
    assert (require_none("visits"), require_none("visits")) == (True, False)
    assert approval_of("visits") is None


def test_a_policy_is_no_registered_spec_and_a_spec_no_policy(workspace: Workspace, spec: Declaration) -> None:
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
    assert registered_names() == ()
    register(workspace.spec, name="visits")
    register(workspace.spec, name="visits.approval")
    assert approval_of("visits") == Approval(account="visits", above=0.5, delta=1e-9, within_seconds=60)
    assert approval_of("visits.approval") is None
    require_none("visits")
    assert registered_names() == ("visits", "visits.approval")


@pytest.mark.parametrize(
    ("account", "above", "seconds"),
    [
        ("../visits", 1.0, 60),
        ("", 1.0, 60),
        ("visits", -0.1, 60),
        ("visits", float("nan"), 60),
        ("visits", float("inf"), 60),
        ("visits", 1.0, 0),
        ("visits", 1.0, -5),
        ("visits", 1.0, 10**9),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(
    workspace: Workspace, account: str, above: float, seconds: int
) -> None:
    with pytest.raises(UsageError):
        require_approval(account, above=above, delta=1e-9, within_seconds=seconds)
    assert not any((workspace.folder / ".dpflow").iterdir())


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: "null",
        lambda text: text.replace("0.5", "NaN"),
        lambda text: text.replace("0.5", "null"),
        lambda text: text.replace("above", "below"),
        lambda text: text.replace("visits", "others"),
        lambda text: text.replace("60", "0"),
    ],
)
def test_a_policy_that_does_not_read_lets_nothing_pass(spec: Declaration, damage: Callable[[str], str]) -> None:
    require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
    path = registry_folder() / "visits.approval"
    damaged = damage(path.read_text(encoding="utf-8"))
    assert damaged != path.read_text(encoding="utf-8")
    path.write_text(damaged, encoding="utf-8")
    with pytest.raises(UsageError, match="dpflow approval visits --none, then with --above"):
        approval_for(spec)
    require_none("visits")
    assert approval_for(spec) is None


def test_a_policy_behind_a_link_lets_nothing_pass(workspace: Workspace, spec: Declaration) -> None:
    require_approval("visits", above=5.0, delta=1e-9, within_seconds=60)
    path = registry_folder() / "visits.approval"
    path.rename(workspace.folder / "aside")
    path.symlink_to(workspace.folder / "aside")
    with pytest.raises(UsageError, match="is unreadable"):
        approval_for(spec)
    with pytest.raises(UsageError, match="is not a regular file"):
        require_approval("visits", above=0.5, delta=1e-9, within_seconds=60)
