"""Compare how many rows are lost with what the spec tolerates, by noisy counts of what becomes of rows.

Every value has a declared policy, so a table that is not written as its steward believes loses rows without an error. The decision uses noisy
counts and the spec, never the data. A count matters only if it stands out of its noise, so that many columns without losses do not hide one
with many.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from dpcore.curator.curator import Curator
from dpcore.errors import UsageError
from dpcore.marginals.measurements import Measurement
from dpcore.mechanisms.pricing import least_amount
from dpcore.privacy.accounting import budget_of
from dpcore.reporting.formatting import at_most
from dpcore.runs.causes import causes_of_column
from dpcore.runs.expected_rows import NoisyTotal, open_universe
from dpcore.runs.paying import ledger_of, paying_account
from dpcore.runs.reading import Reading, Table
from dpcore.runs.reservation import day_to_read, reserve_run
from dpcore.spec import Declaration
from dpcore.spec.changes import Changes, changed
from dpcore.spec.shares import Early
from dpcore.tables.ingest.fates import DROPPED_BY, KEPT, MISSING_IN, OTHER_IN, VIOLATED, WEIGHTLESS, fate_universe
from dpcore.universe import Universe

REASONS = {
    VIOLATED: "they contradict a constraint: correct it, or write `violations: repair`",
    WEIGHTLESS: "their weight is not a number of 1 or more",
}


@dataclass(frozen=True)
class Losses:
    """Noisy numbers of rows, one of each unit, by what becomes of them, if they stand out of the noise.

    Attributes:
        whole: The rows that are kept as they are, whatever stands out.
        lost: The rows that are dropped, by the column that drops them first or another reason, most first.
        undeclared: The rows that are kept with `other` or `missing` in some column, by the first such column, most first.
    """

    whole: NoisyTotal
    lost: Mapping[str, NoisyTotal]
    undeclared: Mapping[str, NoisyTotal]

    @classmethod
    def of(cls, measured: Measurement, universe: Universe) -> "Losses":
        """Read the noisy counts of fates."""
        labels = fate_universe(universe).attributes["fate"].labels
        counts = {
            label: NoisyTotal(float(count), measured.noise)
            for label, count in zip(labels, measured.values, strict=True)
        }
        whole = counts.pop(KEPT)
        clear = sorted(
            (item for item in counts.items() if item[1].rows > item[1].margin), key=lambda item: -item[1].rows
        )
        return cls(
            whole,
            lost={label.removeprefix(DROPPED_BY): count for label, count in clear if label.startswith(DROPPED_BY)},
            undeclared={label: count for label, count in clear if not label.startswith(DROPPED_BY)},
        )

    def warnings(self, universe: Universe, *, tolerated: float) -> Iterator[str]:
        """Say which columns have no declared value in more rows than may be lost, and whether hardly a row was read."""
        everything = (self.whole, *self.lost.values(), *self.undeclared.values())
        rows = sum(count.rows for count in everything)
        for label, count in self.undeclared.items():
            if count.rows - count.margin > tolerated * sum(fate.rows + fate.margin for fate in everything):
                what = OTHER_IN if label.startswith(OTHER_IN) else MISSING_IN
                name = label.removeprefix(what)
                yield (
                    f"about {100 * min(count.rows / rows, 1.0):.0f} % of the rows have `{what.split()[0]}` in `{name}`; if that is not so, likely "
                    f"causes: {', '.join(causes_of_column(universe.attributes[name]))}"
                )
        if rows <= self.whole.margin:
            yield (
                f"hardly a row was read: at most about {self.whole.margin:,.0f} are left by `blocks` and have an id; if there should be more, check how "
                "the days of blocks and the ids are written, or declare `expect_rows`, which stops such a run"
            )

    @property
    def share(self) -> float:
        """The share of the rows that are lost, as far as they stand out."""
        lost = sum(count.rows for count in self.lost.values())
        rows = lost + sum(count.rows for count in self.undeclared.values()) + self.whole.rows
        return min(1.0, lost / max(rows, 1.0))

    def exceed(self, tolerated: float) -> bool:
        """Tell whether more than a share of the rows is certainly lost, allowing for the noise of each count."""
        lost = sum(count.rows - count.margin for count in self.lost.values())
        rows = sum(count.rows + count.margin for count in (self.whole, *self.lost.values(), *self.undeclared.values()))
        return lost > tolerated * max(rows, 1.0)

    @property
    def words(self) -> str:
        """How many rows are lost, and where, in a few words."""
        if not self.lost:
            return "no column drops more rows than the noise hides"
        return f"about {100 * self.share:.0f} % of the rows are dropped, by {', '.join(self.lost)}"

    def sentence(self, universe: Universe, *, tolerated: float) -> str:
        """Say that too many rows are lost, by which columns, and why that may be."""
        return (
            f"about {100 * self.share:.0f} % of the rows would be lost, and the spec tolerates {100 * tolerated:g} % (`lose`); "
            f"{'; '.join(self._reasons(universe))}"
        )

    def _reasons(self, universe: Universe) -> Iterator[str]:
        for name, count in self.lost.items():
            about = f"about {count.rows:,.0f} rows are dropped"
            if name in REASONS:
                yield f"{about} because {REASONS[name]}"
            else:
                yield f"{about} by `{name}`, likely causes: {', '.join(causes_of_column(universe.attributes[name]))}"


def buy_losses(declaration: Declaration, *, epsilon: float, as_of: date | None = None) -> Losses:
    """Buy for an epsilon what becomes of the rows, and make no release.

    Raises:
        BudgetRefused: If the account cannot pay. Nothing was read.
    """
    run_of_spec, declaration = declaration, changed(declaration, Changes(epsilon=epsilon))
    table, run = Table.of(declaration), str(uuid.uuid4())
    with ledger_of(declaration) as ledger:
        account = paying_account(ledger, run_of_spec)  # without one, the advice is to open it with a budget for a run
        _, amount = budget_of(epsilon, delta=declaration.spec.privacy.delta, currency=account.currency)
        if amount < least_amount(currency=account.currency, protection=declaration.protection.of_one_answer):
            raise UsageError(f"epsilon {at_most(epsilon)} is too small for any noise; ask for more, such as 0.05")
        day = day_to_read(declaration, as_of)
        reserve_run(ledger, declaration, run_id=run, account=account, amount=amount, claim=Early.LOSSES, as_of=day)
        blocks = None if declaration.calendar is None else ledger.blocks_of(run)
        if blocks is not None:
            declaration = declaration.covering(blocks)
        reading = Reading(declaration, table=table, ledger=ledger, lease=ledger.lease(run), blocks=blocks)
        curator = Curator(ledger=ledger, run_id=run, protection=declaration.protection, currency=account.currency)
        fates = reading.fates(open_universe(declaration), undecided=declaration.undecided())
        curator.receive(fates, lease=reading.lease)
        measured = curator.measure_marginal(Early.LOSSES, (0,), share=Fraction(1))
        ledger.settle(run, release=None, lease=reading.lease)
    return Losses.of(measured, declaration.universe)
