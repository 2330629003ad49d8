"""What lies at the place of a release is never trusted: a run accepts there what it has on record, or would write itself, and nothing else."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest

from dpcore import synthesize
from dpcore.errors import LedgerDamaged, OutputError
from dpcore.ledger import EventKind, Run, RunState, open_ledger
from dpcore.release import Published, publishing, release_id
from dpcore.release.problems import listed_files, sums_of
from dpcore.runs import steps
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace

pytestmark = pytest.mark.usefixtures("rough_models")

PART, MANIFEST = "data/part-00000.parquet", "manifest.json"


def measured(run: Synthesis) -> Run:
    """Let a run do all that comes before its rows are drawn."""
    reserved = run.reserve()
    run.check_rows()
    run.ingest()
    run.histogram()
    run.begin()
    run.update(1, run.measure(1, run.select(1)))
    return reserved


def until_published(workspace: Workspace, *, before: Callable[[Path], object] = lambda final: None) -> Path:
    """Let a run work up to its release, and end without settling; something may be done to the release's place before."""
    run = Synthesis(load_spec(workspace.spec), run_id="run", resume=False)
    try:
        reserved = measured(run)
        name = release_id("run", opened_at=reserved.opened_at)
        before(run.declaration.output_folder / name)
        run.sample()
        return run.publish()
    finally:
        run.close()


@pytest.fixture
def paid(workspace: Workspace) -> Workspace:
    workspace.write_spec(("rounds: 4", "rounds: 1"))
    workspace.open_account()
    return workspace


def edit(release: Path, change: Callable[[dict[str, object]], object]) -> None:
    told = json.loads((release / MANIFEST).read_text(encoding="utf-8"))
    change(told)
    (release / MANIFEST).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def forge(release: Path) -> None:
    """Replace the rows by five of them, and let the manifest and `SHA256SUMS` list them."""
    part = release / PART
    table = pq.read_table(part)
    pq.write_table(table.slice(0, 5).replace_schema_metadata(table.schema.metadata), part)
    new = {"rows": 5, "bytes": part.stat().st_size, "sha256": sha256(part.read_bytes()).hexdigest()}
    edit(release, lambda told: (told.update(rows=5), told["files"][0].update(new)))  # type: ignore[index]
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


def first_head() -> str:
    with open_ledger() as ledger:
        return ledger.identity()


CHANGED: dict[str, Callable[[Path], object]] = {
    "forged rows, and a manifest that fits": forge,
    "changed rows": lambda it: (it / PART).write_bytes(b"rows"),
    "a file more": lambda it: (it / "data" / "more.parquet").write_bytes(b"rows"),
    "no card": lambda it: (it / "card.html").unlink(),
    "a manifest that says more": lambda it: edit(it, lambda told: told.update(title="mine")),
    "a manifest with another head": lambda it: edit(it, lambda told: told["privacy"].update(ledger_head=first_head())),  # type: ignore[attr-defined]
    "a manifest with a head of no event": lambda it: edit(it, lambda told: told["privacy"].update(ledger_head="ab")),  # type: ignore[attr-defined]
    "a manifest of no moment": lambda it: edit(it, lambda told: told.update(created="<b>")),
    "no manifest": lambda it: (it / MANIFEST).unlink(),
    "a manifest that is a link": lambda it: ((it / MANIFEST).rename("m.json"), (it / MANIFEST).symlink_to("m.json")),
    "an empty manifest, and rows": lambda it: replaced(it, junk),
    "a file": lambda it: replaced(it, Path.touch),
    "a link that leads nowhere": lambda it: replaced(it, lambda at: at.symlink_to("nowhere")),
    "a link to itself": lambda it: replaced(it, lambda at: at.symlink_to(at)),
}
FREE: dict[str, Callable[[Path], object]] = {
    "nothing": shutil.rmtree,
    "an empty folder": lambda it: replaced(it, Path.mkdir),
}
PLACED = ("an empty manifest, and rows", "a file", "a link that leads nowhere")


def events() -> list[str]:
    with open_ledger() as ledger:
        return [event.kind for event in ledger.history("visits")]


def refused(workspace: Workspace, release: Path) -> None:
    with pytest.raises(OutputError) as error:
        synthesize(workspace.spec, run_id="run", resume=True)
    said = str(error.value)
    assert said.startswith(f"{release.absolute()} is not the release of run run: ")
    assert "move it away" in said
    assert said.endswith("--resume run")
    assert said.isprintable()


def test_a_settled_run_accepts_what_it_has_on_record_and_writes_nothing(
    paid: Workspace, tree_of: Callable[[Path], dict[str, bytes]]
) -> None:
    release = Path(synthesize(paid.spec, run_id="run").release)
    before, known = tree_of(release.parent), events()
    synthesize(paid.spec, run_id="run", resume=True)
    assert tree_of(release.parent) == before
    assert events() == known


