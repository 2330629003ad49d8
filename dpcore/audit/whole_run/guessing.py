"""Guess which canaries were in a table from the folder of its release, read as any analyst may read it."""

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
"""The evidence for each canary: the larger, the likelier it is in the table, or in its second cell."""

_LEAST_NOISE = 1e-9

RULES: Mapping[str, tuple[str, float, int]] = {
    "all, by the measurements": ("measurements", 1.0, 1),
    "the clearest quarter, by the measurements": ("measurements", 0.25, 1),
    "the clearest tenth, by the measurements": ("measurements", 0.1, 1),
    "the clearest quarter, by the counts of other rows": ("others", 0.25, -1),
    "the clearest quarter, by the rows": ("rows", 0.25, 1),
}
"""The rules for guessing: the source of evidence, the share of canaries guessed, and whether a larger count is evidence for a canary (1)
or against it (-1).

All rules are fixed before anything is read, and the audit divides its confidence among them. The fourth rule finds canaries that make
other rows disappear.
"""


@dataclass(frozen=True)
class Measured:
    """The noisy counts of one measurement that has a count for every cell, in the order of the cells.

    Attributes:
        counts: For each flag, one count per cell. Without the flag in the measurement, the counts are the same for both flags.
        noise: The published standard deviation of their noise.
    """

    counts: Mapping[str, Evidence]
    noise: float


def right_guesses(release: Path, *, setting: Setting, coins: Coins) -> dict[str, tuple[int, int]]:
    """Return for each rule how many canaries it guesses, and how many of these guesses are right."""
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
    """Sum the evidence of all noisy counts of each canary's cells, weighted by their precision.

    Counts are compared with their mean over all canaries, of which about half are in the table, so the guesser needs no knowledge of the
    table. Under Laplace noise, a deviation larger than a canary's effect on a count adds no evidence, so deviations are clipped. Under
    Gaussian noise it does.
    """
    told = np.zeros(setting.canaries)
    for one in measured:
        apart = _apart(one.counts[CANARY], setting=setting)
        if setting.currency is Currency.PURE:
            apart = np.clip(apart, -setting.moved / 2, setting.moved / 2) / max(one.noise, _LEAST_NOISE)
        else:
            apart = apart / max(one.noise, _LEAST_NOISE) ** 2
        told += _of_canaries(apart, setting=setting)
    return told


def by_others(measured: Iterable[Measured], *, setting: Setting) -> Evidence:
    """Sum the deviations from the mean, in each canary's cells, of the counts of rows that are always in the table."""
    told = np.zeros(setting.canaries)
    for one in measured:
        apart = _apart(one.counts[OTHER], setting=setting)
        told += _of_canaries(apart / max(one.noise, _LEAST_NOISE) ** 2, setting=setting)
    return told


def by_rows(release: Path, *, setting: Setting) -> Evidence:
    """Count the published rows in each canary's cells."""
    rows = pq.read_table(release / "data", columns=["cell", "flag"])
    marked = rows.column("flag").to_numpy() == CANARY
    cells = rows.column("cell").to_numpy()[marked].astype(np.int64)
    counts = np.bincount(cells, minlength=setting.cells * setting.canaries).astype(np.float64)
    return _of_canaries(_apart(counts, setting=setting), setting=setting)


def measurements(release: Path) -> Iterator[Measured]:
    """Yield the measurements that have a count for every cell. If they lack the flag, the counts of a cell stand for both flags."""
    table = pq.read_table(release / "measurements.parquet").combine_chunks()
    steps = table.column("step").combine_chunks().indices.to_numpy()
    starts = np.flatnonzero(np.concatenate(([True], steps[1:] != steps[:-1])))
    for start, end in pairwise([*starts.tolist(), len(steps)]):
        part = table.slice(start, end - start)
        names = part.column("attributes")[0].as_py()
        if "cell" not in names:
            continue
        cells = part.column("cell_low").to_numpy()
        if (part.column("cell_high").to_numpy() - cells != 1).any():
            continue  # cells were grouped
        counts = part.column("noisy_count").to_numpy().astype(np.float64)
        flags = _flags(part.column("flag_values").to_pylist()) if "flag" in names else None
        of_flag = {flag: slice(None) if flags is None else flags == flag for flag in (CANARY, OTHER)}
        yield Measured(
            {flag: counts[chosen][np.argsort(cells[chosen])] for flag, chosen in of_flag.items()},
            noise=part.column("noise_standard_deviation")[0].as_py(),
        )


def _flags(values: list[list[str]]) -> npt.NDArray[np.str_]:
    """Return the flag of each count, or nothing recognisable where both flags were merged."""
    return np.array([each[0] if len(each) == 1 else "" for each in values])


def _apart(counts: Evidence, *, setting: Setting) -> Evidence:
    """Compare the first cells of all canaries with each other, and the second."""
    of_canaries = counts.reshape(-1, setting.cells)
    apart: Evidence = (of_canaries - of_canaries.mean(axis=0)).ravel()
    return apart


def _of_canaries(by_cell: Evidence, *, setting: Setting) -> Evidence:
    """Return the evidence for each canary: of two cells, a canary that is in the table adds to the second and may take from the first."""
    return by_cell[1::2] - by_cell[::2] if setting.cells > 1 else by_cell
