"""Compare a session with simpler curators: `python -m benchmarks.curator --data adult7 --workload zipf --seeds 5 --json`.

10,000 counts over one to four columns are asked of one table. Each is taken from a pool by Zipf's law, so most are repeated: `zipf` has a
pool of 3,000 over all sets of columns, `dashboard` one of 1,000 over eight sets. Everything is counted in one currency, except Turbo, whose
paper has zCDP, and noise is seeded.

For the whole budget, mean absolute errors in rows:
- fresh: every answer gets new Gaussian noise, and 10,000 of them share the budget.
- cache: every distinct question gets Gaussian noise once. Their number is taken to be known beforehand, which flatters this curator.
- turbo: Turbo's PMW-Bypass (`curator_turbo`), with its published alpha, and with the smallest alpha with which the budget lasts.
- release: one release for the whole budget, and every answer from its model.
- session: a release for a share of the budget, and the rest for questions whose interval is wider than `--within`, while it lasts.

`--accurate W` asks how much a session spends if every answer must be within W rows at 95 %, and how much the cache needs for that. The
session begins with a release at `--epsilon`.

Releases are made as a whole, by `benchmarks.coverage`; `--keep FOLDER` keeps them for another run. A session's purchases are made by its
own pricing and fitting, but without a ledger.
"""

import argparse
import json
import math
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.coverage import released, table_of
from benchmarks.curator_questions import Asked, Codes, Stream, coded, stream
from benchmarks.curator_turbo import published_and_best
from dpcore.answers.query import Count, Output, Query
from dpcore.answers.release import Release, open_release
from dpcore.errors import UsageError
from dpcore.models import FactoredModel
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of, epsilon_of
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.session.bought import Bought, digest_of, step_of
from dpcore.session.knowledge import Knowledge
from dpcore.session.opening import FIRST_SHARE
from dpcore.session.questions import Within
from dpcore.session.quote import quote

DELTA = 1e-9
QUESTIONS = 10_000
STRATEGIES = {"adult7": "mwem", "adult_discretized": "adaptive"}
MOST_DENSE = 1 << 24  # cells of a histogram that Turbo can hold
ROWS = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)


