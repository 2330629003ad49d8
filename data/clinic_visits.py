"""Generate a table of clinic visits: realistic input for a release, without any real person's data.

    python data/clinic_visits.py [--out PATH] [--rows N] [--seed S]

Each column is drawn given the ones before it, from the tables below: patient (sex, age, home clinic, insurance),
department, day, clinic, visit type, diagnosis, duration, cost, readmission. Then some values are removed and a few are
corrupted, as in any real export. The same seed gives the same bytes under the same versions of numpy, pandas and
pyarrow. People and places are invented.
"""

import argparse
import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


def _table(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text.strip()), sep=r"\s+")


# age, spread, female: the patients of the department; weekend: visits on a weekend day relative to a weekday; season: how
# far the peak month rises above the year's mean; emergency, planned, followup: shares of the visit types; minutes, cost: of
# a typical visit.
DEPARTMENTS = _table("""
name          share  age  spread  female  weekend  season  peak  emergency  planned  followup  minutes  cost
emergency        21   42      35    0.49     1.25    0.10     1       0.93     0.01      0.06       95   420
general          18   50      24    0.53     0.08    0.20     2       0.08     0.62      0.30       20    75
paediatrics      13    6       5    0.48     0.30    0.40     1       0.28     0.50      0.22       25    90
cardiology       11   69      12    0.42     0.08    0.15     1       0.16     0.42      0.42       40   340
respiratory       9   57      24    0.48     0.20    0.65     1       0.30     0.33      0.37       35   210
orthopaedics     10   49      22    0.50     0.12    0.35     7       0.22     0.40      0.38       45   390
obstetrics        6   31       6    1.00     0.50    0.05     9       0.20     0.58      0.22       50   480
dermatology       5   38      20    0.57     0.02    0.45     6       0.02     0.63      0.35       15    85
neurology         5   60      17    0.55     0.05    0.05    11       0.12     0.46      0.42       50   310
oncology          6   65      12    0.55     0.02    0.03     3       0.03     0.35      0.62      110  1650
""")

# weight: within the department; age, spread, female: the patients who have it; back: the rate of unplanned returns within
# 30 days.
DIAGNOSES = _table("""
code  department    weight  age  spread  female  back
S01   emergency         30   25      25    0.40  0.02
S52   emergency         18   55      35    0.55  0.05
R07   emergency         24   60      16    0.45  0.13
R10   emergency         28   38      22    0.60  0.09
I10   general           34   64      13    0.50  0.05
E11   general           22   61      13    0.44  0.12
F41   general           18   36      13    0.68  0.06
Z00   general           26   42      22    0.54  0.01
J06   paediatrics       38    5       4    0.49  0.03
H66   paediatrics       20    3       3    0.47  0.03
A09   paediatrics       18    4       4    0.49  0.08
Z01   paediatrics       24    8       5    0.50  0.01
I20   cardiology        20   66      10    0.38  0.20
I25   cardiology        30   70      10    0.32  0.17
I48   cardiology        26   73      10    0.47  0.19
I50   cardiology        24   78       9    0.50  0.38
J18   respiratory       28   62      26    0.47  0.22
J20   respiratory       26   44      25    0.53  0.05
J44   respiratory       26   69      10    0.44  0.33
J45   respiratory       20   28      18    0.57  0.10
M16   orthopaedics      22   69      10    0.60  0.07
M54   orthopaedics      34   46      13    0.52  0.04
S82   orthopaedics      24   36      22    0.46  0.07
M23   orthopaedics      20   32      12    0.36  0.03
Z34   obstetrics        48   31       5    1.00  0.03
O24   obstetrics        14   34       4    1.00  0.09
O80   obstetrics        24   30       5    1.00  0.05
N92   obstetrics        14   40       8    1.00  0.05
L20   dermatology       30   16      14    0.52  0.02
L40   dermatology       24   46      15    0.48  0.02
L70   dermatology       22   19       5    0.60  0.01
C44   dermatology       24   72      10    0.42  0.03
G20   neurology         22   73       8    0.40  0.16
G40   neurology         22   36      20    0.48  0.18
G43   neurology         26   38      12    0.78  0.05
I63   neurology         30   73      10    0.48  0.24
C18   oncology          26   70      10    0.45  0.24
C34   oncology          24   69       8    0.40  0.35
C50   oncology          30   60      11    0.99  0.15
C61   oncology          20   71       7    0.00  0.12
""")

