"""The registry: what a steward registered is what runs, and anything else is refused without a change."""

import json
import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dpcore.errors import OutputError, SpecError, UsageError
from dpcore.spec import load_spec
from dpcore.steward.entries import Entries
from dpcore.steward.registry import (
    Registered,
    all_registered,
    declared,
    register,
    registered,
    registered_names,
    registry_folder,
    unregister,
)
from tests.conftest import Workspace

Tree = Callable[[Path], dict[str, bytes]]


def folder_of(workspace: Workspace) -> Path:
    return workspace.folder / ".dpflow" / "registry"


def test_a_spec_is_registered_under_its_files_name_with_its_digest(workspace: Workspace) -> None:
    entry = register("spec.yaml")
    assert (entry.name, entry.account, entry.cron, entry.timezone) == ("spec", "visits", None, None)
    assert entry.spec == workspace.spec.resolve()
    assert entry.sha256 == load_spec(workspace.spec).digest
    assert registered("spec") == entry
    assert all_registered() == (entry,)
    assert registered_names() == ("spec",)


def test_names_come_in_order_and_nothing_else_in_the_folder_is_one(workspace: Workspace) -> None:
    for name in ("b", "a.1", "Z_9"):
        register(workspace.spec, name=name)
    for stray in (".a.json.partial-12", "notes.txt", "b.approval", "ö.json"):
        (folder_of(workspace) / stray).write_text("{}", encoding="utf-8")
    assert registered_names() == ("Z_9", "a.1", "b")


def test_a_schedule_is_kept_with_its_time_zone(workspace: Workspace) -> None:
    register(workspace.spec, cron="0  3 * * *", timezone="Europe/Zurich")
    assert (registered("spec").cron, registered("spec").timezone) == ("0 3 * * *", "Europe/Zurich")
    assert register(workspace.spec, cron="0 3 * * *").timezone == "UTC"
    assert register(workspace.spec).cron is None


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_everybody_may_read_the_registry_whatever_the_mask(workspace: Workspace, mask: int) -> None:
    before = os.umask(mask)
    try:
        register(workspace.spec)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder_of(workspace).stat().st_mode) == 0o755
    assert stat.S_IMODE((folder_of(workspace) / "spec.json").stat().st_mode) == 0o644
    assert [path.name for path in folder_of(workspace).iterdir()] == ["spec.json"]


