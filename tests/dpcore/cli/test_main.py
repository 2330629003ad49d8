"""The command line: one clear line for every mistake, the right exit code, and nothing spent."""

import json
import os
import stat
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore import Outcome, cli, load_spec, synthesize
from dpcore.errors import SourceBroken
from dpcore.ledger import Ledger, open_ledger
from dpcore.runs.reading import check_source
from dpcore.tables.ingest import Source
from dpcore.version import installed_version
from tests.conftest import Workspace, read_only, visits

Run = Callable[..., int]


def runner(spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
    return synthesize(spec, run_id=resume, resume=resume is not None, as_of=as_of)


def dpflow(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments], runner=runner)


def open_visits(*, epsilon: str = "10", delta: str = "1e-9", unit: str = "person") -> int:
    return dpflow(
        "ledger", "open", "visits", "--epsilon", epsilon, "--delta", delta, "--unit", unit, "--neighbours", "add-remove"
    )


def dump() -> list[str]:
    with open_ledger() as ledger:
        return [str(ledger.accounts()), str(list(ledger.history(None))), ledger.head()]


def nothing_used() -> bool:
    with open_ledger() as ledger:
        return ledger.balance("visits").used == 0


def test_from_init_to_release(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("init", "mine") == 0
    assert dpflow("check", "mine.yaml") == 0
    assert open_visits() == 0
    assert dpflow("check", workspace.spec) == 0
    capsys.readouterr()
    assert dpflow("run", workspace.spec, "--json") == 0
    captured = capsys.readouterr()
    outcome = json.loads(captured.out)
    assert {"run", "release", "spent", "remaining"} <= set(outcome)
    assert pq.read_table(Path(outcome["release"]) / "data").num_rows == outcome["rows"]
    assert "round 4/4" in captured.err
    assert dpflow("ledger", "show") == 0
    assert outcome["run"] in capsys.readouterr().out
    assert dpflow("ledger", "history", "visits", "--json") == 0
    kinds = [event["kind"] for event in json.loads(capsys.readouterr().out)["events"]]
    assert kinds[:2] == ["account-opened", "reserved"]
    assert kinds[-1] == "settled"
    assert dpflow("ledger", "verify", "--json") == 0
    verified = json.loads(capsys.readouterr().out)
    assert (verified["runs"], verified["manifests"]) == (1, 1)


@pytest.mark.parametrize("stored", ["csv", "parquet"])
def test_check_warns_of_a_column_that_the_table_lacks_in_the_words_of_a_run(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], stored: str
) -> None:
    open_visits()
    visits(30, seed=1).to_parquet(workspace.folder / "visits.parquet")
    workspace.write_spec(("  smoker:", "  smokes:"), ("visits.csv", f"visits.{stored}"))
    capsys.readouterr()
    assert dpflow("run", workspace.spec) == 1
    refusal = next(line for line in capsys.readouterr().err.splitlines() if "lacks" in line)
    reason = refusal.removeprefix("dpflow: ").partition(" (ledger")[0]
    assert reason.startswith(f"'visits.{stored}' lacks the declared column 'smokes'")
    assert dpflow("check", workspace.spec) == 0
    said = capsys.readouterr().err
    assert said == f"warning: a run on this machine would be refused: {reason}\n"
    assert "smoker" not in said


