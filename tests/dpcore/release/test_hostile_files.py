"""Others may write to the folder of releases. Whatever is in its small files, `verify` names the damage, and a run completes or is refused."""

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from io import BufferedReader
from os import stat_result
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import LedgerDamaged, OutputError
from dpcore.ledger import RunState, open_ledger
from dpcore.release import folder_problems, integrity, ownership, problems, publishing
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.release.integrity import LARGEST_MANIFEST, LARGEST_NOTE, MOST_PARTS
from dpcore.runs.steps import synthesize
from dpcore.runs.synthesis import Synthesis
from dpcore.steward import verify
from tests.conftest import Workspace, visits
from tests.dpcore.answers.releases import restate
from tests.dpcore.cli.ledgers import dpflow

pytestmark = pytest.mark.usefixtures("rough_models")

Capture = pytest.CaptureFixture[str]
Change = Callable[[dict[str, Any]], dict[str, Any]]
DAMAGED = 4


@pytest.fixture(scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset's folder, with a settled release, and with one whose run was interrupted before it was settled."""
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
            patch.delenv(name, raising=False)
        visits(300, seed=1).to_csv("visits.csv", index=False)
        space = Workspace(folder, folder / "spec.yaml")
        space.write_spec(("rounds: 4", "rounds: 1"))
        space.open_account(epsilon=1000.0)
        synthesize(space.spec)
        patch.setattr(Synthesis, "settle", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            synthesize(space.spec)
    return folder / "releases" / "visits"


@pytest.fixture
def folder(_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(_folder.parents[1])
    for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    names = (
        "latest.json",
        "ledger.json",
        *(path.relative_to(_folder) for name in ("manifest.json", "SHA256SUMS") for path in _folder.glob(f"*/{name}")),
    )
    kept = {_folder / name: (_folder / name).read_bytes() for name in names}
    before = set(_folder.iterdir())
    yield _folder
    for release in set(_folder.iterdir()) - before:
        release.rename(_folder.parents[1] / release.name)
    for path, content in kept.items():
        path.write_bytes(content)


def open_manifest(folder: Path) -> Path:
    """The manifest of the open run, which has not recorded its hash yet."""
    return max(
        folder.glob("*/manifest.json"), key=lambda path: json.loads(path.read_bytes())["privacy"]["run"] in _open()
    )


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
    **{
        repr(name): with_name(name)
        for name in (None, 5, INFINITE, [], ["a"], {}, "", True, "/", "/a", "a/b", "..", "a\\b")
    },
}
OWNER: dict[str, Change] = {
    **{
        f"{key} is {what}": changed(**{key: name})
        for key in ("ledger", "account", "hash")
        for what, name in NAMES.items()
    },
    **{
        f"seq {number!r}"[:20]: changed(seq=number)
        for number in (10**30, -(10**30), -1, INFINITE, 1.0, True, "1", 10**4000)
    },
}
RELEASE: dict[str, Change] = {
    **{f"path is {what}": in_first_file(path=name) for what, name in NAMES.items()},
    **{f"path {name!r}": in_first_file(path=name) for name in (None, [], {}, 5, "", ".", "..", "/")},
    **{
        f"bytes {size!r}"[:20]: in_first_file(bytes=size)
        for size in (INFINITE, -INFINITE, 1.0, True, "5", None, [], -1, 10**4000)
    },
    **{f"sha256 {name!r}": in_first_file(sha256=name) for name in (None, [], "\ud800", "a\0b")},
    **{f"files {files!r}": changed(files=files) for files in (None, 5, {}, "a", ["a"], [None])},
    **{f"run is {what}": in_privacy(run=name) for what, name in NAMES.items()},
    **{f"ledger {ledger!r}": in_privacy(ledger=ledger) for ledger in (None, [], {}, 5, "", "f" * 63, "F" * 64)},
    **{f"account is {what}": in_privacy(account=name) for what, name in NAMES.items()},
    **{
        f"delta {delta!r}": in_privacy(delta=delta)
        for delta in (5e-324, 1 - 2**-53, INFINITE, float("nan"), [], 10**400)
    },
    **{f"epsilon {number!r}"[:20]: in_privacy(epsilon=number) for number in (INFINITE, float("nan"), 10**400, None)},
    **{
        f"bookkeeping {book!r}": in_privacy(bookkeeping=book)
        for book in (None, [], {"reserved": INFINITE, "spent": 10**400})
    },
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


CHOSEN = ("deep", "too large", "null characters", *NAMES, "seq -", "bytes inf")
RUN = [(file, case) for file, case in CASES if case.startswith(CHOSEN)]


@pytest.mark.parametrize(("file", "case"), RUN, ids=[f"{file}: {case}" for file, case in RUN])
@pytest.mark.parametrize("owned", [True, False], ids=["owned", "without ledger.json"])
def test_a_run_beside_a_hostile_file_completes_or_is_refused_in_one_line(
    folder: Path, capsys: Capture, file: str, case: str, owned: bool
) -> None:
    write(folder, file, case)
    if not owned:
        (folder / "ledger.json").unlink()
    still_open = _open()
    code = dpflow("run", folder.parents[1] / "spec.yaml")
    said = capsys.readouterr().err
    assert _open() == still_open
    if file == "latest.json" or code == 0:
        assert code == 0
        assert json.loads((folder / "latest.json").read_bytes())["release"] in {path.name for path in folder.iterdir()}
    else:
        assert code == 2
        assert f"{file} cannot be read" in said.splitlines()[-1]


def careless_status(path: Path, *, follow: bool) -> stat_result | None:
    try:
        return path.stat(follow_symlinks=follow)
    except OSError as error:
        integrity.raise_unless_gone(error)
        return None


def careless_open(path: Path) -> BufferedReader:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise integrity.NotRegularFileError(path)
    return path.open("rb")


def careless_read(path: Path, *, limit: int) -> bytes:
    with integrity.open_regular(path) as file:
        return file.read()


@pytest.mark.parametrize(
    ("file", "case"),
    [
        ("latest.json", "a null character"),
        ("latest.json", "a surrogate"),
        ("manifest.json", "bytes inf"),
    ],
)
def test_without_these_checks_verify_ends_in_an_unexpected_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, case: str
) -> None:
    path = write(folder, file, case)
    if file == "manifest.json":
        restate(path.parent, json.loads(path.read_bytes()))
    monkeypatch.setattr(integrity, "_status", careless_status)
    for module in (integrity, problems):
        monkeypatch.setattr(module, "open_regular", careless_open)
    monkeypatch.setattr(problems, "_size", int)
    with pytest.raises((ValueError, OverflowError)):
        verify.verify_ledger()


@pytest.mark.parametrize("file", FILES)
def test_without_the_limit_a_file_of_any_size_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    path = write(folder, file, "too large")
    reads: list[Path] = []

    def noted(path: Path, *, limit: int) -> bytes:
        content = careless_read(path, limit=limit)
        reads.extend([path] if len(content) > limit else [])
        return content

    for module in (folder_problems, ownership, integrity):
        monkeypatch.setattr(module, "read_regular", noted)
    with (
        nullcontext() if file == "ledger.json" else suppress(LedgerDamaged)
    ):  # the others must be the same to the last byte
        verify.verify_ledger()
    assert set(reads) == {path}


def test_a_release_without_a_proper_ledger_would_pass_as_one_of_another_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = open_manifest(folder)
    write(folder, "manifest.json", "ledger None")
    monkeypatch.setattr(verify, "is_sha256", lambda value: True)
    monkeypatch.setattr(folder_problems, "owner_problems", lambda *_, **__: iter(()))
    assert verify.verify_ledger().others == 1
    assert manifest.exists()


BOMBS = {
    "empty objects": lambda size: b'{"privacy":[' + b"{}," * (size // 3) + b"1]}",
    "empty lists": lambda size: b'{"privacy":[' + b"[]," * (size // 3) + b"1]}",
    "numbers": lambda size: b'{"privacy":[' + b"999," * (size // 4) + b"1]}",
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
    try:
        assert dpflow("ledger", "verify") == DAMAGED
        assert f"{path} is unreadable" in capsys.readouterr().err
        with pytest.raises(integrity.TooLargeError) as refused:
            integrity.read_manifest(path)
        assert refused.value.filename == str(path)
        monkeypatch.setattr(integrity, "parts_of", lambda manifest: 0)  # planted: then it is parsed
        assert len(integrity.read_manifest(path)) == path.stat().st_size
    finally:
        shutil.rmtree(path.parent)


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
    for _ in range(1800):
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


def test_a_manifest_that_verify_would_not_read_is_not_published(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(folder.glob("*/manifest.json"))
    monkeypatch.setattr(publishing, "LARGEST_MANIFEST", 1000)
    with pytest.raises(OutputError, match="bytes, but at most 1,000 are allowed; let `discover` find fewer"):
        synthesize(folder.parents[1] / "spec.yaml")
    monkeypatch.undo()
    monkeypatch.chdir(folder.parents[1])
    for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(publishing, "MOST_PARTS", 10)
    with pytest.raises(OutputError, match="brackets, but at most 10 are allowed; let `discover` find fewer"):
        synthesize(folder.parents[1] / "spec.yaml")
    assert set(folder.glob("*/manifest.json")) == before
