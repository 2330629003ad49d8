"""Check the theorem behind `online`: `python -m benchmarks.online [--sessions 500] [--queries 1000] [--json]`.

Each session answers adaptive queries from an adversary who knows the table and the model. The theorem promises that with probability 1 - beta
all answers of a session are within alpha of the rows, and that the hard rounds never exceed their bound. Besides, every hard round must lower
the relative entropy of the model by what the proof says. Sessions are seeded: the noise comes from the installed mechanisms, which take their
random words from a seeded generator here.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.curator.gate import CountQuery, Gatekeeper
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.tables.histogram import LocalHistogram
from dpcore.textbook.online import OnlineSession, Terms
from dpcore.textbook.online.weights import DenseWeights, FactoredWeights

ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
POOL = 64
SLACK = 1e-9  # of rounding, in a relative entropy

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """A kind of session."""

    name: str
    shape: tuple[int, ...]
    rows: int
    alpha: float
    epsilon: float
    delta: float
    currency: Currency
    beta: float = 0.05
    factored: bool = False

    def terms(self, queries: int) -> Terms:
        """Return the terms of a session."""
        _, amount = budget_of(self.epsilon, delta=self.delta, currency=self.currency)
        return Terms(
            alpha=self.alpha,
            beta=self.beta,
            queries=queries,
            restarts=2,
            cells=math.prod(self.shape),
            amount=amount,
            currency=self.currency,
            protection=ROW,
        )


SETTINGS = (
    Setting("zCDP, 32 cells", (2, 4, 4), 600_000, 0.1, 1.0, 1e-9, Currency.ZCDP),
    Setting("zCDP, 32 cells, factored", (2, 4, 4), 600_000, 0.1, 1.0, 1e-9, Currency.ZCDP, factored=True),
    Setting("GDP, 16 cells", (4, 4), 700_000, 0.1, 1.0, 1e-9, Currency.GDP),
    Setting("pure, 16 cells", (2, 8), 400_000, 0.1, 10.0, 0.0, Currency.PURE),
    Setting("zCDP, 8 cells, small alpha", (8,), 400_000, 0.04, 10.0, 1e-9, Currency.ZCDP),
)


@dataclass(frozen=True)
class Outcome:
    """What one session showed. `worst` is its largest error in parts of alpha; `least_gain` that of a hard round in parts of the proof's."""

    beyond: int
    worst: float
    hard: int
    bound: int
    least_gain: float


@dataclass
class MemoryLedger:
    """The part of a ledger that a session uses, in memory: it refuses what the budget does not cover, and keeps the transcript."""

    left: int
    done: list[SimpleNamespace] = field(default_factory=list)

    def leased(self, lease: object) -> None:
        """Accept every lease: there is one worker."""

    def transcript(self, run_id: str) -> list[SimpleNamespace]:
        """Return the committed operations."""
        del run_id
        return self.done

    def charge(self, lease: object, *, step: str, amount: int, mechanism: object, analyst: None) -> SimpleNamespace:
        """Take a price from what is left."""
        del lease, mechanism, analyst
        self.left -= amount
        if self.left < 0:
            raise AssertionError(f"step {step} exceeds the budget")
        return SimpleNamespace(step=step, output=None, amount=amount)

    def commit(self, operation: SimpleNamespace, output: bytes) -> None:
        """Keep an output."""
        self.done.append(SimpleNamespace(step=operation.step, output=output))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let all mechanisms take their random words from a seeded generator: only for made-up tables."""
    generator = np.random.default_rng(seed)
    system = entropy.random_words
    vars(entropy)["random_words"] = lambda count: generator.integers(0, 2**64, count, dtype=np.uint64)
    try:
        yield
    finally:
        vars(entropy)["random_words"] = system


def made_up_table(setting: Setting, rng: np.random.Generator) -> Counts:
    """Return a table that is far from uniform: most rows are in few cells."""
    shares = rng.dirichlet(np.full(math.prod(setting.shape), rng.choice([0.02, 0.1, 0.5])))
    return rng.multinomial(setting.rows, shares).reshape(setting.shape)


def adversary(kind: int, table: Counts, session: OnlineSession, rng: np.random.Generator) -> CountQuery:
    """Choose the next query, knowing the table and the model.

    Kind 0 asks for the count with the largest error of many. Kind 1 asks for one whose error is as close to the threshold as possible: such
    queries teach the model least, or are answered with the largest error. Kind 2 asks at random.
    """
    axes = tuple(range(table.ndim))
    gap = table - session.model.marginal(axes)
    pool = rng.random((POOL, table.size)) < rng.random((POOL, 1))
    pool[0] = gap.ravel() > 0
    pool[1:] ^= (rng.random((POOL - 1, 1)) < 0.5) & (pool[0] ^ pool[1:]) & (rng.random((POOL - 1, table.size)) < 0.8)
    pool[1] = _barely(gap.ravel(), session.bounds.threshold, rng)
    errors = np.abs(pool @ gap.ravel())
    best = (errors, -np.abs(errors - session.bounds.threshold), rng.random(POOL))[kind]
    return CountQuery(axes, pool[int(np.argmax(best))].reshape(table.shape))


def _barely(gap: npt.NDArray[np.float64], threshold: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Return cells whose errors, all of one sign, barely add up to a threshold."""
    cells = rng.permutation(np.flatnonzero(gap > 0 if rng.random() < 0.5 else gap < 0))
    enough = int(np.searchsorted(np.abs(np.cumsum(gap[cells])), threshold)) + 1
    chosen = np.zeros(gap.size, dtype=np.bool_)
    chosen[cells[:enough]] = True
    return chosen