# opens: days since the start of 2025; offers: its departments.
CLINICS = _table("""
name         size  opens  offers
Alderwick      26      0  all
Brackenholt    20      0  all
Corvale        15      0  emergency,general,paediatrics,orthopaedics,obstetrics,respiratory
Dunmerrow      13      0  emergency,general,cardiology,respiratory,neurology
Estermouth     16    181  general,dermatology,oncology,cardiology
Fennimoor      12      0  general,paediatrics,obstetrics
Gallowhythe    10      0  general,orthopaedics,dermatology
Hollinmere      9      0  general,respiratory
""")

# bill: the amount billed relative to the public tariff; unbilled: how often no cost is on file.
INSURANCE = _table("""
name      child  adult  senior  bill  unbilled
child        86      0       0  0.85      0.02
public       10     58      12  1.00      0.03
private       4     29      11  1.70      0.02
senior        0      0      75  0.90      0.03
self-pay      0     13       2  1.25      0.22
""")

VISIT_TYPES = np.array(["emergency", "planned", "follow-up"])
VISITS_PER_PATIENT = np.array([52, 24, 9, 5, 3, 2, 1.5, 1, 1, 0.5, 0.5, 0.5])  # the weights of 1, 2, .. 12 visits
FIRST_DAY = np.datetime64("2025-01-01")
DAYS = 730
NOT_TEXT = {
    "visit_date": pa.date32(),
    "age": pa.int64(),
    "duration_minutes": pa.int64(),
    "cost": pa.float64(),
    "readmitted": pa.bool_(),
}


