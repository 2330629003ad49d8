"""What leaves: files that every reader opens, with the declared types and the privacy statement, all or nothing."""

import datetime as dt
import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore import synthesize
from dpcore.errors import OutputError
from dpcore.ledger import WHOLE, Ledger, Run, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, epsilon_of, mu_of, sampler_delta
from dpcore.release import publishing, state
from dpcore.release.statement import Bookkeeping
from dpcore.release.targets import check_writable
from dpcore.spec import load_spec
from tests.conftest import Workspace, small_disk, visits
from tests.dpcore.release.conftest import Site, working_in
from tests.dpcore.release.statements import statement

pytestmark = pytest.mark.usefixtures("rough_models")

TYPES = """\
  day: {type: date, min: 2025-01-01, max: 2025-12-31, every: month, missing: true}
  at: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-01-02T00:00:00, every: hour}
  cost: {type: number, edges: [0, 10, 100]}
workload"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, rough_models: None) -> Path:
    folder, rng = tmp_path_factory.mktemp("types"), np.random.default_rng(3)
    table = visits(1000, seed=1)
    table["day"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, len(table)), unit="D")
    table.loc[:200, "day"] = pd.NaT
    table["at"] = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 86400, len(table)), unit="s")
    table["cost"] = rng.uniform(0, 100, len(table))
    table.to_parquet(folder / "visits.parquet")
    with working_in(folder):
        space = Workspace(folder, folder / "spec.yaml")
        space.write_spec(("visits.csv", "visits.parquet"), ("workload", TYPES), ("epsilon: 1.0", "epsilon: 20.0"))
        space.open_account(epsilon=50)
        return Path(synthesize(space.spec).release).absolute()


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
    assert (polars.schema["day"], polars.schema["age"]) == (pl.Date, pl.Int64)
    assert polars["day"].null_count() > 0
    assert polars["day"].drop_nulls().is_between(dt.date(2025, 1, 1), dt.date(2025, 12, 31)).all()
    assert len(polars) == len(frame) == table.num_rows


def test_the_footer_and_the_manifest_carry_the_statement(release: Path) -> None:
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    for file in ("data/part-00000.parquet", "measurements.parquet"):
        statement = json.loads(pq.read_metadata(release / file).metadata[b"dpflow"])
        assert statement == manifest["privacy"]
    privacy = manifest["privacy"]
    assert privacy["unit"] == "person"
    assert (privacy["max_rows_per_unit"], privacy["neighbours"], privacy["delta"]) == (2, "add-remove", 1e-9)
    assert 0 < privacy["epsilon"] <= 20
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
    person = statement(unit="patient", sampler_delta=1.2345649e-27)
    row = replace(person, epsilon=0.5, delta=0, unit="row", max_rows_per_unit=1, neighbours="replace-one")
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
    run = SimpleNamespace(
        id="r", account="visits", claim="", reserved=AMOUNT_OF_ONE // 2, spent=AMOUNT_OF_ONE // 3, first=2
    )
    ledger = SimpleNamespace(
        account=lambda _: account,
        runs=lambda _: [run],
        blocks_of=lambda _: (WHOLE,),
        identity=lambda: "1" * 64,
        head=lambda: "",
    )
    found = state(load_spec(workspace.spec), ledger=cast("Ledger", ledger), run=cast("Run", run), draws={"r": 1000})
    assert found.accounting == accounting
    assert (found.rho, found.mu) == amounts
    assert found.epsilon == epsilon_of(AMOUNT_OF_ONE // 2, currency=currency, delta=delta)
    assert found.bookkeeping == Bookkeeping(currency.symbol, reserved=0.5, spent=AMOUNT_OF_ONE // 3 / AMOUNT_OF_ONE)
    assert found.sampler_delta == sampler_delta(1000, epsilon=found.epsilon) > 0


def test_a_disk_that_fills_up_leaves_nothing_half_and_the_run_goes_on_later(
    paid: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def full(*_arguments: object, **_more: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(publishing, "sync_path", full)
        with pytest.raises(OutputError, match="--resume r1"):
            paid.make("r1")
    assert [path.name for path in paid.releases.rglob("*") if path.is_file()] == ["ledger.json"]
    with open_ledger() as ledger:
        spent = ledger.run("r1").spent
    assert paid.make("r1", resume=True).is_dir()
    with open_ledger() as ledger:
        assert ledger.run("r1").spent == spent


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