def test_the_folder_is_the_chosen_one_or_lies_beside_the_ledger(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry_folder() == workspace.folder / ".dpflow" / "registry"
    monkeypatch.setenv("DPFLOW_LEDGER_URL", "postgresql://steward@db/ledger")
    assert registry_folder() == workspace.folder / ".dpflow" / "registry"
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{workspace.folder}/led/ger.sqlite")
    assert registry_folder() == workspace.folder / "led" / "registry"
    monkeypatch.setenv("DPFLOW_REGISTRY", str(workspace.folder / "deep" / "down"))
    register(workspace.spec)
    assert (workspace.folder / "deep" / "down" / "spec.json").exists()


@pytest.mark.parametrize("name", ["../x", "", "..", "a\n", " a", "x" * 101, "a\0b", "-x", "ö", "visits.yaml"])
def test_a_name_that_is_no_name_is_refused_and_nothing_is_made(workspace: Workspace, name: str) -> None:
    with pytest.raises(UsageError):
        register(workspace.spec, name=name)
    assert not any((workspace.folder / ".dpflow").iterdir())


def test_an_unknown_name_is_refused_with_the_known_ones(workspace: Workspace) -> None:
    for unknown in ("spek", "../spec", ""):
        with pytest.raises(UsageError, match="none is registered yet; register one with `dpflow register SPEC`"):
            registered(unknown)
    register(workspace.spec)
    register(workspace.spec, name="weekly")
    for unknown in ("spek", "../spec", "spec\n"):
        with pytest.raises(UsageError, match="registered specs: spec, weekly"):
            registered(unknown)
        with pytest.raises(UsageError, match="registered specs: spec, weekly"):
            unregister(unknown)
        with pytest.raises(UsageError, match="registered specs: spec, weekly"):
            declared(unknown, registered_only=True)


def test_a_wrong_spec_is_not_registered(workspace: Workspace, tree_of: Tree) -> None:
    register(workspace.spec)
    before = tree_of(workspace.folder / ".dpflow")
    workspace.write_spec(("epsilon: 1.0", "epsilon: 0"))
    with pytest.raises(SpecError, match="epsilon"):
        register(workspace.spec)
    with pytest.raises(SpecError, match="no such file"):
        register("gone.yaml")
    with pytest.raises(SpecError, match="is a folder"):
        register(workspace.folder)
    assert tree_of(workspace.folder / ".dpflow") == before


def test_two_specs_do_not_share_a_name(workspace: Workspace, tree_of: Tree) -> None:
    register(workspace.spec)
    before = tree_of(workspace.folder / ".dpflow")
    other = workspace.folder / "other" / "spec.yaml"
    other.parent.mkdir()
    other.write_bytes(workspace.spec.read_bytes())
    with pytest.raises(UsageError, match=r"choose another with --name, or remove that one first"):
        register(other)
    assert tree_of(workspace.folder / ".dpflow") == before
    assert register(other, name="other").spec == other.resolve()


def test_a_spec_that_was_changed_is_refused_until_it_is_registered_anew(workspace: Workspace) -> None:
    register(workspace.spec, cron="0 3 * * *")
    assert declared("spec", registered_only=True) == load_spec(workspace.spec.resolve())
    workspace.write_spec(("epsilon: 1.0", "epsilon: 9.0"))
    for only in (True, False):
        with pytest.raises(
            UsageError, match=r"was changed since .* --name spec --cron \"0 3 \* \* \*\" --timezone UTC"
        ):
            declared("spec", registered_only=only)
    register(workspace.spec)
    assert declared("spec", registered_only=True).spec.privacy.epsilon == 9.0
    workspace.write_spec(("epsilon: 1.0", "epsilon: -1"))
    with pytest.raises(UsageError, match="is not valid now; see: dpflow check"):
        declared("spec", registered_only=True)


def test_the_command_that_is_proposed_can_be_pasted(workspace: Workspace) -> None:
    odd = workspace.spec.rename(workspace.folder / "it's mine.yaml")
    entry = register(odd, name="mine", cron="0 3 * * *", timezone="Europe/Zurich")
    _, verb, *arguments = shlex.split(entry.command)
    assert (verb, arguments) == (
        "register",
        [str(entry.spec), "--name", "mine", "--cron", "0 3 * * *", "--timezone", "Europe/Zurich"],
    )


def test_a_comment_is_no_change_and_a_values_file_is_one(workspace: Workspace) -> None:
    values = workspace.folder / "cities.txt"
    values.write_text("north\nsouth\n", encoding="utf-8")
    workspace.write_spec(("values: [north, south, west]", "values_from: cities.txt"))
    register(workspace.spec)
    workspace.spec.write_text(f"# a comment\n{workspace.spec.read_text(encoding='utf-8')}", encoding="utf-8")
    assert declared("spec", registered_only=True).digest == registered("spec").sha256
    values.write_text("north\nsouth\nwest\n", encoding="utf-8")
    with pytest.raises(UsageError, match="was changed since"):
        declared("spec", registered_only=True)


def test_a_spec_that_is_gone_is_refused_and_can_be_unregistered(workspace: Workspace) -> None:
    register(workspace.spec)
    workspace.spec.unlink()
    with pytest.raises(UsageError, match=r"is no longer at .*; put it back"):
        declared("spec", registered_only=True)
    unregister("spec")
    assert registered_names() == ()


def test_a_path_is_declared_only_where_paths_are_allowed(workspace: Workspace) -> None:
    for path in ("spec.yaml", "./spec.yaml", str(workspace.spec), "../" + workspace.folder.name + "/spec.yaml"):
        assert declared(path, registered_only=False).digest == load_spec(workspace.spec).digest
        with pytest.raises(UsageError, match="no spec is registered as"):
            declared(path, registered_only=True)
    with pytest.raises(SpecError, match="no such file"):
        declared("gone.yaml", registered_only=False)
    with pytest.raises(UsageError, match="none is registered yet"):
        declared("gone", registered_only=False)


def test_a_name_that_is_also_a_file_here_is_refused_as_doubtful(workspace: Workspace) -> None:
    register(workspace.spec, name="nightly")
    (workspace.folder / "nightly").mkdir()  # a folder is not mistaken for a spec
    assert declared("nightly", registered_only=False).path == workspace.spec.resolve()
    (workspace.folder / "nightly").rmdir()
    (workspace.folder / "nightly").write_bytes(workspace.spec.read_bytes())
    with pytest.raises(UsageError, match="a registered name and a file here"):
        declared("nightly", registered_only=False)
    assert declared("nightly", registered_only=True).path == workspace.spec.resolve()
    assert declared(str(workspace.folder / "nightly"), registered_only=False).path.name == "nightly"


def test_a_spec_behind_a_link_is_not_registered(workspace: Workspace) -> None:
    link = workspace.folder / "link.yaml"
    link.symlink_to(workspace.spec)
    with pytest.raises(UsageError, match="register the file itself"):
        register(link)
    assert not any((workspace.folder / ".dpflow").iterdir())


def test_an_entry_that_is_a_link_is_neither_read_nor_written(workspace: Workspace) -> None:
    register(workspace.spec)
    path, aside = folder_of(workspace) / "spec.json", workspace.folder / "aside.json"
    path.rename(aside)
    path.symlink_to(aside)
    before = aside.read_bytes()
    for refused in (lambda: registered("spec"), lambda: register(workspace.spec), all_registered):
        with pytest.raises(UsageError, match="spec --remove"):
            refused()
    entries = Entries(folder_of(workspace), ".json", Registered, "mend {name}")
    with pytest.raises(UsageError, match="is not a regular file; mend spec"):
        entries.write("spec", Registered(**json.loads(before) | {"spec": workspace.spec}))
    unregister("spec")
    assert (path.is_symlink(), aside.read_bytes()) == (False, before)


DAMAGES: tuple[Callable[[Path], object], ...] = (
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"[" * 100_000),
    lambda path: path.write_bytes(b"\xff"),
    lambda path: path.write_bytes(b"null"),
    *(
        lambda path, old=old, new=new: path.write_text(changed(path, old, new), encoding="utf-8")
        for old, new in (
            ("sha256", "sha512"),
            ("{", '{"more": 1, '),
            ('"cron": null', '"cron": "nonsense"'),
            ('"timezone": null', '"timezone": "UTC"'),
            ('"spec": "/', '"spec": "'),
            ('"name": "spec"', '"name": "other"'),
            ('"name": "spec"', '"name": "../spec"'),
        )
    ),
    lambda path: (path.unlink(), os.mkfifo(path)),
)


