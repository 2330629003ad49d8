"""Measure how often the intervals of answers contain the truth: `python -m benchmarks.coverage --data adult7 --releases 8 --json`.

Releases are made with seeded noise. Each is then asked random counts over one to four columns, and means, sums, medians and 0.9 quantiles. The
truth is known, since these tables are not private. Three obvious methods are tested in the same way, as controls: the standard deviation of the
replicates, the model corrected by their bias, and errors of marginals that were left out. `--data choosing` and `--data unseen` stand for tables
of R's packages (`benchmarks.r_tables`).

`--keep FOLDER` keeps the releases, so that other questions can be asked without making them again. `--kept FOLDER` asks all that are there.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import r_tables
from benchmarks.coverage_questions import ask
from benchmarks.coverage_releases import released, table_of
from benchmarks.coverage_results import draw, in_words, summary
from benchmarks.tables import TABLES
from dpcore.answers.release import open_release

R_TABLES = {"choosing": r_tables.names(unseen=False), "unseen": r_tables.names(unseen=True)}


def main() -> None:
    """Make releases, ask them, and print the coverage of all strata."""
    arguments = _arguments()
    asked, tables = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for path, name in _wanted(arguments, Path(folder)):
            if name["data"] not in tables:
                tables[name["data"]] = table_of(name["data"])
            table: tuple[dict[str, Any], pd.DataFrame] = tables[name["data"]]
            seed, left_out = name["seed"], name["seed"] <= arguments.left_out
            costs = released(path, table, strategy=name["strategy"], epsilon=name["epsilon"], seed=seed)
            found = ask(open_release(path), table[1], name, questions=arguments.questions, seed=seed, left_out=left_out)
            found.costs.update(costs)
            asked.append(found)
    result = summary(asked)
    print(json.dumps(result) if arguments.json else in_words(result))
    if arguments.plots:
        draw(asked, arguments.plots)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--data", nargs="+", choices=[*TABLES, "sample", *R_TABLES], default=["adult7"])
    parser.add_argument("--strategy", nargs="+", choices=["mwem", "adaptive"], default=["mwem"])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    parser.add_argument("--releases", type=int, default=4, help="of each table, strategy and epsilon")
    parser.add_argument(
        "--questions", type=int, default=200, help="counts asked of each release; half as many other numbers"
    )
    parser.add_argument(
        "--left-out",
        type=int,
        default=1,
        help="test the third control on so many releases of each kind; it takes five fits of each",
    )
    parser.add_argument("--keep", type=Path, help="where releases are kept; default: nowhere")
    parser.add_argument("--kept", type=Path, help="ask all releases that were kept there, and make none")
    parser.add_argument("--plots", type=Path, help="a folder for plots of the coverage; default: none")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _wanted(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the folder of each release, and what it is."""
    if arguments.kept is not None:
        for path in sorted(arguments.kept.resolve().iterdir()):
            if path.is_dir() and path.with_name(f"{path.name}.json").exists():
                data, strategy, epsilon, seed = path.name.rsplit("-", 3)
                yield (
                    path,
                    {
                        "data": data.replace("~", "/"),
                        "strategy": strategy,
                        "epsilon": float(epsilon),
                        "seed": int(seed),
                    },
                )
        return
    base = (arguments.keep or folder).resolve()
    for data in (table for name in arguments.data for table in R_TABLES.get(name, [name])):
        for strategy in arguments.strategy:
            for epsilon in arguments.epsilon:
                for seed in range(1, arguments.releases + 1):
                    name = {"data": data, "strategy": strategy, "epsilon": epsilon, "seed": seed}
                    yield base / f"{data.replace('/', '~')}-{strategy}-{epsilon:g}-{seed}", name


if __name__ == "__main__":
    main()
