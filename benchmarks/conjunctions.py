"""Ask about many columns at once: `python -m benchmarks.conjunctions RELEASE [--count 200] [--columns 20] [--seed 1]`.

Each question has one condition on each of one to `--columns` columns: a count, or the mean of a number. No such question should be refused,
because a condition only multiplies the model's cliques: no table of all columns is made. Then the release is grouped by pairs of columns, up
to 10,000 groups. The CPU time of an answer includes its interval, on all replicates.
"""

import argparse
import time
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.questions import Generator
from dpcore.answers.answer import answer
from dpcore.answers.release import Release, open_release
from dpcore.errors import DpflowError
from dpcore.universe import Integer, Number
from dpcore.universe.leaves import Fine

MOST_GROUPS = 10_000


def main() -> None:
    """Ask, and print the times and the refusals."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.conjunctions", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("release", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    release = open_release(str(arguments.release))
    generator, rng = Generator(release.universe, seed=arguments.seed), np.random.default_rng(arguments.seed)
    attributes = release.universe.attributes
    most = min(arguments.columns, len(attributes))
    numbers = [name for name, attribute in attributes.items() if isinstance(attribute, Integer | Number)]
    answer(release, "select count(*) from release")  # loads all models
    for kind in ("count", "mean"):
        questions = []
        for _ in range(arguments.count):
            where = generator.conjunction(int(rng.integers(1, most + 1)))
            number = "count(*)" if kind == "count" else f'avg("{rng.choice(numbers)}")'
            questions.append(f"select {number} as x from release where {where}")  # noqa: S608  generated here
        print_times(f"{kind} under conditions on up to {most} of {len(attributes)} columns", release, questions)
    plain = [name for name, attribute in attributes.items() if not isinstance(attribute, Fine)]
    sizes = {pair: attributes[pair[0]].size * attributes[pair[1]].size for pair in combinations(plain, 2)}
    largest = sorted((pair for pair, size in sizes.items() if size <= MOST_GROUPS), key=sizes.__getitem__)[-5:]
    for pair in largest:
        keys = ", ".join(f'"{name}"' for name in pair)
        sql = f"select {keys}, count(*) as n from release group by {keys}"  # noqa: S608  generated here
        print_times(f"groups by {' and '.join(pair)}, {sizes[pair]:,} cells", release, [sql])


def print_times(what: str, release: Release, questions: list[str]) -> None:
    """Ask, and print how many questions were refused, and the CPU milliseconds of the others."""
    milliseconds, refusals = [], []
    for sql in questions:
        begin = time.process_time()
        try:
            answer(release, sql)
            milliseconds.append(1000 * (time.process_time() - begin))
        except DpflowError as refusal:
            refusals.append(str(refusal))
    times = (
        f"median {np.median(milliseconds):.0f}, p95 {np.quantile(milliseconds, 0.95):.0f}, most {max(milliseconds):.0f}"
        if milliseconds
        else "none"
    )
    print(f"{what}: {len(refusals)} of {len(questions)} refused; CPU ms {times}")
    for refusal in dict.fromkeys(refusals):
        print(f"  {refusal}")


if __name__ == "__main__":
    main()
