"""Audit of the choice of the limit on rows per unit: the chosen limit must reveal no more than the noisy histogram behind it was charged for."""

from functools import lru_cache
from pathlib import Path

import numpy as np

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import event
from dpcore.audit.checks import Counts, Draw, StreamCheck
from dpcore.audit.events import Outcomes
from dpcore.mechanisms.noise import Noise
from dpcore.mechanisms.pricing import marginal_noise
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.release.statement import CLEAR
from dpcore.runs.planning.limits import NoisyUnits, chosen_limit, expected_errors
from dpcore.spec import Declaration
from dpcore.spec.declaration import declare
from dpcore.spec.release import ReleaseSpec
from dpcore.spec.shares import Early
from dpcore.tables.ingest.tally import BUCKETS
from dpcore.universe import Universe

EPSILON = 50.0
"""Large, so that the small part of it that buys the histogram shows in few draws."""

PERSONS = 1_000


def limits() -> Case:
    """Return the audit of the choice of the limit on rows per unit."""
    noise = _noise()
    tables = below, above = _tipping_tables(noise)
    neighbours = f"{PERSONS:,} with one row, {below[-1]} or {above[-1]} with many"
    return Case(
        name="limit-choice",
        theorem="The limit that a public rule chooses from noisy counts of units, to which each unit adds one, loses no more than these counts.",
        reference="Dwork and Roth 2014, Prop. 2.1 (post-processing)",
        prices=dict.fromkeys(Currency, "the price of the noise of one histogram with one record for each unit"),
        checks=(
            event(neighbours, lambda counts: _noisy(noise, counts), tables=tables, paid=noise, draws=20_000),
            StreamCheck(setting="the chosen limits", draw=_noisy(noise, above)),
        ),
        bugs=(
            Bug(
                name="limit by true counts",
                how="the limit is chosen by the true histogram, and the noisy one is only charged for",
                check=event(neighbours, lambda counts: _exact(noise, counts), tables=tables, paid=noise, draws=2_000),
            ),
        ),
    )


@lru_cache(maxsize=1)
def _declaration() -> Declaration:
    spec = ReleaseSpec.model_validate(
        {
            "dataset": "persons",
            "privacy": {
                "unit": "person",
                "max_rows_per_unit": "auto",
                "neighbours": "add-remove",
                "epsilon": EPSILON,
                "delta": 0.0,
            },
            "universe": {"mark": {"type": "integer", "min": 0, "max": 9}},
            "workload": {"marginals": 1},
        }
    )
    universe = Universe({name: part.attribute(Path()) for name, part in spec.universe.items()})
    return declare(spec, universe=universe, path=Path("made-up.yaml"))


def _noise() -> Noise:
    """Return the noise that a run on this declaration adds to its histogram."""
    declaration = _declaration()
    _, amount = budget_of(EPSILON, delta=0.0, currency=Currency.PURE)
    bought = int(amount * declaration.share(Early.LIMIT))
    return marginal_noise(bought, currency=Currency.PURE, protection=declaration.protection.of_one_answer)


def _tipping_tables(noise: Noise) -> tuple[Counts, Counts]:
    """Return two neighbours for which the true counts give different limits: a person with many rows is there or not."""
    low, high = 0, PERSONS
    lowest = _limit(noise, _table(low))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _limit(noise, _table(middle)) == lowest else (low, middle)
    return _table(low), _table(high)


def _table(many: int) -> Counts:
    counts = np.zeros(len(BUCKETS), dtype=np.int64)
    counts[0], counts[-1] = PERSONS, many
    return counts


def _limit(noise: Noise, counts: Counts) -> int:
    clear = np.where(counts >= CLEAR * noise.standard_deviation, counts, 0)  # the rule ignores all others
    return _chosen(tuple(clear.tolist()), noise.standard_deviation)


@lru_cache(maxsize=100_000)
def _chosen(counts: tuple[int, ...], deviation: float) -> int:
    units = NoisyUnits(counts, noise=deviation)
    return chosen_limit(expected_errors(_declaration(), units.rows, currency=Currency.PURE))


def _noisy(noise: Noise, counts: Counts) -> Draw:
    def draw(times: int) -> Outcomes:
        return np.array([_limit(noise, row) for row in noise.draw(np.tile(counts, (times, 1)))])

    return draw


def _exact(noise: Noise, counts: Counts) -> Draw:
    def draw(times: int) -> Outcomes:
        noise.draw(np.tile(counts, (times, 1)))
        return np.full(times, _limit(noise, counts))

    return draw