def changed(path: Path, old: str, new: str) -> str:
    text = path.read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_entry_that_does_not_read_is_refused_and_can_be_removed(
    workspace: Workspace, damage: Callable[[Path], object]
) -> None:
    register(workspace.spec)
    register(workspace.spec, name="well")
    damage(folder_of(workspace) / "spec.json")
    for refused in (
        lambda: registered("spec"),
        lambda: declared("spec", registered_only=True),
        lambda: declared("spec", registered_only=False),
        all_registered,
    ):
        with pytest.raises(UsageError, match="remove it with `dpflow register spec --remove`"):
            refused()
    assert registered_names() == ("spec", "well")
    assert registered("well").name == "well"
    unregister("spec")
    assert register(workspace.spec) == registered("spec")


def test_a_write_that_fails_leaves_the_entry_before(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tree_of: Tree
) -> None:
    register(workspace.spec)
    before = tree_of(workspace.folder / ".dpflow")
    workspace.write_spec(("epsilon: 1.0", "epsilon: 2.0"))

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    for place in ("pathlib.Path.write_bytes", "pathlib.Path.replace", "os.fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(OutputError, match="No space left on device"):
                register(workspace.spec)
        assert tree_of(workspace.folder / ".dpflow") == before
    register(workspace.spec)
    assert tree_of(workspace.folder / ".dpflow") != before
