"""What leaves: files that every reader opens, with the declared types and the privacy statement, all or nothing."""

import datetime as dt
import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore import synthesize
from dpcore.errors import OutputError
from dpcore.ledger import WHOLE, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, epsilon_of, mu_of, sampler_delta
from dpcore.release import publishing, state
from dpcore.release.publishing import check_writable
from dpcore.release.statement import Bookkeeping, StatedPart, Statement
from dpcore.spec import load_spec
from tests.conftest import Workspace, small_disk

TYPES = """\
  day: {type: date, min: 2025-01-01, max: 2025-12-31, every: month, missing: true}
  at: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-01-02T00:00:00, every: hour}
  cost: {type: number, edges: [0, 10, 100]}
workload"""


@pytest.fixture
def release(workspace: Workspace) -> Path:
    table = pd.read_csv("visits.csv")
    rng = np.random.default_rng(3)
    table["day"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, len(table)), unit="D")
    table.loc[:200, "day"] = pd.NaT
    table["at"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 86400, len(table)), unit="s")
    table["cost"] = rng.uniform(0, 100, len(table))
    table.to_parquet("visits.parquet")
    workspace.write_spec(("visits.csv", "visits.parquet"), ("workload", TYPES))
    workspace.open_account(epsilon=50)
    return Path(synthesize(workspace.spec).release)


def test_every_reader_opens_it_with_the_declared_types(release: Path) -> None:
    files = str(release / "data" / "*.parquet")
    expected = {
        "sex": pa.dictionary(pa.int32(), pa.string()),
        "age": pa.int64(),
        "smoker": pa.bool_(),
        "city": pa.dictionary(pa.int32(), pa.string()),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "cost": pa.float64(),
    }
    table = pq.read_table(release / "data")
    assert {field.name: field.type for field in table.schema} == expected
    frame = pd.read_parquet(release / "data")
    assert set(frame.sex.dropna()) <= {"F", "M"}
    assert frame.sex.isna().any()
    assert frame.age.between(0, 99).all()
    found = duckdb.read_parquet(files)
    kinds = dict(zip(found.columns, map(str, found.types), strict=True))
    assert (kinds["age"], kinds["smoker"], kinds["day"], kinds["cost"]) == ("BIGINT", "BOOLEAN", "DATE", "DOUBLE")
    assert kinds["at"].startswith("TIMESTAMP")
    polars = pl.read_parquet(files)
    assert polars.schema["day"] == pl.Date
    assert polars.schema["age"] == pl.Int64
    assert polars.schema["sex"] in (pl.Categorical, pl.String) or isinstance(
        polars.schema["sex"], pl.Enum | pl.Categorical
    )
    assert polars["day"].null_count() > 0
    assert polars["day"].drop_nulls().is_between(dt.date(2025, 1, 1), dt.date(2025, 12, 31)).all()
    assert len(polars) == len(frame) == table.num_rows


def test_the_footer_and_the_manifest_carry_the_statement(release: Path) -> None:
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    with open_ledger() as ledger:
        hashes = {event.hash for event in ledger.history(None)}
    for file in ("data/part-00000.parquet", "measurements.parquet"):
        statement = json.loads(pq.read_metadata(release / file).metadata[b"dpflow"])
        assert statement == manifest["privacy"]
    privacy = manifest["privacy"]
    assert privacy["unit"] == "person"
    assert (privacy["max_rows_per_unit"], privacy["neighbours"], privacy["delta"]) == (2, "add-remove", 1e-9)
    assert 0 < privacy["epsilon"] <= 1
    assert privacy["ledger_head"] in hashes
    assert "source" not in manifest["spec"]
    assert manifest["strategy"] == manifest["spec"]["strategy"]["name"] == "mwem"
    latest = json.loads((release.parent / "latest.json").read_text(encoding="utf-8"))
    assert latest["release"] == release.name


def test_the_measurements_are_readable_by_people(release: Path) -> None:
    measured = pd.read_parquet(release / "measurements.parquet")
    one_way = measured[measured.attributes.map(list).map(lambda names: names == ["sex"])]
    assert [list(values) for values in one_way.sex_values] == [["F"], ["M"], []]
    assert one_way.sex_null.tolist() == [False, False, True]
    assert one_way.age_low.isna().all()
    assert (one_way.noise_standard_deviation > 0).all()


