"""Every mechanism of dpcore.mechanisms and dpcore.textbook, with parameters that are fine and one way to draw from it many times over."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import dpcore.mechanisms
import dpcore.textbook
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, ExponentialMechanism, Flavour, RoundedGaussian
from dpcore.mechanisms.bounded_mean import BoundedMean
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.counts_above import CountsAbove
from dpcore.mechanisms.grid import ValueGrid
from dpcore.mechanisms.noisy_choice import NoisyChoice, Wanted
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.noisy_histogram import NoisyHistogram
from dpcore.mechanisms.noisy_max import MaxNoise, ReportNoisyMax
from dpcore.mechanisms.noisy_quantiles import NoisyQuantiles
from dpcore.mechanisms.noisy_value import NoisyValue
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.mechanisms.top_categories import TopCategories
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.above_threshold import AboveThreshold
from dpcore.textbook.randomized_response import RandomizedResponse
from dpcore.universe import Boolean, Integer, Universe

ROWS = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
PERSONS = Protection(unit="person", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE)
EXCHANGED = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.REPLACE_ONE)
ONE = Sensitivity(1, 1, 1)
GRID = ValueGrid.of(Integer(minimum=0, maximum=30), step=1)
SCORES = np.array([0, 1, 2, 3, 2, 1, 0, 3], dtype=np.int64)
TABLE = pd.DataFrame(
    {"person": np.arange(60) // 3, "smoker": np.arange(60) % 2 == 0, "age": np.arange(60) % 31, "days": np.arange(60)}
)


@dataclass(frozen=True)
class Entry:
    """A mechanism, what it is made of, which of that sets the noise, and how one draws: an array of many parts."""

    kind: Any
    parameters: dict[str, Any]
    noise: tuple[str, ...]
    draw: Callable[[Any], Any]

    def make(self, **changes: Any) -> Any:
        return self.kind(**{**self.parameters, **changes})

    def drawn(self, **changes: Any) -> Any:
        return np.asarray(self.draw(self.make(**changes)))


def on_counts(mechanism: Any) -> Any:
    return mechanism.draw(np.zeros(200, dtype=np.int64))


def on_scores(mechanism: Any) -> Any:
    return [mechanism.draw(SCORES) for _ in range(60)]


def in_session(mechanism: Any) -> Any:
    answers = [mechanism.begin(3).ask_all(SCORES) for _ in range(40)]
    return [10 * answer.size + answer.sum() for answer in answers]


def on_columns(mechanism: Any) -> Any:
    return [mechanism.draw(TABLE["days"], ids=TABLE["person"]) for _ in range(4)]


def on_a_mean(mechanism: Any) -> Any:
    estimates = [mechanism.draw(TABLE["days"], ids=TABLE["person"]) for _ in range(4)]
    return [(estimate.mean, estimate.rows) for estimate in estimates]


def on_a_table(mechanism: Any) -> Any:
    return np.concatenate([counts.ravel() for counts in mechanism.draw(TABLE).values()])


def on_properties(mechanism: Any) -> Any:
    halves = [TABLE["days"] % 2 == 0, TABLE["days"] % 2 == 1]
    answers = [mechanism.draw(*halves, ids=TABLE["person"]) for _ in range(30)]
    return [len(answer) for answer in answers]


def on_categories(mechanism: Any) -> Any:
    return [int(mechanism.draw(TABLE["smoker"], ids=TABLE["person"])[0] == "true") for _ in range(30)]


def _noises(kind: Any, *scales: float) -> dict[str, Entry]:
    return {f"{kind.name} {s:g}": Entry(kind, {"scale": s, "sensitivity": ONE}, ("scale",), on_counts) for s in scales}


_ON_GRID = {"grid": GRID, "protection": PERSONS, "noise": Shape.LAPLACE}
UNIVERSE = Universe({"smoker": Boolean(), "age": Integer(minimum=0, maximum=30, width=10)})

CATALOGUE: dict[str, Entry] = {
    **_noises(DiscreteLaplace, 2.0, 1e6),
    **_noises(DiscreteGaussian, 2.0, 1e6),
    **_noises(RoundedGaussian, 2.0),
    **{
        f"exponential {flavour}": Entry(
            ExponentialMechanism, {"epsilon": 1.0, "sensitivity": 1, "flavour": flavour}, ("epsilon",), on_scores
        )
        for flavour in Flavour
    },
    **{
        f"noisy max {noise}": Entry(
            ReportNoisyMax,
            {"epsilon": 1.0, "sensitivity": 1, "noise": noise, "monotone": False},
            ("epsilon",),
            on_scores,
        )
        for noise in MaxNoise
    },
    "sparse vector": Entry(
        SparseVector,
        {"epsilon": 1.0, "sensitivity": 1, "positives": 3, "monotone": True},
        ("epsilon",),
        in_session,
    ),
    "above threshold": Entry(
        AboveThreshold, {"epsilon": 1.0, "sensitivity": 1, "monotone": False}, ("epsilon",), in_session
    ),
    "randomized response": Entry(
        RandomizedResponse,
        {"epsilon": 1.0, "answers": 4, "protection": EXCHANGED},
        ("epsilon",),
        lambda mechanism: mechanism.draw(np.arange(200) % 4),
    ),
    "count": Entry(
        NoisyCount,
        {"protection": PERSONS, "noise": Shape.LAPLACE, "scale": 2.0},
        ("scale",),
        lambda mechanism: [mechanism.draw(TABLE["smoker"], ids=TABLE["person"]) for _ in range(4)],
    ),
    "histogram": Entry(
        NoisyHistogram,
        {
            "marginals": ((0,), (0, 1)),
            "protection": PERSONS,
            "noise": Shape.GAUSSIAN,
            "scale": 3.0,
            "universe": UNIVERSE,
        },
        ("scale",),
        on_a_table,
    ),
    "sum": Entry(BoundedSum, {**_ON_GRID, "scale": 2.0}, ("scale",), on_columns),
    "mean": Entry(
        BoundedMean,
        {**_ON_GRID, "sum_scale": 2.0, "count_scale": 2.0},
        ("sum_scale", "count_scale"),
        on_a_mean,
    ),
    "quantiles": Entry(
        NoisyQuantiles,
        {"grid": GRID, "shares": ("0.5",), "protection": PERSONS, "epsilon": 1.0, "flavour": Flavour.GUMBEL},
        ("epsilon",),
        lambda mechanism: [mechanism.draw(TABLE["days"], ids=TABLE["person"])[0] for _ in range(10)],
    ),
    "top categories": Entry(
        TopCategories,
        {"k": 1, "protection": PERSONS, "epsilon": 1.0, "noise": MaxNoise.GUMBEL, "attribute": Boolean()},
        ("epsilon",),
        on_categories,
    ),
    "choice": Entry(
        NoisyChoice,
        {
            "candidates": ("a", "bb"),
            "wanted": Wanted.MOST,
            "target": None,
            "protection": PERSONS,
            "epsilon": 1.0,
            "noise": MaxNoise.EXPONENTIAL,
        },
        ("epsilon",),
        on_properties,
    ),
    "counts above": Entry(
        CountsAbove,
        {"threshold": 30, "positives": 1, "protection": PERSONS, "epsilon": 1.0},
        ("epsilon",),
        on_properties,
    ),
    "value": Entry(
        NoisyValue,
        {"grid": GRID, "moves_by": "2", "noise": Shape.ROUNDED_GAUSSIAN, "scale": 2.0},
        ("scale",),
        lambda mechanism: [mechanism.draw(7.5) for _ in range(100)],
    ),
}


def every_kind() -> set[Any]:
    """Find each class of the packages that has a price and a description, whether it is offered or not."""
    found = set()
    modules = [
        module.name
        for package in (dpcore.mechanisms, dpcore.textbook)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    for module in modules:
        for _, kind in inspect.getmembers(importlib.import_module(module), inspect.isclass):
            own = kind.__module__.startswith(("dpcore.mechanisms.", "dpcore.textbook."))
            if own and isinstance(kind.__dict__.get("name"), str) and hasattr(kind, "price"):
                found.add(kind)
    return found
