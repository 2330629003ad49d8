"""The made-up clinic visits are reproducible, messy and worth preserving, and their release spec is small enough."""

import importlib.util
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from dpcore.universe.leaves import MOST_CELLS

DATA = Path(__file__).parents[2] / "data"
SPEC = yaml.safe_load((DATA / "clinic-visits.yaml").read_text(encoding="utf-8"))
COLUMNS = ["patient_id", "visit_date", "clinic", "department", "sex", "age"]
COLUMNS += ["insurance", "visit_type", "diagnosis", "duration_minutes", "cost", "readmitted"]

# Nats of mutual information that each pair must share: about half of what it shares in the default table.
DEPENDENCIES = [
    ("department", "diagnosis", 0.9),
    ("department", "age_band", 0.2),
    ("department", "visit_type", 0.1),
    ("department", "cost_band", 0.3),
    ("department", "duration_band", 0.25),
    ("department", "clinic", 0.13),
    ("department", "season", 0.009),
    ("department", "sex", 0.015),
    ("age_band", "diagnosis", 0.3),
    ("age_band", "insurance", 0.3),
    ("age_band", "readmitted", 0.02),
    ("diagnosis", "sex", 0.03),
    ("diagnosis", "readmitted", 0.035),
    ("visit_type", "weekend", 0.03),
    ("visit_type", "duration_band", 0.1),
    ("insurance", "cost_band", 0.04),
    ("insurance", "cost_is_null", 0.008),
    ("duration_band", "cost_band", 0.2),
]


def _script():
    spec = importlib.util.spec_from_file_location("clinic_visits", DATA / "clinic_visits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = _script()


@pytest.fixture(scope="module")
def table():
    return script.visits(20_000, seed=1)


@pytest.fixture(scope="module")
def banded(table):
    return table.assign(
        age_band=pd.cut(table["age"].astype("float64"), [-1, 19, 39, 59, 79, 99]),
        cost_band=pd.cut(table["cost"], [0, 100, 250, 500, 1000, 10_000]),
        duration_band=pd.cut(table["duration_minutes"].astype("float64"), [0, 20, 40, 80, 600]),
        season=table["visit_date"].dt.quarter,
        weekend=table["visit_date"].dt.day_of_week >= 5,
        cost_is_null=table["cost"].isna(),
    )


def _written(path, *, seed, rows=2_000):
    script.main(["--out", str(path), "--rows", str(rows), "--seed", str(seed)])
    return path.read_bytes()


def _shared_information(left, right):
    counts = pd.crosstab(left, right).to_numpy()
    joint = counts / counts.sum()
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    seen = joint > 0
    return float((joint[seen] * np.log(joint[seen] / apart[seen])).sum())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(tmp_path, ending):
    first = _written(tmp_path / f"first.{ending}", seed=7)
    assert _written(tmp_path / f"again.{ending}", seed=7) == first
    assert _written(tmp_path / f"other.{ending}", seed=8) != first


def test_the_default_is_twenty_thousand_rows_beside_the_script(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(script, "__file__", str(tmp_path / "clinic_visits.py"))
    script.main([])
    assert pd.read_csv(tmp_path / "clinic-visits.csv").shape == (20_000, 12)
    assert capsys.readouterr().out == f"wrote {tmp_path / 'clinic-visits.csv'}: 20,000 rows, 12 columns, seed 1\n"


def test_the_columns_are_the_declared_ones(table):
    assert list(table.columns) == COLUMNS


def test_csv_and_parquet_hold_the_same_table(tmp_path):
    _written(tmp_path / "visits.csv", seed=3)
    _written(tmp_path / "visits.parquet", seed=3)
    parquet = pq.read_table(tmp_path / "visits.parquet")
    assert parquet.schema.field("visit_date").type == pa.date32()
    read = parquet.to_pandas()
    read["visit_date"] = read["visit_date"].astype(str)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "visits.csv"), read, check_dtype=False)


def test_costs_are_written_with_two_decimals_and_dates_as_iso(tmp_path):
    _written(tmp_path / "visits.csv", seed=3)
    text = pd.read_csv(tmp_path / "visits.csv", dtype=str)
    assert text["cost"].dropna().str.fullmatch(r"-?\d+\.\d\d").all()
    assert text["visit_date"].str.fullmatch(r"\d{4}-\d\d-\d\d").all()
    assert text["patient_id"].str.fullmatch(r"P\d{6}").all()
    assert text["age"].dropna().str.fullmatch(r"\d+").all()