def play(setting: Setting, *, queries: int, seed: int) -> Outcome:
    """Play one session."""
    rng = np.random.default_rng([seed, 1])
    table = made_up_table(setting, rng)
    with seeded(seed):
        session = begin(setting, table, queries=queries)
        return watch(session, table, rng, queries=queries, kind=seed % 3)


def begin(setting: Setting, table: Counts, *, queries: int) -> OnlineSession:
    """Begin a session on a made-up table."""
    codes = [code.astype(np.uint16) for code in np.nonzero(table)]
    histogram = LocalHistogram.of(codes=codes, counts=table[np.nonzero(table)], shape=setting.shape, protection=ROW)
    terms = setting.terms(queries)
    ledger: Any = MemoryLedger(terms.amount)
    gatekeeper = Gatekeeper(ledger=ledger, currency=setting.currency, histogram=histogram, lease=None)  # type: ignore[arg-type]
    return OnlineSession(
        setting.shape,
        terms=terms,
        ledger=ledger,
        run_id="made-up",
        gatekeeper=gatekeeper,
        begin_weights=FactoredWeights if setting.factored else DenseWeights,
    )


def watch(session: OnlineSession, table: Counts, rng: np.random.Generator, *, queries: int, kind: int) -> Outcome:
    """Ask all queries and compare what comes out with the truth and with the proof."""
    bounds, beyond, worst, least_gain = session.bounds, 0, 0.0, math.inf
    promised = 2 * bounds.gap(bounds.threshold - bounds.gate_error) ** 2
    entropy_before = relative_entropy(table, session)
    for _ in range(queries):
        query = adversary(kind, table, session, rng)
        hard = session.hard_rounds
        answer = session.ask(query)
        error = abs(answer.rows - int(table[query.cells].sum()))
        beyond += error > bounds.within
        worst = max(worst, error / bounds.within)
        if session.hard_rounds > hard:
            entropy_after = relative_entropy(table, session)
            least_gain = min(least_gain, (entropy_before - entropy_after + SLACK) / promised)
            entropy_before = entropy_after
    return Outcome(beyond, worst, session.hard_rounds, bounds.hard_rounds, least_gain)


def relative_entropy(table: Counts, session: OnlineSession) -> float:
    """Return D(table || model), both as distributions."""
    model = session.model.marginal(tuple(range(table.ndim)))
    shares = table / table.sum()
    held = table > 0
    return float((shares[held] * np.log(shares[held] / (model[held] / session.model.total))).sum())


@dataclass(frozen=True)
class Result:
    """What all sessions of a setting showed."""

    setting: str
    sessions: int
    queries: int
    alpha: float
    beta: float
    within_rows: int
    sessions_beyond: int
    share_of_sessions_beyond: float
    share_of_answers_beyond: float
    worst_error_in_alphas: float
    most_hard_rounds: int
    mean_hard_rounds: float
    bound_of_hard_rounds: int
    least_gain_of_a_hard_round: float
    holds: bool
    seconds: float


def measure(setting: Setting, *, sessions: int, queries: int) -> Result:
    """Play all sessions of a setting."""
    started = time.perf_counter()
    with ProcessPoolExecutor(max_workers=int(os.environ.get("WORKERS", "1"))) as pool:
        jobs = [pool.submit(play, setting, queries=queries, seed=seed) for seed in range(sessions)]
        found = [job.result() for job in jobs]
    beyond = sum(each.beyond > 0 for each in found)
    over = any(each.hard > each.bound for each in found)
    bounds = begin(setting, made_up_table(setting, np.random.default_rng(0)), queries=queries).bounds
    return Result(
        setting=setting.name,
        sessions=sessions,
        queries=queries,
        alpha=setting.alpha,
        beta=setting.beta,
        within_rows=bounds.within,
        sessions_beyond=beyond,
        share_of_sessions_beyond=beyond / sessions,
        share_of_answers_beyond=sum(each.beyond for each in found) / (sessions * queries),
        worst_error_in_alphas=round(max(each.worst for each in found), 4),
        most_hard_rounds=max(each.hard for each in found),
        mean_hard_rounds=round(sum(each.hard for each in found) / sessions, 1),
        bound_of_hard_rounds=bounds.hard_rounds,
        least_gain_of_a_hard_round=round(min(each.least_gain for each in found), 4),
        holds=beyond <= setting.beta * sessions and not over and min(each.least_gain for each in found) >= 1,
        seconds=round(time.perf_counter() - started, 1),
    )


def main() -> None:
    """Check all settings and print what they show."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online", description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=500, help="the number of sessions of all settings together")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for setting in SETTINGS:
        result = measure(setting, sessions=arguments.sessions // len(SETTINGS), queries=arguments.queries)
        if arguments.json:
            print(json.dumps(asdict(result)), flush=True)
        else:
            print(
                f"{result.setting}: {result.sessions_beyond} of {result.sessions} sessions beyond alpha {result.alpha} (beta {result.beta}), "
                f"worst error {result.worst_error_in_alphas} alpha; at most {result.most_hard_rounds} hard rounds of "
                f"{result.bound_of_hard_rounds}; {'holds' if result.holds else 'FAILS'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
