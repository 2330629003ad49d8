"""Measure constraints: the error of a release with and without them, and the size of its model.

    python -m benchmarks.constraints [--seeds 5] [--json]

Six columns of Adult; wives are female, husbands male, spouses married, and nobody who is unmarried has a present spouse. The same
seeds give the same noise with and without constraints. `zeroed` is the planted variant: it sets impossible counts to zero in the evidence
instead of leaving them out, so that the fit stops too early.
"""

import argparse
import json
import statistics
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.simulated import SeededCurator, Table, release
from benchmarks.tables import shared_data
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes, Workload
from dpcore.marginals.zeros import NO_ZEROS, Zeros
from dpcore.models import DenseModel
from dpcore.models.factored import FactoredModel
from dpcore.strategies import Adaptive, Column, Mwem, Strategy
from dpcore.tables.ingest.violations import Rules
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Attribute, Categorical, Integer, Universe
from dpcore.universe.constraints import Condition, Constraint, Implication, Violations

DELTA = 1e-9
MARRIED = ("Married-civ-spouse", "Married-AF-spouse")
SINGLE = ("Never-married", "Divorced", "Separated", "Widowed", "Married-spouse-absent")
ADULT: dict[str, Attribute] = {
    "relationship": Categorical(("Husband", "Not-in-family", "Wife", "Own-child", "Other-relative", "Unmarried")),
    "marital-status": Categorical((*MARRIED, *SINGLE)),
    "gender": Categorical(("Male", "Female")),
    "age": Integer(minimum=15, maximum=94, width=5),
    "educational-num": Integer(minimum=1, maximum=16),
    "income": Categorical(("<=50K", ">50K")),
}


def _if(column: str, value: str, then: str, *values: str) -> Constraint:
    when, consequence = (Condition(column, (value,)),), (Condition(then, values),)
    return Implication(when=when, then=consequence, violations=Violations.DROP)


FACTS = (
    _if("relationship", "Wife", "gender", "Female"),
    _if("relationship", "Husband", "gender", "Male"),
    _if("relationship", "Wife", "marital-status", *MARRIED),
    _if("relationship", "Husband", "marital-status", *MARRIED),
    _if("relationship", "Unmarried", "marital-status", *SINGLE),
)


class ZeroedCurator(SeededCurator):
    """The planted variant: counts that constraints exclude are known to be zero, and stay in the evidence."""

    zeros: Zeros
    strategy: Strategy

    def measure_marginal(self, step: str, axes: Axes, *, share: Any) -> Measurement:
        """Measure a marginal, and set its impossible counts to zero."""
        measured = super().measure_marginal(step, axes, share=share)
        possible = self.zeros.support(axes, self.strategy.resolutions)
        return measured if possible is None else replace(measured, values=np.where(possible, measured.values, 0))


class BlindDense(DenseModel):
    """A dense model with zeros of which a fit does not know."""

    def possible(self, axes: Axes) -> None:
        """Claim that everything is possible."""


def strategy_with(name: str, zeros: Zeros) -> Strategy:
    """Return a strategy for the columns of Adult."""
    workload = Workload.all_of(attributes=len(ADULT), order=3)
    columns = [Column(name, attribute.size, attribute.ordered) for name, attribute in ADULT.items()]
    if name == "adaptive":
        return Adaptive(columns, workload, rounds=None, pure=False, model_mb=8.0, zeros=zeros)
    return Mwem(columns, workload, rounds=None, pure=False, zeros=zeros)


def adult() -> tuple[Table, Table]:
    """Return the table, and the table without rows that violate a constraint."""
    universe = Universe(ADULT, FACTS)
    rows = pa.Table.from_pandas(pd.read_parquet(shared_data() / "adult.parquet")[list(ADULT)], preserve_index=False)
    batch = rows.combine_chunks().to_batches()[0]
    rules = Rules.of(universe)
    if rules is None:
        raise AssertionError("the benchmark has constraints")
    every = [codes.astype(np.int64) for codes in encode_rows(universe, batch)[0]]
    kept = [codes.astype(np.int64) for codes in encode_rows(universe, batch, read=rules.read(batch, universe))[0]]
    return Table("adult6", tuple(every), universe.shape), Table("adult6", tuple(kept), universe.shape)


def measure_adult(strategy: str, *, epsilon: float, seeds: int) -> dict[str, Any]:
    """Return the 3-way errors of releases with and without constraints, of the planted variant, and the sizes of the models."""
    (table, kept), zeros = adult(), Zeros(Universe(ADULT, FACTS).possible)
    errors: dict[str, list[float]] = {"without": [], "with": [], "zeroed": []}
    cells: dict[str, list[int]] = {"without": [], "with": []}
    for seed in range(seeds):
        for variant, own in errors.items():
            made = strategy_with(strategy, NO_ZEROS if variant == "without" else zeros)
            kind = ZeroedCurator if variant == "zeroed" else SeededCurator
            read = table if variant == "without" else kept
            curator = kind(read, epsilon=epsilon, delta=DELTA, currency=None, seed=seed)
            if isinstance(curator, ZeroedCurator):
                if strategy == "adaptive":
                    continue
                made.model = BlindDense(made.model.shape, total=1.0, zeros=zeros)
                curator.zeros, curator.strategy = zeros, made
            own.append(table.error(release(made, curator, seed=seed), order=3))
            if variant in cells and isinstance(made.model, FactoredModel):
                cells[variant].append(made.model.cells)
    means = {variant: statistics.mean(each) for variant, each in errors.items() if each}
    ratio = [one / other for one, other in zip(errors["with"], errors["without"], strict=True)]
    size = {variant: statistics.mean(each) for variant, each in cells.items() if each}
    return {
        "strategy": strategy,
        "epsilon": epsilon,
        "errors": means,
        "ratio": means["with"] / means["without"],
        "ratios": ratio,
        "cells": size,
    }


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    for strategy in ("mwem", "adaptive"):
        for epsilon in (1.0, 0.1):
            found = measure_adult(strategy, epsilon=epsilon, seeds=wanted.seeds)
            print(json.dumps(found) if wanted.json else _line(found), flush=True)


def _line(found: dict[str, Any]) -> str:
    errors = ", ".join(f"{variant} {error:.4f}" for variant, error in found["errors"].items())
    ratios = " ".join(f"{each:.3f}" for each in found["ratios"])
    cells = ", ".join(f"{variant} {size:,.0f} cells" for variant, size in found["cells"].items())
    return f"{found['strategy']} epsilon {found['epsilon']:g}: {errors}; ratio {found['ratio']:.3f} ({ratios}) {cells}"


if __name__ == "__main__":
    main()
