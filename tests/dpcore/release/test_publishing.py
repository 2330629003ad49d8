"""What lies at the place of a release is never trusted: a run accepts there what it has on record, or would write itself, and nothing else."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

from dpcore.errors import LedgerDamaged, OutputError
from dpcore.ledger import EventKind, RunState, open_ledger
from dpcore.release import publishing, release_id, targets
from dpcore.release.problems import listed_files, sums_of
from dpcore.release.signing import KEY_VARIABLE
from dpcore.runs import steps
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from tests.dpcore.release.conftest import Site

pytestmark = pytest.mark.usefixtures("rough_models")

PART, MANIFEST = "data/part-00000.parquet", "manifest.json"


def until_published(site: Site, *, before: Callable[[Path], object] = lambda final: None) -> Synthesis:
    """Let a run work until its release is written; something may be done to the release's place before."""
    run = Synthesis(load_spec(site.spec), run_id="run", resume=False)
    try:
        reserved = run.reserve()
        run.check_rows()
        run.ingest()
        run.histogram()
        run.begin()
        run.rounds.update(1, run.rounds.measure(1, run.rounds.select(1)))
        before(run.declaration.output_folder / release_id("run", opened_at=reserved.opened_at))
        run.sample()
        run.publish()
    except BaseException:
        run.close()
        raise
    return run


def edit(release: Path, change: Callable[[dict[str, Any]], object]) -> None:
    told = json.loads((release / MANIFEST).read_bytes())
    change(told)
    (release / MANIFEST).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def genesis() -> str:
    with open_ledger() as ledger:
        return ledger.identity()


def forge(release: Path) -> None:
    """Replace the rows by five of them, and let the manifest and `SHA256SUMS` list them."""
    part = release / PART
    table = pq.read_table(part)
    pq.write_table(table.slice(0, 5).replace_schema_metadata(table.schema.metadata), part)
    new = {"rows": 5, "bytes": part.stat().st_size, "sha256": sha256(part.read_bytes()).hexdigest()}
    edit(release, lambda told: (told.update(rows=5), told["files"][0].update(new)))
    written = (release / MANIFEST).read_bytes()
    sums = sums_of(listed_files(json.loads(written)), digest=sha256(written).hexdigest())
    (release / "SHA256SUMS").write_bytes(sums)


def replaced(release: Path, make: Callable[[Path], object]) -> None:
    if release.exists():
        shutil.rmtree(release)
    make(release)


def junk(release: Path) -> None:
    (release / "data").mkdir(parents=True)
    (release / PART).write_bytes(b"rows")
    (release / MANIFEST).write_text("{}", encoding="utf-8")


CHANGED: dict[str, Callable[[Path], object]] = {
    "forged rows, and a manifest that fits": forge,
    "no card": lambda it: (it / "card.html").unlink(),
    "a manifest that says more": lambda it: edit(it, lambda told: told.update(title="mine")),
    "a manifest with another head": lambda it: edit(it, lambda told: told["privacy"].update(ledger_head=genesis())),
    "a manifest with a head of no event": lambda it: edit(it, lambda told: told["privacy"].update(ledger_head="ab")),
    "a manifest of no moment": lambda it: edit(it, lambda told: told.update(created="<b>")),
    "a manifest that is a link": lambda it: ((it / MANIFEST).rename("m.json"), (it / MANIFEST).symlink_to("m.json")),
    "an empty manifest, and rows": lambda it: replaced(it, junk),
    "a file": lambda it: replaced(it, Path.touch),
    "a link that leads nowhere": lambda it: replaced(it, lambda at: at.symlink_to("nowhere")),
    "a link to itself": lambda it: replaced(it, lambda at: at.symlink_to(at)),
}
HEADS = ("a manifest with another head", "a manifest with a head of no event")
FREE: dict[str, Callable[[Path], object]] = {
    "nothing": shutil.rmtree,
    "an empty folder": lambda it: replaced(it, Path.mkdir),
}


def remove(release: Path) -> None:
    shutil.rmtree(release) if release.is_dir() and not release.is_symlink() else release.unlink()


