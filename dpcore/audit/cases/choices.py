"""Audit of quantiles, top categories, choices and comparisons of counts, with the sensitivities that they derive from the declarations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import answers, event, yes_or_no
from dpcore.audit.cases.values import AMOUNT, REPLACED, bought_event, of_column, price_halved
from dpcore.audit.checks import Draw, EventCheck, StreamCheck
from dpcore.audit.made_up import ROW
from dpcore.mechanisms.counts_above import CountsAbove
from dpcore.mechanisms.noisy_choice import NoisyChoice, Wanted
from dpcore.mechanisms.noisy_quantiles import NoisyQuantiles
from dpcore.mechanisms.query import Exact, Query
from dpcore.mechanisms.top_categories import TopCategories
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.universe import Categorical, Integer

FEW_DRAWS, MORE_DRAWS = 6_000, 20_000

_SELECTIONS = {
    Currency.PURE: "the price of permute-and-flip, for each selection",
    Currency.ZCDP: "the price of an exponential mechanism, for each selection",
    Currency.GDP: "the price of an exponential mechanism, for each selection",
}


def _of_counts(query: Query[Any], code: Callable[[Any], float]) -> Callable[[Sequence[int]], Draw]:
    """Return the draws of a query's answer for the exact counts of its properties."""
    return lambda counts: answers(query, Exact(np.array(counts, dtype=np.int64), protection=query.protection), code)


def _quantile(protection: Protection, share: str = "0.5") -> NoisyQuantiles:
    bit = Integer(minimum=0, maximum=1)
    return NoisyQuantiles.for_amount(
        AMOUNT, currency=Currency.PURE, attribute=bit, step=1, shares=[share], protection=protection
    )


def _first(answer: tuple[float, ...]) -> float:
    return answer[0]


def noisy_quantiles() -> Case:
    """Return the audit of quantiles. Between two candidates, the scores of a replaced row move apart by half of what the noise allows for."""
    replaced, high = _quantile(REPLACED), _quantile(ROW, "0.9")
    ninth, tenth = [0] * 9 + [1], [0] * 9 + [1, 1]
    medians = of_column(replaced, _first)
    sound = bought_event("the median of 0 or 1, replaced", replaced, medians, tables=([0], [1]), draws=MORE_DRAWS)
    added = bought_event(
        "a ninth decile, one row added", high, of_column(high, _first), tables=(ninth, tenth), draws=MORE_DRAWS
    )
    forgetful = replace(high, epsilon=10 * high.epsilon)
    return Case(
        name=NoisyQuantiles.name,
        theorem="The rank error of a candidate, in parts of the share's denominator, moves by at most m max(a, b - a) if a unit is added or removed and m b if it is replaced, so the exponential mechanism selects a quantile privately.",
        reference="Smith 2011; McSherry and Talwar 2007",
        prices=_SELECTIONS,
        checks=(sound, added, StreamCheck(setting="100 medians", draw=medians([0, 1]))),
        bugs=(
            Bug(
                name="persons taken for rows",
                how="persons have six rows each, but the unit is declared to be one row",
                check=bought_event(sound.setting, replaced, medians, tables=([0] * 6, [1] * 6), draws=FEW_DRAWS),
            ),
            Bug(
                name="denominator forgotten",
                how="scores are in tenths of a row, but their sensitivity is stated in rows",
                check=bought_event(
                    added.setting, high, of_column(forgetful, _first), tables=(ninth, tenth), draws=FEW_DRAWS
                ),
            ),
        ),
    )


def _top(protection: Protection) -> TopCategories:
    return TopCategories.for_amount(
        AMOUNT, currency=Currency.PURE, attribute=Categorical(("a", "b")), k=1, protection=protection
    )


def _of_texts(drawn: TopCategories) -> Callable[[Sequence[str]], Draw]:
    return of_column(drawn, lambda selected: selected[0] == "a", kind=pa.string())


