"""`dpflow latest` and `dpflow releases` find a dataset by its folder, its spec or its name, and say so if there is nothing to read."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpcore.release.dataset_folder import encoded_pointer
from tests.conftest import Workspace
from tests.dpcore.answers.releases import DENSE, make_release, restate
from tests.dpcore.cli.ledgers import dpflow

ONE, TWO = "20261101T0000Z-aaaaaaaaaaaa", "20261201T0000Z-bbbbbbbbbbbb"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The manifest of a release."""
    made = make_release(tmp_path_factory.mktemp("made"), DENSE.replace("STRATEGY", "{name: mwem, rounds: 1}"), rows=300)
    return json.loads((made / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(workspace: Workspace, published: Any) -> Path:
    """The folder of two releases, of which only the manifests and their sums are there."""
    made = workspace.folder / "releases" / "visits"
    for name, month, before in ((ONE, 11, None), (TWO, 12, ONE)):
        (made / name).mkdir(parents=True)
        content = published | {"release": name, "created": f"2026-{month}-01T00:00:00+00:00", "rows": 1234}
        content["privacy"] = content["privacy"] | {"epsilon": 1.0, "delta": 1e-9, "unit": "person"}
        restate(made / name, content | {"version": {"number": 1, "before": before, "changes": []}})
    point(made, TWO)
    return made


def point(folder: Path, name: str) -> None:
    (folder / "latest.json").write_bytes(encoded_pointer(name))


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


def test_a_dataset_of_the_project_is_found_from_a_folder_below_it(
    workspace: Workspace, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.folder / ".dpflow").mkdir(mode=0o700)
    below = workspace.folder / "below"
    (below / "visits" / "other").mkdir(parents=True)
    here = said(capsys, "releases", "visits", code=0)
    assert said(capsys, "releases", code=0) == here
    monkeypatch.chdir(below)
    assert said(capsys, "releases", code=0) == here
    monkeypatch.chdir(below / "visits")
    assert said(capsys, "releases", "visits", code=0) == here
    assert said(capsys, "latest", "visits", code=0) == f"{folder / TWO}\n"
    places = f"{below / 'visits' / 'releases'} or {workspace.folder / 'releases'}"
    assert f"there is no dataset nothing in {places};" in said(capsys, "releases", "nothing", code=2)
    (workspace.folder / "releases" / "wards").mkdir()
    point(workspace.folder / "releases" / "wards", ONE)
    assert f"there are releases of visits, wards in {places}; name a dataset" in said(capsys, "releases", code=2)


def test_damaged_manifests_are_safe_to_print(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = {"release": TWO, "created": "\x1b[2J", "rows": "x", "privacy": {"epsilon": "y", "\x1b[31m": 1}}
    restate(folder / TWO, strange)
    (folder / "20270101T000000Z-\x1b[31m").mkdir()
    assert dpflow("releases", folder) == 1
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert re.search(rf"{TWO} +\? .* damaged", text)
    assert dpflow("releases", folder, "--json") == 1
    assert [bool(each["damage"]) for each in json.loads(capsys.readouterr().out)["releases"]] == [False, True]


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda folder: (folder / "latest.json").unlink(), "latest.json is damaged: it is missing or not what dpflow"),
        (lambda folder: point(folder, "20270101T0000Z-cccccccccccc"), "is damaged: it is missing; restore it from"),
        (lambda folder: (folder / "latest.json").write_text("{"), "latest.json is damaged: it is missing or not what"),
        (
            lambda folder: (folder / TWO / "withdrawn.json").write_text("{"),
            "was withdrawn, but its withdrawn.json cannot",
        ),
    ],
)
def test_without_a_readable_release_there_is_a_sentence_and_nothing_on_standard_output(
    folder: Path, capsys: pytest.CaptureFixture[str], plant: Callable[[Path], object], message: str
) -> None:
    plant(folder)
    assert re.search(message, said(capsys, "latest", folder, code=1))


def test_an_unknown_dataset_is_refused(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    looked = workspace.folder / "releases"
    assert f"there is no dataset nothing in {looked}; name the folder" in said(capsys, "latest", "nothing", code=2)
    assert f"there are no releases in {looked}; name a dataset" in said(capsys, "releases", code=2)
    empty = workspace.folder / "empty"
    empty.mkdir()
    assert said(capsys, "releases", empty, code=0) == f"there are no releases in {empty}\n"
    assert "holds no release yet; make one with: dpflow run SPEC" in said(capsys, "latest", empty, code=2)
