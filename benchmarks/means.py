"""Measure how right means by groups are: `python -m benchmarks.means SPEC COLUMN KEY ...`, such as mean delays by hour, month and carrier.

Each run makes a whole release, paid by the account in the spec's ledger, and asks it for the mean of a column by each key. It prints which
share of the 95 % intervals covers the mean in the table, and the mean error beside that of shuffled columns, in which all means are alike.
Groups of at most 50 rows are left out.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dpcore import answer, synthesize
from dpcore.spec import load_spec

FEW_ROWS = 50


@dataclass(frozen=True)
class Means:
    """How right the means by one key are."""

    key: str
    covered: float
    error: float
    half_width: float
    shuffled: float

    @property
    def text(self) -> str:
        """One line."""
        ratio = self.error / self.shuffled
        return (
            f"{self.key:12} covered {self.covered:.2f}  error {self.error:.3g} ({ratio:.2f} of shuffled columns)  "
            f"half width {self.half_width:.3g}"
        )


def main() -> None:
    """Make the releases, and print how right they are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.means", description=__doc__.splitlines()[0])
    parser.add_argument("spec", type=Path, help="a spec of a CSV file, with an open account")
    parser.add_argument("column", help="the column of numbers")
    parser.add_argument("keys", metavar="KEY", nargs="+", help="a column to group by")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    source = load_spec(arguments.spec).spec.source
    if source is None or source.path is None:
        parser.error("the spec names no file")
    table = pd.read_csv(arguments.spec.parent / source.path, low_memory=False)
    found: list[Means] = []
    for _ in range(arguments.runs):
        begun = time.process_time()
        release = synthesize(arguments.spec).release
        print(f"{release}: {time.process_time() - begun:.0f} CPU s", flush=True)
        for key in arguments.keys:
            found.append(compare(Path(release), table, column=arguments.column, key=key))
            print(found[-1].text, flush=True)
    covered, error = statistics.mean(each.covered for each in found), statistics.mean(each.error for each in found)
    print(f"mean of {arguments.runs} releases: covered {covered:.3f}, error {error:.3g}")


def compare(release: Path, table: pd.DataFrame, *, column: str, key: str) -> Means:
    """Compare the means of a release with those of the table."""
    question = f'select "{key}" as key, avg("{column}") as mean from release group by "{key}"'  # noqa: S608  our own
    asked = answer(release, question)
    groups = table.groupby(table[key].astype(str))[column]
    true = groups.mean()[groups.count() > FEW_ROWS]
    both = asked.assign(key=asked["key"].astype(str)).set_index("key").join(true.rename("true"), how="inner")
    return Means(
        key,
        covered=float(((both["mean_low"] <= both["true"]) & (both["true"] <= both["mean_high"])).mean()),
        error=float((both["mean"] - both["true"]).abs().mean()),
        half_width=float((both["mean_high"] - both["mean_low"]).mean() / 2),
        shuffled=float((both["true"] - table[column].mean()).abs().mean()),
    )


if __name__ == "__main__":
    main()
