"""The stage of a run: everything that its steps have made so far. Each step returns it extended."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from dpcore.descent import Finding
from dpcore.errors import UsageError
from dpcore.ledger import Lease, Run
from dpcore.marginals.measurements import Measurement
from dpcore.models.persons import PersonSizes
from dpcore.private import Private
from dpcore.release import ChosenLimit, SyntheticRows
from dpcore.runs.publication import Payer, Publication
from dpcore.runs.reading import Reading
from dpcore.runs.rounds import Rounds
from dpcore.spec import Declaration
from dpcore.strategies import EarlyCounts, Strategy, strategy_for
from dpcore.tables.histogram import Histogram
from dpcore.universe.dependencies import LearnedFunction

S = TypeVar("S")


@dataclass(frozen=True)
class Stage:
    """What a run has so far.

    Attributes:
        declaration: The current declaration.
        strategy: The strategy for it.
        payer: The account that pays; None until the budget is reserved.
        reading: Reads the granted rows; None until then, and if the run is settled and only replayed.
        chosen_limit: How the limit on rows per unit was chosen; None if it was declared.
        total: The first noisy total, if the spec expects one.
        sizes: How many rows persons have.
        findings: What was discovered, column by column.
        early_counts: The counts that discovery has bought; None without discovery.
        functions: The learned functions of dependencies.
        records: The encoded rows, until they are counted for the release.
        counted: Whether the curator has the counts of these rows already.
        rounds: The model and its rounds; None until they begin.
        rows: The synthetic rows; None until the last model is made.
        publication: The published release.
    """

    declaration: Declaration
    strategy: Strategy
    payer: Payer | None = None
    reading: Reading | None = None
    chosen_limit: ChosenLimit | None = None
    total: tuple[Measurement, ...] = ()
    sizes: PersonSizes = field(default_factory=PersonSizes.of_one)
    findings: tuple[Finding, ...] = ()
    early_counts: EarlyCounts | None = None
    functions: tuple[LearnedFunction, ...] = ()
    records: Private | None = None
    counted: bool = False
    rounds: Rounds | None = None
    rows: SyntheticRows | None = None
    publication: Publication | None = None

    @property
    def lease(self) -> Lease | None:
        """The lease on the run; None if the run is settled and only replayed."""
        return None if self.reading is None else self.reading.lease

    @property
    def paid_by(self) -> Payer:
        """The account that pays.

        Raises:
            UsageError: If nothing is reserved yet.
        """
        return made(self.payer, "nothing is reserved yet; reserve first")

    @property
    def run(self) -> Run:
        """The run as the ledger has it now."""
        return self.paid_by.ledger.run(self.paid_by.run_id)

    def planned(self, declaration: Declaration) -> "Stage":
        """Return the stage with another declaration, and the strategy for it."""
        return replace(
            self, declaration=declaration, strategy=strategy_for(declaration, early_counts=self.early_counts)
        )

    def ingested(self) -> "Stage":
        """Return the stage with the encoded rows, unless they were read before or the run is only replayed.

        A failure before the first row refunds the reservation; a later failure keeps it.
        """
        if self.records is not None or self.reading is None:
            return self
        return replace(self, records=self.reading.ranked_records(self.declaration.universe))

    def histogram(self) -> Histogram:
        """Count the encoded rows over the universe."""
        reading, records = made(self.reading, _NOT_READ), made(self.records, _NOT_READ)
        return reading.count_records(records, self.declaration.universe)

    def renew_lease(self) -> None:
        """Renew the lease, if there is one, during long work that changes nothing in the ledger."""
        if self.reading is not None:
            self.reading.renew()

    def end(self) -> None:
        """Settle the run without a release, and refund what it has not spent."""
        self.paid_by.ledger.settle(self.paid_by.run_id, release=None, lease=self.lease)


_NOT_READ = "the table was not read; ingest before counting"


def made(result: S | None, otherwise: str) -> S:
    """Return the result of an earlier step.

    Raises:
        UsageError: With `otherwise` as its message, if the step was not taken yet.
    """
    if result is None:
        raise UsageError(otherwise)
    return result
