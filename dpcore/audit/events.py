"""Looking for the event that tells two neighbours apart best: chosen on one half of the draws, bounded on the other.

Whatever was chosen on the first half, the draws of the second half are independent of it, so that bounds of its probability hold as if the
event had been fixed beforehand.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore.audit.bounds import Tally, at_least, loss
from dpcore.errors import UsageError
from dpcore.privacy.accounting import Currency

Outcomes: TypeAlias = npt.NDArray[np.int64]
"""Outputs, each as a whole number: of an output with more to it, a function of it."""

MOST_EVENTS = 1000
"""Sets of outcomes that are compared."""

_SHRINKAGE = 5.0
"""Sightings that every outcome is given on both neighbours, so that a few of a rare one do not count for much."""


@dataclass(frozen=True)
class Shown:
    """What an event shows: an amount of the currency that the mechanism has lost at least, and how often the event was seen."""

    amount: float
    here: Tally
    there: Tally


def most_telling(here: Outcomes, there: Outcomes, *, currency: Currency, miss: float, delta: float = 0.0) -> Shown:
    """Return what the most telling event shows; it is more than is true with probability at most `miss`.

    Reference: Jagielski, Ullman and Oprea 2020; Bichsel et al. 2018 for events that are looked for.

    Args:
        here: Outputs on one of two neighbours.
        there: As many on the other.
        currency: What the mechanism's price is in.
        miss: The probability with which the result may be wrong.
        delta: The delta of a claim of (epsilon, delta).
    """
    if here.size != there.size or here.size < 2:
        raise UsageError("an audit takes as many draws on one neighbour as on the other, and at least two; draw again")
    half = here.size // 2
    values, places = np.unique(np.concatenate([here, there]), return_inverse=True)
    kinds = len(values)

    def counted(start: int, end: int) -> npt.NDArray[np.int64]:
        return np.bincount(places[start:end], minlength=kinds)

    first = counted(0, half), counted(here.size, here.size + half)
    second = counted(half, here.size), counted(here.size + half, 2 * here.size)
    turned, members = max(
        ((turned, members) for turned in (False, True) for members in _events(*(first[::-1] if turned else first))),
        key=lambda event: _promise(event[1], *(first[::-1] if event[0] else first), currency, miss, delta),
    )
    tallies = [Tally(int(counts[members].sum()), int(counts.sum())) for counts in (second[::-1] if turned else second)]
    return Shown(at_least(*tallies, currency=currency, miss=miss, delta=delta), *tallies)


def _events(here: npt.NDArray[np.int64], there: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.intp]]:
    """Go through sets of outcomes: those that are relatively likeliest here, more and more of them."""
    order = np.argsort((there + _SHRINKAGE) / (here + _SHRINKAGE), kind="stable")
    sizes = np.unique(np.linspace(1, len(order), min(len(order), MOST_EVENTS)).astype(np.intp))
    yield from (order[:size] for size in sizes)


def _promise(  # noqa: PLR0913, PLR0917  an event, its counts, and the claim that it is to refute
    members: npt.NDArray[np.intp],
    here: npt.NDArray[np.int64],
    there: npt.NDArray[np.int64],
    currency: Currency,
    miss: float,
    delta: float,
) -> float:
    """Return about what an event will show: by bounds that are not exact, but quick."""
    p, q = (int(counts[members].sum()) / int(counts.sum()) for counts in (here, there))
    deviations = math.sqrt(2 * math.log(2 / miss))
    low = _wilson(p, int(here.sum()), -deviations)
    return loss(max(low, 0.0), min(_wilson(q, int(there.sum()), deviations), 1.0), currency=currency, delta=delta)


def _wilson(p: float, trials: int, deviations: float) -> float:
    """Return Wilson's bound of a probability, so many standard deviations above or below."""
    square = deviations * deviations
    spread = deviations * math.sqrt(p * (1 - p) / trials + square / (4 * trials**2))
    return (p + square / (2 * trials) + spread) / (1 + square / trials)
