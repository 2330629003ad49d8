"""Twelve months of retrosheet, released one by one, and random counts of all of them together.

    python -m benchmarks.series --seeds 3
    python -m benchmarks.series --strategy adaptive --seeds 1
    python -m benchmarks.series --seeds 1 --epsilon 0.1 --prior latest

Each seed makes a series of twelve seeded releases, at epsilon 1 unless `--epsilon` says otherwise, in a folder that is kept if `--folder` names one. Random counts over one to
four columns are asked of the series and of each release, and compared with the table. Printed are how many 95 % intervals contain the
truth, and the errors of the counts of all months, as a multiple of the root of the summed squared errors of the months: 1 if these errors
were independent. The same is printed for added answers, the control. The coverage of the months' own intervals is printed as well.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.coverage_questions import Truth
from benchmarks.coverage_releases import seeded
from benchmarks.tables import SPECS, shared_data
from dpcore import open_release, open_series, synthesize
from dpcore.answers.intervals import Intervals
from dpcore.answers.query import Count, Output, Query
from dpcore.answers.release import Release
from dpcore.answers.summed import summed_release
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.models.model import Weights
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours

MONTHS = [(year, month) for year in (2018, 2019) for month in range(4, 10)]
NARROW = ("day_night", "inning", "half", "balls", "strikes", "event")
"""The columns for `mwem`. `adaptive` gets all nine."""
PLENTY = 100.0


@dataclass(frozen=True, eq=False)
class Asked:
    """What was asked of one series: the error of each sum, whether its interval contains the truth, and the errors of the months."""

    errors: Weights
    covered: Weights
    by_month: Weights
    months_covered: Weights
    basis: Sequence[str]

    @property
    def root(self) -> Weights:
        """The root of the summed squared errors of the months, for each question."""
        return np.asarray(np.sqrt((self.by_month**2).sum(axis=1)))


def main() -> None:
    """Make the releases, ask, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", choices=("mwem", "adaptive"), default="mwem")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--prior", choices=("none", "latest"), default="none")
    parser.add_argument("--folder", type=Path, help="keep the releases here, and use those that are there")
    arguments = parser.parse_args()
    logging.getLogger("dpcore.progress").setLevel(logging.ERROR)
    plays = pd.read_parquet(shared_data() / "retrosheet_plays.parquet")
    plays["game_date"] = pd.to_datetime(plays["game_date"])
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        base = arguments.folder or Path(temporary)
        for seed in range(1, arguments.seeds + 1):
            kind = "" if arguments.prior == "none" else f"-{arguments.prior}"
            kind += "" if arguments.epsilon == 1.0 else f"-{arguments.epsilon:g}"
            folder = base / f"{arguments.strategy}{kind}{seed}"
            changes = {"epsilon": arguments.epsilon, "prior": arguments.prior}
            made = _series(folder, plays, strategy=arguments.strategy, seed=seed, changes=changes)
            found.append(_asked(made, plays, questions=arguments.questions))
            _print(f"seed {seed}", found[-1:])
    _print("all", found)


