"""Runs from every kind of source, and from a table that a program hands over."""

import errno
import io
import sqlite3
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpcore
from dpcore import Session
from dpcore.comparison.figures import buy_figures
from dpcore.errors import LedgerError, SourceBroken, SourceError, SpecError, UsageError
from dpcore.ledger import Ledger, open_ledger
from dpcore.runs.steps import check_run
from dpcore.tables.ingest.fingerprint import KEY_NAME, fingerprint_key
from tests.conftest import Workspace, visits
from tests.dpcore.runs.releases import interrupted
from tests.dpcore.tables.sources.sources import arrow_bytes

pytestmark = pytest.mark.usefixtures("rough_models")

FILE = "{path: visits.csv}"


@pytest.fixture(autouse=True)
def account(workspace: Workspace) -> None:
    """All of these runs pay from one account."""
    workspace.open_account()


def data_versions() -> list[str | None]:
    with open_ledger() as ledger:
        return [run.data_version for run in ledger.runs("visits")]


def test_a_query_is_a_source(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(workspace.folder / "clinic.sqlite") as connection:
        visits(3000, seed=1).to_sql("visits", connection, index=False)
    connection.close()
    spec = workspace.write_spec((FILE, "{sql: select * from visits, url_env: CLINIC_DB}"))
    with pytest.raises(SourceError, match="CLINIC_DB is not set"):
        dpcore.synthesize(spec)
    monkeypatch.setenv("CLINIC_DB", "sqlite:///clinic.sqlite")
    outcome = dpcore.synthesize(spec)
    assert Path(outcome.release, "manifest.json").exists()
    assert "sqlite" not in Path(outcome.release, "manifest.json").read_text(encoding="utf-8")


FAILING = "{sql: \"select *, json_extract(note, '$.a') as sex from notes\", url_env: CLINIC_DB}"


@pytest.fixture
def notes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database in which one person's note decides whether a query can be answered."""
    place = workspace.folder / "clinic.sqlite"
    table = visits(300, seed=1).drop(columns="sex").assign(note='{"a": "F"}')
    table.loc[7, "note"] = "none"
    with sqlite3.connect(place) as connection:
        table.to_sql("notes", connection, index=False)
    connection.close()
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{place}")
    return place


def test_a_query_that_a_value_makes_fail_keeps_the_reservation(workspace: Workspace, notes: Path) -> None:
    spec = workspace.write_spec((FILE, FAILING))
    for run_id in ("r1", "r2"):
        with pytest.raises(SourceBroken, match=f"--resume {run_id}.*`dpflow ledger refund {run_id}`") as refusal:
            dpcore.synthesize(spec, run_id=run_id)
        assert refusal.value.__context__ is refusal.value.__cause__ is None
    with open_ledger() as ledger:
        runs = [ledger.run(name) for name in ("r1", "r2")]
        assert [(run.state, run.spent) for run in runs] == [("open", 0)] * 2
        assert ledger.balance("visits").used == sum(run.reserved for run in runs) > 0
    with sqlite3.connect(notes) as connection:
        connection.execute("update notes set note = '{}' where note = 'none'")
    connection.close()
    assert dpcore.synthesize(spec, run_id="r1", resume=True).run == "r1"
    with open_ledger() as ledger:
        ledger.refund("r2", lease=ledger.lease("r2"))  # as the steward does
        assert ledger.balance("visits").used == ledger.run("r1").spent


@pytest.mark.usefixtures("notes")
@pytest.mark.parametrize(
    "wrong", ["select person from notes", "select *, no_such_function(note) as sex from notes", "select * from nowhere"]
)
def test_a_query_that_is_wrong_whatever_the_values_are_costs_nothing(workspace: Workspace, wrong: str) -> None:
    with pytest.raises(SourceError) as refusal:
        dpcore.synthesize(workspace.write_spec((FILE, f'{{sql: "{wrong}", url_env: CLINIC_DB}}')), run_id="r1")
    assert type(refusal.value) is SourceError
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("refunded", 0)


def test_a_reservation_that_is_kept_does_not_come_back_by_another_failure(
    workspace: Workspace, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = workspace.write_spec((FILE, FAILING))
    with pytest.raises(SourceBroken):
        dpcore.synthesize(spec, run_id="r1")
    notes.with_name("empty.sqlite").touch()
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{notes.with_name('empty.sqlite')}")
    with pytest.raises(SourceBroken, match="the reservation is kept"):
        dpcore.synthesize(spec, run_id="r1", resume=True)
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("open", ledger.run("r1").reserved)


def test_a_connection_that_is_lost_after_rows_were_read_keeps_the_reservation(
    workspace: Workspace, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise SourceError("the database that CLINIC_DB names cannot be reached")

    with sqlite3.connect(notes) as connection:
        connection.execute("update notes set note = '{}'")
    connection.close()
    monkeypatch.setattr("dpcore.tables.engines.ingest", gone)
    with pytest.raises(SourceBroken, match="the reservation is kept"):
        dpcore.synthesize(workspace.write_spec((FILE, FAILING)), run_id="r1")
    with open_ledger() as ledger:
        assert ledger.run("r1").state == "open"


def test_a_disk_that_the_rows_fill_keeps_the_reservation(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullFile(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr("dpcore.tables.ingest.spool.MEMORY_BYTES", 0)
        patch.setattr("dpcore.tables.ingest.spool.tempfile.TemporaryFile", lambda **_: FullFile())
        with pytest.raises(SourceBroken, match=r"free space on its disk.*--resume r1"):
            dpcore.synthesize(workspace.spec, run_id="r1")
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("open", ledger.run("r1").reserved)
    assert dpcore.synthesize(workspace.spec, run_id="r1", resume=True).rows > 0


def test_a_table_is_handed_over_and_the_spec_may_leave_its_source_out(workspace: Workspace) -> None:
    spec = workspace.write_spec((f"source: {FILE}\n", ""))
    with pytest.raises(SpecError, match="`source` is missing"):
        dpcore.synthesize(spec)
    assert dpcore.synthesize(spec, table=pl.from_pandas(visits(3000, seed=1))).rows > 1500


def test_a_table_that_is_handed_over_goes_before_the_specs_source(workspace: Workspace) -> None:
    (workspace.folder / "visits.csv").unlink()
    with pytest.raises(SourceError, match="leads to no table"):
        dpcore.synthesize(workspace.spec)
    assert dpcore.synthesize(workspace.spec, table=visits(3000, seed=1)).rows > 1500


def interrupted_run(spec: Path, patch: pytest.MonkeyPatch, *, table: pd.DataFrame) -> None:
    """Leave run r1 behind with a version of its data and something spent."""
    with patch.context() as patched:
        patched.setattr(Ledger, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dpcore.synthesize(spec, run_id="r1", table=table)


def test_a_run_on_a_table_goes_on_with_the_same_table_only(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = visits(3000, seed=1)
    interrupted_run(workspace.spec, monkeypatch, table=table)
    with pytest.raises(UsageError, match="the source data changed since this run began"):
        dpcore.synthesize(workspace.spec, run_id="r1", resume=True, table=visits(3000, seed=2))
    moved = table.copy()
    moved.loc[7, "sex"] = {"F": "M"}.get(str(moved.loc[7, "sex"]), "F")
    with pytest.raises(UsageError, match="the source data changed since this run began"):
        dpcore.synthesize(workspace.spec, run_id="r1", resume=True, table=moved)
    same = table[::-1].assign(other="not declared")
    assert dpcore.synthesize(workspace.spec, run_id="r1", resume=True, table=same).run == "r1"


def test_the_versions_of_two_runs_on_one_table_do_not_tell_that_it_is_one(workspace: Workspace) -> None:
    for _ in range(2):
        dpcore.synthesize(workspace.spec, table=visits(300, seed=1))
    first, second = data_versions()
    assert first != second
    assert None not in (first, second)


def test_a_run_that_finds_its_cells_goes_on_with_the_same_table_only(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = workspace.write_spec(("width: 25", "discover: {bins: 5, share: 0.1}"))
    table = visits(3000, seed=1)
    interrupted_run(spec, monkeypatch, table=table)
    moved = table.copy()
    moved["age"] = moved["age"].where(moved.index != 7, 3)
    assert not moved.equals(table)
    with pytest.raises(UsageError, match="the source data changed since this run began"):
        dpcore.synthesize(spec, run_id="r1", resume=True, table=moved)
    assert dpcore.synthesize(spec, run_id="r1", resume=True, table=table[::-1].assign(other=1)).run == "r1"


def test_a_badly_quoted_file_keeps_the_reservation_and_goes_on_once_it_is_mended(workspace: Workspace) -> None:
    file = workspace.folder / "visits.csv"
    whole = file.read_bytes()
    file.write_bytes(whole + b'"never closed\n')
    for resume in (False, True):
        with pytest.raises(SourceBroken, match=r"quotation marks.*--resume r1, or .* `dpflow ledger refund r1`"):
            dpcore.synthesize(workspace.spec, run_id="r1", resume=resume)
        with open_ledger() as ledger:
            run = ledger.run("r1")
            assert (run.state, run.data_version, ledger.balance("visits").used) == ("open", None, run.reserved)
    file.write_bytes(whole)
    assert dpcore.synthesize(workspace.spec, run_id="r1", resume=True).rows > 1500


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "arrow"])
def test_whatever_breaks_once_rows_are_read_keeps_the_reservation(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("dpcore.tables.sources.csv_file.HEADER_BYTES", 1 << 10)
    table, place = visits(30_000, seed=1), workspace.folder / f"damaged.{kind}"
    if kind == "parquet":
        table.to_parquet(place, compression="gzip")
    elif kind == "arrow":
        place.write_bytes(arrow_bytes(pa.Table.from_pandas(table), compression="zstd"))
    else:
        table.to_csv(place, index=False)
    content = bytearray(place.read_bytes())
    if kind == "csv":
        content += b'"'
    else:
        for byte in range(len(content) * 4 // 5, len(content) * 4 // 5 + 400):
            content[byte] ^= 0xFF
    place.write_bytes(content)
    with pytest.raises(SourceBroken, match="the reservation is kept"):
        dpcore.synthesize(workspace.write_spec((FILE, f"{{path: damaged.{kind}}}")), run_id="r1")
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("open", ledger.run("r1").reserved)


def test_a_footer_that_one_note_makes_unreadable_keeps_the_reservation(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = visits(3000, seed=1)
    table["note"] = "z" * 3000  # in an undeclared column, and in the footer as its greatest value
    table.to_parquet(workspace.folder / "notes.parquet", store_schema=False)
    spec = workspace.write_spec((FILE, "{path: notes.parquet}"))
    with monkeypatch.context() as patch:
        patch.setattr("dpcore.tables.sources.parquet_file.LARGEST_FOOTER", 2000)
        with pytest.raises(SourceBroken, match="the reservation is kept"):
            dpcore.synthesize(spec, run_id="r1")
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("open", ledger.run("r1").reserved)
    assert dpcore.synthesize(spec, run_id="r1", resume=True).rows > 1500


@pytest.mark.parametrize("encoding", ["utf-16"])
def test_a_file_in_a_wide_encoding_is_refused_by_its_mark_and_costs_nothing(
    workspace: Workspace, encoding: str
) -> None:
    file = workspace.folder / "visits.csv"
    file.write_bytes(file.read_text(encoding="utf-8").encode(encoding))
    with pytest.raises(SourceError, match="convert it to UTF-8 first") as refusal:
        dpcore.synthesize(workspace.spec, run_id="r1")
    assert type(refusal.value) is SourceError
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("refunded", 0)


def test_a_record_that_is_too_long_is_left_out_without_a_word(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpcore.tables.sources.csv_file.CHUNK_BYTES", (1 << 10, 1 << 12))
    table = visits(300, seed=1).assign(note="")
    table.loc[7, "note"] = "x" * 5000
    table.to_csv(workspace.folder / "visits.csv", index=False)
    dpcore.synthesize(workspace.spec, run_id="r1")
    with open_ledger() as ledger:
        assert ledger.run("r1").state == "settled"


def test_what_is_no_table_costs_nothing(workspace: Workspace) -> None:
    with pytest.raises(UsageError, match="pandas, polars or Arrow"):
        dpcore.synthesize(workspace.spec, table=[1, 2])
    with pytest.raises(SourceError, match="the table lacks the declared columns"):
        dpcore.synthesize(workspace.spec, table=pd.DataFrame({"sex": ["F"]}))
    with open_ledger() as ledger:
        assert ledger.balance("visits").spent == 0


def test_a_key_that_others_may_read_is_refused_before_anything_is_reserved(workspace: Workspace) -> None:
    dpcore.synthesize(workspace.spec, run_id="r1")
    key = workspace.folder / ".dpflow" / "private" / KEY_NAME
    key.chmod(0o644)
    for start in (
        lambda: dpcore.synthesize(workspace.spec, run_id="r2"),
        lambda: check_run(dpcore.load_spec(workspace.spec), resume=None),
        lambda: Session.open(workspace.spec, session="s"),
        lambda: buy_figures(workspace.folder / "releases" / "visits", workspace.spec, epsilon=0.1, approved=False),
    ):
        with pytest.raises(LedgerError, match="chmod 600"):
            start()
        with open_ledger() as ledger:
            assert [run.id for run in ledger.runs("visits")] == ["r1"]
    assert dpcore.synthesize(workspace.spec, run_id="r1", resume=True).run == "r1"  # a replay reads no rows
    key.chmod(0o600)
    assert dpcore.synthesize(workspace.spec, run_id="r2").run == "r2"


def test_a_key_that_is_opened_to_others_meanwhile_costs_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint_key(workspace.folder / ".dpflow" / "private")

    def opened(private: Path) -> None:
        (private / KEY_NAME).chmod(0o644)

    monkeypatch.setattr("dpcore.runs.synthesis.check_key", opened)
    with pytest.raises(LedgerError, match="chmod 600"):
        dpcore.synthesize(workspace.spec, run_id="r1")
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("refunded", 0)


def test_a_key_that_is_opened_to_others_after_rows_were_read_keeps_the_reservation(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(private: Path) -> None:
        (private / KEY_NAME).chmod(0o644)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dpcore.synthesize(workspace.spec, run_id="r1")
    with monkeypatch.context() as patch:
        patch.setattr("dpcore.runs.synthesis.check_key", opened)
        patch.setattr("dpcore.ledger.refusals.surely_gone", lambda _holder: True)
        with pytest.raises(LedgerError, match=r"chmod 600.*the reservation is kept: then use --resume r1") as refusal:
            dpcore.synthesize(workspace.spec, run_id="r1", resume=True)
    assert refusal.value.__context__ is None
    with open_ledger() as ledger:
        assert ledger.run("r1").state == "open"


def test_a_cluster_that_no_run_can_use_costs_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise UsageError("the scratch folder belongs to another user; set TMPDIR")

    monkeypatch.setattr("dpcore.tables.engines.LocalEngine.connect", refused)
    with pytest.raises(UsageError, match="set TMPDIR"):
        dpcore.synthesize(workspace.spec, run_id="r1")
    with open_ledger() as ledger:
        assert (ledger.run("r1").state, ledger.balance("visits").used) == ("refunded", 0)


def test_a_partitioned_folder_is_a_source_and_its_keys_are_columns(workspace: Workspace) -> None:
    visits(3000, seed=1).to_parquet(workspace.folder / "parts", partition_cols=["city"])
    assert dpcore.synthesize(workspace.write_spec((FILE, "{path: parts}"))).rows > 1500
