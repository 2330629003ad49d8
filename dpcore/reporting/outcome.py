"""The public results of a finished run: its outcome, its rounds, and the budget before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from dpcore.ledger import Account, Balance, Run
from dpcore.marginals.measurements import Measurement
from dpcore.models import Model
from dpcore.reporting.portrait import Portrait


@dataclass(frozen=True)
class Outcome:
    """The public result of a finished run.

    `epsilon` at `delta`, plus `sampler_delta`, is the promise of its release. `reserved`, `spent` and `remaining` are bookkeeping, in
    the account's currency. `remaining_epsilon` is the largest epsilon that the next run can request, at the account's delta. In an
    account with blocks, both remainders are those of the run's most used block, and `new_block_epsilon` is the largest epsilon that a
    run on new blocks only can request.
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
    """One round: the selected columns, the noise of their measurement, and the model's distance from it.

    `before` and `after` are the L1 distances between the model and the noisy counts, before and after the model was corrected with
    them, as shares of the rows. `noise_floor` is the distance from noise alone: when `after` comes close to it, nothing is left to
    learn. `spent` is the share of the run's budget spent after the round.
    """

    number: int
    columns: tuple[str, ...]
    cells: int
    noise: float
    before: float
    after: float
    noise_floor: float
    spent: float


_ROUNDS: TypeAdapter[tuple[Round, ...]] = TypeAdapter(tuple[Round, ...])


def rounds_in(manifest: Mapping[str, Any]) -> tuple[Round, ...]:
    """Return the rounds that a manifest states."""
    return _ROUNDS.validate_python(manifest["rounds"])


@dataclass(frozen=True)
class Report:
    """A finished run. `privacy`, `columns` and `files` are those of its release's manifest, `portrait` the figures of its pictures, if known.

    In an account with blocks, `before` and `after` are balances of the run's most used block, and `overall` is the balance of the
    account's most used block.
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
    portrait: Portrait | None = None


def distance(model: Model, measurement: Measurement) -> float:
    """Return the L1 distance between the model and a measurement, as a share of the model's rows."""
    expected = model.marginal(measurement.axes).ravel()
    cells = expected if measurement.cell is None else expected[measurement.cell : measurement.cell + 1]
    return float(np.abs(cells - measurement.values.ravel()).sum() / max(model.total, 1.0))


def noise_floor(model: Model, measurement: Measurement) -> float:
    """Return the expected distance from noise alone, as if the noise in each cell were normal."""
    return float(np.sqrt(2 / np.pi) * measurement.deviations.sum() / max(model.total, 1.0))


def without(run: Run, balance: Balance, *, weight: int) -> Balance:
    """Return a balance without a run's share. `weight` is how many times each block pays the run's price."""
    spent, reserved = balance.spent - weight * run.spent, balance.reserved - weight * run.remaining
    return Balance(balance.cap, spent=spent, reserved=reserved)
