"""Warnings about a valid spec: budgets that protect little, and columns that look like ids by their declaration."""

import json
import re
from pathlib import Path

import pytest

from dpcore import Outcome, load_spec
from dpcore.cli.main import main
from dpcore.spec.advice import advice, looks_like_id
from tests.dpcore.cli.ledgers import dpflow

SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M]}
  COLUMN
"""
AGE = "age: {type: integer, min: 0, max: 99}"
MANY = "[" + ", ".join(f"v{number}" for number in range(60)) + "]"


def warnings(folder: Path, column: str = AGE, *changes: tuple[str, str]) -> tuple[str, ...]:
    text = SPEC.replace("COLUMN", column)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return advice(load_spec(path))


IDS = [
    "id",
    "patient_id",
    "PatientId",
    "patientID",
    "uuid",
    "user-uuid",
    "SSN",
    "ssn_last4",
    "email",
    "e-mail",
    "work_email",
    "Phone",
    "phone_number",
    "mobile",
    "name",
    "last_name",
    "firstName",
    "fullName",
    "NHS_number",
    "mrn",
    "passport_no",
    "iban",
    "home_address",
    "client.ip",
    "userName",
    "device_imei",
    "order_ids",
]
NOT_IDS = [
    "paid",
    "valid",
    "humidity",
    "width",
    "side",
    "video",
    "candidate",
    "incident",
    "identity_theft",
    "grid",
    "android",
    "region",
    "city",
    "age",
    "named",
    "tenure",
    "payment",
    "trip_minutes",
    "skip",
    "chips",
    "filename2x",
    "ipsum",
    "macro",
    "streetcars",
    "moralname",
    "idle",
]


@pytest.mark.parametrize("name", IDS)
def test_a_column_that_is_called_like_an_id_looks_like_one(name: str) -> None:
    assert looks_like_id(name)


@pytest.mark.parametrize("name", NOT_IDS)
def test_a_column_that_only_has_such_letters_in_it_does_not(name: str) -> None:
    assert not looks_like_id(name)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("patient_id: {type: integer, min: 1, max: 9999}", "it has the name of one, and up to 64 cells"),
        (f"last_name: {{type: categorical, values: {MANY}}}", "it has the name of one, and 60 cells"),
        (
            "email: {type: categorical, discover: {most: 100, length: 3, share: 0.1}}",
            "it has the name of one, and up to 100 cells",
        ),
        ("badge: {type: integer, min: 1, max: 200000, width: 1}", "it has 200,000 cells of one number each"),
        ("badge: {type: categorical, values_from: many.txt}", "it has 10,000 values"),
    ],
)
def test_a_column_that_tells_people_apart_is_warned_of(tmp_path: Path, column: str, said: str) -> None:
    (tmp_path / "many.txt").write_text("\n".join(f"b{number}" for number in range(10_000)))
    (warning,) = warnings(tmp_path, column)
    assert said in warning
    assert "leave columns that identify people out" in warning


@pytest.mark.parametrize(
    "column",
    [
        "clinic_id: {type: integer, min: 1, max: 8}",
        "drug_name: {type: categorical, values: [aspirin, ibuprofen]}",
        "has_phone: {type: boolean}",
        "cost: {type: integer, min: 0, max: 200000, width: 100}",
        "income: {type: integer, min: 0, max: 1000000, discover: {bins: 20, share: 0.1}}",
        "cost: {type: number, min: 0, max: 1000000, bins: 100}",
        f"city: {{type: categorical, values: {MANY}}}",
        "seen: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-12-31T00:00:00, every: minute}",
    ],
)
def test_a_column_that_tells_nobody_apart_is_not(tmp_path: Path, column: str) -> None:
    assert warnings(tmp_path, column) == ()


def test_as_many_values_as_expected_rows_look_like_an_id(tmp_path: Path) -> None:
    expect = ("delta: 1e-9", "delta: 1e-9, expect_rows: [50, 900]")
    (warning,) = warnings(tmp_path, f"city: {{type: categorical, values: {MANY}}}", expect)
    assert "it has 60 values, about as many as there may be rows" in warning


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("delta: 1e-9", "delta: 0.01", "`delta` is 0.01: each person may be exposed"),
        (
            "delta: 1e-9",
            "delta: 1e-4, expect_rows: [1000, 20000]",
            "not far below one over the expected 20,000 rows; write 5e-08 or less",
        ),
        ("epsilon: 1.0", "epsilon: 20.5", "`epsilon` is 20.5, which hardly limits"),
    ],
)
def test_a_budget_that_protects_little_is_warned_of(tmp_path: Path, old: str, new: str, said: str) -> None:
    (warning,) = warnings(tmp_path, AGE, (old, new))
    assert re.search(said, warning)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("delta: 1e-9", "delta: 1e-3"),
        ("epsilon: 1.0", "epsilon: 20"),
        ("delta: 1e-9", "delta: 0, expect_rows: [9, 10]"),
    ],
)
def test_a_budget_at_the_limit_is_not(tmp_path: Path, old: str, new: str) -> None:
    assert warnings(tmp_path, AGE, (old, new)) == ()


@pytest.mark.parametrize("terms", [("20.5", "1e-9", 1), ("1", "0.01", 1), ("30", "0.5", 2), ("20", "1e-3", 0)])
def test_an_account_is_warned_of_as_a_spec_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terms: tuple[str, str, int]
) -> None:
    epsilon, delta, number = terms
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    said = warnings(tmp_path, AGE, ("epsilon: 1.0", f"epsilon: {epsilon}"), ("delta: 1e-9", f"delta: {delta}"))
    assert len(said) == number
    options = ("--epsilon", epsilon, "--delta", delta, "--unit", "row", "--neighbours", "add-remove", "--json")
    assert dpflow("ledger", "open", "visits", *options) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["warnings"] == list(said)
    assert printed.err == "".join(f"warning: {warning}\n" for warning in said)


def test_check_says_so_on_the_error_stream_and_ends_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def runner(*_args: object, **_named: object) -> Outcome:
        raise NotImplementedError

    said = warnings(tmp_path, AGE, ("epsilon: 1.0", "epsilon: 30"))
    (tmp_path / "visits.csv").write_text("sex,age\n", encoding="utf-8")
    assert main(["check", str(tmp_path / "spec.yaml"), "--json"], runner=runner) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["warnings"] == list(said)
    assert printed.err == f"warning: {said[0]}\n"
    warnings(tmp_path)
    assert main(["check", str(tmp_path / "spec.yaml")], runner=runner) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "visits.csv").unlink()
    assert main(["check", str(tmp_path / "spec.yaml")], runner=runner) == 0
    assert (
        "warning: a run on this machine would be refused: source.path 'visits.csv' leads to no table"
        in capsys.readouterr().err
    )