def top_categories() -> Case:
    """Return the audit of top categories."""
    replaced, added = _top(REPLACED), _top(ROW)
    sound = bought_event("one row, replaced", replaced, _of_texts(replaced), tables=(["a"], ["b"]), draws=FEW_DRAWS)
    return Case(
        name=TopCategories.name,
        theorem="Each category's count moves by at most what a unit counts, so selecting the largest noisy count k times, without those selected before, costs k selections.",
        reference="Durfee and Rogers 2019",
        prices=_SELECTIONS,
        checks=(sound, StreamCheck(setting="100 selections", draw=_of_texts(replaced)(["a"]))),
        bugs=(
            Bug(
                name="neighbour flag ignored",
                how="a row is replaced, but the noise is for monotone counts",
                check=bought_event(sound.setting, replaced, _of_texts(added), tables=(["a"], ["b"]), draws=MORE_DRAWS),
            ),
            price_halved(sound),
        ),
    )


def _choice(goal: Wanted, target: int | None) -> NoisyChoice:
    return NoisyChoice.for_amount(
        AMOUNT, currency=Currency.PURE, candidates=["a", "b"], wanted=goal, target=target, protection=ROW
    )


def noisy_choice() -> Case:
    """Return the audit of choices. One row that has both properties brings one count nearer to its target, and takes the other away."""
    nearest, most = _choice(Wanted.NEAREST, 5), _choice(Wanted.MOST, None)
    chosen = _of_counts(nearest, lambda name: name == "a")
    tables = ([4, 6], [5, 7])
    sound = bought_event("one more row, near the target", nearest, chosen, tables=tables, draws=FEW_DRAWS)

    def as_monotone(counts: Sequence[int]) -> Draw:
        return _of_counts(most, lambda name: name == "a")([-abs(count - 5) for count in counts])

    return Case(
        name=NoisyChoice.name,
        theorem="A property's count, and its distance from a target, move by at most what a unit counts, so a noisy maximum of them is private; counts under add-remove are monotone, distances are not.",
        reference="McSherry and Talwar 2007; Dwork and Roth 2014, Claim 3.9",
        prices=_SELECTIONS,
        checks=(sound, StreamCheck(setting="100 choices", draw=chosen([4, 5]))),
        bugs=(
            Bug(
                name="distances as monotone",
                how="distances from a target move both ways, but the noise is for monotone counts",
                check=bought_event(
                    "the same rows, paid as monotone", most, as_monotone, tables=tables, draws=MORE_DRAWS
                ),
            ),
            price_halved(sound),
        ),
    )


def _above(protection: Protection) -> CountsAbove:
    return CountsAbove.for_amount(2 * AMOUNT, currency=Currency.PURE, threshold=5, positives=1, protection=protection)


def counts_above() -> Case:
    """Return the audit of comparisons of counts. A replaced row takes from one count and gives to the others."""
    replaced, added = _above(REPLACED), _above(ROW)
    tables = ([4, 4, 4, 5], [5, 5, 5, 4])

    def check(drawn: CountsAbove) -> EventCheck:
        answered = _of_counts(drawn, yes_or_no)
        return event("three below, then one, replaced", answered, tables=tables, paid=replaced, draws=MORE_DRAWS)

    sound = check(replaced)
    return Case(
        name=CountsAbove.name,
        theorem="Each count moves by at most what a unit counts, so the sparse vector technique reports privately which counts reach a threshold.",
        reference="Lyu, Su and Li 2017",
        prices=dict.fromkeys(Currency, "the price of the sparse vector technique"),
        checks=(sound, StreamCheck(setting="100 comparisons", draw=_of_counts(replaced, yes_or_no)(tables[0]))),
        bugs=(
            Bug(
                name="neighbour flag ignored",
                how="a row is replaced, but the noise is for monotone counts",
                check=check(added),
            ),
            price_halved(sound),
        ),
    )