def refused(site: Site, run: str, release: Path) -> None:
    with pytest.raises(OutputError) as error:
        site.make(run, resume=True)
    said = str(error.value)
    assert said.startswith(f"{release} is not the release of run {run}: ")
    assert "move it away" in said
    assert said.endswith(f"--resume {run}")
    assert said.isprintable()


def test_a_settled_run_accepts_what_it_has_on_record_and_nothing_else(
    site: Site, tree_of: Callable[[Path], dict[str, bytes]]
) -> None:
    release, before, known = site.release("first"), tree_of(site.releases), len(site.events)
    site.make("first", resume=True)
    assert tree_of(site.releases) == before
    kept = shutil.copytree(release, "kept")
    for change in CHANGED.values():
        change(release)
        refused(site, "first", release)
        with pytest.raises(LedgerDamaged):
            verify_ledger()
        remove(release)
        shutil.copytree(kept, release)
    assert len(site.events) == known
    for number, empty in enumerate(FREE.values(), start=1):
        empty(release)
        site.make("first", resume=True)
        assert [event.kind for event in site.events[known:]] == ["republished"] * number
        assert verify_ledger().manifests == 2


def test_an_open_run_accepts_what_it_would_write_itself_and_nothing_else(
    interrupted: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "steward.key")
    release = interrupted.releases / interrupted.newest
    written, kept = (release / MANIFEST).read_bytes(), shutil.copytree(release, "kept")
    for what in ("forged rows, and a manifest that fits", "no card", "a manifest of no moment", "a file", *HEADS):
        CHANGED[what](release)
        refused(interrupted, "second", release)
        with open_ledger() as ledger:
            assert ledger.run("second").state is RunState.OPEN
        remove(release)
        shutil.copytree(kept, release)
    forge(release)
    release.rename("aside")  # as the message says
    shutil.copytree(kept, release)
    interrupted.make("second", resume=True)
    assert (release / MANIFEST).read_bytes() == written
    assert interrupted.events[-1].kind == EventKind.SETTLED
    assert (verify_ledger().manifests, verify_ledger().absent) == (2, 0)
    assert not [path for path in interrupted.releases.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("what", ["an empty manifest, and rows", "a file", "a link that leads nowhere"])
def test_what_is_put_there_while_the_run_works_is_refused(paid: Site, what: str) -> None:
    with pytest.raises(OutputError, match="is not the release of run run"):
        until_published(paid, before=CHANGED[what])
    assert not list(paid.releases.glob(".partial*"))


def test_what_was_written_goes_on_record_whatever_lies_there_a_moment_later(paid: Site) -> None:
    run = until_published(paid)
    forge(paid.releases / paid.newest)
    run.settle()
    run.close()
    with pytest.raises(LedgerDamaged, match="is not what run 'run' published"):
        verify_ledger()


def test_of_two_workers_that_write_the_release_of_a_run_both_end_well(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(site.release("first"))
    write = targets.write_files

    def while_another_is_quicker(*arguments: Any, **named: Any) -> object:
        monkeypatch.setattr(targets, "write_files", write)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(steps, "_open_runs", {})  # as in another process
            site.make("first", resume=True)
        return write(*arguments, **named)

    monkeypatch.setattr(targets, "write_files", while_another_is_quicker)
    site.make("first", resume=True)
    assert [event.kind for event in site.events].count("republished") == 1
    assert verify_ledger().manifests == 2


def read_all(folder: Path) -> set[int]:
    """Count the rows of all releases in a folder, as the README does it and with polars, whose `*` also means names with a dot."""
    files = str(folder / "*" / "data" / "*.parquet")
    return {duckdb.read_parquet(files).count("*").fetchall()[0][0], len(pl.read_parquet(files))}


def test_who_reads_all_releases_does_not_read_one_that_is_being_written(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, seen, sync = read_all(site.releases), [], publishing.sync_path

    def look(path: Path) -> None:
        if path.name == "draft":  # all its files are written
            assert list(path.rglob("*.parquet"))
            seen.append(read_all(site.releases))
        sync(path)

    monkeypatch.setattr(publishing, "sync_path", look)
    site.make("third")
    assert seen == [rows]
