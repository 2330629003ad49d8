"""Functions that use real libraries, each paid for by an account: eight workers at once, and a worker that is killed after it.

    python -m tests.faults.budget_libraries

Prints what happened, by library, as a JSON object.
"""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import opendp.prelude as dp

from dpcore import Budget
from dpcore.budget import DpSgd, Gaussian
from dpcore.errors import BudgetRefused, RunHeld
from dpcore.ledger import open_ledger
from dpcore.mechanisms import DiscreteLaplace
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Sensitivity
from dpcore.steward.verify import verify_ledger
from tests.faults.budget_storm import NOTES, ended, forked, note, notes

WORKERS, TASKS, CAP = 8, 8, 5
LAST = 100
dp.enable_features("contrib")
AGES = np.random.default_rng(1).integers(0, 100, 500)
ONE = Sensitivity(l1=1, l2_squared=1, linf=1)
NOISE = DiscreteLaplace(scale=10.0, sensitivity=ONE)
TRAINING = DpSgd(noise_multiplier=8, steps=20, sampling_rate=0.2, neighbours=Neighbours.ADD_REMOVE)

Made = Callable[[Budget, str], Callable[[int], Any]]


def count_by_hand(account: Budget, name: str) -> Callable[[int], Any]:
    """Count with noise of our own."""

    @account.spends(unit="row", mechanism=NOISE, name=name)
    def count(number: int) -> int:
        note("began", number)
        return int(NOISE.draw(np.array([np.count_nonzero(number % 90 < AGES)]))[0])

    return count


def opendp_mean(account: Budget, name: str) -> Callable[[int], Any]:
    """Sum ages with OpenDP's Laplace noise, and divide by the public number of rows."""
    space = dp.vector_domain(dp.atom_domain(bounds=(0, 99))), dp.symmetric_distance()
    total = space >> dp.t.then_sum() >> dp.m.then_laplace(scale=990.0)

    @account.spends(unit="row", epsilon=str(total.map(1)), name=name)
    def mean(number: int) -> float:
        note("began", number)
        return total([int(age) for age in AGES]) / len(AGES)

    return mean


def opendp_histogram(account: Budget, name: str) -> Callable[[int], Any]:
    """Count ages by decade with OpenDP's discrete Gaussian noise."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    decades = list(range(10))
    counts = (
        space
        >> dp.t.then_count_by_categories(categories=decades, MO=dp.L2Distance[float])
        >> dp.m.then_gaussian(scale=8.0)
    )

    @account.spends(unit="row", mechanism=Gaussian(scale=8, sensitivity=1, continuous=False), name=name)
    def histogram(number: int) -> list[int]:
        note("began", number)
        return list(counts([int(age) // 10 for age in AGES]))

    return histogram


def training_in_numpy(account: Budget, name: str) -> Callable[[int], Any]:
    """Train a logistic regression by noisy clipped gradients."""

    @account.spends(unit="row", mechanism=TRAINING, name=name)
    def train(number: int) -> Any:
        note("began", number)
        drawn = np.random.default_rng()
        features = np.column_stack([np.ones(len(AGES)), AGES / 100])
        labels, weights = AGES > 50, np.zeros(2)
        for _ in range(TRAINING.steps):
            batch = drawn.random(len(AGES)) < float(TRAINING.sampling_rate)
            errors = 1 / (1 + np.exp(-features[batch] @ weights)) - labels[batch]
            gradients = errors[:, None] * features[batch]
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            total = (gradients / np.maximum(norms, 1)).sum(axis=0)
            noise = drawn.normal(0, float(TRAINING.noise_multiplier), 2)
            weights -= 0.5 * (total + noise) / (float(TRAINING.sampling_rate) * len(AGES))
        return weights

    return train


LIBRARIES: dict[str, tuple[Made, Currency, int]] = {
    "count by hand": (count_by_hand, Currency.PURE, AMOUNT_OF_ONE // 10),
    "OpenDP mean": (opendp_mean, Currency.PURE, AMOUNT_OF_ONE // 10),
    "OpenDP histogram": (opendp_histogram, Currency.ZCDP, AMOUNT_OF_ONE // 128),
    "DP-SGD in NumPy": (training_in_numpy, Currency.GDP, 20 * AMOUNT_OF_ONE // 64),
}
"""How each is made, the currency of its account, and its price there, worked out by hand."""


def main() -> None:
    """Try every library, and print what happened."""
    print(json.dumps({library: tried(library, *how) for library, how in LIBRARIES.items()}))


def tried(library: str, made: Made, currency: Currency, price: int) -> dict[str, Any]:
    """Let workers race for what one account can pay, and one die with what another can."""
    NOTES.write_text("", encoding="ascii")
    function = made(opened(library, currency, CAP * price), f"{library} {{number}}")

    def work(worker: int) -> None:
        for number in np.random.default_rng(worker).permutation(TASKS):
            try:
                function(int(number))
            except (BudgetRefused, RunHeld):
                continue

    codes = [ended(process) for process in [forked(partial(work, worker)) for worker in range(WORKERS)]]
    bodies = [number for what, number in notes() if what == "began"]

    function = made(opened(f"{library}, once", currency, price), f"{library}, once {{number}}")
    death = ended(forked(lambda: (function(LAST), os.kill(os.getpid(), signal.SIGKILL))))
    first, again = function(LAST), function(LAST)
    try:
        function(LAST + 1)
        refused = False
    except BudgetRefused:
        refused = True
    verify_ledger()
    with open_ledger() as ledger:
        spent = ledger.balance(library).spent
    return {
        "failed": sum(map(bool, codes)),
        "bodies": len(bodies),
        "twice": len(bodies) - len(set(bodies)),
        "spent_as_priced": spent == CAP * price,
        "death": death,
        "bodies_of_the_killed": sum(number == LAST for _, number in notes()),
        "same_value": np.array_equal(first, again),
        "refused_at_the_cap": refused,
    }


def opened(name: str, currency: Currency, cap: int) -> Budget:
    """Open an account for exactly a cap."""
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            name,
            currency=currency,
            cap=cap,
            epsilon=100.0,
            delta=0.0 if currency is Currency.PURE else 1e-6,
            unit="row",
            neighbours=Neighbours.ADD_REMOVE,
        )
    return Budget(name)


if __name__ == "__main__":
    main()
