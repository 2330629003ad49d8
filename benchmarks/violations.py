"""Count rows that contradict their spec: twelve specs with constraints of all kinds, both models, and every way in which rows are made.

    python -m benchmarks.violations [--rows 1000000] [--only NAME]

Each spec is released with so many rows, as `dpflow run` does it, from a made-up table in which some rows contradict the constraints. A tenth as
many rows are then drawn from the release, as `dpflow sample --where` does it. Rows are judged by expressions of pandas that know nothing of
how rows were made.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore import synthesize
from dpcore.answers.release import open_release
from dpcore.answers.sample import sample
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours

EPSILON, DELTA = 2.0, 1e-9
TABLE_ROWS = 20_000
STATES = {"Boston": "MA", "Salem": "MA", "Austin": "TX", "Dallas": "TX", "Reno": "NV"}
REGIONS = {"MA": "east", "TX": "south", "NV": "west"}

COLUMNS = {
    "sex": "{type: categorical, values: [F, M]}",
    "pregnant": "{type: boolean, missing: true}",
    "relation": "{type: categorical, values: [wife, husband, own]}",
    "age": "{type: integer, min: 0, max: 99, width: 5}",
    "admitted": "{type: date, min: 2025-01-01, max: 2025-12-31}",
    "discharged": "{type: date, min: 2025-01-01, max: 2026-01-31, missing: true}",
    "arrived": "{type: datetime, min: 2025-01-01T00:00:00, max: 2025-01-31T23:59:00, step: minute}",
    "seen": "{type: datetime, min: 2025-01-01T00:00:00, max: 2025-02-01T23:00:00, step: hour}",
    "low": "{type: integer, min: 0, max: 60}",
    "middle": "{type: integer, min: 0, max: 80, missing: true}",
    "high": "{type: integer, min: 0, max: 99}",
    "wages": "{type: integer, min: 0, max: 89}",
    "bonus": "{type: integer, min: 0, max: 29}",
    "total": "{type: integer, min: 0, max: 118}",
    "net": "{type: number, min: 0, max: 40, step: 0.01}",
    "tax": "{type: number, min: -5, max: 15, step: 0.01}",
    "gross": "{type: number, min: 0, max: 50, step: 0.01, missing: true}",
    "city": "{type: categorical, values: [Boston, Salem, Austin, Dallas, Reno], outside: other}",
    "capital": "{type: boolean}",
    "state": "{type: categorical, values: [MA, NV, TX], missing: true}",
    "region": "{type: categorical, values: [east, south, west]}",
}

Wrong = Callable[[pd.DataFrame], int]


def _pregnant(rows: pd.DataFrame) -> int:
    return int(((rows.sex == "M") & rows.pregnant.eq(other=True)).sum())


def _young(rows: pd.DataFrame) -> int:
    return int((rows.relation.isin(["wife", "husband"]) & (rows.age < 15)).sum())


def _pairs(rows: pd.DataFrame) -> int:
    allowed = {"Fwife", "Mhusband", "Fown", "Mown"}
    return int((~(rows.sex.astype(str) + rows.relation.astype(str)).isin(allowed)).sum())


def _ascending(*columns: str) -> Wrong:
    def wrong(rows: pd.DataFrame) -> int:
        pairs = [(one, other) for place, one in enumerate(columns) for other in columns[place + 1 :]]
        return sum(int((rows[one] > rows[other]).sum()) for one, other in pairs)

    return wrong


def _adding_up(total: str, *terms: str) -> Wrong:
    def wrong(rows: pd.DataFrame) -> int:
        hundredths = (rows[[total, *terms]].dropna() * 100).round().astype("int64")
        return int((hundredths[list(terms)].sum(axis=1) != hundredths[total]).sum())

    return wrong


def _function(*columns: str) -> Wrong:
    """Count the rows that do not have the most frequent value of their group. Nulls and `other` determine nothing."""
    given = columns[:-1]

    def wrong(rows: pd.DataFrame) -> int:
        known = rows[list(columns)].dropna().astype(str)
        known = known[(known[list(given)] != "other").all(axis=1)]
        sizes = known.groupby(list(columns)).size()
        return int(sizes.sum() - sizes.groupby(level=list(range(len(given)))).max().sum()) if len(known) else 0

    return wrong


@dataclass(frozen=True, kw_only=True)
class Case:
    """One spec: its constraints, how its rows are judged, and the conditions under which more rows are drawn.

    Attributes:
        strategy: The strategy, which decides about the model: dense for mwem, factored for adaptive.
        columns: The columns, with other declarations where they differ.
        constraints: The lines of the spec.
        wrong: Count what contradicts them.
        where: Conditions that cut cells in two, or fall together with a constraint.
    """

    strategy: str
    columns: Mapping[str, str | None]
    constraints: tuple[str, ...]
    wrong: tuple[Wrong, ...]
    where: tuple[str, ...]

    def spec(self, rows: int) -> str:
        """Return the spec."""
        universe = "".join(f"  {name}: {other or COLUMNS[name]}\n" for name, other in self.columns.items())
        return (
            f"dataset: made-up\nprivacy: {{unit: row, neighbours: add-remove, epsilon: {EPSILON}, delta: {DELTA}}}\n"
            f"universe:\n{universe}constraints:\n{''.join(f'  - {each}{chr(10)}' for each in self.constraints)}"
            f"workload: {{marginals: 2}}\nstrategy: {{name: {self.strategy}}}\noutput: {{rows: {rows}}}\n"
        )


def _columns(*names: str, **other: str) -> dict[str, str | None]:
    return {**dict.fromkeys(names), **other}


MONTHS = "{type: date, min: 2025-01-01, max: 2026-01-31, every: month}"
IMPOSSIBLE = "impossible: {sex: M, pregnant: true}"
MARRIED = "{if: {relation: [wife, husband]}, then: {age: {min: 15}}, violations: repair}"
PAIRS = "possible: {columns: [sex, relation], rows: [[F, wife], [M, husband], [[F, M], own]]}"

CASES: Mapping[str, Case] = {
    "impossible": Case(
        strategy="mwem",
        columns=_columns("sex", "pregnant", "relation"),
        constraints=(IMPOSSIBLE,),
        wrong=(_pregnant,),
        where=("sex = 'M'",),
    ),
    "if-then": Case(
        strategy="mwem",
        columns=_columns("relation", "age", "sex"),
        constraints=(MARRIED,),
        wrong=(_young,),
        where=("age < 17",),
    ),
    "possible": Case(
        strategy="adaptive",
        columns=_columns("sex", "relation", "age"),
        constraints=(PAIRS,),
        wrong=(_pairs,),
        where=("relation <> 'own'",),
    ),
    "order-of-dates": Case(
        strategy="adaptive",
        columns=_columns("admitted", "discharged", "sex"),
        constraints=("order: admitted <= discharged",),
        wrong=(_ascending("admitted", "discharged"),),
        where=("admitted > '2025-03-10' and discharged < '2025-05-20'",),
    ),
    "order-of-months": Case(
        strategy="mwem",
        columns=_columns("sex", admitted=MONTHS, discharged=MONTHS),
        constraints=("{order: admitted <= discharged, violations: repair}",),
        wrong=(_ascending("admitted", "discharged"),),
        where=("discharged < '2025-03-01'",),
    ),
    "order-of-times": Case(
        strategy="adaptive",
        columns=_columns("arrived", "seen", "sex"),
        constraints=("order: arrived <= seen",),
        wrong=(_ascending("arrived", "seen"),),
        where=("seen < '2025-01-03' or arrived > '2025-01-20 12:00:00'",),
    ),
    "order-of-three": Case(
        strategy="adaptive",
        columns=_columns("low", "middle", "high"),
        constraints=("{order: low <= middle <= high, violations: repair}",),
        wrong=(_ascending("low", "middle", "high"),),
        where=("high < 33 and low > 11",),
    ),
    "sum-of-bins": Case(
        strategy="mwem",
        columns=_columns(
            wages="{type: integer, min: 0, max: 89, width: 10}",
            bonus="{type: integer, min: 0, max: 29, width: 5, missing: true}",
            total="{type: integer, min: 0, max: 118, width: 7}",
        ),
        constraints=("{sum: total = wages + bonus, violations: repair}",),
        wrong=(_adding_up("total", "wages", "bonus"),),
        where=("total > 40 and bonus < 7",),
    ),
    "sum-of-decimals": Case(
        strategy="adaptive",
        columns=_columns("net", "tax", "gross"),
        constraints=("sum: gross = net + tax",),
        wrong=(_adding_up("gross", "net", "tax"),),
        where=("gross < 12.34", "net > 20 and tax < 0.5"),
    ),
    "depends": Case(
        strategy="mwem",
        columns=_columns("city", "state", "sex"),
        constraints=("depends: city -> state",),
        wrong=(_function("city", "state"),),
        where=("state <> 'MA'",),
    ),
    "depends-through": Case(
        strategy="adaptive",
        columns=_columns("region", "city", "capital", "state"),
        constraints=("depends: city, capital -> state", "{depends: state -> region, share: 0.02}"),
        wrong=(_function("city", "capital", "state"), _function("state", "region")),
        where=("region = 'south'",),
    ),
    "all-kinds": Case(
        strategy="adaptive",
        columns=_columns(
            *("sex", "pregnant", "relation", "age", "admitted", "discharged", "wages", "total", "city", "state"),
            bonus="{type: integer, min: 0, max: 29, width: 5}",
        ),
        constraints=(
            *(IMPOSSIBLE, MARRIED, PAIRS, "order: admitted <= discharged"),
            *("{sum: total = wages + bonus, violations: repair}", "depends: city -> state"),
        ),
        wrong=(
            *(_pregnant, _young, _pairs, _ascending("admitted", "discharged")),
            *(_adding_up("total", "wages", "bonus"), _function("city", "state")),
        ),
        where=("age >= 21 and total < 57 and discharged > '2025-06-10'",),
    ),
}


def made_up(rows: int) -> pd.DataFrame:
    """Make a table of which a few percent of the rows contradict each constraint."""
    rng = np.random.default_rng(1)

    def rarely(often: float = 0.03) -> np.ndarray:
        return rng.random(rows) < often

    sex = rng.choice(["F", "M"], rows)
    admitted = rng.integers(0, 365, rows)
    arrived = rng.integers(0, 31 * 24 * 60, rows)
    low = rng.integers(0, 40, rows)
    wages, bonus = rng.integers(5, 89, rows), rng.poisson(8, rows).clip(0, 29)
    net = rng.gamma(4.0, 4.0, rows).clip(0, 40).round(2)
    tax = (net * 0.2 - rng.random(rows)).round(2)
    city = rng.choice([*STATES, "Nome"], rows, p=[0.3, 0.25, 0.2, 0.15, 0.05, 0.05])
    state = np.where(rarely(0.01), "NV", [STATES.get(each, "MA") for each in city])
    start, day, minute = np.datetime64("2025-01-01", "s"), np.timedelta64(86_400, "s"), np.timedelta64(60, "s")
    return pd.DataFrame(
        {
            "sex": sex,
            "pregnant": rarely(0.1),
            "relation": np.where(rarely(0.4), "own", np.where((sex == "F") ^ rarely(), "wife", "husband")),
            "age": rng.integers(0, 99, rows),
            "admitted": start + admitted * day,
            "discharged": start + (admitted + np.where(rarely(), -20, rng.poisson(4, rows))) * day,
            "arrived": start + arrived * minute,
            "seen": start + (arrived + np.where(rarely(), -300, rng.integers(20, 300, rows))) * minute,
            "low": low,
            "middle": low + np.where(rarely(), -5, rng.integers(0, 30, rows)),
            "high": low + rng.integers(25, 55, rows),
            "wages": wages,
            "bonus": bonus,
            "total": wages + bonus + np.where(rarely(), 20, 0),
            "net": net,
            "tax": tax,
            "gross": (net + tax + np.where(rarely(), 1.0, 0.0)).round(2),
            "city": city,
            "capital": np.isin(city, ["Boston", "Austin"]),
            "state": pd.Series(state).mask(rarely()),
            "region": [REGIONS[each] for each in state],
        }
    )


def measure(case: Case, *, rows: int, table_rows: int = TABLE_ROWS) -> dict[str, float]:
    """Make a release of a case in a temporary folder, draw more rows from it, and count what contradicts the spec."""
    table = made_up(table_rows)
    begun, found = time.process_time(), {"table": sum(wrong(table) for wrong in case.wrong), "rows": 0, "wrong": 0}

    def judge(made: pa.Table) -> None:
        frame = made.to_pandas(date_as_object=False)
        found["rows"] += len(frame)
        found["wrong"] += sum(wrong(frame) for wrong in case.wrong)

    with TemporaryDirectory() as folder, chdir(folder):
        Path("spec.yaml").write_text(case.spec(rows), encoding="utf-8")
        currency, cap = budget_of(EPSILON, delta=DELTA)
        with open_ledger(create=True) as ledger:
            ledger.open_account(
                "made-up",
                currency=currency,
                cap=cap,
                epsilon=EPSILON,
                delta=DELTA,
                unit="row",
                neighbours=Neighbours.ADD_REMOVE,
            )
        outcome = synthesize("spec.yaml", table=table)
        release = open_release(Path(outcome.release).resolve())
        judge(pq.read_table(str(release.folder / "data")))
        for where in (None, *case.where):
            drawn = max(1, rows // 10 // (1 + len(case.where)))
            judge(pa.concat_tables(sample(release, rows=drawn, where=where, seed=1)))
    return {**found, "seconds": time.process_time() - begun}


def main() -> None:
    """Measure all specs, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="the rows of each release")
    parser.add_argument("--only", choices=[*CASES], help="one spec instead of all")
    wanted = parser.parse_args()
    wrong = 0
    for name in [wanted.only] if wanted.only else CASES:
        found = measure(CASES[name], rows=wanted.rows)
        wrong += int(found["wrong"])
        print(
            f"{name}: {found['wrong']:,.0f} violations in {found['rows']:,.0f} rows ({found['table']:,.0f} in the table of {TABLE_ROWS:,} rows), "
            f"{found['seconds']:.0f} CPU s",
            flush=True,
        )
    print(f"{wrong:,} violations in all")


if __name__ == "__main__":
    main()
