"""Compare the cost of exact noise with NumPy's generators, which are fast and unsafe, and with OpenDP's samplers, which are exact.

    python -m benchmarks.noise --json

Integer noise: a million draws at each scale, compared with as many floats of the same distribution from NumPy, neither rounded nor added
to anything. OpenDP draws fewer, and its time is scaled up to a million. OpenDP has no rounded Gaussian. Building a table, once per scale
and process, is timed separately. Scale 10^6 has no table and is drawn in parts; it has no bar.

Selections: the index of the largest of 10^5 noisy scores, compared with `(scores + gumbel).argmax()` in NumPy and with OpenDP's noisy max,
which supports Gumbel and exponential noise.

All samplers alternate, so that other work on the machine affects them alike, and the best round of each counts. The clock is the process's
CPU time, which does not include waiting for a core but includes the kernel's time for random bytes.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpcore.mechanisms.exponential import Flavour, ReportNoisyMax
from dpcore.mechanisms.sampling.inversion import has_table, inversion_table
from dpcore.mechanisms.sampling.noise import integer_noise
from dpcore.mechanisms.sampling.thresholds import Shape

BARS = {"noise_to_numpy": 8.0, "noise_faster_than_opendp": 50.0, "selection_to_numpy": 5.0}
"""The largest ratio to NumPy's time, and the smallest speedup over OpenDP."""

SCALES = (2.0, 40.0, 1000.0)
WIDE = 1e6
EPSILON = 0.1


def main() -> None:
    """Run the benchmark and print a table or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--opendp-draws", type=int, default=20_000, help="in each round")
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    oracle = Oracle()
    cases = [*itertools.product(Shape, SCALES), (Shape.LAPLACE, WIDE), (Shape.GAUSSIAN, WIDE)]
    noise = [_noise(shape, scale, arguments, oracle) for shape, scale in cases]
    selections = [_selection(kind, arguments, oracle) for kind in Flavour]
    result = {"clock": "cpu", **vars(arguments), "bars": BARS, "noise": noise, "selections": selections}
    del result["json"]
    result |= verdict(noise, selections)
    print(json.dumps(result) if arguments.json else _text(result))


class Oracle:
    """OpenDP's exact samplers of the same noise."""

    def __init__(self) -> None:
        try:
            import opendp.prelude as dp  # noqa: PLC0415  only a reference here; dpflow does not need it
        except ImportError:
            sys.exit("benchmarks: opendp is not installed; run make setup")
        dp.enable_features("contrib")
        self._dp = dp
        self._vectors = dp.vector_domain(dp.atom_domain(T="i64"))

    def noise(self, shape: Shape, scale: float) -> Callable[[Any], Any] | None:
        """Return a measurement that adds noise to a vector, if OpenDP has one."""
        dp = self._dp
        if shape is Shape.LAPLACE:
            return dp.m.make_laplace(self._vectors, dp.l1_distance(T="i64"), scale=scale)
        if shape is Shape.GAUSSIAN:
            return dp.m.make_gaussian(self._vectors, dp.l2_distance(T="i64"), scale=scale)
        return None

    def selection(self, kind: Flavour, scale: float) -> Callable[[Any], Any] | None:
        """Return a measurement that selects among scores, if OpenDP has one."""
        dp = self._dp
        measures = {Flavour.GUMBEL: dp.zero_concentrated_divergence, Flavour.PERMUTE_AND_FLIP: dp.max_divergence}
        if kind not in measures:
            return None
        return dp.m.make_noisy_max(self._vectors, dp.linf_distance(T="i64"), measures[kind](), scale=scale)


def _noise(shape: Shape, scale: float, arguments: argparse.Namespace, oracle: Oracle) -> dict[str, Any]:
    generator = np.random.default_rng()
    unsafe = generator.laplace if shape is Shape.LAPLACE else generator.normal
    exact = oracle.noise(shape, scale)
    zeros = np.zeros(arguments.opendp_draws, dtype=np.int64)
    begin = time.process_time()
    integer_noise(1, shape=shape, scale=scale)
    building = time.process_time() - begin
    seconds = in_turns(
        {
            "dpflow": lambda: integer_noise(arguments.draws, shape=shape, scale=scale),
            "numpy": lambda: unsafe(scale=scale, size=arguments.draws),
            **({"opendp": lambda: exact(zeros)} if exact else {}),
        },
        rounds=arguments.rounds,
    )
    table = inversion_table(shape, scale) if has_table(shape, scale) else None
    return {
        "noise": shape.value,
        "scale": scale,
        "outcomes": len(table.high) + 1 if table else None,
        "building_seconds": building,
        **_compared(seconds, opendp_times=arguments.draws / arguments.opendp_draws),
    }


