"""Compare a session with simpler curators: `python -m benchmarks.curator --data adult7 --workload zipf --seeds 5 --json`.

10,000 counts over one to four columns are asked of one table. Each is taken from a pool by Zipf's law, so most are repeated: `zipf` has a
pool of 3,000 over all sets of columns, `dashboard` one of 1,000 over eight sets. Everything is counted in zCDP, and noise is seeded.

For the whole budget, mean absolute errors in rows:
- fresh: every answer gets new Gaussian noise, and 10,000 of them share the budget.
- cache: every distinct question gets Gaussian noise once. Their number is taken to be known beforehand, which flatters this curator.
- release: one release for the whole budget, and every answer from its model.
- session: a release for a share of the budget, and the rest for questions whose interval is wider than `--within`, while it lasts.

`--accurate W` asks how much a session spends if every answer must be within W rows at 95 %, and how much the cache needs for that.

Releases are made as a whole, by `benchmarks.coverage`. A session's purchases are made by its own pricing and fitting, but without a ledger.
"""

import argparse
import json
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from benchmarks.coverage import released, table_of
from benchmarks.coverage_questions import cells_condition, question_cells
from dpcore.answers.intervals import Intervals
from dpcore.answers.query import All, Condition, Count, Output, Query, terms
from dpcore.answers.release import Release, open_release
from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of, epsilon_of
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.session.accuracy import Within
from dpcore.session.bought import Bought, digest_of, step_of
from dpcore.session.knowledge import Knowledge
from dpcore.session.offer import offer

DELTA = 1e-9
QUESTIONS = 10_000
POOLS = {"zipf": 3000, "dashboard": 1000}
COLUMNS = {"zipf": (0.1, 0.3, 0.4, 0.2), "dashboard": (0.0, 0.2, 0.5, 0.3)}  # the shares of one to four columns
SETS = 8  # of columns, on a dashboard
MOST_CELLS = 1 << 20
STRATEGIES = {"adult7": "mwem", "adult_discretized": "adaptive"}
ROWS = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)


@dataclass(frozen=True, eq=False)
class Asked:
    """A stream of questions, each with its true answer: a pool, and the places in it that are asked one after the other."""

    pool: list[tuple[Condition, float]]
    stream: npt.NDArray[np.int64]

    @property
    def distinct(self) -> list[int]:
        """The places of the questions that are asked, in the order of their first time."""
        return list(dict.fromkeys(self.stream.tolist()))

    def error(self, answers: dict[int, float]) -> float:
        """Return the mean absolute error over the stream."""
        return float(np.mean([abs(answers[place] - self.pool[place][1]) for place in self.stream.tolist()]))


def main() -> None:
    """Run the comparisons, and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curator", description=__doc__)
    parser.add_argument("--data", choices=list(STRATEGIES), default="adult7")
    parser.add_argument("--workload", choices=list(POOLS), default="zipf")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--share", nargs="+", type=float, default=[0.6, 0.8], help="of a first release")
    parser.add_argument("--within", type=float, default=100.0, help="rows; only less accurate answers are bought")
    parser.add_argument("--accurate", type=float, metavar="W", help="instead, make all answers accurate within W rows")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        result = compared(arguments, seed)
        print(json.dumps(result) if arguments.json else _text(result), flush=True)


def compared(arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Run all curators with one seed."""
    data, table = arguments.data, table_of(arguments.data)
    with tempfile.TemporaryDirectory() as folder:

        def release(epsilon: float) -> Release:
            path = Path(folder) / f"{epsilon:.9g}"
            released(path, table, strategy=STRATEGIES[data], epsilon=epsilon, seed=seed)
            return open_release(path)

        begin = time.process_time()
        whole = release(arguments.epsilon)
        asked = questions(whole, table[1], workload=arguments.workload, count=arguments.questions, seed=seed)
        budget = budget_of(arguments.epsilon, delta=DELTA, currency=Currency.ZCDP)[1]
        told = {"data": data, "workload": arguments.workload, "seed": seed, "epsilon": arguments.epsilon}
        told["questions"] = arguments.questions
        told |= {"distinct": len(asked.distinct), "sets": _sets(asked)}
        if arguments.accurate:
            found = accurate(whole, asked, table[1], within=arguments.accurate, first_amount=budget, seed=seed)
            return told | found | {"cpu_seconds": time.process_time() - begin}
        told["fresh"], told["cache"] = (
            _noisy(asked, budget / AMOUNT_OF_ONE / shared, seed=seed)
            for shared in (arguments.questions, len(asked.distinct))
        )
        told["release"] = asked.error(model_answers(whole, asked))
        for share in arguments.share:
            epsilon = epsilon_of(int(budget * share), currency=Currency.ZCDP, delta=DELTA)
            begun = SimulatedSession(release(epsilon), table[1], left=budget - int(budget * share), seed=seed)
            answers = begun.ask_all(asked, Within.of(arguments.within))
            told[f"session {share:g}"] = begun.summary(asked, answers)
    return told | {"cpu_seconds": time.process_time() - begin}


