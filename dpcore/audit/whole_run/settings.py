"""Make a release for an audit: a made-up table of canaries in a real source, a spec, and an account in a temporary ledger.

A setting is data: the parts of a spec, the lines of a table, and the driver that spends. What it covers follows from its spec and its driver.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.audit.whole_run.drivers import Driver, run
from dpcore.ledger import open_ledger
from dpcore.places import LEDGER_VARIABLE, PRIVATE_VARIABLE, set_variables
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.spec import Declaration, load_spec

Coins: TypeAlias = npt.NDArray[np.bool_]

FILLERS = 4
"""The number of rows after each canary in the file that are always there. If a reader lets one row change others, these rows show it."""

LETTERS = "abcdefgh"
"""The alphabet of texts to discover: no null is written with these letters alone."""

PUBLIC = "public.csv"
"""The public table of a setting that names it: the rows that are always there."""

FIRST_DAY = date(2001, 1, 1)
CANARY, OTHER = "y", "n"
DATASET = "canaries"
RELEASES, EXPORT = "releases", "export"
"""The folders, beside the spec, of what is published."""

DATABASE = "DPFLOW_AUDIT_DATABASE"
"""The environment variable with the address of the database of a setting with `source.sql`."""

CELL = "cell: {type: integer, min: 0, max: $last, width: 1}"
FLAG = f"flag: {{type: categorical, values: [{OTHER}, {CANARY}]}}"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to publish, and its canaries. Each canary has its own cell of the first column.

    In lines of the table, `{number}` is a canary's number, `{cell}` its cell, and `{before}` the one before it; `{text}`, `{day}` and
    `{day_before}` are these as texts and dates; `{turn}` is 2 if its coin says so and otherwise 1. In columns and parts of the spec, `$last` and
    `$last_day` are the last cell.

    Attributes:
        name: The setting's name.
        canaries: The number of canaries in one release.
        releases: The number of times that it is published, each with new coins.
        currency: The account's currency.
        epsilon: The epsilon of the spec.
        delta: The delta of the promise; 0 in pure epsilon.
        paid: How many times a canary pays that epsilon: once for each run that reads its rows, and twice in blocks under replace-one.
        neighbours: With add-remove, a canary is in the table or not. With replace-one it is in one of two cells.
        rows_per_unit: The number of rows kept per person; `auto` if the run chooses it; None if each row is a unit.
        privacy: Further keys of `privacy` in the spec.
        source: The `source` of the spec. The table is written accordingly.
        columns: The columns of the universe. The first one is that of the cells.
        parts: Further parts of the spec.
        strategy: The strategy, as written in a spec.
        header: The names of the table's columns.
        canary: A row of a canary.
        others: The rows after each canary that are always there.
        always: Further rows, at the end of the table.
        copies: The number of rows of a canary, which are far apart in the file; 0 for one row more than its cell says.
        apart: How many cells apart canaries are. Each has the last one of its own.
        driver: Publishes by a spec.
        only: Guess only from answers of the ledger to the steps that begin so, which are the first of their run. They alone are the promise.
            `export`: guess only from the exported ledger, which promises nothing. None: guess from everything.
        stated: Whether the promise is what the newest release states, which must cover all that it publishes again.
        listed: A pattern with one group: the cell of a canary, where published texts name it. None if they name all cells.
    """

    name: str
    canaries: int
    releases: int = 1
    currency: Currency = Currency.PURE
    epsilon: float = 2.0
    delta: float = 0.0
    paid: int = 1
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    rows_per_unit: int | Literal["auto"] | None = None
    privacy: str = ""
    source: str = "{path: table.csv, quote: none}"
    columns: tuple[str, ...] = (CELL, FLAG)
    parts: tuple[str, ...] = ("workload: {marginals: 2}",)
    strategy: str = "{name: mwem, rounds: 1}"
    header: str = "person,cell,flag,note"
    canary: str = f"canary-{{number}},{{cell}},{CANARY},-"
    others: tuple[str, ...] = (f"other-{{number}},{{number}},{OTHER},-",)
    always: tuple[str, ...] = ()
    copies: int = 1
    apart: int = 1
    driver: Driver = run
    only: str | None = None
    stated: bool = False
    listed: str | None = None

    @property
    def promised(self) -> int:
        """The largest loss of a canary, if the guesser sees everything."""
        return self.paid * budget_of(self.epsilon, delta=self.delta, currency=self.currency)[1]

    @property
    def replaces(self) -> bool:
        """Whether canaries are replaced instead of added."""
        return self.neighbours is Neighbours.REPLACE_ONE

    @property
    def cells(self) -> int:
        """The number of cells that belong to canaries."""
        return (2 if self.replaces else self.apart) * self.canaries

    @property
    def moved(self) -> int:
        """The largest change of a count by one canary. With so many cells, a run that chooses the limit takes the smallest."""
        return self.rows_per_unit if isinstance(self.rows_per_unit, int) and not self.only else 1

    @property
    def unit(self) -> str:
        """The unit of protection, as written in a spec."""
        return "row" if self.rows_per_unit is None else "person"

    @property
    def names(self) -> list[str]:
        """The name of each cell, as releases write it."""
        by_type = {"date": _day, "categorical": _text}
        kind = self.columns[0].partition("type: ")[2].partition(",")[0]
        return [by_type.get(kind, str)(cell) for cell in range(self.cells)]

    def groups(self, coins: Coins) -> Iterator[list[str]]:
        """Yield the lines of the table, each canary with the rows that follow it."""
        numbered = [
            {
                "number": number,
                "cell": cell,
                "before": cell - 1,
                "text": _text(cell),
                "day": _day(cell),
                "day_before": _day(cell - 1),
                "turn": 1 + coin,
            }
            for number, coin in enumerate(coins.tolist())
            for cell in [2 * number + coin if self.replaces else self.apart * (number + 1) - 1]
        ]
        most = self.copies or self.cells
        for copy in range(most):
            for fields, coin in zip(numbered, coins.tolist(), strict=True):
                written = (coin or self.replaces) and (self.copies or copy <= int(fields["cell"]))
                rows = [self.canary.format(**fields)] if written else []
                yield rows + [line.format(**fields) for line in self.others if not copy]
        yield list(self.always)

    def spec(self, *, folder: Path) -> str:
        """Return the spec."""
        kept = "" if self.rows_per_unit is None else f", max_rows_per_unit: {self.rows_per_unit}"
        lines = [
            f"dataset: {DATASET}",
            f"source: {self.source}",
            f"privacy: {{unit: {self.unit}{kept}, neighbours: {self.neighbours}, epsilon: {self.epsilon!r}, delta: {self.delta!r}{self.privacy}}}",
            "universe:",
            *(f"  {column}" for column in self.columns),
            *self.parts,
            f"strategy: {self.strategy}",
            "output: {path: $folder}",
        ]
        return Template("\n".join(lines) + "\n").substitute(
            last=self.cells - 1, last_day=_day(self.cells - 1), folder=folder / RELEASES
        )

    def declared(self, folder: Path) -> Declaration:
        """Write the spec to a folder, and load it."""
        path = folder / "spec.yaml"
        path.write_text(self.spec(folder=folder), encoding="utf-8")
        return load_spec(path, with_table=True)

    @contextmanager
    def published(self, coins: Coins) -> Iterator[Path]:
        """Write the table, open an account, and publish, all in a folder that is removed on exit. Yield the folder."""
        with TemporaryDirectory(prefix="dpflow-audit-") as name:
            folder = Path(name).resolve()
            write_table(folder, self, coins)
            declaration = self.declared(folder)
            places = {
                LEDGER_VARIABLE: f"sqlite:///{folder / 'ledger.sqlite'}",
                PRIVATE_VARIABLE: str(folder / "private"),
                DATABASE: f"sqlite:///{folder / 'table.sqlite'}",
            }
            with set_variables(places):
                with open_ledger(create=True) as ledger:
                    epsilon = (self.paid + 1) * self.epsilon  # more than may be paid
                    ledger.open_account(
                        DATASET,
                        currency=self.currency,
                        cap=budget_of(epsilon, delta=self.delta, currency=self.currency)[1],
                        epsilon=epsilon,
                        delta=self.delta,
                        unit=self.unit,
                        neighbours=self.neighbours,
                        blocks_by=None if declaration.calendar is None else declaration.calendar.words,
                    )
                self.driver(declaration.path)
                yield folder


