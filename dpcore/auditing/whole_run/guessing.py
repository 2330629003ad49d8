"""Guessing who was in a table from what was published about it: the folder of a release, read as any analyst may."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from dpcore.accounting import Currency
from dpcore.auditing.whole_run.settings import CANARY, OTHER, Coins, Setting

Evidence: TypeAlias = npt.NDArray[np.float64]
"""For each canary, what speaks for it: the larger, the likelier it is in the table, or in its second cell."""

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


def right_guesses(release: Path, *, setting: Setting, coins: Coins) -> dict[str, tuple[int, int]]:
    """Return for each rule how many canaries it guesses, and how many of them rightly."""
    seen = {
        "measurements": by_measurements(release, setting=setting),
        "others": by_others(release, setting=setting),
        "rows": by_rows(release, setting=setting),
    }
    found = {}
    for rule, (what, share, sign) in RULES.items():
        evidence = sign * seen[what][: len(coins)]
        guesses = max(1, int(share * len(coins)))
        clearest = np.argsort(-np.abs(evidence), kind="stable")[:guesses]
        found[rule] = guesses, int(np.count_nonzero((evidence[clearest] > 0) == coins[clearest]))
    return found


def by_measurements(release: Path, *, setting: Setting) -> Evidence:
    """Add up what all noisy counts of each canary's cells say, each the more the less noise it has.

    Counts are compared with their mean over all canaries, of which about half are in, so that nothing about the table need be known.
    Beyond what a canary may move a count by, Laplace noise says no more. Gaussian noise does.
    """
    canaries: Evidence | None = None
    for counts, noise in _measured(release, flag=CANARY):
        apart = counts - counts.mean()
        if setting.currency is Currency.PURE:
            apart = np.clip(apart, -setting.moved / 2, setting.moved / 2) / max(noise, 1e-9)
        else:
            apart = apart / max(noise, 1e-9) ** 2
        told = _of_canaries(apart, setting=setting)
        canaries = told if canaries is None else canaries + told
    return np.zeros(setting.canaries) if canaries is None else canaries


def by_others(release: Path, *, setting: Setting) -> Evidence:
    """Add up how far the counts of the rows that are always there, in each canary's cells, are from their mean."""
    apart = [(counts - counts.mean()) / max(noise, 1e-9) ** 2 for counts, noise in _measured(release, flag=OTHER)]
    return _of_canaries(np.sum(apart, axis=0), setting=setting) if apart else np.zeros(setting.canaries)


def by_rows(release: Path, *, setting: Setting) -> Evidence:
    """Count the published rows in each canary's cells."""
    rows = pq.read_table(release / "data", columns=["cell", "flag"])
    marked = rows.column("flag").to_numpy() == CANARY
    cells = rows.column("cell").to_numpy()[marked].astype(np.int64)
    counts = np.bincount(cells, minlength=(2 if setting.replaces else 1) * setting.canaries).astype(np.float64)
    return _of_canaries(counts - counts.mean(), setting=setting)


def _of_canaries(by_cell: Evidence, *, setting: Setting) -> Evidence:
    """Return what speaks for each canary; one that is replaced is in the second of its two cells, or in the first."""
    return by_cell[1::2] - by_cell[::2] if setting.replaces else by_cell


def _measured(release: Path, *, flag: str) -> Iterator[tuple[Evidence, float]]:
    """Yield the noisy counts of all cells, where they are told apart by flag those of one, and their noise."""
    table = pq.read_table(release / "measurements.parquet")
    steps = np.array(table.column("step").to_pylist(), dtype=object)
    counts = table.column("noisy_count").to_numpy()
    noises = table.column("noise_standard_deviation").to_numpy()
    for step in dict.fromkeys(steps.tolist()):
        places = np.flatnonzero(steps == step)
        part = table.slice(int(places[0]), len(places))
        names = part.column("attributes")[0].as_py()
        if "cell" not in names:
            continue
        labels = np.array(part.column("cell").combine_chunks().flatten().to_pylist(), dtype=object)
        by_column = dict(zip(names, labels.reshape(len(places), len(names)).T, strict=True))
        chosen = by_column["flag"] == flag if "flag" in by_column else np.ones(len(places), dtype=np.bool_)
        cells = by_column["cell"][chosen]
        if all(cell.isdecimal() for cell in cells):  # else cells were taken together
            order = np.argsort(cells.astype(np.int64))
            yield counts[places][chosen][order].astype(np.float64), float(noises[places[0]])
