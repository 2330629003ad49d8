"""Make a release for an audit: a made-up table of canaries in a real file, a spec, and an account in a temporary ledger."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.ledger import open_ledger
from dpcore.places import LEDGER_VARIABLE, PRIVATE_VARIABLE, set_variables
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.runs.steps import synthesize

Coins: TypeAlias = npt.NDArray[np.bool_]


class Made(Protocol):
    """A finished release: its folder and its cost."""

    @property
    def release(self) -> str:
        """The folder of the release."""

    @property
    def spent(self) -> float:
        """The amount that its run has spent, in the account's currency."""


Driver: TypeAlias = Callable[[Path], Made]
"""Makes a release from a spec: `dpcore.synthesize`, or a flow."""

FILLERS = 4
"""The number of rows after each canary in the file that are always there. If a reader lets one row change others, these rows show it."""

ROWS_PER_CANARY = 20
"""The number of rows of a canary person: far more than are kept."""

CANARY, OTHER = "y", "n"
_DATASET = "canaries"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to make a release, and its canaries. Each canary has its own cell in a column of many values.

    Attributes:
        name: The setting's name.
        currency: The account's currency.
        epsilon: The epsilon that the release may spend.
        delta: The delta of the promise; 0 in pure epsilon.
        strategy: The strategy, as written in a spec.
        neighbours: With add-remove, a canary is in the table or not. With replace-one it is in one of two cells.
        rows_per_unit: The number of rows kept per person; `auto` if the run chooses it; None if each row is a unit.
        households: Whether ids have the form household.member. Member 1 is always in the table, and the canary is member 10.
        canaries: The number of canaries in one release.
        releases: The number of releases, each with new coins.
    """

    name: str
    currency: Currency
    epsilon: float
    delta: float
    strategy: str
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    rows_per_unit: int | Literal["auto"] | None = None
    households: bool = False
    canaries: int
    releases: int

    @property
    def promised(self) -> int:
        """The largest loss that a release may have: the amount that its spec reserves."""
        return budget_of(self.epsilon, delta=self.delta, currency=self.currency)[1]

    @property
    def replaces(self) -> bool:
        """Whether canaries are replaced instead of added."""
        return self.neighbours is Neighbours.REPLACE_ONE

    @property
    def cells(self) -> int:
        """The number of cells of a canary. The first of two holds what the canary must not change, or the canary itself if it is replaced."""
        return 2 if self.replaces or self.households else 1

    @property
    def moved(self) -> int:
        """The largest change of a count by one canary. With so many cells, a run that chooses the limit takes the smallest."""
        return self.rows_per_unit if isinstance(self.rows_per_unit, int) else 1

    @property
    def unit(self) -> str:
        """The unit of protection, as written in a spec."""
        return "row" if self.rows_per_unit is None else "person"

    def lines(self, coins: Coins) -> Iterator[str]:
        """Yield the lines of the table. A canary's note begins with a quote, which means nothing in a file without quoting."""
        yield "person,cell,flag,note"
        if self.households:
            yield from (f"{number}.1,{2 * number},{CANARY},-" for number in range(len(coins)))
            for _ in range(ROWS_PER_CANARY):
                yield from (f"{number}.10,{2 * number + 1},{CANARY},-" for number in np.flatnonzero(coins))
            return
        if self.rows_per_unit is not None:
            for _ in range(ROWS_PER_CANARY):
                # the rows of a person are far apart in the file
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
        return f"""\
dataset: {_DATASET}
source: {{path: table.csv, quote: none}}
privacy: {{unit: {self.unit}{kept}, neighbours: {self.neighbours}, epsilon: {self.epsilon!r}, delta: {self.delta!r}}}
universe:
  cell: {{type: integer, min: 0, max: {self.cells * canaries - 1}, width: 1}}
  flag: {{type: categorical, values: [{OTHER}, {CANARY}]}}
workload: {{marginals: 2}}
strategy: {self.strategy}
output: {{path: "{folder / "releases"}"}}
"""

    @contextmanager
    def released(self, coins: Coins, *, driver: Driver = synthesize) -> Iterator[Made]:
        """Write the table, open an account, and make a release, all in a folder that is removed on exit."""
        with TemporaryDirectory(prefix="dpflow-audit-") as name:
            folder = Path(name).resolve()
            url, private = f"sqlite:///{folder / 'ledger.sqlite'}", str(folder / "private")
            text = "".join(f"{line}\n" for line in self.lines(coins))
            (folder / "table.csv").write_text(text, encoding="utf-8")
            spec = folder / "spec.yaml"
            spec.write_text(self.spec(folder=folder, canaries=len(coins)), encoding="utf-8")
            cap = budget_of(self.epsilon + 1, delta=self.delta, currency=self.currency)[1]  # more than the run may take
            with set_variables({LEDGER_VARIABLE: url, PRIVATE_VARIABLE: private}):
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


def chain_of_three(spec: Path) -> Made:
    """Make three releases of one table, each of which publishes the measurements of those before again, and return the last."""
    spec.write_text(spec.read_text(encoding="utf-8") + "prior: {release: latest, unchanged: true}\n", encoding="utf-8")
    with open_ledger() as ledger:
        (account,) = ledger.accounts()
        ledger.raise_cap(account.name, cap=3 * account.cap, epsilon=3 * account.epsilon, reason="three releases")
    synthesize(spec)
    synthesize(spec)
    return synthesize(spec)
