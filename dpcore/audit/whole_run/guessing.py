"""Guess which canaries were in a table from what was published about it, read as any analyst may read it.

That is the folder of each release, the noisy answers that the ledger keeps, its export, and the answers that an analyst was given.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpcore.answers.release import open_release
from dpcore.audit.whole_run.drivers import ANSWERS
from dpcore.audit.whole_run.settings import CANARY, DATASET, EXPORT, FLAG, RELEASES, Coins, Setting
from dpcore.errors import LedgerDamaged
from dpcore.ledger import Operation, open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.release import MANIFEST
from dpcore.release.ledger_export import export
from dpcore.release.measured import MEASUREMENTS, read_measurements

Evidence: TypeAlias = npt.NDArray[np.float64]
"""The evidence for each canary: the larger, the likelier it is in the table, or in its second cell."""

RULES: Mapping[str, tuple[str, float, int]] = {
    "all, by the measurements": ("canaries", 1.0, 1),
    "the clearest half, by the measurements": ("canaries", 0.5, 1),
    "the clearest quarter, by the measurements": ("canaries", 0.25, 1),
    "the clearest tenth, by the measurements": ("canaries", 0.1, 1),
    "the clearest quarter, by the counts of other rows": ("others", 0.25, -1),
    "all, by the counts of other rows": ("others", 1.0, -1),
    "the clearest quarter, by canaries in place of other rows": ("instead", 0.25, 1),
    "the clearest tenth, by canaries in place of other rows": ("instead", 0.1, 1),
    "the clearest quarter, by the rows": ("rows", 0.25, 1),
    "the clearest quarter, by counts of exactly 0": ("zeros", 0.25, -1),
    "all, by the names of cells in texts": ("names", 1.0, 1),
    "all, by lists of numbers in texts, and by the start": ("lists", 1.0, 1),
}
"""The rules for guessing: the source of evidence, the share of canaries guessed, and whether a larger count is evidence for a canary (1)
or against it (-1).