def test_check_warns_of_types_that_cannot_be_read_as_declared(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    visits(30, seed=1).to_parquet(workspace.folder / "visits.parquet")
    workspace.write_spec(("visits.csv", "visits.parquet"))
    assert dpflow("check", workspace.spec) == 0
    assert capsys.readouterr().err == ""
    workspace.write_spec(
        ("visits.csv", "visits.parquet"),
        ("{type: integer, min: 0, max: 99, width: 25}", "{type: date, min: 2024-01-01, max: 2024-12-31, every: month}"),
    )
    assert dpflow("check", workspace.spec, "--json") == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert "holds the declared column 'age' in a type that cannot be read as declared" in warning


def test_check_says_what_types_mean_that_few_people_expect(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = visits(30, seed=1)
    frame["person"] = frame["person"].astype("category").cat.codes + 0.5
    frame["age"] = pd.Timestamp("2024-07-01 12:30", tz="Europe/Zurich")
    frame.to_parquet(workspace.folder / "visits.parquet")
    days = "{type: datetime, min: 2024-01-01T00:00:00, max: 2024-12-31T23:00:00, step: hour}"
    workspace.write_spec(("visits.csv", "visits.parquet"), ("{type: integer, min: 0, max: 99, width: 25}", days))
    assert dpflow("check", workspace.spec, "--json") == 0
    ids, times = json.loads(capsys.readouterr().out)["warnings"]
    assert ids.startswith("the ids in person are decimal numbers: rows whose id is not a whole number")
    assert times.startswith("age has times of Europe/Zurich: they are read and released in UTC")
    frame["age"] = frame["age"].dt.tz_convert("UTC")
    frame.assign(person=frame["person"].astype(str)).to_parquet(workspace.folder / "visits.parquet")
    assert dpflow("check", workspace.spec, "--json") == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []


def test_check_says_nothing_of_a_failure_that_values_may_have_caused(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    visits(30, seed=1).to_parquet(workspace.folder / "visits.parquet")
    content = (workspace.folder / "visits.parquet").read_bytes()
    (workspace.folder / "visits.parquet").write_bytes(content[:40] + bytes(len(content) - 48) + content[-8:])
    workspace.write_spec(("visits.csv", "visits.parquet"))
    declaration = load_spec(workspace.spec)
    with pytest.raises(SourceBroken):
        check_source(declaration, Source.locate(declaration.spec.source, base=workspace.folder))
    assert dpflow("check", workspace.spec) == 0
    assert capsys.readouterr().err == ""


def test_check_refuses_a_budget_that_is_too_small_for_any_run(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.write_spec(("epsilon: 1.0", "epsilon: 1e-300"))
    assert dpflow("check", workspace.spec) == 2
    assert "epsilon 1e-300 is too small for any run; ask for epsilon 0.00" in capsys.readouterr().err


def test_init_never_overwrites(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("init", "mine") == 0
    assert dpflow("init", "mine") == 1
    assert "already exists" in capsys.readouterr().err
    assert dpflow("init", "../mine") == 2


def test_schema_is_json(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("schema") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "dpflow release spec"


def test_more_than_remains_is_refused_with_the_three_numbers_and_changes_nothing(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], tree_of: Callable[[Path], dict[str, bytes]]
) -> None:
    open_visits(epsilon="0.5")
    (workspace.folder / "visits.csv").write_bytes(b"")  # whoever read it would fail otherwise
    before, rows = tree_of(workspace.folder / "releases"), dump()
    capsys.readouterr()
    assert dpflow("run", workspace.spec, "--json") == 3
    refusal = json.loads(capsys.readouterr().out)
    assert refusal["requested"] > refusal["remaining"] > 0
    assert refusal["difference"] == pytest.approx(refusal["requested"] - refusal["remaining"])
    assert dpflow("run", workspace.spec) == 3
    assert "too little" in capsys.readouterr().err
    assert (tree_of(workspace.folder / "releases"), dump()) == (before, rows)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--epsilon", "0", "--delta", "0"), "--epsilon must be"),
        (("--epsilon", "nan", "--delta", "0"), "--epsilon must be"),
        (("--epsilon", "inf", "--delta", "0"), "--epsilon must be"),
        (("--epsilon", "-1", "--delta", "0"), "--epsilon must be"),
        (("--epsilon", "1", "--delta", "1"), "--delta must be"),
        (("--epsilon", "1", "--delta", "nan"), "--delta must be"),
        (("--epsilon", "1e-30", "--delta", "0"), "at least"),
    ],
)
def test_an_absurd_budget_opens_no_account(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], hint: str
) -> None:
    assert dpflow("ledger", "open", "visits", *arguments, "--unit", "row", "--neighbours", "add-remove") == 2
    assert hint in capsys.readouterr().err
    assert not (workspace.folder / ".dpflow" / "ledger.sqlite").exists()


def test_an_account_is_opened_once(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert open_visits() == 0
    assert open_visits(epsilon="100") == 2
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("account", "changes", "ending"),
    [
        ({}, [("dataset: visits", "dataset: other")], (2, "no account 'other'")),
        ({"unit": "row"}, [], (2, "`unit: person`")),
        ({"delta": "0"}, [], (2, "pure epsilon")),
        ({}, [("delta: 1e-9", "delta: 0")], (2, "delta")),
        ({}, [("add-remove", "replace-one")], (2, "`neighbours: replace-one`")),
        ({}, [("path: visits.csv", "path: none.csv")], (1, "none.csv")),
        ({}, [("age: {type", "height: {type")], (1, "'height'")),
        ({}, [("epsilon: 1.0", "epsilon: 1e-5")], (2, "too small")),
        ({}, [("min: 0, max: 99, width: 25", "min: 0, max: 9999999, width: 1")], (2, "cells")),
        ({}, [("name: mwem, rounds: 4", "name: pmw, rounds: 2")], (2, "rounds")),
    ],
)
def test_a_run_that_cannot_work_costs_nothing(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    account: dict[str, str],
    changes: list[tuple[str, str]],
    ending: tuple[int, str],
) -> None:
    open_visits(**account)
    workspace.write_spec(*changes)
    capsys.readouterr()
    code, hint = ending
    assert dpflow("run", workspace.spec) == code
    error = capsys.readouterr().err
    assert hint in error
    assert "Traceback" not in error
    assert nothing_used()


@pytest.mark.parametrize("content", [b"", b"PAR1 and nothing more", os.urandom(2000)])
def test_a_damaged_table_costs_nothing(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (workspace.folder / "visits.parquet").write_bytes(content)
    workspace.write_spec(("visits.csv", "visits.parquet"))
    open_visits()
    capsys.readouterr()
    assert dpflow("run", workspace.spec) == 1
    assert len([line for line in capsys.readouterr().err.splitlines() if line.startswith("dpflow: ")]) == 1
    assert nothing_used()


def test_a_table_in_impossible_types_costs_nothing(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {
        "person": ["a", "b"],
        "sex": [["F"], ["M"]],
        "age": [{"years": 3}, None],
        "smoker": [True, False],
        "city": ["north"] * 2,
    }
    pq.write_table(pa.table(columns), workspace.folder / "visits.parquet")
    workspace.write_spec(("visits.csv", "visits.parquet"))
    open_visits()
    capsys.readouterr()
    assert dpflow("run", workspace.spec) == 1
    assert "columns 'sex', 'age' in a type that cannot be read as declared" in capsys.readouterr().err
    assert nothing_used()


def test_ids_of_an_impossible_type_cost_nothing(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    columns = {
        "person": [["a"], ["b"]],
        "sex": ["F", "M"],
        "age": [3, 4],
        "smoker": [True, False],
        "city": ["north"] * 2,
    }
    pq.write_table(pa.table(columns), workspace.folder / "visits.parquet")
    workspace.write_spec(("visits.csv", "visits.parquet"))
    open_visits()
    capsys.readouterr()
    assert dpflow("run", workspace.spec) == 1
    assert "column 'person' in a type" in capsys.readouterr().err
    assert nothing_used()


def test_columns_with_odd_names_are_released(workspace: Workspace) -> None:
    odd = " a\tge/ö'\" "
    table = pd.read_csv("visits.csv").rename(columns={"age": odd, "city": "x" * 600})
    table.to_csv("visits.csv", index=False)
    quoted = json.dumps(odd)
    workspace.write_spec(("  age: {", f"  {quoted}: {{"), ("  city: {", f"  {'x' * 600}: {{"))
    open_visits()
    assert dpflow("run", workspace.spec) == 0


@pytest.mark.parametrize("epsilon", ["1000.0", "20000.0"])
def test_a_huge_budget_is_no_error(workspace: Workspace, epsilon: str) -> None:
    workspace.write_spec(("epsilon: 1.0", f"epsilon: {epsilon}"))
    open_visits(epsilon="500000")
    assert dpflow("run", workspace.spec) == 0


def test_a_run_that_will_not_go_on_is_ended_by_the_steward(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_visits()

    def interrupted(*_arguments: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", interrupted)
        assert dpflow("run", workspace.spec) == 130
    hint = capsys.readouterr().err
    with open_ledger() as ledger:
        (run,) = ledger.runs("visits")
    assert f"resume with dpflow run {workspace.spec} --resume {run.id}, or end the run" in hint
    assert hint.endswith(f": dpflow ledger settle {run.id}\n")
    assert run.state == "open"
    assert dpflow("ledger", "settle", run.id) == 2  # the process that worked on it, this one, is not gone
    assert "is held by process" in capsys.readouterr().err
    monkeypatch.setattr("dpcore.ledger.refusals.surely_gone", lambda _holder: True)
    assert dpflow("ledger", "refund", run.id) == 2
    assert f"dpflow ledger settle {run.id}" in capsys.readouterr().err
    assert dpflow("ledger", "settle", run.id, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    with open_ledger() as ledger:
        balance = ledger.balance("visits")
    assert (balance.reserved, balance.spent) == (0, run.spent)
    assert answer["returned"] == pytest.approx((run.reserved - run.spent) / 1e12)
    assert dpflow("run", workspace.spec, "--resume", run.id) == 2
    assert "was ended" in capsys.readouterr().err


def test_a_run_is_resumed_from_another_folder(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{workspace.folder}/led/ger.sqlite")
    open_visits()
    assert dpflow("run", workspace.spec) == 0
    with open_ledger() as ledger:
        (run,) = ledger.runs("visits")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert dpflow("run", workspace.spec, "--resume", run.id) == 0
    assert (workspace.folder / "led" / "private" / "fingerprint.key").exists()


def test_an_account_no_spec_could_name_is_not_opened(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    terms = ("--epsilon", "1", "--delta", "0", "--unit", "row", "--neighbours", "add-remove")
    for name in ("a/../b", "a\n", "", " a"):
        assert dpflow("ledger", "open", name, *terms) == 2
    assert dpflow("init", "clinic\n") == 2
    assert dpflow("run", workspace.spec, "--resume", "") == 2


def test_opening_an_account_says_if_that_creates_a_ledger(
    workspace: Workspace,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def created(folder: Path) -> str:
        place = folder / ".dpflow" / "ledger.sqlite"
        return f"created a new ledger at {place}; budgets in other ledgers do not count here\nopened account visits\n"

    assert open_visits() == 0
    assert created(workspace.folder) in capsys.readouterr().out
    terms = ("--epsilon", "1", "--delta", "0", "--unit", "row", "--neighbours", "add-remove")
    assert dpflow("ledger", "open", "second", *terms) == 0
    assert "created" not in capsys.readouterr().out
    assert dpflow("ledger", "open", "third", *terms, "--json") == 0
    assert json.loads(capsys.readouterr().out)["created_ledger"] is False
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    assert dpflow("ledger", "show", "visits") == 2
    assert (
        "change to the folder of the ledger, or set DPFLOW_LEDGER_URL to the ledger; only if" in capsys.readouterr().err
    )
    assert open_visits() == 0
    assert created(elsewhere) in capsys.readouterr().out


def test_no_ledger_yet_says_how_to_open_one(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("run", workspace.spec) == 2
    assert "dpflow ledger open" in capsys.readouterr().err
    assert dpflow("ledger", "show") == 2
    assert not (workspace.folder / ".dpflow").exists()


def test_a_damaged_ledger_ends_with_4(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    open_visits()
    path = workspace.folder / ".dpflow" / "ledger.sqlite"
    for beside in path.parent.glob("ledger.sqlite-*"):
        beside.unlink()
    path.write_bytes(b"this is no ledger at all" * 400)
    capsys.readouterr()
    assert dpflow("run", workspace.spec) == 4
    assert "Traceback" not in capsys.readouterr().err


def test_a_read_only_output_folder_is_refused_before_anything_is_spent(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    open_visits()
    with read_only(workspace.folder / "releases"):
        assert dpflow("run", workspace.spec) == 1
    assert "read-only" in capsys.readouterr().err
    with open_ledger() as ledger:
        assert ledger.runs("visits") == ()


def test_a_file_in_place_of_the_output_folder_is_refused_before_anything_is_spent(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    open_visits()
    (workspace.folder / "releases").write_text("in the way", encoding="utf-8")
    assert dpflow("run", workspace.spec) == 1
    assert "output folder" in capsys.readouterr().err
    with open_ledger() as ledger:
        assert ledger.runs("visits") == ()


def test_a_run_that_is_interrupted_before_it_reserves_names_no_run(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object, **_more: object) -> None:
        raise KeyboardInterrupt

    open_visits()
    monkeypatch.setattr("dpcore.runs.synthesis.reserve_run", interrupted)
    capsys.readouterr()
    assert dpflow("run", workspace.spec) == 130
    hint = capsys.readouterr().err
    assert hint == (
        "interrupted; the run has measured nothing; if it has reserved its budget, `dpflow ledger show` lists it as open\n"
    )


def test_resuming_an_unknown_run_starts_none(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    open_visits()
    assert dpflow("run", workspace.spec, "--resume", "nobody") == 2
    assert "without --resume" in capsys.readouterr().err


def test_an_unforeseen_error_is_one_line_without_its_text(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
        message = "Jane Doe, 44"
        raise ValueError(message)

    assert cli.main(["run", str(workspace.spec)], runner=broken) == 1
    assert "could not be written; name a folder for it in DPFLOW_PRIVATE" in capsys.readouterr().err
    assert not (workspace.folder / ".dpflow").exists()  # which only `ledger open` creates
    (workspace.folder / ".dpflow").mkdir()
    assert cli.main(["run", str(workspace.spec)], runner=broken) == 1
    captured = capsys.readouterr()
    assert "Jane" not in captured.out + captured.err
    assert "ValueError" in captured.err
    log = workspace.folder / ".dpflow" / "private" / "failures.log"
    assert "Jane Doe" in log.read_text(encoding="utf-8")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        dpflow("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"dpflow {installed_version()}\n"
