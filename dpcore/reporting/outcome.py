"""What a finished run leaves to be told: its outcome, its rounds, and the budget before and after. All of it is public."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpcore.ledger import Account, Balance, Run
from dpcore.measurements import Measurement
from dpcore.models import Model


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves: all public.

    `epsilon` at `delta`, with `sampler_delta` on top, is what its release promises. `reserved`, `spent` and `remaining` are bookkeeping, in
    the account's currency. `remaining_epsilon` is the most that a next run can ask for, at the account's delta. Where the account is kept
    by block, what remains is that of the run's most used one, and `new_block_epsilon` is the most that a run can ask for which reads new
    blocks only.
    """

    run: str
    release: str
    rows: int
    account: str
    currency: str
    epsilon: float
    delta: float
    sampler_delta: float
    reserved: float
    spent: float
    remaining: float
    remaining_epsilon: float
    blocks: Sequence[str] | None = None
    new_block_epsilon: float | None = None
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True)
class Round:
    """One round: what was selected, the noise it was measured with, and how far the model was from what was measured.

    `before` and `after` are shares of the rows: the L1 distance between the model and the noisy counts, before and after the
    model was corrected by them. Where `after` comes close to `noise_floor`, what the noise alone would make, nothing is left to learn.
    `spent` is the share of the run's budget that is gone after the round.
    """

    number: int
    columns: tuple[str, ...]
    cells: int
    noise: float
    before: float
    after: float
    noise_floor: float
    spent: float


@dataclass(frozen=True)
class Report:
    """A finished run: `privacy`, `columns` and `files` are as its release's manifest has them.

    Where the account is kept by block, `before` and `after` are of the most used block of the run, `overall` of that of the account.
    """

    outcome: Outcome
    account: Account
    before: Balance
    after: Balance
    overall: Balance
    rounds: Sequence[Round]
    privacy: dict[str, Any]
    columns: dict[str, str]
    files: Sequence[dict[str, Any]]


def distance(model: Model, measurement: Measurement) -> float:
    """Return how far the model is from a measurement, as a share of the model's rows."""
    expected = model.marginal(measurement.axes).ravel()
    cells = expected if measurement.cell is None else expected[measurement.cell : measurement.cell + 1]
    return float(np.abs(cells - measurement.values.ravel()).sum() / max(model.total, 1.0))


def noise_floor(model: Model, measurement: Measurement) -> float:
    """Return the distance that a measurement's noise alone would make: that of a normal variable, cell for cell."""
    return float(np.sqrt(2 / np.pi) * measurement.noise * measurement.values.size / max(model.total, 1.0))


def without(run: Run, balance: Balance, *, weight: int) -> Balance:
    """Return a balance as it would be if a run had never been; `weight` is how often each block pays its price."""
    spent, reserved = balance.spent - weight * run.spent, balance.reserved - weight * run.remaining
    return Balance(balance.cap, spent=spent, reserved=reserved)
