"""Every mechanism of dpcore.mechanisms and dpcore.textbook: with parameters that are fine, one way to draw from it many times over, and how it is bought."""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import dpcore.mechanisms
import dpcore.textbook
from dpcore.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    ExponentialMechanism,
    Flavour,
    ReportNoisyMax,
    RoundedGaussian,
)
from dpcore.mechanisms.bounded_mean import BoundedMean
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.counts_above import CountsAbove
from dpcore.mechanisms.declared import Declared
from dpcore.mechanisms.grid import ValueGrid
from dpcore.mechanisms.noisy_choice import NoisyChoice, Wanted
from dpcore.mechanisms.noisy_count import NoisyCount
from dpcore.mechanisms.noisy_histogram import NoisyHistogram
from dpcore.mechanisms.noisy_quantiles import NoisyQuantiles
from dpcore.mechanisms.noisy_value import NoisyValue
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.mechanisms.top_categories import TopCategories
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.above_threshold import AboveThreshold
from dpcore.textbook.randomized_response import RandomizedResponse
from dpcore.universe import Boolean, Integer, Number, Universe

ROW, SWAPPED_ROW = (Protection(unit="row", rows_per_unit=1, neighbours=neighbours) for neighbours in Neighbours)
PERSON, SWAPPED_PERSON = (
    Protection(unit="person", rows_per_unit=2, neighbours=neighbours) for neighbours in Neighbours
)
WEIGHTED = Protection(unit="person", rows_per_unit=2, neighbours=Neighbours.ADD_REMOVE, weight="times", row_weight=3)
PROTECTIONS = (ROW, SWAPPED_ROW, PERSON, SWAPPED_PERSON, WEIGHTED)
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


_ON_GRID = {"grid": GRID, "protection": PERSON, "noise": Shape.LAPLACE}
UNIVERSE = Universe({"smoker": Boolean(), "age": Integer(minimum=0, maximum=30, width=10)})

