"""Measure how often the intervals of answers contain the truth: `python -m benchmarks.coverage --data adult7 --releases 8 --json`.

Releases are made with seeded noise, as a whole: spec, ledger, rounds, files. Each is then asked random counts over one to four columns, and
means, sums and medians. The truth is known, since these tables are not private. Three obvious methods are tested in the same way, as
controls: the standard deviation of the replicates, the model corrected by their bias, and errors of marginals that were left out.

`--keep FOLDER` keeps the releases, so that other questions can be asked without making them again.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks.coverage_questions import Asked, Record, ask
from benchmarks.tables import SPECS, TABLES, shared_data
from dpcore import synthesize
from dpcore.answers.release import open_release
from dpcore.ledger import open_ledger
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours

SAMPLE = Path(__file__).parents[1] / "data" / "clinic-visits.yaml"
SIZES = (0, 50, 500, 5000, float("inf"))
PLENTY = 1000.0  # the epsilon of each account


def main() -> None:
    """Make releases, ask them, and print the coverage of all strata."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--data", nargs="+", choices=[*TABLES, "sample"], default=["adult7"])
    parser.add_argument("--strategy", nargs="+", choices=["mwem", "adaptive"], default=["mwem"])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    parser.add_argument("--releases", type=int, default=4, help="of each table, strategy and epsilon")
    parser.add_argument(
        "--questions", type=int, default=200, help="counts asked of each release; half as many other numbers"
    )
    parser.add_argument(
        "--left-out", action="store_true", help="test the third control, too, which takes five fits a release"
    )
    parser.add_argument("--keep", type=Path, help="where releases are kept; default: nowhere")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    asked: list[Asked] = []
    with tempfile.TemporaryDirectory() as folder:
        base = arguments.keep or Path(folder)
        for data in arguments.data:
            for strategy in arguments.strategy:
                for epsilon in arguments.epsilon:
                    for seed in range(1, arguments.releases + 1):
                        path = base.resolve() / f"{data}-{strategy}-{epsilon:g}-{seed}"
                        seconds = released(path, table_of(data), strategy=strategy, epsilon=epsilon, seed=seed)
                        name = {
                            "data": data,
                            "strategy": strategy,
                            "epsilon": epsilon,
                            "seed": seed,
                            "release_cpu_seconds": seconds,
                        }
                        asked.append(
                            ask(
                                open_release(path),
                                table_of(data)[1],
                                name,
                                questions=arguments.questions,
                                seed=seed,
                                left_out=arguments.left_out,
                            )
                        )
    result = summary(asked)
    print(json.dumps(result) if arguments.json else _text(result))


def table_of(name: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the spec of a table, and the table. The unit is the row, so that the truth is a count of rows."""
    path = SAMPLE if name == "sample" else SPECS / f"{name}.yaml"
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    spec["privacy"] = {"unit": "row", "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9}
    spec.pop("output", None)
    if name == "sample":
        csv = path.with_name(spec.pop("source")["path"])
        return spec, pd.read_csv(csv, parse_dates=["visit_date"], date_format="mixed")
    del spec["source"]
    return spec, TABLES[name](shared_data())


def released(
    folder: Path, table: tuple[dict[str, Any], pd.DataFrame], *, strategy: str, epsilon: float, seed: int
) -> float | None:
    """Make a release in a folder with seeded noise, unless it is there. Return its CPU seconds."""
    if folder.exists():
        return None
    spec = {**table[0], "strategy": {"name": strategy}, "privacy": {**table[0]["privacy"], "epsilon": epsilon}}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as base, _working_in(Path(base)), seeded(seed):
        Path("spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
        currency, cap = budget_of(PLENTY, delta=1e-9)
        with open_ledger(create=True) as ledger:
            ledger.open_account(
                spec["dataset"],
                currency=currency,
                cap=cap,
                epsilon=PLENTY,
                delta=1e-9,
                unit="row",
                neighbours=Neighbours.ADD_REMOVE,
            )
        begin = time.process_time()
        made = Path(synthesize("spec.yaml", table=table[1]).release)
        seconds = time.process_time() - begin
        shutil.move(made.resolve(), folder)
    return seconds


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Replace all randomness of this process by a seeded generator. Never do this with private data."""
    before, rng = entropy.random_words, np.random.default_rng(seed)
    entropy.random_words = lambda count: rng.integers(0, 2**64, count, dtype=np.uint64)
    try:
        yield
    finally:
        entropy.random_words = before


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def summary(asked: Sequence[Asked]) -> dict[str, Any]:
    """Return the coverage of every stratum and of the controls, widths, and costs."""
    records = [record for each in asked for record in each.records]
    counts = [record for record in records if record.kind == "count"]
    both = [record for record in counts if record.direct is not None]
    strata = {f"{key} {value}": _covered(some) for key, value, some in _strata(counts)}
    return {
        "releases": [each.name | each.costs for each in asked],
        "counts": _covered(counts),
        "strata": strata,
        "other_numbers": {
            kind: _covered([each for each in records if each.kind == kind]) for kind in ("mean", "sum", "median")
        },
        "half_width": float(np.mean([each.half for each in counts])),
        "half_width_of_direct": _ratio(both),
        "controls": {name: _covered(counts, control=name) for name in (counts[0].controls if counts else ())},
        "answer_cpu_ms_p95": float(np.quantile([ms for each in asked for ms in each.milliseconds], 0.95)),
    }


def _ratio(counts: Sequence[Record]) -> float | None:
    """Return the mean half width of counts that measurements cover, as a share of that of their noisy sums."""
    return sum(each.half for each in counts) / sum(each.direct or 0.0 for each in counts) if counts else None


def _strata(counts: Sequence[Record]) -> Iterator[tuple[str, object, list[Record]]]:
    keys: dict[str, Callable[[Record], Any]] = {
        "columns": lambda each: each.columns,
        "basis": lambda each: each.basis,
        "size": lambda each: next(high for high in SIZES[1:] if each.truth < high),
        "epsilon": lambda each: each.name["epsilon"],
        "strategy": lambda each: each.name["strategy"],
        "data": lambda each: each.name["data"],
    }
    for key, of in keys.items():
        for value in sorted({of(each) for each in counts}, key=str):
            yield key, value, [each for each in counts if of(each) == value]


def _covered(records: Sequence[Record], *, control: str | None = None) -> dict[str, float | int]:
    """Return the share of intervals that contain the truth, and how many there are."""
    held = [each.covered if control is None else each.controls[control] for each in records]
    return {"coverage": float(np.mean(held)) if held else float("nan"), "numbers": len(held)}


def _text(result: dict[str, Any]) -> str:
    lines = [f"{len(result['releases'])} releases"]
    rows = {"all counts": result["counts"]} | result["strata"] | result["other_numbers"]
    rows |= {f"control: {name}": each for name, each in result["controls"].items()}
    lines += [f"{name:34} {each['coverage']:.3f} of {each['numbers']:,}" for name, each in rows.items()]
    lines.append(
        f"mean half width {result['half_width']:.1f} rows, {result['half_width_of_direct'] or 0:.2f} of the direct one where both exist"
    )
    lines.append(f"answer: {result['answer_cpu_ms_p95']:.0f} CPU ms (95 % quantile)")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