def test_nothing_is_left_but_the_file_and_a_failed_write_keeps_the_old_one(tmp_path, monkeypatch):
    old = _written(tmp_path / "visits.csv", seed=3)

    def half_a_file(frame, path, **options):
        path.write_text("patient_id\nP0")
        raise OSError("the disk is full")

    monkeypatch.setattr(pd.DataFrame, "to_csv", half_a_file)
    with pytest.raises(OSError, match="the disk is full"):
        _written(tmp_path / "visits.csv", seed=4)
    assert [path.name for path in tmp_path.iterdir()] == ["visits.csv"]
    assert (tmp_path / "visits.csv").read_bytes() == old


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--out", "visits.xlsx"], "must end in .csv or .parquet"),
        (["--rows", "0"], "--rows must be 1 or more"),
        (["--seed", "-1"], "--seed 0 or more"),
        (["--out", "no-such-folder/visits.csv"], "create it first"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_to_do(arguments, advice, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        script.main(arguments)
    assert ended.value.code == 2
    assert advice in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows", [1, 2, 11])
def test_a_tiny_table_can_be_made_too(rows):
    assert script.visits(rows, seed=5).shape == (rows, 12)


def test_most_patients_come_once_or_twice_and_some_up_to_twelve_times(table):
    visits = table["patient_id"].value_counts()
    assert (visits <= 2).mean() > 0.6
    assert (visits > 2).mean() > 0.15
    assert visits.max() == 12


def test_a_patient_keeps_sex_and_grows_older_by_the_calendar(table):
    inside = table[(table["visit_date"] >= "2025-01-01") & (table["age"] <= 99)]
    by_patient = inside.groupby("patient_id")
    assert (by_patient["sex"].nunique() <= 1).all()
    assert (by_patient["age"].max() - by_patient["age"].min() <= 2).all()


def test_nulls_are_in_several_columns_and_never_in_the_unit(table):
    share = table.isna().mean()
    for column in ("sex", "age", "insurance", "diagnosis", "duration_minutes", "cost"):
        assert 0 < share[column] < 0.08, column
    assert share["patient_id"] == 0


def test_a_few_values_lie_outside_the_declared_universe(table):
    universe = SPEC["universe"]
    outside = {
        "age": table["age"] > universe["age"]["max"],
        "clinic": ~table["clinic"].isin(universe["clinic"]["values"]),
        "visit_date": table["visit_date"] < pd.Timestamp(universe["visit_date"]["min"]),
        "cost": table["cost"] < universe["cost"]["min"],
        "diagnosis": table["diagnosis"].eq("X99"),
    }
    for column, rows in outside.items():
        assert 0 < rows.sum() < 20, column
    assert set(table.loc[outside["clinic"], "clinic"]) == {"Test site"}
    assert table["diagnosis"].nunique() == 41


@pytest.mark.parametrize(("left", "right", "bound"), DEPENDENCIES)
def test_columns_that_belong_together_do_and_a_shuffled_one_does_not(banded, left, right, bound):
    assert _shared_information(banded[left], banded[right]) > bound
    shuffled = banded[right].sample(frac=1, random_state=11).reset_index(drop=True)
    assert _shared_information(banded[left], shuffled) < bound / 3


def test_a_weekend_has_fewer_visits_and_winter_more_respiratory_ones(banded):
    assert banded["weekend"].mean() < 0.15  # two days of seven would be 0.29
    respiratory = banded.loc[banded["department"] == "respiratory", "season"].value_counts()
    assert respiratory[1] > 2 * respiratory[3]


def _quarters(attribute):
    first, last = attribute["min"], attribute["max"]
    return 4 * (last.year - first.year) + (last.month - 1) // 3 - (first.month - 1) // 3 + 1


CELLS = {
    "categorical": lambda attribute: len(attribute["values"]),
    "boolean": lambda attribute: 2,
    "integer": lambda attribute: math.ceil((attribute["max"] - attribute["min"] + 1) / attribute["width"]),
    "number": lambda attribute: MOST_CELLS,  # at full resolution
    "date": _quarters,
}


def test_the_spec_says_how_many_cells_its_universe_has():
    cells = {
        name: CELLS[attribute["type"]](attribute)
        + attribute.get("missing", False)
        + (attribute.get("outside") == "other")
        for name, attribute in SPEC["universe"].items()
    }
    assert cells["visit_date"] == 8
    assert f"= {math.prod(cells.values()):,} cells" in (DATA / "clinic-visits.yaml").read_text(encoding="utf-8")


def test_the_spec_shows_every_kind_and_speaks_of_columns_that_exist(table):
    assert {attribute["type"] for attribute in SPEC["universe"].values()} == set(CELLS)
    assert {attribute.get("outside") for attribute in SPEC["universe"].values()} == {None, "clip", "other", "drop"}
    assert set(SPEC["universe"]) <= set(table.columns)
    assert SPEC["privacy"]["unit"] in table.columns
    assert SPEC["source"]["path"] == "clinic-visits.csv"
    assert isinstance(SPEC["privacy"]["delta"], float)


def test_nearly_every_row_has_a_cell_of_the_declared_universe(table):
    for name, attribute in SPEC["universe"].items():
        if attribute["type"] == "categorical":
            assert table[name].dropna().isin(attribute["values"]).mean() > 0.999, name
            assert set(attribute["values"]) <= set(table[name]), name
    cost = SPEC["universe"]["cost"]
    assert table["cost"].dropna().between(cost["min"], cost["max"]).mean() > 0.999
