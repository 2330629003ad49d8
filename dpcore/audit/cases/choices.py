"""Audit of quantiles, top categories, choices and comparisons of counts, with the sensitivities that they derive from the declarations."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import once
from dpcore.audit.cases.values import AMOUNT, REPLACED, event, price_halved, told
from dpcore.audit.checks import Draw, EventCheck, StreamCheck
from dpcore.audit.made_up import ROW
from dpcore.mechanisms.counts_above import CountsAbove
from dpcore.mechanisms.noisy_choice import NoisyChoice, Wanted
from dpcore.mechanisms.noisy_quantiles import NoisyQuantiles
from dpcore.mechanisms.query import Exact
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

Answers = Callable[[Exact], Any]


def _priced(setting: str, drawn: Any, here: Draw, there: Draw, *, draws: int = FEW_DRAWS) -> EventCheck:
    return replace(event(setting, drawn, here=here, there=there), draws=draws)


def _quantile(protection: Protection, share: str = "0.5") -> NoisyQuantiles:
    bit = Integer(minimum=0, maximum=1)
    return NoisyQuantiles.for_amount(
        AMOUNT, currency=Currency.PURE, attribute=bit, step=1, shares=[share], protection=protection
    )


def _values(drawn: NoisyQuantiles, values: Sequence[int]) -> Draw:
    exact = drawn.read(pa.array(values, type=pa.int64()))
    return told(lambda: drawn.answer(exact)[0])


def noisy_quantiles() -> Case:
    """Return the audit of quantiles. Between two candidates, the scores of a replaced row move apart by half of what the noise allows for."""
    replaced, high = _quantile(REPLACED), _quantile(ROW, "0.9")
    sound = _priced(
        "the median of 0 or 1, replaced", replaced, _values(replaced, [0]), _values(replaced, [1]), draws=MORE_DRAWS
    )
    added = _priced(
        "a ninth decile, one row added",
        high,
        _values(high, [0] * 9 + [1]),
        _values(high, [0] * 9 + [1, 1]),
        draws=MORE_DRAWS,
    )
    forgetful = replace(high, epsilon=10 * high.epsilon)
    return Case(
        name=NoisyQuantiles.name,
        theorem="The rank error of a candidate, in parts of the share's denominator, moves by at most m max(a, b - a) if a unit is added or removed and m b if it is replaced, so the exponential mechanism selects a quantile privately.",
        reference="Smith 2011; McSherry and Talwar 2007",
        prices=_SELECTIONS,
        checks=(sound, added, StreamCheck(setting="100 medians", draw=_values(replaced, [0, 1]))),
        bugs=(
            Bug(
                name="persons taken for rows",
                how="persons have six rows each, but the unit is declared to be one row",
                check=replace(
                    sound,
                    here=once(_values(replaced, [0] * 6)),
                    there=once(_values(replaced, [1] * 6)),
                    draws=FEW_DRAWS,
                ),
            ),
            Bug(
                name="denominator forgotten",
                how="scores are in tenths of a row, but their sensitivity is stated in rows",
                check=replace(
                    added,
                    here=once(_values(forgetful, [0] * 9 + [1])),
                    there=once(_values(forgetful, [0] * 9 + [1, 1])),
                    draws=FEW_DRAWS,
                ),
            ),
        ),
    )


def _top(protection: Protection) -> TopCategories:
    return TopCategories.for_amount(
        AMOUNT, currency=Currency.PURE, attribute=Categorical(("a", "b")), k=1, protection=protection
    )


def _first(drawn: TopCategories, values: Sequence[str]) -> Draw:
    exact = drawn.read(pa.array(values, type=pa.string()))
    return told(lambda: drawn.answer(exact)[0] == "a")


def top_categories() -> Case:
    """Return the audit of top categories."""
    replaced, added = _top(REPLACED), _top(ROW)
    sound = _priced("one row, replaced", replaced, _first(replaced, ["a"]), _first(replaced, ["b"]))
    return Case(
        name=TopCategories.name,
        theorem="Each category's count moves by at most what a unit counts, so selecting the largest noisy count k times, without those selected before, costs k selections.",
        reference="Durfee and Rogers 2019",
        prices=_SELECTIONS,
        checks=(sound, StreamCheck(setting="100 selections", draw=_first(replaced, ["a"]))),
        bugs=(
            Bug(
                name="neighbour flag ignored",
                how="a row is replaced, but the noise is for monotone counts",
                check=replace(
                    sound, here=once(_first(added, ["a"])), there=once(_first(added, ["b"])), draws=MORE_DRAWS
                ),
            ),
            price_halved(sound),
        ),
    )


def _choice(wanted: Wanted, target: int | None) -> NoisyChoice:
    return NoisyChoice.for_amount(
        AMOUNT, currency=Currency.PURE, candidates=["a", "b"], wanted=wanted, target=target, protection=ROW
    )


def _chosen(drawn: NoisyChoice, counts: Sequence[int]) -> Draw:
    exact = Exact(np.array(counts, dtype=np.int64), protection=drawn.protection)
    return told(lambda: drawn.answer(exact) == "a")


def noisy_choice() -> Case:
    """Return the audit of choices. One row that has both properties brings one count nearer to its target, and takes the other away."""
    nearest, most = _choice(Wanted.NEAREST, 5), _choice(Wanted.MOST, None)
    sound = _priced("one more row, near the target", nearest, _chosen(nearest, [4, 6]), _chosen(nearest, [5, 7]))

    def as_monotone(counts: Sequence[int]) -> Draw:
        scores = Exact(-np.abs(np.array(counts, dtype=np.int64) - 5), protection=ROW)
        return told(lambda: most.answer(scores) == "a")

    return Case(
        name=NoisyChoice.name,
        theorem="A property's count, and its distance from a target, move by at most what a unit counts, so a noisy maximum of them is private; counts under add-remove are monotone, distances are not.",
        reference="McSherry and Talwar 2007; Dwork and Roth 2014, Claim 3.9",
        prices=_SELECTIONS,
        checks=(sound, StreamCheck(setting="100 choices", draw=_chosen(nearest, [4, 5]))),
        bugs=(
            Bug(
                name="distances as monotone",
                how="distances from a target move both ways, but the noise is for monotone counts",
                check=_priced(
                    "the same rows, paid as monotone",
                    most,
                    as_monotone([4, 6]),
                    as_monotone([5, 7]),
                    draws=MORE_DRAWS,
                ),
            ),
            price_halved(sound),
        ),
    )


def _above(protection: Protection) -> CountsAbove:
    return CountsAbove.for_amount(2 * AMOUNT, currency=Currency.PURE, threshold=5, positives=1, protection=protection)


def _answered(drawn: CountsAbove, counts: Sequence[int]) -> Draw:
    exact = Exact(np.array(counts, dtype=np.int64), protection=drawn.protection)
    return told(lambda: int("1" + "".join("01"[each] for each in drawn.answer(exact)), base=2))


def counts_above() -> Case:
    """Return the audit of comparisons of counts. A replaced row takes from one count and gives to the others."""
    replaced, added = _above(REPLACED), _above(ROW)
    here, there = [4, 4, 4, 5], [5, 5, 5, 4]

    def check(drawn: CountsAbove) -> EventCheck:
        return EventCheck(
            setting="three below, then one, replaced",
            currency=Currency.PURE,
            charged=replaced.price(Currency.PURE),
            here=once(_answered(drawn, here)),
            there=once(_answered(drawn, there)),
            draws=MORE_DRAWS,
        )

    sound = check(replaced)
    return Case(
        name=CountsAbove.name,
        theorem="Each count moves by at most what a unit counts, so the sparse vector technique reports privately which counts reach a threshold.",
        reference="Lyu, Su and Li 2017",
        prices=dict.fromkeys(Currency, "the price of the sparse vector technique"),
        checks=(sound, StreamCheck(setting="100 comparisons", draw=_answered(replaced, here))),
        bugs=(
            Bug(
                name="neighbour flag ignored",
                how="a row is replaced, but the noise is for monotone counts",
                check=check(added),
            ),
            price_halved(sound),
        ),
    )
