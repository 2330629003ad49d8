"""What is released for an audit: a made-up table of canaries in a real file, a spec, and an account in a ledger of its own."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.runs.synthesis import synthesize

Coins: TypeAlias = npt.NDArray[np.bool_]


class Made(Protocol):
    """A release that was made: where it is, and what was paid for it."""

    @property
    def release(self) -> str:
        """The folder of the release."""

    @property
    def spent(self) -> float:
        """What its run has paid, in the account's currency."""


Driver: TypeAlias = Callable[[Path], Made]
"""Makes a release from a spec: `dpcore.synthesize`, or a flow."""

FILLERS = 4
"""Rows that follow a canary in the file and are always there: a reader that lets one row change others shows it on them."""

ROWS_PER_CANARY = 20
"""Of a canary person: far more than are kept."""

CANARY, OTHER = "y", "n"
_DATASET = "canaries"
_PLACES = ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to make a release, and canaries that suit it. Each canary has a cell of its own in a column of many values.

    Attributes:
        name: What the setting is called.
        currency: What the account counts.
        epsilon: What the release may spend.
        delta: The delta of the promise; 0 in pure epsilon.
        strategy: As a spec has it.
        neighbours: With add-remove, a canary is in the table or not. With replace-one it is in one of two cells.
        rows_per_unit: How many rows of a person are kept; None if each row is a unit.
        canaries: How many there are in one release.
        releases: How many releases are made, each with new coins.
    """

    name: str
    currency: Currency
    epsilon: float
    delta: float
    strategy: str
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    rows_per_unit: int | None = None
    canaries: int
    releases: int

    @property
    def promised(self) -> int:
        """What a release may lose: the amount that its spec reserves."""
        return budget_of(self.epsilon, delta=self.delta, currency=self.currency)[1]

    @property
    def replaces(self) -> bool:
        """Whether canaries are replaced, not added."""
        return self.neighbours is Neighbours.REPLACE_ONE

    @property
    def moved(self) -> int:
        """By how much a canary may move a count."""
        return self.rows_per_unit or 1

    @property
    def unit(self) -> str:
        """The unit of protection, as a spec has it."""
        return "row" if self.rows_per_unit is None else "person"

    def lines(self, coins: Coins) -> Iterator[str]:
        """Yield the lines of the table. A canary's note begins with a quote, which means nothing in a file without quoting."""
        yield "person,cell,flag,note"
        if self.rows_per_unit is not None:
            for _ in range(ROWS_PER_CANARY):
                # a person's rows lie far apart
                yield from (f"canary-{number},{number},{CANARY},-" for number in np.flatnonzero(coins))
            yield from (f"other-{number},{number},{OTHER},-" for number in range(len(coins)))
            return
        for number, coin in enumerate(coins.tolist()):
            cell = 2 * number + coin if self.replaces else number
            if coin or self.replaces:
                yield f"c,{cell},{CANARY},{'-' if self.replaces else chr(34)}"
            for filler in range(FILLERS):
                yield f"f,{number},{OTHER},{'-' if filler + 1 < FILLERS else '-' + chr(34)}"

    def spec(self, *, folder: Path, canaries: int) -> str:
        """Return the spec."""
        kept = "" if self.rows_per_unit is None else f", max_rows_per_unit: {self.rows_per_unit}"
        cells = 2 * canaries if self.replaces else canaries
        return f"""\
dataset: {_DATASET}
source: {{path: table.csv, quote: none}}
privacy: {{unit: {self.unit}{kept}, neighbours: {self.neighbours}, epsilon: {self.epsilon!r}, delta: {self.delta!r}}}
universe:
  cell: {{type: integer, min: 0, max: {cells - 1}}}
  flag: {{type: categorical, values: [{OTHER}, {CANARY}]}}
workload: {{marginals: 2}}
strategy: {self.strategy}
output: {{path: "{folder / "releases"}"}}
"""

    @contextmanager
    def released(self, coins: Coins, *, driver: Driver = synthesize) -> Iterator[Made]:
        """Write the table, open an account, and make a release, all of it in a folder that is removed at the end."""
        with TemporaryDirectory(prefix="dpflow-audit-") as name, _alone(Path(name).resolve()) as folder:
            text = "".join(f"{line}\n" for line in self.lines(coins))
            (folder / "table.csv").write_text(text, encoding="utf-8")
            spec = folder / "spec.yaml"
            spec.write_text(self.spec(folder=folder, canaries=len(coins)), encoding="utf-8")
            cap = budget_of(self.epsilon + 1, delta=self.delta, currency=self.currency)[1]  # more than the run may take
            with open_ledger(create=True) as ledger:
                ledger.open_account(
                    _DATASET,
                    currency=self.currency,
                    cap=cap,
                    epsilon=self.epsilon + 1,
                    delta=self.delta,
                    unit=self.unit,
                    neighbours=self.neighbours,
                )
            yield driver(spec)


@contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """Let this process keep its ledger and its private things in a folder for a while."""
    before = {name: os.environ.get(name) for name in _PLACES}
    os.environ.update(DPFLOW_LEDGER_URL=f"sqlite:///{folder / 'ledger.sqlite'}", DPFLOW_PRIVATE=str(folder / "private"))
    try:
        yield folder
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