def _draw(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Draw one column index for each row of weights, which need not add up to one."""
    cumulative = weights.cumsum(axis=1)
    point = rng.random(len(weights)) * cumulative[:, -1]
    return (cumulative[:, :-1] <= point[:, None]).sum(axis=1)


def _likeness(groups: pd.DataFrame, people: pd.DataFrame) -> np.ndarray:
    """Return how well each person's age and sex fit each group: a normal density of age times the share of the sex."""
    distance = (people["age"].to_numpy()[:, None] - groups["age"].to_numpy()) / groups["spread"].to_numpy()
    female = groups["female"].to_numpy()
    sex = np.where(people["female"].to_numpy()[:, None], female, 1 - female)
    return sex * np.exp(-(distance**2) / 2) / groups["spread"].to_numpy() + 1e-9 * sex


def _patients(rng: np.random.Generator, count: int) -> pd.DataFrame:
    """Draw the people, children, adults and seniors, with the values that stay the same from visit to visit."""
    generation = _draw(rng, np.tile([24, 43, 33], (count, 1)))
    age = rng.normal(np.array([7, 42, 73])[generation], np.array([6, 14, 10])[generation]).clip(0, 98)
    people = pd.DataFrame({"age": age, "female": rng.random(count) < 0.52})
    stage = np.digitize(age, [18, 65])
    people["insurance"] = _draw(rng, INSURANCE[["child", "adult", "senior"]].to_numpy().T[stage])
    people["home"] = _draw(rng, np.tile(CLINICS["size"], (count, 1)))
    people["department"] = _draw(rng, DEPARTMENTS["share"].to_numpy() * _likeness(DEPARTMENTS, people))
    people["number"] = rng.choice(10 * count, size=count, replace=False) + 1
    people["sex"] = np.where(people["female"], "F", "M").astype(object)
    people.loc[rng.random(count) < 0.015, "sex"] = None
    return people


def _days(rng: np.random.Generator, department: np.ndarray) -> np.ndarray:
    """Draw the day of each visit, by the season and the weekends of its department."""
    dates = pd.DatetimeIndex(FIRST_DAY + np.arange(DAYS))
    weekday, yearday = dates.day_of_week.to_numpy(), dates.day_of_year.to_numpy()
    busy = np.array([1.18, 1.05, 1.0, 1.0, 0.92, 1.0, 0.8])[weekday]
    day = np.zeros(len(department), dtype=np.int64)
    for index, row in DEPARTMENTS.iterrows():
        season = 1 + row["season"] * np.cos(2 * np.pi * (yearday - 30.4 * row["peak"] + 15) / 365)
        weights = busy * np.where(weekday >= 5, row["weekend"], 1) * season
        here = np.flatnonzero(department == index)
        day[here] = rng.choice(DAYS, size=len(here), p=weights / weights.sum())
    return day


def _calendar(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    """Draw which patient visits which department on which day, ordered by day."""
    often = 1 + _draw(rng, np.tile(VISITS_PER_PATIENT, (rows, 1)))
    people = _patients(rng, int(np.searchsorted(often.cumsum(), rows)) + 1)
    visits = people.loc[np.repeat(people.index, often[: len(people)])[:rows]].reset_index(drop=True)
    elsewhere = _draw(rng, DEPARTMENTS["share"].to_numpy() * _likeness(DEPARTMENTS, visits))
    visits["department"] = np.where(rng.random(rows) < 0.7, visits["department"], elsewhere)
    visits["day"] = _days(rng, visits["department"].to_numpy())
    visits["age"] += visits["day"] / 365.25
    visits = visits.sort_values(["day", "number"], kind="stable", ignore_index=True)
    visits["seen_before"] = visits.duplicated(["number", "department"])
    return visits


def _circumstances(rng: np.random.Generator, visits: pd.DataFrame) -> None:
    """Add clinic, visit type and diagnosis."""
    department, day = visits["department"].to_numpy(), visits["day"].to_numpy()
    offers = np.array([[o == "all" or d in o.split(",") for o in CLINICS["offers"]] for d in DEPARTMENTS["name"]])
    at_home = visits["home"].to_numpy()[:, None] == CLINICS.index.to_numpy()
    is_open = day[:, None] >= CLINICS["opens"].to_numpy()
    visits["clinic"] = _draw(rng, CLINICS["size"].to_numpy() * offers[department] * is_open * np.where(at_home, 40, 1))

    weekend = pd.DatetimeIndex(FIRST_DAY + day).day_of_week.to_numpy()[:, None] >= 5
    again = visits[["seen_before"]].to_numpy()
    purpose = DEPARTMENTS[["emergency", "planned", "followup"]].to_numpy()[department]
    purpose = purpose * np.where(weekend, [6, 1, 0.5], 1) * np.where(again, [1, 0.6, 4], [1, 1, 0.3])
    visits["type"] = _draw(rng, purpose)

    # A few diagnoses are made outside the department that usually makes them.
    own = DIAGNOSES["department"].to_numpy() == DEPARTMENTS["name"].to_numpy()[department][:, None]
    suits = DIAGNOSES["weight"].to_numpy() * np.where(own, 1, 0.01) * _likeness(DIAGNOSES, visits)
    visits["diagnosis"] = _draw(rng, suits)


def _outcomes(rng: np.random.Generator, visits: pd.DataFrame) -> None:
    """Add duration, cost and readmission."""
    rows = len(visits)
    usual = DEPARTMENTS.loc[visits["department"]]
    pace = np.array([1.3, 1.0, 0.6])[visits["type"]] * rng.lognormal(0, 0.35, rows)
    visits["duration"] = (usual["minutes"].to_numpy() * pace).round().clip(5, 600)
    bill = usual["cost"].to_numpy() * INSURANCE["bill"].to_numpy()[visits["insurance"]] * pace**0.7
    visits["cost"] = (bill * rng.lognormal(0, 0.4, rows)).round(2)
    back = DIAGNOSES["back"].to_numpy()[visits["diagnosis"]]
    odds = back / (1 - back) * np.exp(0.02 * (visits["age"] - 50)) * np.array([1.6, 0.7, 1.0])[visits["type"]]
    visits["readmitted"] = rng.random(rows) < odds / (1 + odds)


def _as_recorded(visits: pd.DataFrame) -> pd.DataFrame:
    """Convert the drawn codes to the names and types of the table."""
    recorded = {
        "patient_id": visits["number"].map("P{:06d}".format),
        "visit_date": FIRST_DAY + visits["day"].to_numpy(),
        "clinic": CLINICS["name"].to_numpy()[visits["clinic"]],
        "department": DEPARTMENTS["name"].to_numpy()[visits["department"]],
        "sex": visits["sex"],
        "age": visits["age"].astype("int64").astype("Int64"),
        "insurance": INSURANCE["name"].to_numpy()[visits["insurance"]],
        "visit_type": VISIT_TYPES[visits["type"]],
        "diagnosis": DIAGNOSES["code"].to_numpy()[visits["diagnosis"]],
        "duration_minutes": visits["duration"].astype("Int64"),
        "cost": visits["cost"],
        "readmitted": visits["readmitted"],
    }
    return pd.DataFrame(recorded)


def _spoil(rng: np.random.Generator, table: pd.DataFrame) -> None:
    """Remove some values, and insert a few that no universe would declare."""
    rows = len(table)
    unbilled = INSURANCE.set_index("name")["unbilled"].loc[table["insurance"]].to_numpy()
    lost = {"cost": unbilled, "insurance": 0.03, "diagnosis": 0.015, "duration_minutes": 0.02, "age": 0.004}
    for column, share in lost.items():
        table.loc[rng.random(rows) < share, column] = None
    few = min(rows, max(1, rows // 4000))
    strange = {"age": 127, "clinic": "Test site", "visit_date": pd.Timestamp("1970-01-01"), "diagnosis": "X99"}
    for column, value in strange.items():
        table.loc[rng.choice(rows, size=few, replace=False), column] = value
    refunds = rng.choice(rows, size=few, replace=False)
    table.loc[refunds, "cost"] = -(table.loc[refunds, "cost"].fillna(50).round(2))


def visits(rows: int, *, seed: int) -> pd.DataFrame:
    """Generate the table. The same seed gives the same table."""
    rng = np.random.default_rng(seed)
    drawn = _calendar(rng, rows)
    _circumstances(rng, drawn)
    _outcomes(rng, drawn)
    table = _as_recorded(drawn)
    _spoil(rng, table)
    return table


def write(table: pd.DataFrame, path: Path) -> None:
    """Write CSV or Parquet, by the path's suffix, atomically, so that a reader never sees half a file."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        if path.suffix == ".parquet":
            schema = pa.schema([(name, NOT_TEXT.get(name, pa.string())) for name in table.columns])
            pq.write_table(pa.Table.from_pandas(table, schema=schema, preserve_index=False), partial)
        else:
            table.to_csv(partial, index=False, float_format="%.2f", date_format="%Y-%m-%d", lineterminator="\n")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate and write the table as the command line says."""
    parser = argparse.ArgumentParser(description="Generate a table of clinic visits.")
    beside = Path(__file__).with_name("clinic-visits.csv")
    parser.add_argument("--out", type=Path, default=beside, help=".csv or .parquet (default: beside this script)")
    parser.add_argument("--rows", type=int, default=20_000, help="the number of visits (default: 20000)")
    parser.add_argument("--seed", type=int, default=1, help="another seed gives another table (default: 1)")
    asked = parser.parse_args(arguments)
    if asked.out.suffix not in {".csv", ".parquet"}:
        parser.error("--out must end in .csv or .parquet")
    if asked.rows < 1 or asked.seed < 0:
        parser.error("--rows must be 1 or more, --seed 0 or more")
    if not asked.out.parent.is_dir():
        parser.error(f"there is no folder {asked.out.parent}: create it first, or give another --out")
    table = visits(asked.rows, seed=asked.seed)
    write(table, asked.out)
    print(f"wrote {asked.out}: {len(table):,} rows, {table.shape[1]} columns, seed {asked.seed}")


if __name__ == "__main__":
    main()
