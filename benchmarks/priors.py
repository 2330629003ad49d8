"""Measure what a public table as the start of the weights changes, in releases of adult7 by `mwem` with seeded noise.

    python -m benchmarks.priors --seeds 5

The figure is the error of 3-way marginals, divided by that without a prior. `pseudo` is a planted variant: it counts the public rows as
measurements instead of starting from them.
"""

import argparse
import json
import statistics

import numpy as np

from benchmarks.simulated import SeededCurator, Table, release
from benchmarks.tables import load
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Workload
from dpcore.models.start import PublicRows
from dpcore.strategies import Column, Mwem

ROWS = 10_000
AT_MOST = {("public", 0.1): 0.75, ("biased", 0.1): 1.02, ("public", 1.0): 1.02, ("biased", 1.0): 1.02}
KINDS = ("public", "biased", "pseudo")


class PseudoMeasured(Mwem):
    """A planted bug: the marginals of the prior become evidence, as if they were measured in the private table."""

    def _begin_weights(self) -> None:
        if self.prior is not None:
            for axes in self._sets:
                counts = self.prior.counts(axes, self.resolutions)
                noise = max(1.0, float(np.sqrt(counts.mean())))
                self._evidence.add(Measurement("pseudo", axes, cell=None, values=counts, noise=noise))


def public_rows(table: Table, *, rows: int, biased: bool, seed: int) -> PublicRows:
    """Draw a public table from the same population, or from one in which some people are two, three or six times as frequent."""
    weights = np.ones(table.rows)
    if biased:
        weights = np.where(table.codes[5] == 1, 2.0, 1.0) * np.where(table.codes[2] == 0, 3.0, 1.0)
    chosen = np.random.default_rng(1000 + seed).choice(table.rows, rows, p=weights / weights.sum())
    return PublicRows({column: codes[chosen] for column, codes in enumerate(table.codes)}, rows)


def error(table: Table, names: list[str], *, kind: str | None, epsilon: float, seed: int) -> float:
    """Return the error of the 3-way marginals of a release with a kind of prior; None for no prior."""
    workload = Workload.all_of(attributes=len(names), order=3)
    columns = [Column(name, size, ordered=False) for name, size in zip(names, table.sizes, strict=True)]
    strategy = (PseudoMeasured if kind == "pseudo" else Mwem)(columns, workload, rounds=None, pure=False)
    if kind is not None:
        strategy.prior = public_rows(table, rows=ROWS, biased=kind != "public", seed=seed)
    curator = SeededCurator(table, epsilon=epsilon, delta=1e-9, currency=None, seed=seed)
    return table.error(release(strategy, curator, seed=seed), order=3)


def main() -> None:
    """Run the benchmark and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    loaded = load("adult7")
    table = Table(
        loaded.name, tuple(loaded.frame[name].to_numpy() for name in loaded.sizes), tuple(loaded.sizes.values())
    )
    names, found = list(loaded.sizes), []
    for epsilon in (0.1, 1.0):
        plain = [error(table, names, kind=None, epsilon=epsilon, seed=seed) for seed in seeds]
        for kind in KINDS:
            made = [error(table, names, kind=kind, epsilon=epsilon, seed=seed) for seed in seeds]
            ratio, bar = statistics.mean(made) / statistics.mean(plain), AT_MOST.get((kind, epsilon))
            found.append(
                {
                    "epsilon": epsilon,
                    "prior": kind,
                    "ratio": round(ratio, 3),
                    "at_most": bar,
                    "error": round(statistics.mean(made), 4),
                    "error_without": round(statistics.mean(plain), 4),
                    "of_each": [round(one / other, 3) for one, other in zip(made, plain, strict=True)],
                }
            )
            print(json.dumps(found[-1]), flush=True)


if __name__ == "__main__":
    main()