def test_whatever_else_lies_there_is_refused_by_a_settled_run_and_stays_damage(paid: Workspace) -> None:
    release = Path(synthesize(paid.spec, run_id="run").release)
    kept, known = shutil.copytree(release, "kept"), events()
    for change in CHANGED.values():
        change(release)
        refused(paid, release)
        with pytest.raises(LedgerDamaged):
            verify_ledger()
        assert events() == known
        shutil.rmtree(release) if release.is_dir() and not release.is_symlink() else release.unlink()
        shutil.copytree(kept, release)
    for number, empty in enumerate(FREE.values(), start=1):
        empty(release)
        synthesize(paid.spec, run_id="run", resume=True)
        assert events() == known + ["republished"] * number
        assert verify_ledger().manifests == 1


def test_an_open_run_accepts_what_it_would_write_itself(paid: Workspace) -> None:
    release = until_published(paid)
    written = (release / MANIFEST).read_bytes()
    synthesize(paid.spec, run_id="run", resume=True)
    assert (release / MANIFEST).read_bytes() == written
    assert events()[-1] == EventKind.SETTLED
    assert (verify_ledger().manifests, verify_ledger().absent) == (1, 0)
    assert sorted(path.name for path in release.parent.iterdir()) == [release.name, "latest.json", "ledger.json"]


def test_an_open_run_refuses_anything_else_and_can_write_it_again(paid: Workspace) -> None:
    release = until_published(paid)
    kept = shutil.copytree(release, "kept")
    for change in CHANGED.values():
        change(release)
        refused(paid, release)
        with open_ledger() as ledger:
            assert ledger.run("run").state is RunState.OPEN
        shutil.rmtree(release) if release.is_dir() and not release.is_symlink() else release.unlink()
        shutil.copytree(kept, release)
    forge(release)
    release.rename("aside")  # as the message says
    synthesize(paid.spec, run_id="run", resume=True)
    assert verify_ledger().manifests == 1


@pytest.mark.parametrize("what", PLACED)
def test_what_is_put_there_while_the_run_works_is_refused(paid: Workspace, what: str) -> None:
    with pytest.raises(OutputError, match="is not the release of run run"):
        until_published(paid, before=CHANGED[what])
    assert not list((paid.folder / "releases" / "visits").glob(".partial*"))


def test_what_was_written_goes_on_record_whatever_lies_there_a_moment_later(paid: Workspace) -> None:
    run = Synthesis(load_spec(paid.spec), run_id="run", resume=False)
    measured(run)
    run.sample()
    forge(run.publish())
    run.settle()
    run.close()
    with pytest.raises(LedgerDamaged, match="is not what run 'run' published"):
        verify_ledger()


def test_of_two_workers_that_write_the_release_of_a_run_both_end_well(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Path(synthesize(paid.spec, run_id="run").release)
    shutil.rmtree(release)
    write = publishing.write_files

    def while_another_is_quicker(*arguments: object, **named: object) -> object:
        monkeypatch.setattr(publishing, "write_files", write)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(steps, "_open_runs", {})  # as in another process
            synthesize(paid.spec, run_id="run", resume=True)
        return write(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(publishing, "write_files", while_another_is_quicker)
    synthesize(paid.spec, run_id="run", resume=True)
    assert events().count("republished") == 1
    assert verify_ledger().manifests == 1


def test_trusting_what_lies_there_would_make_a_forged_release_sound(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: whatever has a manifest at the place of the release is taken for it, and its hash is recorded."""

    def trusting(final: Path, _recorded: object, *, run: str) -> Published:
        written = (final / MANIFEST).read_bytes()
        return Published(final, json.loads(written), sha256(written).hexdigest(), appeared=True)

    release = Path(synthesize(paid.spec, run_id="run").release)
    forge(release)
    with pytest.raises(LedgerDamaged):
        verify_ledger()
    monkeypatch.setattr(publishing, "as_recorded", trusting)
    synthesize(paid.spec, run_id="run", resume=True)
    assert events()[-1] == "republished"
    verify_ledger()


def read_all(folder: Path) -> set[int]:
    """Count the rows of all releases in a folder, as the README does it and with polars, whose `*` also means names with a dot."""
    files = str(folder / "*" / "data" / "*.parquet")
    return {duckdb.read_parquet(files).count("*").fetchall()[0][0], len(pl.read_parquet(files))}


@pytest.mark.parametrize("where", ["deeper", "as a release"])
def test_who_reads_all_releases_does_not_read_one_that_is_being_written(
    paid: Workspace, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    release = Path(synthesize(paid.spec).release)
    rows, seen = read_all(release.parent), []

    renamed = publishing._renamed

    def look(folder: Path, final: Path) -> bool:
        if where == "as a release":  # planted: a draft lies where a release would, under a name with a dot
            (outer,) = final.parent.glob(".partial-*")
            shutil.copytree(outer / "draft", outer, dirs_exist_ok=True)
        seen.append(read_all(release.parent) == rows)
        return renamed(folder, final)

    monkeypatch.setattr(publishing, "_renamed", look)
    synthesize(paid.spec)
    assert seen == [where == "deeper"]