def main() -> None:
    """Run the comparisons, and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.curator", description=__doc__)
    parser.add_argument("--data", choices=list(STRATEGIES), default="adult7")
    parser.add_argument("--workload", choices=["zipf", "dashboard"], default="zipf")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--currency", choices=["zcdp", "gdp"], default="gdp", help="default: that of a new account")
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--share", nargs="*", type=float, default=[FIRST_SHARE], help="of a first release")
    parser.add_argument("--within", type=float, default=100.0, help="rows; only less accurate answers are bought")
    parser.add_argument("--accurate", type=float, metavar="W", help="instead, make all answers accurate within W rows")
    parser.add_argument("--no-turbo", action="store_true", help="leave out Turbo, which takes most of the time")
    parser.add_argument("--keep", type=Path, help="where releases are kept; default: nowhere")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            result = compared(arguments, seed, folder=(arguments.keep or Path(folder)).resolve())
            print(json.dumps(result) if arguments.json else _text(result), flush=True)


def compared(arguments: argparse.Namespace, seed: int, *, folder: Path) -> dict[str, Any]:
    """Run all curators with one seed."""
    data, table, begin = arguments.data, table_of(arguments.data), time.process_time()
    currency = Currency(arguments.currency)

    def release(epsilon: float) -> Release:
        path = folder / f"{data}-{STRATEGIES[data]}-{currency}-{epsilon:.9g}-{seed}"
        released(path, table, strategy=STRATEGIES[data], epsilon=epsilon, seed=seed, currency=currency)
        return open_release(path)

    whole = release(arguments.epsilon)
    codes = coded(whole.universe, table[1])
    asked = stream(whole.universe, codes, workload=arguments.workload, count=arguments.questions, seed=seed)
    budget = budget_of(arguments.epsilon, delta=DELTA, currency=currency)[1]
    told = {
        "data": data,
        "workload": arguments.workload,
        "seed": seed,
        "epsilon": arguments.epsilon,
        "currency": str(currency),
    }
    told |= {"questions": arguments.questions, "distinct": len(asked.distinct), "sets": len(asked.sets)}
    if arguments.accurate:
        session = SimulatedSession(whole, codes, left=1 << 60, currency=currency, seed=seed)
        told |= accurate(session, asked, within=arguments.accurate, first_amount=budget)
        return told | {"cpu_seconds": time.process_time() - begin}
    told["fresh"], told["cache"] = (
        _noisy(asked, _deviation(budget / AMOUNT_OF_ONE / shared, currency), seed=seed)
        for shared in (arguments.questions, len(asked.distinct))
    )
    told["release"] = asked.error(asked.answered(whole.model.marginal))
    shape = whole.universe.shape
    if math.prod(shape) <= MOST_DENSE and not arguments.no_turbo:
        rho = budget_of(arguments.epsilon, delta=DELTA, currency=Currency.ZCDP)[1] / AMOUNT_OF_ONE
        turbo = published_and_best(asked, shape, rows=len(codes[0]), rho=rho, seed=seed)
        told["turbo"], told["turbo best"] = (each and asdict(each) for each in turbo)
    for share in arguments.share:
        epsilon, left = epsilon_of(int(budget * share), currency=currency, delta=DELTA), budget - int(budget * share)
        begun = SimulatedSession(release(epsilon), codes, left=left, currency=currency, seed=seed)
        answers = begun.ask_all(asked, Within.of(arguments.within))
        told[f"session {share:g}"] = begun.summary(asked, answers)
    return told | {"cpu_seconds": time.process_time() - begin}


class SimulatedSession:
    """A session without a ledger: its prices, measurements and fits, with seeded noise."""

    def __init__(self, first: Release, codes: Codes, *, left: int, currency: Currency, seed: int) -> None:
        self.known = Knowledge(first)
        self.currency = currency
        self.spent = self.paid = self.refused = 0
        self.covered: list[bool] = []
        self.halves: list[float] = []
        self._codes = codes
        self._left = left
        self._rng = np.random.default_rng([seed, 31])

    def ask_all(self, asked: Stream, within: Within) -> dict[int, float]:
        """Ask all questions, each once. A repeated one has the same answer."""
        if not isinstance(
            self.known.release.model, FactoredModel
        ):  # which answers by classes of cells, without whole marginals
            self.known.intervals.ensemble.keep(asked.sets)
        return {place: self._ask(asked.pool[place], within) for place in asked.distinct}

    def _ask(self, question: Asked, within: Within) -> float:
        count = Count(question.condition)
        query = Query((Output("n", count),))
        try:
            quoted = quote(query, self.known, within=within, currency=self.currency, protection=ROWS)
        except UsageError:  # it cannot be made so accurate
            self.refused += 1
            quoted = quote(query, self.known, within=Within.of(1e12), currency=self.currency, protection=ROWS)
        amount, numbers = quoted.amount(self.currency), quoted.numbers
        if quoted.purchase is not None and quoted.noise is not None and amount <= self._left - self.spent:
            self.spent += amount
            self.paid += 1
            true = np.zeros(quoted.purchase.grid.shape, dtype=np.int64)
            places = zip(quoted.purchase.grid.groups, quoted.purchase.grid.columns, strict=True)
            np.add.at(true, tuple(groups[self._codes[column]] for groups, column in places), 1)
            noise = quoted.noise.standard_deviation
            counts = true + np.rint(self._rng.normal(0, noise, true.shape)).astype(np.int64)
            numbers = quoted.answer(counts)
            digest = digest_of(query)
            self.known = self.known.after(
                Bought(
                    step_of(digest, 1),
                    "",
                    digest,
                    within,
                    quoted.purchase.grid,
                    counts,
                    noise,
                    (numbers[count],),
                )
            )
        found = numbers[count]
        low, high = float(found.low[0]), float(found.high[0])
        self.covered.append(low - 1e-6 <= question.truth <= high + 1e-6)
        self.halves.append(max(high - float(found.value[0]), float(found.value[0]) - low))
        return float(found.value[0])

    def summary(self, asked: Stream, answers: dict[int, float]) -> dict[str, Any]:
        """Return the error, what was bought, and how often intervals of distinct questions contain the truth."""
        return {
            "error": asked.error(answers),
            "bought": self.paid,
            "refused": self.refused,
            "spent": self.spent / AMOUNT_OF_ONE,
            "covered": float(np.mean(self.covered)),
            "half_width": float(np.mean(self.halves)),
        }


def accurate(session: SimulatedSession, asked: Stream, *, within: float, first_amount: int) -> dict[str, Any]:
    """Return what it costs to make all answers accurate, for a session that has begun with a release, and for the cache."""
    wanted = Within.of(within)
    answers = session.ask_all(asked, wanted)
    spent = (first_amount + session.spent) / AMOUNT_OF_ONE
    cache = len(asked.distinct) * (_deviation(1.0, session.currency) / (within / wanted.normal)) ** 2
    return {
        "within": within,
        "session": session.summary(asked, answers) | {"spent_with_release": spent},
        "cache_spent": cache,
        "of_cache": spent / cache,
    }


def _deviation(amount: float, currency: Currency) -> float:
    """Return the standard deviation of Gaussian noise on a count that costs an amount."""
    return 1 / math.sqrt(amount * (2 if currency is Currency.ZCDP else 1))


def _noisy(asked: Stream, deviation: float, *, seed: int) -> float:
    """Return the error of answers with Gaussian noise."""
    rng = np.random.default_rng([seed, 37])
    rows = max(each.truth for each in asked.pool)
    true = np.array([asked.pool[place].truth for place in asked.places.tolist()])
    noisy = np.clip(true + rng.normal(0, deviation, len(true)), 0, rows)
    return float(np.mean(np.abs(noisy - true)))


def _text(result: dict[str, Any]) -> str:
    return "\n".join(f"{name:16} {value}" for name, value in result.items()) + "\n"


if __name__ == "__main__":
    main()
