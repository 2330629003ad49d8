"""Guessing who was in a table from what was published about it: the folder of a release, read as any analyst may."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from dpcore.audit.whole_run.settings import CANARY, OTHER, Coins, Setting
from dpcore.privacy.accounting import Currency

Evidence: TypeAlias = npt.NDArray[np.float64]
"""For each canary, what speaks for it: the larger, the likelier it is in the table, or in its second cell."""

_LEAST_NOISE = 1e-9

RULES: Mapping[str, tuple[str, float, int]] = {
    "all, by the measurements": ("measurements", 1.0, 1),
    "the clearest quarter, by the measurements": ("measurements", 0.25, 1),
    "the clearest tenth, by the measurements": ("measurements", 0.1, 1),
    "the clearest quarter, by what lies beside them": ("others", 0.25, -1),
    "the clearest quarter, by the rows": ("rows", 0.25, 1),
}
"""How to guess: by what, how many of the canaries, and whether a larger count speaks for a canary or against it.

Each rule is fixed before anything is read, so that an audit pays for all of them in confidence. The fourth one finds canaries that make
others disappear.
"""


@dataclass(frozen=True)
class Measured:
    """The noisy counts of one measurement that tells all cells apart, in the order of the cells.

    Attributes:
        counts: One count for each cell, and where the flag is told as well, for each flag.
        noise: The standard deviation that is published with them.
    """

    counts: Mapping[str, Evidence]
    noise: float


def right_guesses(release: Path, *, setting: Setting, coins: Coins) -> dict[str, tuple[int, int]]:
    """Return for each rule how many canaries it guesses, and how many of them rightly."""
    measured = list(measurements(release))
    seen = {
        "measurements": by_measurements(measured, setting=setting),
        "others": by_others(measured, setting=setting),
        "rows": by_rows(release, setting=setting),
    }
    found = {}
    for rule, (what, share, sign) in RULES.items():
        evidence = sign * seen[what]
        guesses = max(1, int(share * len(coins)))
        clearest = np.argsort(-np.abs(evidence), kind="stable")[:guesses]
        found[rule] = guesses, int(np.count_nonzero((evidence[clearest] > 0) == coins[clearest]))
    return found


def by_measurements(measured: Iterable[Measured], *, setting: Setting) -> Evidence:
    """Add up what all noisy counts of each canary's cells say, each the more the less noise it has.

    Counts are compared with their mean over all canaries, of which about half are in, so that nothing about the table need be known.
    Beyond what a canary may move a count by, Laplace noise says no more. Gaussian noise does.
    """
    told = np.zeros(setting.canaries)
    for one in measured:
        apart = _apart(one.counts[CANARY])
        if setting.currency is Currency.PURE:
            apart = np.clip(apart, -setting.moved / 2, setting.moved / 2) / max(one.noise, _LEAST_NOISE)
        else:
            apart = apart / max(one.noise, _LEAST_NOISE) ** 2
        told += _of_canaries(apart, setting=setting)
    return told


def by_others(measured: Iterable[Measured], *, setting: Setting) -> Evidence:
    """Add up how far the counts of the rows that are always there, in each canary's cells, are from their mean."""
    told = np.zeros(setting.canaries)
    for one in measured:
        told += _of_canaries(_apart(one.counts[OTHER]) / max(one.noise, _LEAST_NOISE) ** 2, setting=setting)
    return told


def by_rows(release: Path, *, setting: Setting) -> Evidence:
    """Count the published rows in each canary's cells."""
    rows = pq.read_table(release / "data", columns=["cell", "flag"])
    marked = rows.column("flag").to_numpy() == CANARY
    cells = rows.column("cell").to_numpy()[marked].astype(np.int64)
    counts = np.bincount(cells, minlength=(2 if setting.replaces else 1) * setting.canaries).astype(np.float64)
    return _of_canaries(_apart(counts), setting=setting)


def measurements(release: Path) -> Iterator[Measured]:
    """Yield the measurements that tell all cells apart; where flags are not told, the counts of a cell stand for each of them."""
    table = pq.read_table(release / "measurements.parquet").combine_chunks()
    steps = table.column("step").combine_chunks().indices.to_numpy()
    starts = np.flatnonzero(np.concatenate(([True], steps[1:] != steps[:-1])))
    for start, end in pairwise([*starts.tolist(), len(steps)]):
        part = table.slice(start, end - start)
        names = part.column("attributes")[0].as_py()
        if "cell" not in names:
            continue
        flat = part.column("cell").combine_chunks().flatten().to_pylist()
        by_column = {name: flat[place :: len(names)] for place, name in enumerate(names)}
        if not all(cell.isdecimal() for cell in by_column["cell"]):
            continue  # cells were taken together
        cells = np.array(by_column["cell"], dtype=np.int64)
        counts = part.column("noisy_count").to_numpy().astype(np.float64)
        flags = np.array(by_column["flag"]) if "flag" in by_column else None
        of_flag = {flag: slice(None) if flags is None else flags == flag for flag in (CANARY, OTHER)}
        yield Measured(
            {flag: counts[chosen][np.argsort(cells[chosen])] for flag, chosen in of_flag.items()},
            noise=part.column("noise_standard_deviation")[0].as_py(),
        )


def _apart(counts: Evidence) -> Evidence:
    apart: Evidence = counts - counts.mean()
    return apart


def _of_canaries(by_cell: Evidence, *, setting: Setting) -> Evidence:
    """Return what speaks for each canary; one that is replaced is in the second of its two cells, or in the first."""
    return by_cell[1::2] - by_cell[::2] if setting.replaces else by_cell