CATALOGUE: dict[str, Entry] = {
    **_noises(DiscreteLaplace, 2.0, 1e6),
    **_noises(DiscreteGaussian, 2.0, 1e6),
    **_noises(RoundedGaussian, 2.0),
    **{
        f"exponential {flavour}": Entry(
            ExponentialMechanism, {"epsilon": 1.0, "sensitivity": 1, "flavour": flavour}, ("epsilon",), on_scores
        )
        for flavour in (Flavour.GUMBEL, Flavour.PERMUTE_AND_FLIP)
    },
    **{
        f"noisy max {flavour}": Entry(
            ReportNoisyMax,
            {"epsilon": 1.0, "sensitivity": 1, "flavour": flavour, "monotone": False},
            ("epsilon",),
            on_scores,
        )
        for flavour in Flavour
    },
    "sparse vector": Entry(
        SparseVector,
        {"epsilon": 1.0, "sensitivity": 1, "positives": 3, "monotone": True},
        ("epsilon",),
        in_session,
    ),
    "above threshold": Entry(
        AboveThreshold, {"epsilon": 1.0, "sensitivity": 1, "positives": 1, "monotone": False}, ("epsilon",), in_session
    ),
    "randomized response": Entry(
        RandomizedResponse,
        {"epsilon": 1.0, "answers": 4, "protection": SWAPPED_ROW},
        ("epsilon",),
        lambda mechanism: mechanism.draw(np.arange(200) % 4),
    ),
    "count": Entry(
        NoisyCount,
        {"protection": PERSON, "noise": Shape.LAPLACE, "scale": 2.0},
        ("scale",),
        lambda mechanism: [mechanism.draw(TABLE["smoker"], ids=TABLE["person"]) for _ in range(4)],
    ),
    "histogram": Entry(
        NoisyHistogram,
        {
            "marginals": ((0,), (0, 1)),
            "protection": PERSON,
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
        {"grid": GRID, "shares": ("0.5",), "protection": PERSON, "epsilon": 1.0, "flavour": Flavour.GUMBEL},
        ("epsilon",),
        lambda mechanism: [mechanism.draw(TABLE["days"], ids=TABLE["person"])[0] for _ in range(10)],
    ),
    "top categories": Entry(
        TopCategories,
        {"k": 1, "protection": PERSON, "epsilon": 1.0, "flavour": Flavour.GUMBEL, "attribute": Boolean()},
        ("epsilon",),
        on_categories,
    ),
    "choice": Entry(
        NoisyChoice,
        {
            "candidates": ("a", "bb"),
            "wanted": Wanted.MOST,
            "target": None,
            "protection": PERSON,
            "epsilon": 1.0,
            "flavour": Flavour.PERMUTE_AND_FLIP,
        },
        ("epsilon",),
        on_properties,
    ),
    "counts above": Entry(
        CountsAbove,
        {"threshold": 30, "positives": 1, "protection": PERSON, "epsilon": 1.0},
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


@dataclass(frozen=True)
class Purchase:
    """How a mechanism is bought: with which parameters, in which currencies, and which parameter sets its noise."""

    kind: Any
    parameters: dict[str, Any]
    noise: str = "scale"
    less: float = 0.0
    """The direction in which there is less noise."""
    currencies: tuple[Currency, ...] = tuple(Currency)

    def bought(self, amount: Any, currency: Currency) -> Any:
        return self.kind.for_amount(amount, currency=currency, **self.parameters)


_AGE = {"attribute": Integer(minimum=0, maximum=99), "step": 1}
_STACKED = {"sensitivity": Sensitivity(l1=2, l2_squared=2, linf=1)}
_EPSILON: dict[str, Any] = {"noise": "epsilon", "less": math.inf}
_QUESTIONS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "count": (NoisyCount, {}, {}),
    "sum": (BoundedSum, _AGE, {}),
    "mean": (BoundedMean, _AGE, {"noise": "sum_scale"}),
    "histogram": (NoisyHistogram, {"universe": UNIVERSE, "order": 2}, {}),
    "quantiles": (NoisyQuantiles, {**_AGE, "shares": ["0.25", "0.5"]}, _EPSILON),
    "top categories": (TopCategories, {"attribute": Boolean(), "k": 2}, _EPSILON),
    "nearest": (NoisyChoice, {"candidates": ["a", "b"], "wanted": "nearest", "target": 7}, _EPSILON),
    "most": (NoisyChoice, {"candidates": ["a", "b"], "wanted": "most", "target": None}, _EPSILON),
    "counts above": (CountsAbove, {"threshold": 100, "positives": 2}, _EPSILON),
}
QUESTIONS = {
    f"{name}, {protection.unit} {protection.neighbours} {protection.most}": Purchase(
        kind, {**parameters, "protection": protection}, **noise
    )
    for name, (kind, parameters, noise) in _QUESTIONS.items()
    for protection in (ROW, SWAPPED_PERSON, WEIGHTED)
}
PURCHASES = {
    "laplace": Purchase(DiscreteLaplace, _STACKED),
    "gaussian": Purchase(DiscreteGaussian, _STACKED, currencies=(Currency.ZCDP,)),
    "rounded": Purchase(RoundedGaussian, _STACKED, currencies=(Currency.ZCDP, Currency.GDP)),
    "exponential": Purchase(ExponentialMechanism, {"sensitivity": 7}, **_EPSILON),
    **{
        f"noisy max {flavour}": Purchase(
            ReportNoisyMax, {"sensitivity": 7, "flavour": flavour, "monotone": True}, **_EPSILON
        )
        for flavour in Flavour
    },
    "sparse vector": Purchase(SparseVector, {"sensitivity": 7, "positives": 3, "monotone": False}, **_EPSILON),
    "above threshold": Purchase(AboveThreshold, {"sensitivity": 2, "positives": 1, "monotone": True}, **_EPSILON),
    "randomized response": Purchase(RandomizedResponse, {"answers": 4, "protection": SWAPPED_PERSON}, **_EPSILON),
    "value": Purchase(NoisyValue, {"attribute": Number((0, 1)), "step": "0.001", "moves_by": "0.05"}),
    **QUESTIONS,
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
            drawn = not issubclass(kind, Declared)  # what callers state has no draw: test_declared.py lists it
            if own and drawn and isinstance(kind.__dict__.get("name"), str) and hasattr(kind, "price"):
                found.add(kind)
    return found