def test_the_statement_says_whom_it_protects() -> None:
    words = {
        "accounting": "",
        "rho": None,
        "mu": None,
        "account": "",
        "run": "",
        "ledger": "",
        "ledger_head": "",
        "spec_sha256": "",
        "versions": {},
        "sampler_delta": 1.2345649e-27,
        "draws": 1000,
        "bookkeeping": Bookkeeping("rho", reserved=1.0, spent=0.5),
        "made_from": (
            StatedPart("", None, AMOUNT_OF_ONE, fixed=1, blocks=(WHOLE,), delta=1e-9, draws=1000, max_rows_per_unit=2),
        ),
        "in_one_block": None,
        "blocks": None,
        "weight": None,
        "max_row_weight": 1,
        "chosen_limit": None,
        "reservation": 1,
    }
    person = Statement(epsilon=1, delta=1e-9, unit="patient", max_rows_per_unit=2, neighbours="add-remove", **words)
    row = Statement(epsilon=0.5, delta=0, unit="row", max_rows_per_unit=1, neighbours="replace-one", **words)
    assert "(1, 1e-09)-differentially private with respect to adding or removing one patient" in person.sentence
    assert "0.5-differentially private with respect to replacing one row" in row.sentence
    assert row.to_json()["guarantee"].endswith("which adds at most 1.23457e-27 to delta.")
    weighed = replace(person, weight="visits", max_row_weight=1000)
    assert "at most 2 count, each as often as visits says, at most 1,000 times." in weighed.sentence
    assert "one row, which counts as often as w says" in replace(row, weight="w", max_row_weight=3).sentence


@pytest.mark.parametrize(
    ("currency", "delta", "accounting", "amounts"),
    [
        (Currency.PURE, 0.0, "pure epsilon, basic composition", (None, None)),
        (Currency.ZCDP, 1e-9, "zero-concentrated differential privacy", (0.5, None)),
        (Currency.GDP, 1e-9, "Gaussian differential privacy", (None, mu_of(AMOUNT_OF_ONE // 2))),
    ],
    ids=list(Currency),
)
def test_the_statement_names_its_accounting_and_the_amount_in_it(
    workspace: Workspace, currency: Currency, delta: float, accounting: str, amounts: tuple[float | None, float | None]
) -> None:
    workspace.write_spec(("delta: 1e-9", f"delta: {delta:g}"))
    account = SimpleNamespace(name="visits", currency=currency, delta=delta)
    run = SimpleNamespace(id="r", reserved=AMOUNT_OF_ONE // 2, spent=AMOUNT_OF_ONE // 3, first=2)
    part = StatedPart("r", None, run.reserved, fixed=1, blocks=(WHOLE,), delta=delta, draws=1000, max_rows_per_unit=2)
    statement = state(load_spec(workspace.spec), account=account, run=run, ledger="1" * 64, head="", made_from=(part,))
    assert statement.accounting == accounting
    assert (statement.rho, statement.mu) == amounts
    assert statement.epsilon == epsilon_of(AMOUNT_OF_ONE // 2, currency=currency, delta=delta)
    assert statement.bookkeeping == Bookkeeping(currency.symbol, reserved=0.5, spent=AMOUNT_OF_ONE // 3 / AMOUNT_OF_ONE)
    assert statement.sampler_delta == sampler_delta(1000, epsilon=statement.epsilon) > 0


def test_a_disk_that_fills_up_leaves_nothing_half_and_the_run_goes_on_later(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.open_account()
    with monkeypatch.context() as patch:

        def full(*_arguments: object, **_more: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(publishing, "sync_path", full)
        with pytest.raises(OutputError, match="--resume r1"):
            synthesize(workspace.spec, run_id="r1")
    assert [path.name for path in (workspace.folder / "releases").rglob("*") if path.is_file()] == ["ledger.json"]
    with open_ledger() as ledger:
        spent = ledger.run("r1").spent
    outcome = synthesize(workspace.spec, run_id="r1", resume=True)
    with open_ledger() as ledger:
        assert ledger.run("r1").spent == spent
    assert Path(outcome.release).is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_really_full_disk_is_refused_before_anything_is_spent(workspace: Workspace) -> None:
    workspace.open_account()
    with small_disk(workspace.folder / "releases", "size=64k"), pytest.raises(OutputError, match="full"):
        synthesize(workspace.spec)
    with open_ledger() as ledger:
        assert ledger.runs("visits") == ()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this machine has no /proc")
def test_a_place_that_keeps_no_files_is_not_called_a_full_disk() -> None:
    with pytest.raises(OutputError, match=r"cannot be created: /proc keeps no files|is read-only"):
        check_writable(Path("/proc/nowhere/releases"))


def test_checking_an_output_folder_creates_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())