def _series(folder: Path, plays: pd.DataFrame, *, strategy: str, seed: int, changes: Mapping[str, Any]) -> Path:
    """Release twelve months with seeded noise, unless that was done. Return the folder of the releases."""
    releases = folder / "releases" / "retrosheet"
    if releases.exists() and sum(each.is_dir() for each in releases.iterdir()) >= len(MONTHS):
        return releases
    spec: dict[str, Any] = yaml.safe_load((SPECS / "retrosheet.yaml").read_text(encoding="utf-8"))
    del spec["source"]
    # The unit is the row, so that the truth is a count of rows.
    spec |= {"privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": changes["epsilon"], "delta": 1e-9}}
    spec |= {"strategy": {"name": strategy}} | ({} if changes["prior"] == "none" else {"prior": changes["prior"]})
    if strategy == "mwem":
        spec["universe"] = {name: spec["universe"][name] for name in NARROW}
    folder.mkdir(parents=True, exist_ok=True)
    with chdir(folder):
        currency, cap = budget_of(PLENTY, delta=1e-9)
        with open_ledger(create=True) as ledger:
            terms = {"unit": "row", "neighbours": Neighbours.ADD_REMOVE, "blocks_by": "month of game_date"}
            ledger.open_account("retrosheet", currency=currency, cap=cap, epsilon=PLENTY, delta=1e-9, **terms)
        for number, (year, month) in enumerate(MONTHS):
            # A start for each season: nobody plays in winter.
            spec["blocks"] = {"column": "game_date", "every": "month", "window": "new", "start": date(year, 4, 1)}
            Path("spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
            day = plays["game_date"].dt
            with seeded(1000 * seed + number):
                synthesize(
                    "spec.yaml",
                    table=plays[(day.year == year) & (day.month == month)],
                    as_of=date(year, month + 1, 1),
                )
    return releases


def _asked(folder: Path, plays: pd.DataFrame, *, questions: int) -> Asked:
    """Ask random counts of a series and of its releases. The ledger must not notice."""
    series = open_series(folder)
    if series is None:
        raise UsageError("the releases cover no blocks")
    releases = [open_release(each.folder) for each in sorted(series.members, key=lambda each: each.blocks)]
    begin = time.process_time()
    total = summed_release(releases)
    print(f"the sum of {len(releases)} releases took {time.process_time() - begin:.1f} CPU s")
    with chdir(folder.parents[1]), open_ledger() as ledger:
        head = ledger.head()
    months = plays["game_date"].dt.strftime("%Y-%m")
    tables = [plays[months.isin(_blocks(each))] for each in releases]
    truth, alone = Truth(total, pd.concat(tables)), [Truth(*each) for each in zip(releases, tables, strict=True)]
    whole, parts = Intervals(total), [Intervals(each) for each in releases]
    rng, rows = np.random.default_rng(3), []
    for seed in rng.integers(1 << 30, size=questions).tolist():
        condition, kept, _ = truth.condition(np.random.default_rng(seed))
        asked, query = Count(condition), Query((Output("n", Count(condition)),))
        try:
            found = whole.of(query, level=0.95)[1][asked]
        except UsageError:  # it joins too many cells
            continue
        by_month, inside_month = [], []
        for part, own in zip(parts, alone, strict=True):
            inside = own.condition(np.random.default_rng(seed))[1]
            answered, true = part.of(query, level=0.95)[1][asked], float(inside.sum())
            by_month.append(float(answered.value[0]) - true)
            inside_month.append(float(answered.low[0] - 1e-6 <= true <= answered.high[0] + 1e-6))
        wanted = float(kept.sum())
        covered = found.low[0] - 1e-6 <= wanted <= found.high[0] + 1e-6
        rows.append((float(found.value[0]) - wanted, float(covered), by_month, inside_month, str(found.basis)))
    with chdir(folder.parents[1]), open_ledger() as ledger:
        if ledger.head() != head:
            raise UsageError("a question has changed the ledger")
    errors, covered, by_month, months_covered, basis = zip(*rows, strict=True)
    return Asked(np.array(errors), np.array(covered), np.array(by_month), np.array(months_covered), basis)


def _blocks(release: Release) -> list[str]:
    return list(release.manifest["privacy"]["blocks"]["names"])


def _print(name: str, found: Sequence[Asked]) -> None:
    errors, root = np.concatenate([each.errors for each in found]), np.concatenate([each.root for each in found])
    covered = np.concatenate([each.covered for each in found])
    basis = np.array([one for each in found for one in each.basis])
    added = np.concatenate([each.by_month.sum(axis=1) for each in found])
    strata = ", ".join(
        f"{each} {covered[basis == each].mean():.3f} of {(basis == each).sum()}" for each in np.unique(basis)
    )
    print(
        f"{name}: {covered.mean():.3f} of {len(covered)} covered ({strata}); error {_ratio(errors, root)}; added answers {_ratio(added, root)}",
        flush=True,
    )
    months, within = (
        np.concatenate([each.by_month for each in found]),
        np.concatenate([each.months_covered for each in found]),
    )
    print(
        f"months: {within.mean():.3f} of {within.size} covered; mean error {np.abs(months).mean():.1f} rows, after the first "
        f"{np.abs(months[:, 1:]).mean():.1f}; mean error of the sum {np.abs(errors).mean():.1f}",
        flush=True,
    )


def _ratio(errors: Weights, root: Weights) -> str:
    """Return errors as multiples of the root of summed squares: of their mean squares, and of their means."""
    square = float(np.sqrt(np.mean(errors**2) / np.mean(root**2)))
    return f"{square:.2f} (mean squares), {np.abs(errors).mean() / root.mean():.2f} (means)"


if __name__ == "__main__":
    main()
