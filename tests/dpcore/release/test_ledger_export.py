"""What an export says: the whole history, byte for byte, and guarantees that follow from it and from nothing else."""

import json
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from dpcore.errors import OutputError
from dpcore.ledger import GENESIS, Event, EventKind, Ledger
from dpcore.ledger.chain import canonical, link
from dpcore.privacy.accounting import Currency, gdp_to_epsilon, zcdp_to_epsilon
from dpcore.privacy.protection import Neighbours
from dpcore.release import ledger_export
from dpcore.release.ledger_export import SCHEMA, write_history
from tests.conftest import read_only
from tests.dpcore.cli.ledgers import MECHANISM, dpflow, made_at_noon, opened, spent
from tests.dpcore.ledger.fixtures import BODIES
from tests.dpcore.release.conftest import Said

FILES = {"history.parquet", "statement.json", "statement.md"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    return tmp_path


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with made_at_noon() as made:
        yield made


def exported(*arguments: object) -> dict[str, Any]:
    """Export into the folder `out` and return the statement."""
    assert dpflow("ledger", "export", *arguments, "--to", "out") == 0
    statement: dict[str, Any] = json.loads(Path("out/statement.json").read_text(encoding="utf-8"))
    return statement


def epsilons(promise: list[dict[str, Any]]) -> dict[int, float]:
    return {guarantee["group"]: guarantee["epsilon"] for guarantee in promise}


def test_the_history_reads_back_and_its_chain_can_be_checked_from_the_file_alone(ledger: Ledger) -> None:
    opened(ledger, "clinic", epsilon=10, delta=1e-9, unit="person")
    opened(ledger, "sales", months=2)
    spent(ledger, "run-1", account="clinic", amount=10**10)
    statement = exported()
    table = pq.read_table("out/history.parquet")
    assert table.schema.equals(SCHEMA)
    assert table.schema.metadata[b"dpflow.head"].decode() == statement["head"] == ledger.head()
    previous = GENESIS
    for row in table.to_pylist():
        at = row["at"].astimezone(UTC).isoformat()
        content = {"seq": row["seq"], "at": at, "account": row["account"], "run": row["run"], "body": row["body"]}
        event = link(previous, kind=EventKind(row["kind"]), **content)
        assert (event.previous, event.hash) == (row["previous"], row["hash"])
        previous = event.hash
    assert previous == statement["head"]
    assert table.num_rows == statement["events"]


def test_the_history_answers_sql(ledger: Ledger) -> None:
    opened(ledger, "clinic", epsilon=10, delta=1e-9)
    spent(ledger, "run-1", account="clinic", amount=10**10, steps=3)
    exported()
    found = duckdb.sql(
        "SELECT run, count(*), sum(amount), sum(amount_in_currency), any_value(currency), min(attempt), max(step),"
        " any_value(json_extract_string(mechanism, '$.name')), max(\"at\") FROM 'out/history.parquet'"
        " WHERE kind = 'charged' GROUP BY run"
    ).fetchall()
    ((run, count, amount, in_currency, currency, attempt, step, mechanism, at),) = found
    assert (run, count, amount, currency, attempt) == ("run-1", 3, 3 * 10**9, "zcdp", 1)
    assert in_currency == pytest.approx(0.003)
    assert (step, mechanism) == ("round-003/measure", "discrete-laplace")
    assert at.astimezone(UTC) == datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_one_account_is_exported_alone_and_a_group_of_k_in_pure_epsilon_has_k_times_as_much(ledger: Ledger) -> None:
    opened(ledger, "clinic")
    opened(ledger, "sales")
    spent(ledger, "run-1", account="sales", amount=5 * 10**11)
    (account,) = exported("sales")["accounts"]
    assert account["account"] == "sales"
    assert pq.read_table("out/history.parquet")["account"].unique().to_pylist() == ["sales"]
    assert epsilons(account["promise"]) == {1: 2.0, 2: 4.0, 5: 10.0, 10: 20.0}
    assert epsilons(account["releases"][0]["promise"]) == {1: 0.5, 2: 1.0, 5: 2.5, 10: 5.0}


@pytest.mark.parametrize(("currency", "to_epsilon"), [(Currency.ZCDP, zcdp_to_epsilon), (Currency.GDP, gdp_to_epsilon)])
def test_a_group_of_k_has_k_squared_of_rho_or_mu_squared(ledger: Ledger, currency: Currency, to_epsilon: Any) -> None:
    opened(ledger, "clinic", epsilon=4, delta=1e-6, currency=currency)
    spent(ledger, "run-1", account="clinic", amount=10**11, steps=4)
    spent(ledger, "run-2", account="clinic", amount=10**10, steps=1, ended=False)
    (account,) = exported("--group", 3, "--group", 7)["accounts"]
    first, second = account["releases"]
    cap = Fraction(ledger.account("clinic").cap, 10**12)
    for promise, amount in ((account["promise"], cap), (first["promise"], Fraction(1, 10))):
        expected = {k: to_epsilon(k * k * amount, delta=1e-6) for k in (1, 3, 7)}
        assert epsilons(promise) == pytest.approx(expected, rel=1e-12)
    assert (first["bookkeeping"]["spent"], second["bookkeeping"]["spent"]) == (0.04, 0.001)
    assert account["bookkeeping"] == pytest.approx(
        {"counts": currency.symbol, "cap": float(cap), "spent": 0.041, "reserved": 0.009}
    )
    assert (first["release"], second["release"], second["state"]) == ("release-of-run-1", None, "open")


def test_a_person_in_several_blocks_is_told_that_no_cap_limits_their_loss(ledger: Ledger) -> None:
    opened(ledger, "sales", months=3, unit="person")
    spent(ledger, "run-1", account="sales", amount=10**12, steps=9, blocks=["month-01"])
    spent(ledger, "run-2", account="sales", amount=15 * 10**11, steps=1, blocks=["month-02"], ended=False)
    (account,) = exported()["accounts"]
    assert (account["most_used_block"], account["bookkeeping"]["spent"]) == ("month-02", 0.15)
    by_block = {block["block"]: block["bookkeeping"] for block in account["blocks"]}
    assert {name: (books["spent"], books["reserved"]) for name, books in by_block.items()} == {
        "month-01": (0.9, 0.0),
        "month-02": (0.15, 1.35),
        "month-03": (0.0, 0.0),
    }
    page = Path("out/statement.md").read_text(encoding="utf-8")
    assert "| with rows in one block | 2 | 4 | 10 | 20 |" in page
    assert "| with rows in several blocks | no cap | no cap | no cap | no cap |" in page
    assert (account["spent_by_all_runs"], account["across_blocks"]) == (1.05, None)
    assert "no cap limits that" in account["sentence"]
    assert "All runs together have spent epsilon 1.05, which is the cost to a person with rows in all blocks." in page


def test_where_one_is_replaced_two_blocks_count_together(ledger: Ledger) -> None:
    opened(ledger, "sales", months=2, neighbours=Neighbours.REPLACE_ONE)
    spent(ledger, "run-1", account="sales", amount=10**11, steps=10, blocks=["month-01"])
    (account,) = exported()["accounts"]
    assert account["bookkeeping"]["spent"] == pytest.approx(0.2)
    assert account["releases"][0]["promise"][0]["epsilon"] == 0.1  # by itself it touches one block
    assert account["promise"][0]["epsilon"] == 2.0
    assert "Each block is therefore charged double" in Path("out/statement.md").read_text(encoding="utf-8")


def test_the_sentences_say_what_holds_for_whom(ledger: Ledger) -> None:
    opened(ledger, "clinic", epsilon=10, delta=1e-9, unit="person")
    opened(ledger, "idle")
    opened(ledger, "sales", months=1, neighbours=Neighbours.REPLACE_ONE)
    spent(ledger, "run-1", account="clinic", amount=10**10, steps=5)
    spent(ledger, "run-2", account="sales", amount=10**11, blocks=["month-01"])
    clinic, idle, sales = exported()["accounts"]
    with_respect = "-differentially private with respect to adding or removing one person with all its rows."
    assert clinic["sentence"] == f"Everything that this account pays for, taken together, is (10, 1e-09){with_respect}"
    assert clinic["releases"][0]["sentence"].startswith("This release, taken by itself, is (0.81")  # of all it reserved
    assert idle["sentence"].startswith(
        "Everything that this account pays for, taken together, is 2-differentially private"
    )
    assert sales["sentence"].endswith("replacing one row by another, in the same block or in another.")
    assert sales["releases"][0]["sentence"].endswith("replacing one row by another.")


def test_no_printed_figure_is_below_the_exact_one(ledger: Ledger) -> None:
    opened(ledger, "clinic", epsilon=10, delta=1e-9)
    spent(ledger, "run-1", account="clinic", amount=123_456_789_012, steps=7)
    (account,) = exported()["accounts"]
    page = Path("out/statement.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("| `release-of-run-1`")]
    printed = [float(cell.strip(" ()").split(",")[0]) for cell in line.split("|")[3:-2]]
    for shown, exact in zip(printed, epsilons(account["releases"][0]["promise"]).values(), strict=True):
        assert exact <= shown <= exact * (1 + 1e-5)


def test_names_are_shown_as_they_are_and_not_as_markdown(ledger: Ledger) -> None:
    opened(ledger, "clinic", unit="patient_id")
    spent(ledger, "run-1", account="clinic", amount=10**10, release="a|b")
    exported()
    page = Path("out/statement.md").read_text(encoding="utf-8")
    assert "patient_id" in page
    assert "a\\|b" in page


def test_all_files_tell_of_one_moment_whatever_happens_meanwhile(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(ledger, "clinic")
    look = ledger_export.overview

    def then_charged(opened_here: Ledger, account: str | None) -> Any:
        found = look(opened_here, account)
        spent(ledger, "run-1", account="clinic", amount=10**10)
        return found

    monkeypatch.setattr(ledger_export, "overview", then_charged)
    statement = exported()
    hashes = pq.read_table("out/history.parquet")["hash"].to_pylist()
    assert (hashes[-1], len(hashes)) == (statement["head"], statement["events"])
    assert statement["head"] != ledger.head()


def test_an_earlier_export_is_replaced_and_nothing_else(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(ledger, "clinic")
    first = exported()
    Path("out/notes.txt").write_text("mine", encoding="utf-8")
    spent(ledger, "run-1", account="clinic", amount=10**10)
    assert exported()["head"] != first["head"]
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    assert set(before) == FILES | {"notes.txt"}

    def full(*_arguments: object, **_more: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger_export, "page", full)
    assert dpflow("ledger", "export", "--to", "out") == 1
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before


def test_a_folder_that_cannot_take_an_export_is_refused(
    ledger: Ledger, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(ledger, "clinic")
    (folder / "file").write_text("in the way", encoding="utf-8")
    (folder / "taken" / "statement.md").mkdir(parents=True)
    for place, hint in (
        ("file", "file is a file, but an export needs a folder; choose another one with --to"),
        ("file/below", "file is a file, but an export needs a folder"),
        ("taken", "is a folder; move it away"),
    ):
        assert dpflow("ledger", "export", "--to", place) == OutputError.exit_code
        told = capsys.readouterr().err
        assert hint in told
        assert told.count("\n") == 1
    with read_only(folder / "closed"):
        assert dpflow("ledger", "export", "--to", "closed") == OutputError.exit_code
    assert [path.name for path in (folder / "taken").iterdir()] == ["statement.md"]


def test_an_export_says_what_it_wrote(ledger: Ledger, said: Said) -> None:
    opened(ledger, "clinic")
    spent(ledger, "run-1", account="clinic", amount=10**10)
    assert "deep/below/history.parquet" in said("ledger", "export", "--to", "deep/below")
    answer = json.loads(said("ledger", "export", "--to", "deep/below", "--json"))
    assert (answer["head"], len(answer["files"])) == (ledger.head(), 3)
    assert (answer["accounts"][0]["epsilon"], answer["accounts"][0]["delta"]) == (2.0, 0.0)


def events(count: int) -> Iterator[Event]:
    previous = GENESIS
    for number in range(1, count + 1):
        charge = BODIES[EventKind.CHARGED] | {"attempt": number, "amount": 5, "mechanism": MECHANISM}
        body = canonical(charge)
        at = "2026-07-01T12:00:00.000000+00:00"
        event = link(previous, seq=number, at=at, kind=EventKind.CHARGED, account="clinic", run="run-1", body=body)
        previous = event.hash
        yield event


def test_a_long_history_is_written_in_the_memory_of_a_short_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dpcore.release.ledger_export.ROWS_PER_GROUP", 100)

    def peak(count: int) -> int:
        tracemalloc.start()
        try:
            path = tmp_path / f"{count}.parquet"
            written = write_history(path, events(count), currencies={"clinic": Currency.PURE}, head=GENESIS)
            assert written == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def least(count: int) -> int:
        return min(peak(count) for _ in range(3))  # other threads of this process may take some memory meanwhile

    peak(100)
    assert least(1_600) < 1.5 * least(400)
    assert pq.ParquetFile(tmp_path / "1600.parquet").num_row_groups == 16
