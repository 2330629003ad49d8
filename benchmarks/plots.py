"""Plot error against epsilon, and error against CPU seconds, for dpflow and its peers.

    python -m benchmarks.accuracy --data adult_discretized --epsilon 1 --json > benchmarks/results/adult_discretized-1.json
    python -m benchmarks.plots

Reads all of `benchmarks/results/*.json`, which are outputs of `benchmarks.accuracy --json` and `benchmarks.peers --json`, and writes for each
table `error-by-epsilon-TABLE.svg` and `error-by-cpu-TABLE.svg` to `benchmarks/plots`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.plots_axes import Axis, Chart, powers
from benchmarks.plots_results import OURS, Result, Table, read_results

HERE = Path(__file__).parent
ORDER = 3
ERROR = f"mean L1 distance of the {ORDER}-way marginals"
EPSILON_OF_COSTS = 1.0
"""The epsilon at which costs are compared."""


def main() -> None:
    """Plot all tables that have results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder of JSON files")
    parser.add_argument("--output", type=Path, default=HERE / "plots", help="the folder for SVG files")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for table in read_results(arguments.results):
        for kind, drawn in (("epsilon", by_epsilon(table)), ("cpu", by_cpu(table))):
            if drawn is not None:
                path = arguments.output / f"error-by-{kind}-{table.data}.svg"
                path.write_text(drawn, encoding="utf-8")
                print(path)


def by_epsilon(table: Table) -> str:
    """Plot the error of every mechanism at each measured epsilon."""
    epsilons = sorted({result.epsilon for result in table.results})
    across = Axis.logarithmic(epsilons, ticks=epsilons, label="epsilon")
    chart = _chart(table, across)
    for name, results in _by_name(table.results):
        points = [(result.epsilon, result.error[ORDER]) for result in results]
        chart.series(name, points, shape=_shape(name, table))
    return chart.draw(title=f"{table.data}: error by epsilon", words=_words(table, table.results))


def by_cpu(table: Table) -> str | None:
    """Plot the error of every mechanism against its cost at one epsilon. Return None if nothing was measured there."""
    results = [
        result for result in table.results if result.epsilon == EPSILON_OF_COSTS and result.cpu_seconds is not None
    ]
    if not results:
        return None
    seconds = [result.cpu_seconds or 0.0 for result in results]
    label = f"CPU seconds, at epsilon {EPSILON_OF_COSTS:g}"
    chart = _chart(table, Axis.logarithmic(seconds, ticks=powers(seconds), label=label))
    for result in results:
        point = (result.cpu_seconds or 0.0, result.error[ORDER])
        chart.series(result.name, [point], shape=_shape(result.name, table))
    return chart.draw(title=f"{table.data}: error by CPU seconds", words=_words(table, results))


def _chart(table: Table, across: Axis) -> Chart:
    references = {name: error[ORDER] for name, error in table.references.items()}
    errors = [*(result.error[ORDER] for result in table.results), *references.values()]
    chart = Chart(across, Axis.from_zero(errors, label=f"{table.data}: {ERROR}"))
    for name, error in references.items():
        chart.reference(name, error)
    return chart


def _by_name(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Return the results of each mechanism, ordered by epsilon, with dpflow first."""
    names = sorted({result.name for result in results}, key=lambda name: (name != OURS, name))
    return [
        (name, sorted((each for each in results if each.name == name), key=lambda each: each.epsilon)) for name in names
    ]


def _shape(name: str, table: Table) -> int | None:
    """Return the shape of a mechanism's marks, the same in all charts of a table; None for dpflow, which has its own."""
    others = sorted({result.name for result in table.results} - {OURS})
    return None if name == OURS else others.index(name)


def _words(table: Table, results: Sequence[Result]) -> str:
    said = [f"{ERROR}, on {table.data}."]
    for result in results:
        cost = "" if result.cpu_seconds is None else f" in {result.cpu_seconds:,.1f} CPU seconds"
        said.append(f"{result.name} at epsilon {result.epsilon:g}: {result.error[ORDER]:.3f}{cost}.")
    said += [f"{name}: {error[ORDER]:.3f}." for name, error in table.references.items()]
    return " ".join(said)


if __name__ == "__main__":
    main()