def questions(release: Release, frame: pd.DataFrame, *, workload: str, count: int, seed: int) -> Asked:
    """Make a pool of random counts and a stream of questions from it."""
    rng, codes = np.random.default_rng([seed, 29]), coded(release, frame)
    attributes = list(release.universe.attributes.values())

    def columns() -> tuple[int, ...]:
        while True:
            wanted = 1 + int(rng.choice(4, p=COLUMNS[workload]))
            axes = tuple(sorted(rng.choice(len(attributes), wanted, replace=False).tolist()))
            if math.prod(attributes[axis].size for axis in axes) <= MOST_CELLS:
                return axes

    board = [columns() for _ in range(SETS)] if workload == "dashboard" else None
    pool: dict[str, tuple[Condition, float]] = {}
    while len(pool) < POOLS[workload]:
        axes = board[int(rng.integers(len(board)))] if board else columns()
        kept, parts = np.ones(len(codes[0]), dtype=np.bool_), []
        for axis in axes:
            condition, cells = cells_condition(axis, attributes[axis], question_cells(attributes[axis], rng))
            parts.append(condition)
            kept &= cells[codes[axis]] > 0
        pool.setdefault(repr(parts), (All(tuple(parts)), float(kept.sum())))
    weights = 1 / np.arange(1, len(pool) + 1)
    return Asked(list(pool.values()), rng.choice(len(pool), count, p=weights / weights.sum()))


def coded(release: Release, frame: pd.DataFrame) -> list[npt.NDArray[Any]]:
    """Return the cell of each row in each column."""
    table = pa.Table.from_pandas(frame[list(release.universe.names)], preserve_index=False)
    return [np.asarray(each) for each in release.universe.encode_rows(table)[0]]


def model_answers(release: Release, asked: Asked) -> dict[int, float]:
    """Answer all questions from a release's model."""
    ensemble, found = Intervals(release).ensemble, {}
    for place in asked.distinct:
        count = Count(asked.pool[place][0])
        found[place] = float(ensemble.values(ensemble.merging(Query((Output("n", count),))))[count][0])
    return found


class SimulatedSession:
    """A session without a ledger: its prices, measurements and fits, with seeded noise."""

    def __init__(self, first: Release, frame: pd.DataFrame, *, left: int, seed: int) -> None:
        self.known = Knowledge.of(first)
        self.spent = self.paid = self.refused = 0
        self.covered: list[bool] = []
        self._codes = coded(first, frame)
        self._left = left
        self._rng = np.random.default_rng([seed, 31])

    def ask_all(self, asked: Asked, within: Within) -> dict[int, float]:
        """Ask all questions, each once. A repeated one has the same answer."""
        return {place: self._ask(*asked.pool[place], within) for place in asked.distinct}

    def _ask(self, condition: Condition, truth: float, within: Within) -> float:
        count = Count(condition)
        query = Query((Output("n", count),))
        try:
            offered = offer(query, self.known, within=within, currency=Currency.ZCDP, protection=ROWS)
        except UsageError:  # it cannot be made so accurate
            self.refused += 1
            offered = offer(query, self.known, within=Within.of(1e12), currency=Currency.ZCDP, protection=ROWS)
        amount, numbers = offered.amount(Currency.ZCDP), offered.numbers
        if offered.grid is not None and offered.noise is not None and amount <= self._left - self.spent:
            self.spent += amount
            self.paid += 1
            true = np.zeros(offered.grid.shape, dtype=np.int64)
            places = zip(offered.grid.groups, offered.grid.columns, strict=True)
            np.add.at(true, tuple(groups[self._codes[column]] for groups, column in places), 1)
            noise = offered.noise.standard_deviation
            counts = true + np.rint(self._rng.normal(0, noise, true.shape)).astype(np.int64)
            numbers = offered.answer(counts)
            digest = digest_of(query)
            bought = Bought(
                step_of(digest, 1), "", digest, within.level, offered.grid, counts, noise, (numbers[count],)
            )
            self.known = self.known.after(bought)
        found = numbers[count]
        self.covered.append(bool(found.low[0] - 1e-6 <= truth <= found.high[0] + 1e-6))
        return float(found.value[0])

    def summary(self, asked: Asked, answers: dict[int, float]) -> dict[str, Any]:
        """Return the error, what was bought, and how often intervals of distinct questions contain the truth."""
        return {
            "error": asked.error(answers),
            "bought": self.paid,
            "refused": self.refused,
            "rho": self.spent / AMOUNT_OF_ONE,
            "covered": float(np.mean(self.covered)),
        }


def accurate(  # noqa: PLR0913  all that a comparison depends on
    first: Release, asked: Asked, frame: pd.DataFrame, *, within: float, first_amount: int, seed: int
) -> dict[str, Any]:
    """Return what it costs to make all answers accurate, for a session that begins with a release, and for the cache."""
    session = SimulatedSession(first, frame, left=1 << 60, seed=seed)
    wanted = Within.of(within)
    answers = session.ask_all(asked, wanted)
    rho = first_amount / AMOUNT_OF_ONE + session.spent / AMOUNT_OF_ONE
    cache = len(asked.distinct) / (2 * (within / wanted.normal) ** 2)
    return {
        "within": within,
        "session": session.summary(asked, answers) | {"rho_with_release": rho},
        "cache_rho": cache,
        "of_cache": rho / cache,
    }


def _noisy(asked: Asked, rho: float, *, seed: int) -> float:
    """Return the error of Gaussian noise that costs rho for each answer."""
    rng = np.random.default_rng([seed, 37])
    rows = max(truth for _, truth in asked.pool)
    true = np.array([asked.pool[place][1] for place in asked.stream.tolist()])
    noisy = np.clip(true + rng.normal(0, math.sqrt(1 / (2 * rho)), len(true)), 0, rows)
    return float(np.mean(np.abs(noisy - true)))


def _sets(asked: Asked) -> int:
    conditions = (asked.pool[place][0] for place in asked.distinct)
    return len({frozenset(term.column for term in terms(condition)) for condition in conditions})


def _text(result: dict[str, Any]) -> str:
    return "\n".join(f"{name:16} {value}" for name, value in result.items()) + "\n"


if __name__ == "__main__":
    main()
