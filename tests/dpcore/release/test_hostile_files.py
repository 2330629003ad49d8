"""Others may write to the folder of releases. Whatever is in its small files, `verify` names the damage, and a run completes or is refused."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import OutputError
from dpcore.ledger import RunState, open_ledger
from dpcore.release import integrity, publishing
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.release.integrity import LARGEST_MANIFEST, LARGEST_NOTE, MOST_PARTS
from tests.dpcore.cli.ledgers import dpflow
from tests.dpcore.release.conftest import Site

pytestmark = pytest.mark.usefixtures("rough_models")

Capture = pytest.CaptureFixture[str]
Change = Callable[[dict[str, Any]], dict[str, Any]]
DAMAGED = 4


@pytest.fixture
def folder(interrupted: Site) -> Path:
    return interrupted.releases


def open_manifest(folder: Path) -> Path:
    """The manifest of the open run, which has not recorded its hash yet."""
    return folder / json.loads((folder / "latest.json").read_bytes())["release"] / "manifest.json"


def _open() -> set[str]:
    with open_ledger() as ledger:
        return {run.id for run in ledger.runs("visits") if run.state is RunState.OPEN}


def in_first_file(**changes: object) -> Change:
    return lambda told: {**told, "files": [{**told["files"][0], **changes}, *told["files"][1:]]}


def in_privacy(**changes: object) -> Change:
    return lambda told: {**told, "privacy": {**told["privacy"], **changes}}


def with_name(name: object) -> Change:
    return lambda _: {**json.loads(encoded_pointer(str(name))), "release": name}


def changed(**changes: object) -> Change:
    return lambda told: {**told, **changes}


INFINITE = float("inf")  # which Python reads from 1e999
ANY_FILE: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "a number": b"5",
    "deep": b"[" * 50_000,
    "a long number": b'{"release": ' + b"9" * 5000 + b"}",
    "null characters": bytes(5000),
}
NAMES = {"a null character": "a\0b", "a surrogate": "\ud800", "a long name": "a" * 5000}
LATEST: dict[str, Change] = {
    **{what: with_name(name) for what, name in NAMES.items()},
    **{repr(name): with_name(name) for name in (None, INFINITE, ["a"], {}, True, "/a", "..")},
}
OWNER: dict[str, Change] = {
    **{f"hash is {what}": changed(hash=name) for what, name in NAMES.items()},
    **{f"seq {number!r}"[:20]: changed(seq=number) for number in (-1, INFINITE, 1.0, True, "1", 10**4000)},
}
RELEASE: dict[str, Change] = {
    **{f"path is {what}": in_first_file(path=name) for what, name in NAMES.items()},
    **{f"path {name!r}": in_first_file(path=name) for name in (None, {}, "", "..")},
    **{f"bytes {size!r}"[:20]: in_first_file(bytes=size) for size in (INFINITE, 1.0, True, None, -1, 10**4000)},
    **{f"sha256 {name!r}": in_first_file(sha256=name) for name in (None, "\ud800")},
    **{f"files {files!r}": changed(files=files) for files in (None, {}, "a", [None])},
    **{f"run is {what}": in_privacy(run=name) for what, name in NAMES.items()},
    **{f"ledger {ledger!r}": in_privacy(ledger=ledger) for ledger in (None, {}, "F" * 64)},
    "account is a surrogate": in_privacy(account="\ud800"),
    **{f"delta {delta!r}": in_privacy(delta=delta) for delta in (5e-324, float("nan"), [], 10**400)},
    **{f"epsilon {number!r}"[:20]: in_privacy(epsilon=number) for number in (INFINITE, 10**400, None)},
    **{f"books {book!r}": in_privacy(bookkeeping=book) for book in ([], {"reserved": INFINITE, "spent": 10**400})},
}
FILES: dict[str, tuple[Callable[[Path], Path], dict[str, Change], int]] = {
    "latest.json": (lambda folder: folder / "latest.json", LATEST, LARGEST_NOTE),
    "ledger.json": (lambda folder: folder / "ledger.json", OWNER, LARGEST_NOTE),
    "manifest.json": (open_manifest, RELEASE, LARGEST_MANIFEST),
}
CASES = [
    *((file, case) for file in FILES for case in (*ANY_FILE, "too large")),
    *((file, case) for file, (_, changes, _) in FILES.items() for case in changes),
]


def write(folder: Path, file: str, case: str) -> Path:
    """Write a hostile file, and return its path."""
    place, changes, limit = FILES[file]
    path = place(folder)
    if case == "too large":
        path.write_bytes(path.read_bytes().ljust(limit + 1))  # still the same JSON
    elif case in ANY_FILE:
        path.write_bytes(ANY_FILE[case])
    else:
        path.write_text(json.dumps(changes[case](json.loads(path.read_bytes()))) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("file", "case"), CASES, ids=[f"{file}: {case}"[:60] for file, case in CASES])
def test_a_hostile_file_is_named_by_verify(folder: Path, capsys: Capture, file: str, case: str) -> None:
    path = write(folder, file, case)
    assert dpflow("ledger", "verify") == DAMAGED
    said = capsys.readouterr().err
    assert (path.parent.name if file == "manifest.json" else file) in said
    assert said.count("\n") == 1


BESIDE = [
    ("latest.json", "deep", True),
    ("latest.json", "too large", True),
    ("latest.json", "a null character", False),
    ("ledger.json", "deep", True),
    ("ledger.json", "seq -1", True),
    ("manifest.json", "too large", True),
    ("manifest.json", "deep", False),
    ("manifest.json", "null characters", False),
]


@pytest.mark.parametrize(("file", "case", "owned"), BESIDE)
def test_a_run_beside_a_hostile_file_completes_or_is_refused_in_one_line(
    folder: Path, capsys: Capture, file: str, case: str, owned: bool
) -> None:
    newest = open_manifest(folder).parent
    write(folder, file, case)
    if not owned:  # then the newest manifest tells the owner
        (folder / "ledger.json").unlink()
        (settled,) = (path for path in folder.iterdir() if path.is_dir() and path != newest)
        shutil.rmtree(settled)
    still_open = _open()
    code = dpflow("run", folder.parents[1] / "spec.yaml")
    said = capsys.readouterr().err
    assert _open() == still_open
    if file == "ledger.json" or (file == "manifest.json" and not owned):
        assert code == 2
        assert f"{file} cannot be read" in said.splitlines()[-1]
    else:
        assert code == 0
        assert json.loads((folder / "latest.json").read_bytes())["release"] in {path.name for path in folder.iterdir()}


BOMBS = {
    "empty objects": lambda size: b'{"privacy":[' + b"{}," * (size // 3) + b"1]}",
    "keys": lambda size: b"{" + b",".join(b'"%07d":1' % number for number in range(size // 12)) + b"}",
}
"""Manifests that are not too long, but have many times their size when they are parsed."""


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_manifest_that_would_fill_the_memory_is_not_parsed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, bomb: str
) -> None:
    """With smaller limits in the same proportion, so that the test needs no such memory either."""
    monkeypatch.setattr(integrity, "LARGEST_MANIFEST", LARGEST_MANIFEST // 64)
    monkeypatch.setattr(integrity, "MOST_PARTS", MOST_PARTS // 64)
    path = folder / "bomb" / "manifest.json"
    path.parent.mkdir()
    path.write_bytes(BOMBS[bomb](LARGEST_MANIFEST // 64 - 100))
    assert path.stat().st_size <= LARGEST_MANIFEST // 64
    assert dpflow("ledger", "verify") == DAMAGED
    assert f"{path} is unreadable" in capsys.readouterr().err
    with pytest.raises(integrity.TooLargeError) as refused:
        integrity.read_manifest(path)
    assert refused.value.filename == str(path)
    monkeypatch.setattr(integrity, "parts_of", lambda manifest: 0)  # planted: then it is parsed
    assert len(integrity.read_manifest(path)) == path.stat().st_size


def test_the_largest_manifest_that_discovery_makes_is_read(tmp_path: Path) -> None:
    values = [f"value {number:04}" for number in range(10_000)]
    found = {"discovered": [{"column": f"column {number}", "values": values} for number in range(200)]}
    written = json.dumps(found, indent=2).encode()
    assert 40 << 20 < len(written) < LARGEST_MANIFEST
    (tmp_path / "manifest.json").write_bytes(written)
    assert integrity.read_manifest(tmp_path / "manifest.json") == written


@pytest.mark.parametrize("inside", ["release", "dataset"])
def test_folders_of_any_depth_are_walked(folder: Path, capsys: Capture, inside: str) -> None:
    """Deeper than a stack of Python calls."""
    top = (max(folder.glob("*/manifest.json")).parent if inside == "release" else folder) / "deep"
    top.mkdir()
    current = os.open(top, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=current)
        below = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    try:
        assert dpflow("ledger", "verify") == (DAMAGED if inside == "release" else 0)
        said = capsys.readouterr().err
        assert ("deep/ is not listed in its manifest" in said) == (inside == "release")
    finally:
        subprocess.run(["/bin/rm", "-rf", top], check=True)  # which needs no stack either


@pytest.mark.parametrize(
    ("limit", "most", "problem"),
    [("LARGEST_MANIFEST", 1000, "bytes, but at most 1,000"), ("MOST_PARTS", 10, "brackets, but at most 10")],
)
def test_a_manifest_that_verify_would_not_read_is_not_published(
    paid: Site, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, problem: str
) -> None:
    monkeypatch.setattr(publishing, limit, most)
    with pytest.raises(OutputError, match=f"{problem} are allowed; let `discover` find fewer"):
        paid.make("run")
    assert not list(paid.releases.glob("*/manifest.json"))
