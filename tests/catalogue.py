"""The catalogue of settings: every way to use the product on a private table, each with a small spec, a nasty unit, and what is done.

A setting is plain data. Whoever plays it prepares its folder (`Setting.prepared`) and calls its driver with a `Play`. The tables of a setting
differ by the rows of one unit, which come last, so that all others' rows keep their places.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from httpx import ASGITransport, AsyncClient

from dpcore import Outcome, Session, ask, cli, open_online, synthesize
from dpcore.ledger import open_ledger
from dpcore.mechanisms import (
    BoundedMean,
    BoundedSum,
    CountsAbove,
    NoisyChoice,
    NoisyCount,
    NoisyHistogram,
    NoisyQuantiles,
    TopCategories,
)
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.service.app import make_app
from dpcore.service.desk import Desk
from dpcore.service.door import Door
from dpcore.service.gate import Gate
from dpcore.session.analysts import add_analyst
from dpcore.session.dashboard import open_dashboard, opened, publish_answers
from dpcore.session.questions import Questions
from dpcore.universe import Categorical, Integer, Universe
from tests.conftest import visits

Row = dict[str, Any]
Rows = list[Row]
Change = tuple[str, str]

COLUMNS = """\
  sex: {type: categorical, values: [F, M], missing: true}
  age: {type: integer, min: 0, max: 99, width: 25}
  smoker: {type: boolean}
  city: {type: categorical, values: [north, south, west], outside: other}
