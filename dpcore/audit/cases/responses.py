"""Audit of randomized response."""

from dataclasses import replace

import numpy as np

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import FROM_NUMPY, event, noisy, told
from dpcore.audit.checks import DistributionCheck, Draw, EventCheck, StreamCheck
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.textbook.randomized_response import RandomizedResponse

ANSWERS = 4
EPSILON = 1.0

_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.REPLACE_ONE)
_PERSON = Protection(unit="person", rows_per_unit=2, neighbours=Neighbours.REPLACE_ONE)


def _event(setting: str, drawn: RandomizedResponse, *, rows: int = 1) -> EventCheck:
    """Return the check of one respondent's answers, which are all 0 or all 1."""
    return event(setting, lambda codes: noisy(drawn, codes), tables=([0] * rows, [1] * rows), paid=drawn, draws=400_000)


def _distribution(setting: str, stated: RandomizedResponse, *, drawn: RandomizedResponse) -> DistributionCheck:
    true, untrue = map(float, stated.probabilities)
    return DistributionCheck(
        setting=setting,
        draw=noisy(drawn, [0]),
        draws=1_000_000,
        outcomes=np.arange(stated.answers),
        probabilities=np.array([true] + [untrue] * (stated.answers - 1)),
    )


def _collected(drawn: RandomizedResponse, answers: int) -> Draw:
    """Return draws of the number of answers collected from `answers` respondents."""
    return told(lambda: drawn.draw(np.zeros(answers, dtype=np.int64)).size)


def randomized_response() -> Case:
    """Return the audit of randomized response, with coins and with several answers."""
    coins = RandomizedResponse.coins(protection=_ROW)
    several = RandomizedResponse(epsilon=EPSILON, answers=ANSWERS, protection=_ROW)
    persons = RandomizedResponse(epsilon=EPSILON, answers=ANSWERS, protection=_PERSON)
    pure = _event("four answers", several)
    return Case(
        name=RandomizedResponse.name,
        theorem="An answer that is true with probability e^epsilon / (e^epsilon + k - 1), and otherwise uniform among the other k - 1, is epsilon-DP; with two fair coins, epsilon is ln 3.",
        reference="Warner 1965; Dwork and Roth 2014, Claim 3.5; Kairouz, Oh and Viswanath 2014",
        prices={
            Currency.PURE: "epsilon, for each row of a unit",
            Currency.ZCDP: "the lesser of epsilon tanh(epsilon / 2) and mu^2 / 2",
            Currency.GDP: "(Phi^-1(p) - Phi^-1(q))^2, where p and q are the probabilities of the true answer and of another",
        },
        checks=(
            _event("two fair coins", coins),
            pure,
            *(
                replace(pure, currency=currency, charged=several.price(currency))
                for currency in (Currency.ZCDP, Currency.GDP)
            ),
            _event("two answers of a person", persons, rows=2),
            _distribution("two fair coins", coins, drawn=coins),
            _distribution("four answers", several, drawn=several),
            StreamCheck(setting="100 answers", draw=noisy(several, [0])),
        ),
        bugs=(
            Bug(
                name="epsilon x1.03",
                how="answers are true as often as a 3% larger epsilon allows",
                check=_distribution("four answers", several, drawn=replace(several, epsilon=EPSILON * 1.03)),
            ),
            Bug(
                name="sensitivity halved",
                how="a unit gives two answers, but the price is that of one",
                check=_event("two answers each, paid as one", several, rows=2),
            ),
            Bug(
                name="neighbour flag ignored",
                how="a respondent is removed, but the price is that of replacing one: the number of answers reveals it",
                check=event(
                    "one respondent or none",
                    lambda answers: _collected(several, answers),
                    tables=(1, 0),
                    paid=several,
                    draws=1000,
                ),
            ),
            FROM_NUMPY,
        ),
    )
