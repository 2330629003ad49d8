"""Charged steps: every kind of step that may use private counts, and the one place that charges for a step.

A step of no listed kind is refused before it is charged. docs/explanation/proof.md has a row for each kind: the statistic that it asks of the
counts, a test of that statistic's sensitivity, and the audits that attack it. tests/docs/test_proof.py compares the two.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from dpcore.errors import StepFailed
from dpcore.ledger import Lease, Ledger, Operation
from dpcore.mechanisms import Mechanism
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection

Drawn = TypeVar("Drawn")


class Statistic(StrEnum):
    """What a step asks of private counts. Step 4 of the proof bounds how far one neighbour step moves it."""

    MARGINAL = "marginal"
    COUNT = "count"
    SUMS = "weighed sums"
    MARGINAL_ERRORS = "errors of marginals"
    CELL_ERRORS = "errors of cells"
    MEAN_ERROR = "mean error"
    LARGEST_ERROR = "largest error"
    GATE = "gate"
    QUERY = "query"

    def moves(self, protection: Protection) -> int:
        """Return how far one neighbour step moves one number: an error of a marginal by its L1 sensitivity, of a cell by its Linf sensitivity."""
        sensitivity = protection.sensitivity
        return sensitivity.l1 if self in {Statistic.MARGINAL_ERRORS, Statistic.MEAN_ERROR} else sensitivity.linf


@dataclass(frozen=True)
class ChargedStep:
    """A kind of charged step.

    Attributes:
        name: Its name in the proof.
        statistic: What it asks of the counts.
        steps: A pattern of the names that its steps have in the ledger.
    """

    name: str
    statistic: Statistic
    steps: str


CHARGED_STEPS = (
    ChargedStep("limit on rows per unit", Statistic.MARGINAL, r"rows-per-unit"),
    ChargedStep("lost rows", Statistic.MARGINAL, r"rows-lost"),
    ChargedStep("sizes of persons", Statistic.MARGINAL, r"rows-of-persons/by-(size|class)"),
    ChargedStep("expected number of rows", Statistic.COUNT, r"expected-total"),
    ChargedStep("level of a tree", Statistic.MARGINAL, r"discover/.+/\d+"),
    ChargedStep("function of a dependency", Statistic.MARGINAL, r"depends/\d+-.+"),
    ChargedStep("single column", Statistic.MARGINAL, r"one-way/.+"),
    ChargedStep("number of rows", Statistic.COUNT, r"total"),
    ChargedStep("selection of a marginal", Statistic.MARGINAL_ERRORS, r"round-\d+/select"),
    ChargedStep("selection of a cell", Statistic.CELL_ERRORS, r"round-\d+/select"),
    ChargedStep("selected marginal", Statistic.MARGINAL, r"round-\d+/measure"),
    ChargedStep("selected cell", Statistic.COUNT, r"round-\d+/measure"),
    ChargedStep("bought answer", Statistic.MARGINAL, r"ask/.+"),
    ChargedStep("bought sums", Statistic.SUMS, r"ask/.+"),
    ChargedStep("mean error of a release", Statistic.MEAN_ERROR, r"error/(workload|columns)"),
    ChargedStep("largest error of a release", Statistic.LARGEST_ERROR, r"error/largest"),
    ChargedStep("gate of an online session", Statistic.GATE, r"hard-\d+/gate"),
    ChargedStep("count of an online session", Statistic.COUNT, r"hard-\d+/count"),
    ChargedStep("query of ask", Statistic.QUERY, r"answer"),
)
"""All kinds of charged steps. A strategy decides whether a round selects and measures a marginal or a cell."""


def charge_draw_commit(  # noqa: PLR0913  who pays, for what, and how much
    ledger: Ledger,
    lease: Lease,
    *,
    step: str,
    statistic: Statistic,
    mechanism: Mechanism,
    currency: Currency,
    analyst: str | None = None,
    draw: Callable[[], Drawn],
    keep: Callable[[Drawn], bytes],
) -> tuple[Drawn, int]:
    """Charge for a step, draw its result, and store it as bytes, in that order. Return the result and what it has cost.

    Raises:
        StepFailed: If the step is of no listed kind. Nothing was charged.
    """
    operation = charge(
        ledger, lease, step=step, statistic=statistic, mechanism=mechanism, currency=currency, analyst=analyst
    )
    drawn = draw()
    ledger.commit(operation, keep(drawn))
    return drawn, operation.amount


def charge(  # noqa: PLR0913  likewise
    ledger: Ledger,
    lease: Lease,
    *,
    step: str,
    statistic: Statistic,
    mechanism: Mechanism,
    currency: Currency,
    analyst: str | None = None,
) -> Operation:
    """Charge a run, and the share of an analyst who pays for it, before anything is drawn for a step.

    Raises:
        StepFailed: If the step is of no listed kind, so that nothing is proved about it. Nothing was charged.
    """
    if kind_of(step, statistic) is None:
        raise StepFailed(f"step {step} is of no kind that the proof covers; report this")
    amount = mechanism.price(currency)
    return ledger.charge(lease, step=step, amount=amount, mechanism=mechanism.describe(), analyst=analyst)


def kind_of(step: str, statistic: Statistic) -> ChargedStep | None:
    """Return the kind of a step by its name and its statistic; None if no kind is listed.

    >>> kind_of("round-002/select", Statistic.CELL_ERRORS).name, kind_of("peek", Statistic.COUNT)
    ('selection of a cell', None)
    """
    return next(
        (kind for kind in CHARGED_STEPS if kind.statistic is statistic and re.fullmatch(kind.steps, step)), None
    )
