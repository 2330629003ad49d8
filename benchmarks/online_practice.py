"""Compare `online` with what it gives up for its guarantee: `python -m benchmarks.online_practice [--seeds 3] [--json]`.

1,000 random counts over one to three columns of adult7, for the same budget: by `online` with the smallest alpha that it can promise, by the
model of one release (strategy `mwem`, which promises no error), and by fresh Gaussian noise for each count. Noise is seeded.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks.online import ROW, MemoryLedger, seeded
from benchmarks.simulated import SeededCurator, Table
from benchmarks.tables import SPECS, BenchmarkTable, load
from dpcore.curator.gate import CountQuery, Gatekeeper
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, budget_of
from dpcore.spec import load_spec
from dpcore.strategies import strategy_for
from dpcore.tables.histogram import LocalHistogram
from dpcore.textbook.online import OnlineSession, Terms, fewest_rows, smallest_alpha

DELTA, BETA, QUERIES = 1e-9, 0.05, 1000
USEFUL = 0.05

Errors = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Mean absolute errors in rows, and what `online` promises."""

    epsilon: float
    rows: int
    cells: int
    smallest_alpha: float
    promised_rows: int
    hard_rounds: float
    rows_for_alpha_5_percent: int | None
    online: float
    release: float
    fresh_noise: float


def random_counts(sizes: tuple[int, ...], rng: np.random.Generator) -> list[CountQuery]:
    """Return random counts over one to three columns: of a range or of a set of values in each."""
    return [_random_count(sizes, rng) for _ in range(QUERIES)]


def _random_count(sizes: tuple[int, ...], rng: np.random.Generator) -> CountQuery:
    axes = tuple(sorted(rng.choice(len(sizes), rng.integers(1, 4), replace=False).tolist()))
    cells = np.ones([1] * len(axes), dtype=np.bool_)
    for at, axis in enumerate(axes):
        low, high = sorted(rng.integers(0, sizes[axis], 2))
        chosen = (np.arange(sizes[axis]) >= low) & (np.arange(sizes[axis]) <= high)
        chosen = chosen if rng.random() < 0.5 else rng.random(sizes[axis]) < 0.5
        cells = cells & chosen.reshape([-1 if place == at else 1 for place in range(len(axes))])
    return CountQuery(axes, cells)


def compare(table: BenchmarkTable, *, epsilon: float, seeds: int) -> Comparison:
    """Answer the same counts in three ways."""
    sizes = tuple(table.sizes.values())
    codes = tuple(table.frame[name].to_numpy() for name in table.sizes)
    histogram = LocalHistogram([([code.astype(np.uint16) for code in codes], None)], shape=sizes, protection=ROW)
    _, amount = budget_of(epsilon, delta=DELTA, currency=Currency.ZCDP)
    terms = Terms(
        alpha=0.5,
        beta=BETA,
        queries=QUERIES,
        restarts=0,
        cells=math.prod(sizes),
        amount=amount,
        currency=Currency.ZCDP,
        protection=ROW,
    )
    alpha = smallest_alpha(terms, rows=len(codes[0]))
    if alpha is None:
        raise SystemExit("benchmarks: online can promise nothing on this table")
    terms = replace(terms, alpha=1.02 * alpha)  # the measured number of rows may be a little less
    errors: dict[str, list[Errors]] = {"online": [], "release": [], "fresh_noise": []}
    hard = []
    for seed in range(seeds):
        queries = random_counts(sizes, np.random.default_rng([seed, 7]))
        true = np.array([int(query.on(histogram.marginal(query.axes))) for query in queries])
        with seeded(seed):
            session = _session(histogram, sizes, terms)
            errors["online"].append(np.array([session.ask(query).rows for query in queries]) - true)
        hard.append(session.hard_rounds)
        errors["release"].append(_released(Table(table.name, codes, sizes), epsilon, seed)(queries) - true)
        sigma = math.sqrt(QUERIES / (2 * amount / AMOUNT_OF_ONE))
        errors["fresh_noise"].append(np.random.default_rng([seed, 8]).normal(0, sigma, QUERIES))
    means = {name: round(float(np.mean(np.abs(found))), 1) for name, found in errors.items()}
    return Comparison(
        epsilon=epsilon,
        rows=len(codes[0]),
        cells=terms.cells,
        smallest_alpha=alpha,
        promised_rows=session.bounds.within,
        hard_rounds=float(np.mean(hard)),
        rows_for_alpha_5_percent=fewest_rows(replace(terms, alpha=USEFUL)),
        **means,
    )


def _session(histogram: LocalHistogram, sizes: tuple[int, ...], terms: Terms) -> OnlineSession:
    ledger: object = MemoryLedger(terms.amount)
    keeper = Gatekeeper(ledger=ledger, currency=terms.currency, histogram=histogram, lease=None)  # type: ignore[arg-type]
    return OnlineSession(sizes, terms=terms, ledger=ledger, run_id="made-up", gatekeeper=keeper)  # type: ignore[arg-type]


def _released(table: Table, epsilon: float, seed: int) -> Callable[[list[CountQuery]], Errors]:
    """Return the answers of the model of one release for the whole budget."""
    strategy = strategy_for(load_spec(SPECS / f"{table.name}.yaml"))
    curator = SeededCurator(table, epsilon=epsilon, delta=DELTA, currency=Currency.ZCDP, seed=seed)
    strategy.begin(curator)  # type: ignore[arg-type]
    for number in range(1, strategy.rounds + 1):
        chosen = strategy.select(curator, number)  # type: ignore[arg-type]
        strategy.update(number, strategy.measure(curator, number, chosen))  # type: ignore[arg-type]
    strategy.conclude()
    return lambda queries: np.array([float(query.on(strategy.model.marginal(query.axes))) for query in queries])


def main() -> None:
    """Compare at several budgets, and print the errors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online_practice", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table = load("adult7")
    for epsilon in (1.0, 10.0):
        found = compare(table, epsilon=epsilon, seeds=arguments.seeds)
        print(json.dumps(asdict(found)) if arguments.json else found, flush=True)


if __name__ == "__main__":
    main()