def _selection(kind: Flavour, arguments: argparse.Namespace, oracle: Oracle) -> dict[str, Any]:
    generator = np.random.default_rng()
    scores = generator.integers(0, 1000, arguments.candidates)
    scale = 2 / EPSILON
    ours = ReportNoisyMax(epsilon=EPSILON, sensitivity=1, flavour=kind, monotone=False)
    exact = oracle.selection(kind, scale)
    ours.draw(scores)  # builds its table, if it has one

    def unsafe() -> np.intp:
        return (scores + generator.gumbel(scale=scale, size=scores.size)).argmax()

    seconds = in_turns(
        {
            "dpflow": lambda: ours.draw(scores),
            "numpy": unsafe,
            **({"opendp": lambda: exact(scores)} if exact else {}),
        },
        rounds=3 * arguments.rounds,
    )
    return {"noise": kind.value, "candidates": arguments.candidates, **_compared(seconds, opendp_times=1.0)}


def in_turns(contestants: dict[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """Return the CPU seconds of each contestant's best round. They alternate."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, work in contestants.items():
            begin = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - begin)
    return best


def _compared(seconds: dict[str, float], *, opendp_times: float) -> dict[str, float | None]:
    opendp = seconds["opendp"] * opendp_times if "opendp" in seconds else None
    return {
        "seconds": seconds["dpflow"],
        "numpy_seconds": seconds["numpy"],
        "opendp_seconds": opendp,
        "to_numpy": seconds["dpflow"] / seconds["numpy"],
        "faster_than_opendp": opendp / seconds["dpflow"] if opendp is not None else None,
    }


def verdict(noise: list[dict[str, Any]], selections: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the worst figure for each bar, and whether all bars are met."""
    barred = [row for row in noise if row["scale"] in SCALES]
    worst = {
        "noise_to_numpy": max(row["to_numpy"] for row in barred),
        "noise_faster_than_opendp": min(row["faster_than_opendp"] for row in barred if row["faster_than_opendp"]),
        "selection_to_numpy": max(row["to_numpy"] for row in selections),
    }
    met = (
        worst["noise_to_numpy"] <= BARS["noise_to_numpy"]
        and worst["noise_faster_than_opendp"] >= BARS["noise_faster_than_opendp"]
        and worst["selection_to_numpy"] <= BARS["selection_to_numpy"]
    )
    return {"worst": worst, "bars_met": met}


def _text(result: dict[str, Any]) -> str:
    heads = f"{'ms':>10}{'NumPy':>10}{'opendp':>11}{'to NumPy':>10}{'faster by':>11}"
    lines = [f"{result['draws']:,} draws of noise".ljust(32) + heads + f"{'table':>9}"]
    lines += [
        f"{row['noise']:20}{row['scale']:>12,.0f}" + _figures(row) + f"{1000 * row['building_seconds']:>9.1f}"
        for row in result["noise"]
    ]
    lines.append(f"largest of {result['candidates']:,} scores".ljust(32) + heads)
    lines += [f"{row['noise']:32}" + _figures(row) for row in result["selections"]]
    lines.append(f"bars met: {result['bars_met']}")
    return "\n".join(lines)


def _figures(row: dict[str, Any]) -> str:
    ours, unsafe = 1000 * row["seconds"], 1000 * row["numpy_seconds"]
    if row["opendp_seconds"] is None:
        return f"{ours:>10.2f}{unsafe:>10.2f}{'':>11}{row['to_numpy']:>10.2f}{'':>11}"
    return (
        f"{ours:>10.2f}{unsafe:>10.2f}{1000 * row['opendp_seconds']:>11.1f}{row['to_numpy']:>10.2f}"
        f"{row['faster_than_opendp']:>11,.1f}"
    )


if __name__ == "__main__":
    main()