All rules are fixed before anything is read, and the audit divides its confidence among them. The rules by other rows find canaries
that make these disappear, or take their place. The last three find what has no noise at all.
"""


@dataclass(frozen=True)
class Published:
    """Everything that was published about one table.

    Attributes:
        measurements: The noisy counts, each once.
        releases: The folders of releases.
        texts: The texts of all other files and answers.
        promised: The loss that it promises, as an amount.
        spent: What the ledger says was spent, as an amount.
    """

    measurements: tuple[Measurement, ...]
    releases: tuple[Path, ...]
    texts: tuple[str, ...]
    promised: int
    spent: int


@dataclass(frozen=True)
class Measured:
    """The noisy counts of one measurement that has a count for every cell of a canary, in the order of the cells.

    Attributes:
        canaries: The counts with the flag of canaries, or of all rows if the measurement does not tell them apart.
        others: The counts of other rows, or of all.
        noise: The published standard deviation of their noise.
    """

    canaries: Evidence
    others: Evidence
    noise: float


def read_published(folder: Path, setting: Setting) -> Published:
    """Read what a setting has published in a folder, or the part of it that the setting guesses from."""
    with open_ledger() as ledger:
        spent = ledger.balance(DATASET).spent
        answers = [answer for run in ledger.runs(DATASET) for answer in ledger.transcript(run.id)]
        export(ledger, folder / EXPORT, account=None, sizes=(1,))
    if setting.only == EXPORT:
        return Published((), (), tuple(_texts(folder, EXPORT)), promised=0, spent=spent)
    if setting.only is not None:
        first = [answer for answer in answers if answer.step.startswith(setting.only)]
        counts, _ = _split(first)
        return Published(tuple(counts), (), (), promised=sum(answer.amount for answer in first), spent=spent)
    releases = [path.parent for path in (folder / RELEASES).rglob(MEASUREMENTS)]
    released = [measured for release in releases for measured in read_measurements(release / MEASUREMENTS)[1]]
    steps = {measured.step for measured in released}
    counts, said = _split(answer for answer in answers if answer.step not in steps)
    distinct = {(counted.axes, counted.cell, counted.values.tobytes()): counted for counted in (*released, *counts)}
    return Published(
        measurements=tuple(distinct.values()),
        releases=tuple(releases),
        texts=(*_texts(folder, RELEASES, EXPORT, ANSWERS), *said),
        promised=_stated(releases, setting.currency) if setting.stated else setting.promised,
        spent=spent,
    )


def _stated(releases: Iterable[Path], currency: Currency) -> int:
    """Return the amount that the newest of some releases states."""
    stated = [json.loads((release / MANIFEST).read_text(encoding="utf-8"))["privacy"] for release in releases]
    newest = max(stated, key=lambda privacy: int(privacy["reservation"]))
    amounts = {Currency.PURE: newest["epsilon"], Currency.ZCDP: newest["rho"], Currency.GDP: (newest["mu"] or 0) ** 2}
    return math.ceil(Fraction(amounts[currency]) * AMOUNT_OF_ONE)


def _split(answers: Iterable[Operation]) -> tuple[list[Measurement], list[str]]:
    """Return the answers of the ledger that are measurements, and the texts of all others."""
    measurements, texts = [], []
    for answer in answers:
        output = answer.output or b""
        try:
            measurements.append(Measurement.from_bytes(output, step=answer.step))
        except LedgerDamaged:
            texts.append(output.decode(errors="replace"))
    return measurements, texts


def _texts(folder: Path, *parts: str) -> Iterator[str]:
    for path in (path for part in parts for path in (folder / part).rglob("*")):
        if path.suffix in {".json", ".md"}:
            yield path.read_text(encoding="utf-8")
        elif path.name == "history.parquet":
            yield "\n".join(pq.read_table(path, columns=["body"]).column("body").to_pylist())


def right_guesses(published: Published, *, setting: Setting, coins: Coins) -> dict[str, tuple[int, int]]:
    """Return for each rule how many canaries it guesses, and how many of these guesses are right."""
    cells = [
        counted for measurement in published.measurements for counted in measured_cells(measurement, setting=setting)
    ]
    by_cell: dict[str, Iterable[Evidence]] = {
        "zeros": (1.0 * (counted.canaries == 0) for counted in cells),
        "rows": rows_in(published.releases, setting=setting),
        "names": names_in(published.texts, setting=setting),
        "lists": numbers_in(published, setting=setting),
    }
    nothing = np.zeros(setting.canaries)
    evidence = {
        source: sum((of_canaries(numbers, setting=setting) for numbers in parts), nothing)
        for source, parts in by_cell.items()
    }
    for source in ("canaries", "others"):
        counts = (by_counts(getattr(counted, source), setting=setting, noise=counted.noise) for counted in cells)
        evidence[source] = sum(counts, nothing)
    evidence["instead"] = evidence["canaries"] - evidence["others"]
    right: dict[str, tuple[int, int]] = {}
    for rule, (source, share, sign) in RULES.items():
        signed = sign * evidence[source]
        guesses = max(1, int(share * len(coins)))
        clearest = np.argsort(-np.abs(signed), kind="stable")[:guesses]
        right[rule] = guesses, int(np.count_nonzero((signed[clearest] > 0) == coins[clearest]))
    return right


def by_counts(counts: Evidence, *, setting: Setting, noise: float) -> Evidence:
    """Return the evidence of noisy counts, weighted by their precision.

    Under Laplace noise, a deviation larger than a canary's effect on a count adds no evidence, so deviations are clipped. Under Gaussian noise
    it does.
    """
    noise = max(noise, 1e-9)
    if setting.currency is Currency.PURE:
        return of_canaries(counts, setting=setting, most=setting.moved / 2) / noise
    return of_canaries(counts, setting=setting) / noise**2


def of_canaries(counts: Evidence, *, setting: Setting, most: float = np.inf) -> Evidence:
    """Return the evidence for each canary from a number for each cell. Under replace-one a canary is in its second cell or in its first.

    Numbers are compared with their mean over all canaries, of which about half are in the table, so the guesser needs no knowledge of the
    table.
    """
    own = counts if setting.replaces else counts[setting.apart - 1 :: setting.apart]
    apart: Evidence = np.clip(own - own.mean(), -most, most)
    return apart[1::2] - apart[::2] if setting.replaces else apart


def measured_cells(measurement: Measurement, *, setting: Setting) -> Iterator[Measured]:
    """Yield the counts of the cells of canaries, if a measurement tells them apart."""
    axes, values = measurement.axes, measurement.values.astype(np.float64)
    if not axes or axes[0] != 0:
        return
    if measurement.cell is not None:  # a single count; a guesser who knows nothing of the others expects a half
        if len(axes) == 1 and measurement.cell < setting.cells:
            counts = np.full(setting.cells, 0.5)
            counts[measurement.cell] = values.item()
            yield Measured(counts, counts, measurement.noise)
        return
    if len(values) < setting.cells:
        return  # cells were grouped
    flagged = FLAG in setting.columns and axes[1:2] == (1,)
    by_flag = values[: setting.cells].reshape(setting.cells, values.shape[1] if flagged else 1, -1).sum(axis=2)
    others = np.roll(by_flag[:, 0], setting.apart - 1)  # they are in the first cell of each canary
    yield Measured(by_flag[:, int(flagged)], others, measurement.noise)


def rows_in(folders: Iterable[Path], *, setting: Setting) -> Iterator[Evidence]:
    """Yield how many released rows each cell has."""
    for folder in folders:
        rows = pq.read_table(folder / "data")
        if FLAG in setting.columns:
            rows = rows.filter(pc.equal(rows.column("flag"), CANARY))
        yield _counted(map(str, rows.column("cell").to_pylist()), setting=setting)


def names_in(texts: Iterable[str], *, setting: Setting) -> Iterator[Evidence]:
    """Yield which cells the texts name, by the setting's pattern."""
    if setting.listed is not None:
        named = {name for text in texts for name in re.findall(setting.listed, text)}
        yield _counted(named, setting=setting)


def numbers_in(published: Published, *, setting: Setting) -> Iterator[Evidence]:
    """Yield the lists of whole numbers in texts that have a number for every cell, and where the weights of a release have started."""
    pattern = re.compile(rf"\[\s*-?\d+(?:,\s*-?\d+){{{setting.cells - 1},}}\s*\]")
    for text in published.texts:
        for numbers in pattern.findall(text):
            yield np.array(json.loads(numbers)[: setting.cells], dtype=np.float64)
    for folder in published.releases:
        for axes, logarithms in open_release(folder).start.functions.items():
            thousandths = np.rint(1000 * logarithms).astype(np.int64)
            started = Measurement("start", axes, cell=None, values=thousandths, noise=1.0)
            yield from (counted.canaries for counted in measured_cells(started, setting=setting))


def _counted(names: Iterable[str], *, setting: Setting) -> Evidence:
    counted = Counter(names)
    return np.array([float(counted[name]) for name in setting.names])
