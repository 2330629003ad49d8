"""Find the event that best distinguishes two neighbours: choose it on one half of the draws, and bound it on the other half.

The draws of the second half are independent of the choice. Bounds of the event's probability therefore hold as if the event had been
fixed in advance.
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
"""Outputs, each as an integer. A structured output is represented by a function of it."""

_SHRINKAGE = 5.0
"""Pseudocounts added to every outcome on both neighbours, so that a few draws of a rare outcome have little influence."""


@dataclass(frozen=True)
class Shown:
    """What an event shows: a lower bound of the privacy loss, and the event's tallies on both neighbours."""

    amount: float
    here: Tally
    there: Tally


def most_telling(here: Outcomes, there: Outcomes, *, currency: Currency, miss: float, delta: float = 0.0) -> Shown:
    """Return the loss that the most revealing event shows. It is too large with probability at most `miss`.

    Reference: Jagielski, Ullman and Oprea 2020; Bichsel et al. 2018 for searching for events.

    Args:
        here: Outputs on one of two neighbours.
        there: The same number of outputs on the other.
        currency: The currency of the mechanism's price.
        miss: The probability with which the result may be too large.
        delta: The delta of an (epsilon, delta) claim.
    """
    if here.size != there.size or here.size < 2:
        raise UsageError("an audit needs the same number of draws on both neighbours, at least two; draw again")
    half = here.size // 2
    values, places = np.unique(np.concatenate([here, there]), return_inverse=True)
    kinds = len(values)

    def counted(start: int, end: int) -> npt.NDArray[np.int64]:
        return np.bincount(places[start:end], minlength=kinds)

    first = counted(0, half), counted(here.size, here.size + half)
    second = counted(half, here.size), counted(here.size + half, 2 * here.size)
    turned, members = max(
        ((turned, members) for turned in (False, True) for members in _events(*(first[::-1] if turned else first))),
        key=lambda event: _approximate_loss(event[1], *(first[::-1] if event[0] else first), currency, miss, delta),
    )
    tallies = [Tally(int(counts[members].sum()), int(counts.sum())) for counts in (second[::-1] if turned else second)]
    return Shown(at_least(*tallies, currency=currency, miss=miss, delta=delta), *tallies)


def _events(here: npt.NDArray[np.int64], there: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.intp]]:
    """Yield at most 1,000 growing sets of outcomes, ordered by how much likelier they are here than there."""
    order = np.argsort((there + _SHRINKAGE) / (here + _SHRINKAGE), kind="stable")
    sizes = np.unique(np.linspace(1, len(order), min(len(order), 1000)).astype(np.intp))
    yield from (order[:size] for size in sizes)


def _approximate_loss(  # noqa: PLR0913, PLR0917  an event, its counts, and the claim that it is to refute
    members: npt.NDArray[np.intp],
    here: npt.NDArray[np.int64],
    there: npt.NDArray[np.int64],
    currency: Currency,
    miss: float,
    delta: float,
) -> float:
    """Estimate the loss that an event will show, with bounds that are fast but not exact."""
    p, q = (int(counts[members].sum()) / int(counts.sum()) for counts in (here, there))
    deviations = math.sqrt(2 * math.log(2 / miss))
    low = _wilson(p, int(here.sum()), -deviations)
    return loss(max(low, 0.0), min(_wilson(q, int(there.sum()), deviations), 1.0), currency=currency, delta=delta)


def _wilson(p: float, trials: int, deviations: float) -> float:
    """Return Wilson's bound of a probability, `deviations` standard deviations above it, or below it if negative."""
    square = deviations * deviations
    spread = deviations * math.sqrt(p * (1 - p) / trials + square / (4 * trials**2))
    return (p + square / (2 * trials) + spread) / (1 + square / trials)