"""
SPEC = f"""\
dataset: visits
source: {{path: visits.csv}}
privacy: {{unit: person, max_rows_per_unit: 2, neighbours: add-remove, epsilon: 8.0, delta: 1e-9}}
universe:
{COLUMNS}workload: {{marginals: 2}}
strategy: {{name: mwem, rounds: 1}}
"""

USUAL: Row = {
    "person": "the last one",
    "sex": "F",
    "age": 40,
    "smoker": True,
    "city": "west",
    "day": "2024-02-01",
    "arrived": "2024-02-03",
    "times": 9,
    "first": 3,
    "last": 9,
    "wages": 10,
    "bonus": 5,
    "pay": 15,
    "income": 12.5,
    "moment": "2024-02-01T10:00:00",
}
ANOTHER = {
    **USUAL,
    "sex": "M",
    "age": 80,
    "smoker": False,
    "city": "north",
    "first": 12,
    "last": 14,
    "wages": 1,
    "pay": 6,
}
ODD = {
    **USUAL,
    "sex": "?",
    "age": 10**30,
    "smoker": "perhaps",
    "city": "\u0000=cmd()",
    "times": "often",
    "first": "late",
    "pay": -(10**9),
    "income": "1e400",
    "moment": "yesterday",
    "arrived": "2024-13-45",
}
"""Values that no cell is for: too large, of the wrong type, not declared."""

EMPTY = {**dict.fromkeys(USUAL), "person": USUAL["person"]}
ALONE = [{**USUAL, "sex": None, "city": "nowhere", "age": 99}] * 5
"""More rows than a limit, all in one cell in which nobody else is."""

SPREAD = [USUAL, ODD, EMPTY, ANOTHER, {**USUAL, "age": -1}, {**USUAL, "age": 99, "smoker": False}]
MANY = [USUAL] * 100
NOBODY: Rows = []
HIDDEN = "table.parquet"
"""Where a table waits that is handed over from Python."""


@cache
def everybody() -> pd.DataFrame:
    """Return the rows of all others."""
    rows = 240
    rng, table = np.random.default_rng(8), visits(rows, seed=3)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 120, rows), unit="D")
    late = pd.to_timedelta(rng.choice([1, 2, 40], rows, p=[0.6, 0.3, 0.1]), unit="D")
    first, wages, bonus = rng.integers(0, 16, rows), rng.integers(0, 20, rows), rng.integers(0, 10, rows)
    return table.assign(
        day=days.strftime("%Y-%m-%d"),
        arrived=(days + late).strftime("%Y-%m-%d"),
        times=rng.integers(0, 6, rows),
        first=first,
        last=first + rng.integers(-1, 6, rows),  # some are out of order
        wages=wages,
        bonus=bonus,
        pay=wages + bonus + rng.choice([0, 1], rows, p=[0.9, 0.1]),  # some do not add up
        income=np.round(rng.gamma(2, 20, rows), 1),
        moment=(days + pd.to_timedelta(rng.integers(0, 24, rows), unit="h")).strftime("%Y-%m-%dT%H:%M:%S"),
    ).astype(object)


@dataclass(eq=False)
class Play:
    """A setting while it is played in the working folder: what drivers need, and the exit codes of commands."""

    setting: "Setting"
    folder: Path
    codes: list[int | str] = field(default_factory=list)
    runs: int = 0

    def call(self, *words: str) -> None:
        """Call a verb of the command line."""
        self.codes.append(cli.main(list(words), runner=self.runner))

    def runner(self, spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
        """Make a release, with a run id that is the same in every play."""
        self.runs += 1
        table = pd.read_parquet(HIDDEN) if self.setting.stored == "memory" else None
        return synthesize(spec, run_id=f"run-{self.runs}", as_of=as_of, table=table)

    def tell(self, *parts: Any) -> None:
        """Show a result as a program would."""
        print(*parts)  # noqa: T201


Driver = Callable[[Play], None]


def release(play: Play) -> None:
    play.call("run", "spec.yaml")


def check_rows(play: Play) -> None:
    play.call("check", "spec.yaml", "--epsilon", "2")


def look(play: Play) -> None:
    """Describe the columns by a charged look, in a spec of its own."""
    play.call("init", "visits", "--from", "visits.csv", "--unit", "person", "--epsilon", "40")
    play.tell(Path("visits.yaml").read_text(encoding="utf-8"))


def two_releases(play: Play) -> None:
    play.call("run", "spec.yaml")
    play.call("run", "spec.yaml")


def releases_of_blocks(play: Play) -> None:
    for day in ("2024-03-10", "2024-05-20"):
        play.call("run", "spec.yaml", "--as-of", day)


def report(play: Play) -> None:
    """Make a release, and buy figures of its error."""
    play.call("run", "spec.yaml")
    play.call("report", "releases/visits", "spec.yaml", "--epsilon", "1")


GROUPED = "select city, count(*) as n from release where smoker group by city"
RANGE = "select count(*) as n from release where age >= 50"
MEAN = "select sex, avg(age) as a from release group by sex"
ONE_MEAN = "select avg(age) as a from release where smoker"
ONLINE = (
    "select count(*) from release where city in ('north', 'south')",
    "select count(*) from release where sex = 'F' and city = 'north'",
    # almost all rows satisfy it, and half of the universe does not: so the model is wrong, and the rows are counted
    "select count(*) from release where sex is not null and city in ('north', 'south', 'west')",
    "select count(*) from release where city = 'west'",
)
BOTH = "select sex, smoker, count(*) as n from release group by sex, smoker"


def _narrower(query: str, share: float = 0.6) -> str:
    """Return a share of the half width that an answer has for nothing, so that it must be bought."""
    with Session.join("spec.yaml") as session:
        return repr(share * session.price(query, within=1e9).half_width)


def session(play: Play) -> None:
    """Open a session, which buys a first release; look at prices, buy answers, publish what is known, and close it."""
    play.call("session", "open", "spec.yaml", "--session", "s", "--first-share", "0.3")
    play.call("ask", "spec.yaml", GROUPED, "--within", _narrower(GROUPED), "--dry-run")
    play.call("ask", "spec.yaml", ONE_MEAN, "--within", _narrower(ONE_MEAN, 0.98))
    for query in (GROUPED, BOTH):
        play.call("ask", "spec.yaml", query, "--within", _narrower(query))
    play.call("session", "release", "spec.yaml")
    play.call("session", "close", "spec.yaml")


def dashboard(play: Play) -> None:
    """Make a release, let a session go on from it, and ask the questions of a dashboard."""
    play.call("run", "spec.yaml")
    play.call("session", "open", "spec.yaml", "--session", "s", "--epsilon", "4")
    questions = Questions((GROUPED, RANGE, MEAN), _narrower(GROUPED, 0.8), 0.95, accept_wider=True)
    with open_dashboard("board", "spec.yaml", questions, session=None) as name:
        board = opened(name)
        while numbers := board.price().to_buy:
            for number in numbers:
                board.buy(number)
        publish_answers(board, play.folder / "answers")


def service(play: Play) -> None:
    """Serve a session over HTTP, without a network, to an analyst who looks at prices and buys."""
    play.call("session", "open", "spec.yaml", "--session", "s", "--first-share", "0.3")
    within = float(_narrower(GROUPED))
    spec = play.folder / "spec.yaml"
    token = add_analyst(spec, "ada", share=0.5).token
    desk = Desk(spec, None)
    desk.open()
    door = Door(spec, desk.session, rate=1000.0)
    door.open()

    async def sent() -> None:
        transport = ASGITransport(Gate(make_app(desk, door), hosts=["here"]), raise_app_exceptions=False)
        async with AsyncClient(transport=transport, base_url="http://here") as client:
            for path in ("/price", "/ask", "/ask"):
                body = {"query": GROUPED, "within": within}
                reply = await client.post(path, json=body, headers={"Authorization": f"Bearer {token}"})
                play.tell(path, reply.status_code, reply.text)

    try:
        asyncio.run(sent())
    finally:
        door.close()
        desk.close()


def online(play: Play) -> None:
    """Ask easy and hard questions of an online session, and resume it."""
    promise: Any = {"alpha": 0.4, "beta": 1e-3, "queries": 20, "rows": 200}
    with open_online("spec.yaml", **promise) as first:
        for query in ONLINE[:-1]:
            play.tell(first.ask(query))
    with open_online("spec.yaml", resume=first.run_id, **promise) as again:
        for query in ONLINE[2:]:
            play.tell(again.ask(query))
        again.end()


def questions(play: Play) -> None:
    """Ask one question of every kind, about a table in memory."""
    setting, table = play.setting, pd.read_parquet(HIDDEN)
    protection = Protection(
        unit="person",
        rows_per_unit=2,
        neighbours=setting.neighbours,
        **({"weight": "times", "row_weight": 4} if "times" in setting.text else {}),
    )
    paid: Any = {"currency": setting.currency, "protection": protection}
    amount, age = AMOUNT_OF_ONE, Integer(minimum=0, maximum=99, missing=True)
    city = Categorical(("north", "south", "west"))
    smokes = [table["smoker"] == "True", table["city"] == "west", table["city"] != "west"]
    asked: list[tuple[Any, tuple[Any, ...]]] = [
        (NoisyCount.for_amount(amount, **paid), (smokes[0],)),
        (BoundedSum.for_amount(amount, attribute=age, step=1, **paid), (table["age"],)),
        (BoundedMean.for_amount(amount, attribute=age, step=1, **paid), (table["age"],)),
        (NoisyHistogram.for_amount(amount, universe=Universe({"age": age, "city": city}), order=1, **paid), (table,)),
        (NoisyQuantiles.for_amount(amount, attribute=age, step=1, shares=["0.25", "0.5"], **paid), (table["age"],)),
        (TopCategories.for_amount(amount, attribute=city, k=2, **paid), (table["city"],)),
        (NoisyChoice.for_amount(amount, candidates=["a", "b", "c"], wanted="nearest", target=9, **paid), tuple(smokes)),
        (NoisyChoice.for_amount(amount, candidates=["a", "b", "c"], wanted="most", target=None, **paid), tuple(smokes)),
        (CountsAbove.for_amount(amount, threshold=60, positives=2, **paid), tuple(smokes)),
    ]
    more = {"ids": table["person"]} | ({"weights": table["times"]} if protection.weight else {})
    for query, columns in asked:
        play.tell(ask("visits", query, *columns, **({} if isinstance(query, NoisyHistogram) else more)))


@dataclass(frozen=True)
class Setting:
    """A way to use the product.

    Attributes:
        name: What is special about it.
        changes: How its spec differs from `SPEC`.
        units: The rows of the unit by which its tables differ; the first is the table to begin with.
        drive: What is done.
        verbs: The verbs of the command line, or the calls from Python, by which it spends.
        currency: The currency of the account.
        blocks_by: How the account divides the table into blocks.
        stored: How the table is stored.
        unread: Rows of a unit that no step may count, such as those of another block.
    """

    name: str
    changes: tuple[Change, ...] = ()
    units: tuple[Rows, ...] = (NOBODY, ALONE)
    drive: Driver = release
    verbs: tuple[str, ...] = ("run",)
    currency: Currency = Currency.ZCDP
    blocks_by: str | None = None
    stored: str = "csv"
    unread: Rows = field(default_factory=list)

    @property
    def text(self) -> str:
        """The spec."""
        text = SPEC if self.currency is not Currency.PURE else SPEC.replace("delta: 1e-9", "delta: 0")
        for old, new in self.changes:
            if old not in text:
                message = f"the spec of {self.name} has no {old!r}"
                raise ValueError(message)
            text = text.replace(old, new)
        return text

    @property
    def neighbours(self) -> Neighbours:
        """The neighbouring relation of the spec."""
        return Neighbours.REPLACE_ONE if "replace-one" in self.text else Neighbours.ADD_REMOVE

    @contextmanager
    def prepared(self, rows: Rows, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Write the spec and the table, with these rows of the unit, into the working folder, and open the account."""
        for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
            patch.delenv(name, raising=False)
        text = self.text
        with STORES[self.stored](rows) as changed:
            for old, new in changed:
                text = text.replace(old, new)
            Path("spec.yaml").write_text(text, encoding="utf-8")
            Path("cities.txt").write_text("north\nsouth\nwest\n", encoding="utf-8")
            everybody().sample(60, random_state=1).to_parquet("public.parquet", index=False)
            patch.setenv("CLINIC_DB", "sqlite:///clinic.sqlite")
            delta = 0.0 if self.currency is Currency.PURE else 1e-9
            with open_ledger(create=True) as ledger:
                ledger.open_account(
                    "visits",
                    currency=self.currency,
                    cap=budget_of(2000.0, delta=delta, currency=self.currency)[1],
                    epsilon=2000.0,
                    delta=delta,
                    unit="row" if "unit: row" in text else "person",
                    neighbours=self.neighbours,
                    blocks_by=self.blocks_by,
                )
            yield


