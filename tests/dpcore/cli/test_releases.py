"""`dpflow latest` and `dpflow releases` find a dataset by its folder, its spec or its name, and say so if there is nothing to read."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Workspace
from tests.dpcore.cli.ledgers import dpflow

ONE, TWO = "20261101T0000Z-aaaaaaaaaaaa", "20261201T0000Z-bbbbbbbbbbbb"


@pytest.fixture
def folder(workspace: Workspace) -> Path:
    """The folder of two releases, of which only the manifests are there."""
    made = workspace.folder / "releases" / "visits"
    for name, month in ((ONE, 11), (TWO, 12)):
        (made / name).mkdir(parents=True)
        privacy = {"epsilon": 1.0, "delta": 1e-9, "unit": "person", "neighbours": "add-remove", "blocks": None}
        content = {"release": name, "created": f"2026-{month}-01T00:00:00+00:00", "rows": 1234, "privacy": privacy}
        content["version"] = {"number": 1, "before": None, "changes": []}
        (made / name / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
    point(made, TWO)
    return made


def point(folder: Path, name: str) -> None:
    (folder / "latest.json").write_text(json.dumps({"release": name}), encoding="utf-8")


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int) -> str:
    assert dpflow(*arguments) == code
    found = capsys.readouterr()
    assert (found.out if code else found.err) == ""
    return found.err if code else found.out


def test_a_dataset_is_found_by_folder_release_spec_registered_name_and_name(
    workspace: Workspace, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace.folder / ".dpflow").mkdir(mode=0o700)
    assert dpflow("register", workspace.spec, "--name", "weekly") == 0
    capsys.readouterr()
    for name in (folder, folder / ONE, workspace.spec, "weekly", "visits"):
        printed = said(capsys, "latest", name, code=0)
        assert Path(printed.removesuffix("\n")).resolve() == folder / TWO
    assert json.loads(said(capsys, "latest", folder, "--json", code=0)) == {
        "release": TWO,
        "path": str(folder / TWO),
        "data": str(folder / TWO / "data"),
    }


def test_all_releases_are_listed_with_their_promises(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes").mkdir()
    (folder / "copy").symlink_to(folder / ONE)
    lines = said(capsys, "releases", folder, code=0).splitlines()
    assert [line.split() for line in lines] == [
        ["release", "created", "(UTC)", "rows", "epsilon", "delta", "unit", "version", "state"],
        [ONE, "2026-11-01", "00:00", "1,234", "1", "1e-09", "person", "1"],
        [TWO, "2026-12-01", "00:00", "1,234", "1", "1e-09", "person", "1", "newest"],
    ]
    found = json.loads(said(capsys, "releases", folder, "--json", code=0))["releases"]
    assert [(each["release"], each["newest"], each["withdrawn"]) for each in found] == [
        (ONE, False, None),
        (TWO, True, None),
    ]


def test_manifests_of_other_versions_and_strange_names_are_listed_safely(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / ONE / "manifest.json").write_text(json.dumps({"release": ONE}), encoding="utf-8")
    strange = {"release": TWO, "created": "\x1b[2J", "rows": "x", "privacy": {"epsilon": "y", "unit": "\x1b[31m"}}
    (folder / TWO / "manifest.json").write_text(json.dumps(strange), encoding="utf-8")
    text = said(capsys, "releases", folder, code=0)
    assert "\x1b" not in text
    assert text.count("?") >= 6


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda folder: (folder / "latest.json").unlink(), "holds no release yet; make one with: dpflow run SPEC"),
        (
            lambda folder: point(folder, "20270101T0000Z-cccccccccccc"),
            "which is not there; see: dpflow ledger verify",
        ),
        (lambda folder: (folder / "latest.json").write_text("{"), "latest.json in .* cannot be read"),
        (
            lambda folder: (folder / TWO / "withdrawn.json").write_text("{"),
            "was withdrawn, but its withdrawn.json cannot",
        ),
    ],
)
def test_without_a_release_there_is_a_sentence_and_nothing_on_standard_output(
    folder: Path, capsys: pytest.CaptureFixture[str], plant: Callable[[Path], object], message: str
) -> None:
    plant(folder)
    assert re.search(message, said(capsys, "latest", folder, code=2))


def test_an_unknown_dataset_is_refused(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no dataset nothing here; name the folder" in said(capsys, "latest", "nothing", code=2)
    empty = workspace.folder / "empty"
    empty.mkdir()
    assert said(capsys, "releases", empty, code=0) == "there are no releases yet\n"
