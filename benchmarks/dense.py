"""Compare the speed at which a dense model computes a marginal with that of a plain NumPy copy.

    python -m benchmarks.dense --json

A copy reads and writes every cell (16 bytes). A marginal reads every cell (8 bytes) and writes its own. A share is the bytes per second that a
marginal moves, divided by those of a copy of an equally large array in the same rounds. Copy and marginal alternate, so that other work on
the machine affects both alike. The result is the best round's median. The clock is the process's CPU time, which does not include waiting for
a core. Both use one thread, so on an idle machine `--clock wall` gives the same result. The last figure is the cost of one refining step of
`mwem`, in copies: the model from its functions of all pairs (an exponential for every cell), and the marginals of all pairs.
"""

import argparse
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from dpcore.marginals.workload import Axes
from dpcore.models import DenseModel

_CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}
_ADULT = (9, 16, 7, 5, 2, 2, 10)
_PATTERNS: dict[int, list[tuple[tuple[int, ...], list[Axes]]]] = {
    1_000_000: [
        ((10,) * 6, [(0,), (5,), (2, 3), (0, 3, 5), (0, 1, 2, 3, 5)]),
        ((*_ADULT, 5), [(0,), (1, 4, 6), (5, 7)]),
        ((100, 100, 100), [(0,), (1,), (2,), (0, 2)]),
        ((2,) * 20, [(0,), (19,), (0, 9, 19), tuple(range(0, 20, 2)), tuple(range(19))]),
    ],
    10_000_000: [
        ((10,) * 7, [(0,), (3,), (6,), (0, 1), (5, 6), (2, 4), (0, 6), (1, 3, 5), (0, 3, 6)]),
        ((10,) * 7, [(0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), (0, 1, 2, 3, 4, 6)]),
        ((49, *_ADULT), [(0,), (6,), (4, 5), (1, 4, 6), (0, 7)]),
        ((*_ADULT, 49), [(0,), (6,), (1, 4, 6), (0, 7)]),
        ((100, 100, 1000), [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]),
        ((1000, 1000, 10), [(2,), (0, 1), (0, 2)]),
        ((1_000_003, 10), [(0,), (1,)]),
        ((2,) * 23, [(0,), (11,), (22,), (0, 11, 22), tuple(range(0, 23, 2)), tuple(range(1, 23, 2))]),
        ((2,) * 23, [tuple(range(20)), (*range(18), 20, 22), tuple(range(22)), (*range(21), 22)]),
        ((3,) * 15, [(14,), tuple(range(0, 15, 2)), tuple(range(13)), (*range(12), 13)]),
    ],
}


@dataclass(frozen=True)
class Result:
    """The speed of one pattern of axes, in gigabytes per second."""

    shape: tuple[int, ...]
    axes: Axes
    cells: int
    copy_gb_per_second: float
    marginal_gb_per_second: float

    @property
    def marginal_share(self) -> float:
        """The marginal's speed as a share of the copy's."""
        return self.marginal_gb_per_second / self.copy_gb_per_second


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=_CLOCKS, default="cpu")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    summary: dict[str, object] = {"clock": arguments.clock}
    for size, patterns in _PATTERNS.items():
        results = [_measure(shape, axes, arguments=arguments) for shape, several in patterns for axes in several]
        steps = _step_in_copies((10,) * round(math.log10(size)), arguments=arguments)
        summary[f"cells_{size}"] = {
            "marginal_share_least": min(result.marginal_share for result in results),
            "marginal_share_median": statistics.median(result.marginal_share for result in results),
            "refining_step_in_copies": steps,
            "patterns": [asdict(result) for result in results],
        }
        if not arguments.json:
            print(_text(size, results), f"{steps:>10.1f} copies for a refining step on all pairs of columns", sep="\n")
    if arguments.json:
        print(json.dumps(summary))


def _measure(shape: tuple[int, ...], axes: Axes, *, arguments: argparse.Namespace) -> Result:
    model = DenseModel(shape, total=1.0)
    source, target = np.ones(shape), np.zeros(shape)
    steps: dict[str, Callable[[], object]] = {
        "copy": lambda: np.copyto(target, source),
        "marginal": lambda: model.marginal(axes),
    }
    best = _best(steps, arguments=arguments)
    cells, its_cells = math.prod(shape), math.prod(shape[axis] for axis in axes)
    return Result(
        shape=shape,
        axes=axes,
        cells=cells,
        copy_gb_per_second=16e-9 * cells / best["copy"],
        marginal_gb_per_second=8e-9 * (cells + its_cells) / best["marginal"],
    )


def _step_in_copies(shape: tuple[int, ...], *, arguments: argparse.Namespace) -> float:
    """Return the cost of a refining step on all pairs of columns, in copies of the model."""
    model = DenseModel(shape, total=1.0)
    source, target = np.ones(shape), np.zeros(shape)
    functions = {pair: np.ones([shape[axis] for axis in pair]) for pair in itertools.combinations(range(len(shape)), 2)}

    def step() -> None:
        model.assign(functions)
        model.marginals(functions)

    best = _best({"copy": lambda: np.copyto(target, source), "step": step}, arguments=arguments)
    return best["step"] / best["copy"]


def _best(steps: dict[str, Callable[[], object]], *, arguments: argparse.Namespace) -> dict[str, float]:
    """Return each step's smallest median time over the rounds. The steps alternate."""
    clock = _CLOCKS[arguments.clock]
    best = dict.fromkeys(steps, math.inf)
    for _ in range(arguments.rounds):
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(arguments.repeats):
            for name, step in steps.items():
                start = clock()
                step()
                times[name].append(clock() - start)
        best = {name: min(best[name], statistics.median(times[name])) for name in steps}
    return best


def _text(size: int, results: list[Result]) -> str:
    lines = [f"about {size:,} cells", f"{'copy GB/s':>10} {'marginal':>9}  shape, axes"]
    lines += [
        f"{result.copy_gb_per_second:>10.1f} {result.marginal_share:>9.2f}  "
        f"{'x'.join(map(str, result.shape))}, {','.join(map(str, result.axes))}"
        for result in results
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