def whole(rows: Rows, others: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a table of all others and one unit, as text, so that every value survives every way to store it."""
    others = everybody() if others is None else others
    table = pd.concat([others, pd.DataFrame(rows, columns=list(others), dtype=object)], ignore_index=True)
    return table.map(lambda value: None if pd.isna(value) else str(value)).astype(object)


Store = Callable[[Rows], Any]


@contextmanager
def in_csv(rows: Rows) -> Iterator[tuple[Change, ...]]:
    whole(rows).to_csv("visits.csv", index=False)
    yield ()


@contextmanager
def in_parquet(rows: Rows) -> Iterator[tuple[Change, ...]]:
    whole(rows).to_parquet("visits.parquet", index=False, row_group_size=100)
    yield (("path: visits.csv", "path: visits.parquet, format: parquet"),)


@contextmanager
def in_arrow(rows: Rows) -> Iterator[tuple[Change, ...]]:
    table = pa.Table.from_pandas(whole(rows), preserve_index=False)
    with pa.OSFile("visits.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    yield (("path: visits.csv", "path: visits.arrow"),)


@contextmanager
def in_files(rows: Rows) -> Iterator[tuple[Change, ...]]:
    """Write two files in another dialect. The unit has rows in both, each time the last ones."""
    others = everybody()
    Path("visits").mkdir()
    for number, (part, mine) in enumerate([(others[:150], rows[::2]), (others[150:], rows[1::2])]):
        whole(mine, part).to_csv(f"visits/{number}.csv", index=False, sep=";", quotechar="'", encoding="latin-1")
    yield (("path: visits.csv", """path: "visits/*.csv", delimiter: ";", quote: "'", encoding: latin-1"""),)


@contextmanager
def in_sql(rows: Rows) -> Iterator[tuple[Change, ...]]:
    with sqlite3.connect("clinic.sqlite") as connection:
        whole(rows).to_sql("visits", connection, index=False)
    connection.close()
    yield (("path: visits.csv", "sql: select * from visits order by rowid, url_env: CLINIC_DB"),)


@contextmanager
def in_memory(rows: Rows) -> Iterator[tuple[Change, ...]]:
    whole(rows).to_parquet(HIDDEN, index=False)
    yield (("source: {path: visits.csv}\n", ""),)


@contextmanager
def on_dask(rows: Rows) -> Iterator[tuple[Change, ...]]:
    """Start a cluster in this process, and let it read two files."""
    from distributed import LocalCluster  # noqa: PLC0415  an extra

    with (
        in_files(rows) as changed,
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
    ):
        address = cluster.scheduler_address
        yield (*changed, ("strategy:", f"engine: {{name: dask, scheduler: '{address}'}}\nstrategy:"))


STORES: dict[str, Store] = {
    "csv": in_csv,
    "parquet": in_parquet,
    "arrow": in_arrow,
    "files": in_files,
    "sql": in_sql,
    "memory": in_memory,
    "dask": on_dask,
}

# Changes that several settings share.
REPLACED: Change = ("add-remove", "replace-one")
BY_ROW: Change = ("unit: person, max_rows_per_unit: 2", "unit: row")
AUTO: Change = ("max_rows_per_unit: 2", "max_rows_per_unit: auto")
WEIGHTED: Change = ("max_rows_per_unit: 2", "max_rows_per_unit: 2, weight: {column: times, max: 4}")
EXPECTED: Change = ("epsilon: 8.0", "expect_rows: [50, 5000], lose: 90 %, epsilon: 8.0")
TOGETHER: Change = ("universe:", "persons: {rows_of: person, constant: [sex, age], share: 0.2}\nuniverse:")
ADAPTIVE: Change = ("{name: mwem, rounds: 1}", "{name: adaptive, rounds: 2}")
FINE: Change = (
    COLUMNS,
    """\
  age: {type: integer, min: 0, max: 99, share: 0.2}
  income: {type: number, min: 0, max: 120, step: 0.5, missing: true}
  day: {type: date, min: 2024-01-01, max: 2024-06-30, outside: other}
  smoker: {type: boolean}
""",
)
KINDS: Change = (
    COLUMNS,
    """\
  age: {type: integer, min: 0, max: 99, width: 50, outside: other}
  income: {type: number, min: 0, max: 120, bins: 3}
  wages: {type: number, edges: [0, 5, 20], outside: other}
  day: {type: date, min: 2024-01-01, max: 2024-06-30, every: quarter, format: "%Y-%m-%d"}
  moment: {type: datetime, min: 2024-01-01, max: 2024-06-30, every: month, format: ["%d.%m.%Y", "%Y-%m-%dT%H:%M:%S"]}
""",
)
DISCOVERED: Change = (
    COLUMNS,
    """\
  city: {type: categorical, discover: {most: 8, length: 6, alphabet: abcdefghijklmnopqrstuvwxyz, share: 0.3}}
  age: {type: integer, min: 0, max: 99, discover: {bins: 6, share: 0.1}}
  income: {type: number, min: 0, max: 200, discover: {bins: 4, finest: 5, share: 0.1}, outside: drop}
  smoker: {type: boolean, missing: true, outside: other}
""",
)
BINNED = """\
  first: {type: integer, min: 0, max: 23, width: 4}
  last: {type: integer, min: 0, max: 23, width: 4}
  wages: {type: integer, min: 0, max: 19, width: 5}
  bonus: {type: integer, min: 0, max: 9, width: 5}
  pay: {type: integer, min: 0, max: 28, width: 5}
"""
COMBINED = """\
  first: {type: integer, min: 0, max: 23, width: 6}
  last: {type: integer, min: 0, max: 23, width: 6}
  wages: {type: integer, min: 0, max: 19, width: 4}
  bonus: {type: categorical, values: [0, 1, 2, 3, 4], outside: other}
  sex: {type: categorical, values: [F, M]}
  city: {type: categorical, values: [north, south, west], outside: other}
  smoker: {type: boolean}
"""
DISORDER = [{**USUAL, "first": 20, "last": 1, "pay": 28}] * 5
"""Rows that violate an order and a sum by far."""


def constrained(*constraints: str, columns: str = BINNED) -> tuple[Change, ...]:
    lines = "".join(f"  - {{{each}}}\n" for each in constraints)
    return ((COLUMNS, columns), ("workload:", f"constraints:\n{lines}workload:"))


def blocked(blocks: str) -> tuple[Change, ...]:
    return (("universe:", f"blocks: {{column: day, every: month, {blocks}}}\nuniverse:"),)


ABOUT = """\
analyst: ada
purpose: research
output: {path: releases, rows: 90, keep: 1}
about:
  title: Visits
  description: Visits to a clinic
  curators: [Clinic]
  intended_use: tests
  region: nowhere
  authors: [A. N. Other]
  sector: Healthcare
  justification: none
  sources: [https://example.org]
strategy:"""
PUBLIC: tuple[Change, ...] = (
    ("age: {type: integer,", "age: {type: integer, description: years since birth, measured_in: years,"),
    ("values: [north, south, west]", "values_from: cities.txt, match: prefix, description: where"),
    ("missing: true", 'missing: ["?", "NA"]'),
    ("workload: {marginals: 2}", "workload: {marginals: [[sex, age], {columns: [age, city], weight: 3}], target: age}"),
    ("strategy:", ABOUT),
)

SETTINGS: tuple[Setting, ...] = (
    Setting("mwem", units=(NOBODY, ALONE, SPREAD)),
    Setting("mwem in pure epsilon", (EXPECTED,), (NOBODY, ALONE, SPREAD), currency=Currency.PURE),
    Setting("mwem in gdp, by weight", (WEIGHTED, EXPECTED), (NOBODY, ALONE, SPREAD), currency=Currency.GDP),
    Setting("check of lost rows", units=(NOBODY, ALONE, SPREAD), drive=check_rows, verbs=("check",)),
    Setting("charged look", units=(NOBODY, ALONE, SPREAD), drive=look, verbs=("init",)),
    Setting("pmw", (("{name: mwem, rounds: 1}", "{name: pmw, rounds: 6, alpha: 0.001}"),), (NOBODY, MANY)),
    Setting(
        "adaptive",
        (
            ("{name: mwem, rounds: 1}", "{name: adaptive, rounds: 2, max_model_mb: 1.0}"),
            ("{marginals: 2}", "{marginals: 2, ranges: [age]}"),
        ),
        (NOBODY, ALONE, SPREAD),
        currency=Currency.GDP,
    ),
    Setting("a person is replaced", (REPLACED,), (ALONE, [ANOTHER] * 5, SPREAD)),
    Setting("a row is replaced", (BY_ROW, REPLACED, ADAPTIVE), ([USUAL], [ANOTHER], [ODD])),
    Setting(
        "a row by weight",
        (("unit: person, max_rows_per_unit: 2", "unit: row, weight: {column: times, max: 4}"),),
        (NOBODY, [USUAL], [{**USUAL, "times": 99}]),
    ),
    Setting("chosen limit", (AUTO,), (NOBODY, MANY)),
    Setting("chosen limit, a person is replaced", (AUTO, REPLACED), (MANY, [ANOTHER]), currency=Currency.GDP),
    Setting("persons", (TOGETHER,), (NOBODY, MANY)),
    Setting(
        "persons with a chosen limit, replaced, expected rows",
        (AUTO, REPLACED, TOGETHER, EXPECTED, ("epsilon: 8.0", "epsilon: 80.0")),
        (MANY, [ANOTHER]),
        currency=Currency.PURE,
    ),
    Setting("discovery", (DISCOVERED,), (NOBODY, ALONE, SPREAD)),
    Setting(
        "discovery, expected rows",
        (DISCOVERED, EXPECTED, REPLACED),
        ([ANOTHER] * 3, ALONE),
        currency=Currency.PURE,
    ),
    Setting("full resolution", (FINE,), (NOBODY, [{**USUAL, "income": 119, "day": "2024-06-20"}] * 5, SPREAD)),
    Setting(
        "full resolution of moments",
        (
            (
                COLUMNS,
                "  moment: {type: datetime, min: 2024-01-01, max: 2024-06-30, step: hour, outside: clip}\n  smoker: {type: boolean}\n",
            ),
            ADAPTIVE,
            REPLACED,
            AUTO,
        ),
        (MANY, SPREAD),
        currency=Currency.GDP,
    ),
    Setting(
        "repaired order and sum",
        constrained("order: first <= last, violations: repair", 'sum: "pay = wages + bonus", violations: repair'),
        (NOBODY, [*DISORDER, {**DISORDER[0], "pay": 0}], SPREAD),
    ),
    Setting(
        "repaired order and sum at full resolution",
        (
            ("{marginals: 2}", "{marginals: 1}"),
            *constrained(
                "order: first <= last, violations: repair",
                'sum: "pay = wages + bonus", violations: repair',
                columns="""\
  first: {type: integer, min: 0, max: 40}
  last: {type: integer, min: 0, max: 40}
  wages: {type: integer, min: 0, max: 19}
  bonus: {type: integer, min: 0, max: 9}
  pay: {type: integer, min: 0, max: 60}
""",
            ),
        ),
        (NOBODY, DISORDER),
    ),
    Setting(
        "dropped and repaired combinations",
        constrained(
            "order: first <= last",
            "impossible: {sex: M, city: west}, violations: drop",
            "if: {city: north}, then: {wages: {min: 4, max: 15}}, violations: repair",
            "possible: {columns: [sex, smoker], rows: [[F, true], [F, false], [M, false]]}, violations: repair",
            "depends: wages -> bonus, share: 0.1",
            columns=COMBINED,
        ),
        (NOBODY, DISORDER, [{**USUAL, "sex": "M", "city": "north", "wages": 19}] * 3),
    ),
    Setting(
        "blocks",
        blocked("start: 2024-01-01"),
        (NOBODY, SPREAD),
        releases_of_blocks,
        blocks_by="month of day",
        unread=[{**USUAL, "day": day} for day in ("2024-05-15", "2023-12-31", "whenever", None)],
    ),
    Setting(
        "new blocks with late rows, a person is replaced",
        (
            *blocked(
                'start: 2024-01-01, window: new, series: monthly, arrived: arrived, grace_days: 3, format: "%Y-%m-%d"'
            ),
            REPLACED,
        ),
        (ALONE, [{**ANOTHER, "day": "2024-03-05", "arrived": "2024-05-01"}] * 3),
        releases_of_blocks,
        blocks_by='month of day, late by arrived after 3 days, written "%Y-%m-%d"',
    ),
    Setting(
        "the last blocks of a date column",
        (
            (COLUMNS, f"{COLUMNS}  day: {{type: date, min: 2024-01-01, max: 2024-06-30, every: month}}\n"),
            *blocked("window: last 2"),
        ),
        (NOBODY, ALONE),
        releases_of_blocks,
        blocks_by="month of day",
    ),
    Setting("public prior", (("strategy:", "prior: {path: public.parquet}\nstrategy:"),), (NOBODY, ALONE)),
    Setting(
        "latest release as prior", (("strategy:", "prior: latest\nstrategy:"), ADAPTIVE), (NOBODY, ALONE), two_releases
    ),
    Setting(
        "unchanged table",
        (("strategy:", "prior: {release: latest, unchanged: true}\nstrategy:"), FINE, AUTO),
        (NOBODY, MANY),
        two_releases,
    ),
    Setting("session", (), (NOBODY, ALONE), session, ("session open", "ask")),
    Setting("session with a chosen limit", (AUTO,), (NOBODY, MANY), session, ("session open", "ask"), Currency.GDP),
    Setting(
        "session at full resolution, a person is replaced",
        ((COLUMNS, COLUMNS.replace(", width: 25", "")), REPLACED, ADAPTIVE),
        (ALONE, [ANOTHER] * 3),
        session,
        ("session open", "ask"),
    ),
    Setting("dashboard", (), (NOBODY, ALONE), dashboard, ("run", "session open", "flows: answer"), Currency.PURE),
    Setting("service", (), (NOBODY, ALONE), service, ("session open", "serve-answers")),
    Setting("online", (("epsilon: 8.0", "epsilon: 900.0"),), (NOBODY, ALONE, ALONE[:1]), online, ("open_online",)),
    Setting(
        "online, a person is replaced",
        (("epsilon: 8.0", "epsilon: 900.0"), REPLACED),
        (ALONE, [ANOTHER] * 3),
        online,
        ("open_online",),
        Currency.PURE,
    ),
    Setting("report", (AUTO, TOGETHER), (NOBODY, ALONE * 20), report, ("run", "report")),
    Setting(
        "report, a person is replaced",
        (REPLACED, ADAPTIVE),
        (ALONE, [ANOTHER] * 3),
        report,
        ("run", "report"),
        Currency.PURE,
    ),
    *(
        Setting(
            f"questions in {currency}",
            (),
            (NOBODY, ALONE),
            questions,
            ("ask from Python",),
            currency,
            stored="memory",
        )
        for currency in Currency
    ),
    Setting(
        "questions by weight, a person is replaced",
        (WEIGHTED, REPLACED),
        (ALONE, [ANOTHER] * 3, SPREAD),
        questions,
        ("ask from Python",),
        stored="memory",
    ),
    *(Setting(f"table in {store}", (), (NOBODY, SPREAD), stored=store) for store in ("files", "sql", "memory")),
    Setting("table in parquet, all kinds of columns", (KINDS,), (NOBODY, ALONE, SPREAD), stored="parquet"),
    Setting("table in arrow, a row is replaced", (BY_ROW, REPLACED), ([USUAL], [ODD]), stored="arrow"),
    Setting("table on dask", (AUTO, TOGETHER), (NOBODY, MANY), currency=Currency.GDP, stored="dask"),
    Setting("everything that is public", PUBLIC, (NOBODY, ALONE), two_releases),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