def _day(cell: int) -> str:
    return (FIRST_DAY + timedelta(days=cell)).isoformat()


def _text(cell: int) -> str:
    """Return the texts of `LETTERS` one after the other, shorter ones first, as discovery lists them.

    >>> [_text(cell) for cell in (0, 7, 8, 9, 72)]
    ['a', 'h', 'aa', 'ab', 'aaa']
    """
    letters, cell = "", cell + 1
    while cell:
        cell, letter = divmod(cell - 1, len(LETTERS))
        letters = LETTERS[letter] + letters
    return letters


def write_table(folder: Path, setting: Setting, coins: Coins) -> None:
    """Write the table that a setting's `source` names. Binary files have a batch for each canary with the rows that follow it."""
    groups = [group for group in setting.groups(coins) if group]
    lines, source = [line for group in groups for line in group], setting.source
    if any(PUBLIC in part for part in setting.parts):
        public = [line for group in setting.groups(np.zeros_like(coins)) for line in group]
        (folder / PUBLIC).write_text("\n".join([setting.header, *public, ""]), encoding="utf-8")
    if "sql:" in source:
        names = setting.header.split(",")
        with closing(sqlite3.connect(folder / "table.sqlite")) as database, database:
            database.execute(f"create table canaries ({', '.join(names)})")
            marks = ",".join("?" * len(names))
            database.executemany(f"insert into canaries values ({marks})", [line.split(",") for line in lines])  # noqa: S608  a made-up table
    elif "arrow" in source or "parquet" in source:
        batches = [_batch(setting.header, group) for group in groups]
        if "arrow" in source:
            with (
                pa.OSFile(str(folder / "table.arrow"), "wb") as file,
                pa.ipc.new_file(file, batches[0].schema) as writer,
            ):
                for batch in batches:
                    writer.write_batch(batch)
        else:
            pq.write_table(pa.Table.from_batches(batches), folder / "table.parquet", row_group_size=FILLERS + 1)
    else:
        parts = 4 if "parts" in source else 1
        for number in range(parts):
            path = folder / (f"parts/{number}.csv" if parts > 1 else "table.csv")
            path.parent.mkdir(exist_ok=True)
            part = lines[number * len(lines) // parts : (number + 1) * len(lines) // parts]
            path.write_text("\n".join([setting.header, *part, ""]), encoding="utf-8")


def _batch(header: str, lines: Sequence[str]) -> pa.RecordBatch:
    columns = zip(*(line.split(",") for line in lines), strict=True)
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=header.split(","))
