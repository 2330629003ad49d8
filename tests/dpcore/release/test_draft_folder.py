"""Somebody who may write to the output folder swaps the draft of a release, between any two steps of its writing.

Then no file elsewhere is written to, nothing waits, and forged rows are never sound: they are refused before the run is settled, or
they are not what is on record. The swapper is called by the steps themselves, so nothing depends on who is quicker.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore import synthesize
from dpcore.errors import LedgerDamaged, OutputError
from dpcore.ledger import RunState, open_ledger
from dpcore.release import ownership, publishing
from dpcore.release.draft_folder import DraftFolder, new_file
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace

pytestmark = pytest.mark.usefixtures("rough_models")

PART = "data/part-00000.parquet"
LATER = ("measurements.parquet", "uncertainty.parquet", "errors.parquet", "card.html", "manifest.json")
VICTIM = b"rows of another table\n"

Swap = Callable[[Path], object]


def forged(draft: Path) -> None:
    (draft / "data").mkdir(parents=True)
    pq.write_table(pa.table({"forged": [42] * 10}), draft / PART)


def swapped_around(outer: Path) -> None:
    """Move the folder around the draft away, and put another one in its place."""
    outer.rename(outer.with_name(".moved"))
    forged(outer / "draft")


def swapped_draft(outer: Path) -> None:
    (outer / "draft").rename(outer / "moved")
    forged(outer / "draft")


def swapped_by_a_copy(outer: Path) -> None:
    """Replace the draft by what was written so far, with forged rows."""
    shutil.copytree(outer / "draft", outer / "copy")
    shutil.rmtree(outer / "copy" / "data")
    forged(outer / "copy")
    (outer / "draft").rename(outer / "moved")
    (outer / "copy").rename(outer / "draft")


def swapped_data(outer: Path) -> None:
    (outer / "draft" / "data").rename(outer / "moved")
    forged(outer / "other")
    (outer / "other" / "data").rename(outer / "draft" / "data")


def planted(outer: Path, plant: Callable[[Path], object]) -> None:
    for name in LATER:
        if not os.path.lexists(outer / "draft" / name):
            plant(outer / "draft" / name)


def link(path: Path) -> None:
    path.symlink_to(Path("victim").absolute())


def swapped_with_links(outer: Path) -> None:
    swapped_around(outer)
    planted(outer, link)


SWAPS: dict[str, Swap] = {
    "the folder around it": swapped_around,
    "the folder around it, with links": swapped_with_links,
    "the draft": swapped_draft,
    "the draft, by a copy": swapped_by_a_copy,
    "its data": swapped_data,
    "links": lambda outer: planted(outer, link),
    "pipes": lambda outer: planted(outer, os.mkfifo),
}
STEPS = ("measurements", "card", "manifest", "confirm", "rename")


@dataclass
class Swapper:
    """Counts the steps of writing a release, and swaps before one of them, once."""

    folder: Path
    swap: Swap
    before: str
    done: bool = False

    def at(self, step: str) -> None:
        if step == self.before and not self.done:
            self.done = True
            (outer,) = self.folder.glob(".partial-*")
            self.swap(outer)


@pytest.fixture
def paid(workspace: Workspace) -> Workspace:
    workspace.write_spec(("rounds: 4", "rounds: 1"))
    workspace.open_account()
    Path("victim").write_bytes(VICTIM)
    return workspace


def plant(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, swap: Swap, *, before: str) -> Swapper:
    swapper = Swapper(workspace.folder / "releases" / "visits", swap, before)
    parquet, text, folders = publishing._write_parquet, publishing._write_text, DraftFolder.sync
    renamed = publishing._renamed

    def write_parquet(folder: DraftFolder, name: str, *more: Any, **options: Any) -> dict[str, Any]:
        swapper.at(Path(name).stem)
        return parquet(folder, name, *more, **options)

    def write_text(folder: DraftFolder, name: str, content: str) -> dict[str, Any]:
        swapper.at(Path(name).stem)
        return text(folder, name, content)

    def sync(folder: DraftFolder) -> None:
        folders(folder)
        swapper.at("confirm")

    def rename(folder: DraftFolder, final: Path) -> bool:
        swapper.at("rename")
        return renamed(folder, final)

    monkeypatch.setattr(publishing, "_write_parquet", write_parquet)
    monkeypatch.setattr(publishing, "_write_text", write_text)
    monkeypatch.setattr(DraftFolder, "sync", sync)
    monkeypatch.setattr(publishing, "_renamed", rename)
    return swapper


def published_rows(release: str) -> pa.Table:
    return pq.read_table(Path(release) / PART)


def is_forged_and_sound(release: str) -> bool:
    """Say whether a release with rows that no run drew passes."""
    try:
        verify_ledger()
    except LedgerDamaged:
        return False
    return "forged" in published_rows(release).column_names


@pytest.mark.parametrize("before", STEPS)
@pytest.mark.parametrize("what", SWAPS)
def test_whoever_swaps_the_draft_forges_nothing_and_reaches_no_other_file(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch, what: str, before: str
) -> None:
    swapper = plant(paid, monkeypatch, SWAPS[what], before=before)
    release, said = None, ""
    try:
        release = synthesize(paid.spec, run_id="run").release
    except OutputError as error:
        said = str(error)
    assert swapper.done
    assert Path("victim").read_bytes() == VICTIM
    if release is not None:
        assert not is_forged_and_sound(release)
        return
    assert said.endswith("--resume run")
    assert said.isprintable()
    with open_ledger() as ledger:
        assert ledger.run("run").state is RunState.OPEN
    for path in swapper.folder.iterdir():  # as the message says
        if path.is_dir():
            shutil.rmtree(path)
    release = synthesize(paid.spec, run_id="run", resume=True).release
    assert verify_ledger().manifests == 1
    assert "forged" not in published_rows(release).column_names


@pytest.mark.parametrize("what", ["the draft", "the draft, by a copy"])
def test_a_folder_that_was_swapped_before_the_rename_is_refused_before_the_run_is_settled(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    plant(paid, monkeypatch, SWAPS[what], before="rename")
    with pytest.raises(OutputError, match="the draft was swapped while it was being written; move it away"):
        synthesize(paid.spec, run_id="run")


@pytest.mark.parametrize("what", ["links", "pipes"])
def test_what_was_planted_at_the_name_of_a_file_is_refused(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    plant(paid, monkeypatch, SWAPS[what], before="card")
    with pytest.raises(OutputError, match="a file or folder there was swapped or planted meanwhile"):
        synthesize(paid.spec, run_id="run")


@dataclass(frozen=True)
class OldFile:
    path: Path

    def listed(self, name: str, *, rows: int | None) -> dict[str, Any]:
        content = self.path.read_bytes()
        return {"path": name, "rows": rows, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@dataclass(frozen=True)
class ByPath(DraftFolder):
    """The planted defect: files are opened and hashed by path, and the folder that appears is taken for the one that was written."""

    _path: Path

    @contextmanager
    def new_file(self, name: str) -> Iterator[Any]:
        path = self._path / name

        class Opened(OldFile):
            def write(self, data: bytes) -> int:
                return self.path.write_bytes(data)

        yield Opened(path)

    def sync(self) -> None:
        pass

    def rename(self, final: Path) -> None:
        self._path.rename(final)

    def is_at(self, final: Path) -> bool:
        return True


@contextmanager
def old_draft(outer: Path) -> Iterator[DraftFolder]:
    (outer / "draft" / "data").mkdir(parents=True)
    try:
        yield ByPath(-1, -1, -1, outer / "draft")
    finally:
        shutil.rmtree(outer, ignore_errors=True)


def old_parquet(
    folder: ByPath, name: str, tables: Iterator[pa.Table], schema: pa.Schema, after: Callable[[], None]
) -> Any:
    with pq.ParquetWriter(folder._path / name, schema) as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata))
    after()
    return OldFile(folder._path / name).listed(name, rows=1)


@pytest.mark.parametrize(("swap", "forges"), [(swapped_around, True), (swapped_with_links, False)])
def test_writing_and_hashing_by_path_would_put_forged_rows_on_record_and_follow_links(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch, swap: Swap, forges: bool
) -> None:
    swapper = Swapper(paid.folder / "releases" / "visits", swap, "hashed")
    monkeypatch.setattr(publishing, "new_draft", old_draft)
    monkeypatch.setattr(
        publishing, "_write_parquet", lambda *given, **_: old_parquet(*given, after=lambda: swapper.at("hashed"))
    )
    release = synthesize(paid.spec, run_id="run").release
    shutil.rmtree(swapper.folder / ".moved")
    assert is_forged_and_sound(release) == forges
    assert (Path("victim").read_bytes() == VICTIM) == forges


@pytest.mark.parametrize("planted_thing", [link, os.mkfifo, Path.mkdir, Path.touch])
def test_a_new_file_is_never_one_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted_thing: Callable[[Path], object]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("victim").write_bytes(VICTIM)
    planted_thing(tmp_path / "name")
    with pytest.raises(FileExistsError), new_file(tmp_path / "name"):
        pass
    assert Path("victim").read_bytes() == VICTIM


def test_who_owns_the_folder_is_not_written_through_a_link(paid: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the draft is drawn at random; here somebody has foreseen it."""
    monkeypatch.setattr(ownership.secrets, "token_hex", lambda _size: "foreseen")
    folder = paid.folder / "releases" / "visits"
    folder.mkdir(parents=True)
    link(folder / ".ledger.json-foreseen")
    with pytest.raises(OutputError, match=r"ledger\.json cannot be written"):
        synthesize(paid.spec, run_id="run")
    assert Path("victim").read_bytes() == VICTIM
