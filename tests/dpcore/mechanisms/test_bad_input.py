"""Bad input to every mechanism: refused in a sentence that says what to do, before a single word of entropy is taken; or in range, and drawn."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dpcore.errors import SourceError, SpecError, UsageError
from dpcore.mechanisms.bounded_sum import BoundedSum
from dpcore.mechanisms.noisy_histogram import NoisyHistogram
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.textbook.randomized_response import RandomizedResponse
from dpcore.universe import Boolean, Integer, Number
from tests.contracts.mechanism_catalogue import CATALOGUE, ONE, PERSON, ROW, SWAPPED_ROW, TABLE, UNIVERSE, Entry

pytestmark = pytest.mark.system_entropy  # the tests count what is asked of the operating system
NOISES = [(name, parameter) for name, entry in CATALOGUE.items() for parameter in entry.noise]
SELECTING = [name for name in CATALOGUE if name.startswith(("exponential", "noisy max"))]
ON_COUNTS = [name for name in CATALOGUE if name.startswith(("discrete", "rounded"))]
IN_SESSIONS = ["sparse vector", "above threshold"]

MEANINGLESS = [0, 0.0, -1.0, math.nan, math.inf, -math.inf, 5e-324, 1.7e308, 10**400, True, "1", None, [1.0], 1j]
"""No scale, sigma or epsilon of any mechanism."""

WIDEST_TABLE = 19_999.0
"""Rounded Gaussian noise is drawn from a table only."""


ADVICE = ("must", ";", "only", "pass ", "needs ", "whole number")
"""One of these is in every sentence that says what to do."""


@contextmanager
def refused(match: str | None = None) -> Iterator[None]:
    """Expect one of our errors, with advice, and no word of entropy taken before it."""
    taken: list[int] = []

    def counted(size: int) -> bytes:
        taken.append(size)
        return bytes(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", counted)
        with pytest.raises((UsageError, SpecError, SourceError), match=match) as error:
            yield
    assert taken == []
    assert any(word in str(error.value) for word in ADVICE)


@pytest.mark.parametrize(("name", "parameter"), NOISES)
def test_a_scale_or_epsilon_that_means_nothing_is_refused(name: str, parameter: str) -> None:
    for value in MEANINGLESS:
        with refused():
            CATALOGUE[name].drawn(**{parameter: value})


def in_range(entry: Entry, value: float) -> bool:
    """Say whether the smallest and the largest number of the tests can be drawn with: an epsilon is small, a scale large."""
    if entry.noise == ("epsilon",):
        return value == 1e-9
    table_only = "rounded" in entry.kind.name or "rounded" in str(entry.parameters.get("noise"))
    return value == (WIDEST_TABLE if table_only else 1e9)


@pytest.mark.parametrize(("name", "parameter"), NOISES)
@pytest.mark.parametrize("value", [1e-9, 1e9, WIDEST_TABLE])
def test_a_number_at_the_ends_is_refused_or_drawn_with(name: str, parameter: str, value: float) -> None:
    entry = CATALOGUE[name]
    if in_range(entry, value):
        drawn = entry.drawn(**{parameter: value})
        assert np.isfinite(drawn).all()
        if parameter != "epsilon" and drawn.ndim == 1:
            assert value / 1000 < np.abs(drawn).max() < 100 * value
    elif value != WIDEST_TABLE:
        with refused():
            entry.drawn(**{parameter: value})


def not_scores() -> dict[str, Any]:
    whole = np.arange(4, dtype=np.int64)
    return {
        "empty": whole[:0],
        "floats": whole + 0.5,
        "nan": np.array([math.nan, 1.0]),
        "a table": whole.reshape(2, 2),
        "a number": np.int64(3),
        "a list": [1, 2],
        "32 bits": whole.astype(np.int32),
        "unsigned": whole.astype(np.uint64),
        "too large for 64 bits": np.array([2**70, 1], dtype=object),
        "none": None,
    }


@pytest.mark.parametrize("name", SELECTING)
def test_what_are_no_scores_is_refused(name: str) -> None:
    mechanism = CATALOGUE[name].make()
    for what, scores in not_scores().items():
        with refused("candidate" if what == "empty" else "64-bit"):
            mechanism.draw(scores)


@pytest.mark.parametrize("name", SELECTING)
def test_scores_at_both_ends_of_64_bits_do_not_wrap_around(name: str) -> None:
    ends = np.array([-(2**63), 2**63 - 1, -(2**63) + 1], dtype=np.int64)
    assert {CATALOGUE[name].make().draw(ends) for _ in range(50)} == {1}


@pytest.mark.parametrize("name", [*SELECTING, *IN_SESSIONS])
def test_the_sensitivity_of_a_score_is_a_whole_number(name: str) -> None:
    for sensitivity in (0, -1, 1.0, math.nan, math.inf, True, "1", None, 2**31, ONE):
        with refused("sensitivity"):
            CATALOGUE[name].drawn(sensitivity=sensitivity)


@pytest.mark.parametrize("name", ON_COUNTS)
def test_norms_that_no_movement_has_are_refused(name: str) -> None:
    for norms in [
        (0, 0, 0),
        (1, 2, 1),
        (2, 1, 2),
        (1, 1, 2),
        (2.0, 2, 1),
        (math.nan, 1, 1),
        (math.inf, 1, 1),
        (-1, 1, -1),
    ]:
        with refused("sensitivity"):
            CATALOGUE[name].drawn(sensitivity=Sensitivity(*norms))  # type: ignore[arg-type]


COUNTS = np.zeros(3, dtype=np.int64)
SHORT = TABLE["person"][:-1]


Act = Callable[[], Any]


def drawing(name: str, *values: Any, **named: Any) -> Callable[[], Act]:
    return lambda: partial(CATALOGUE[name].make().draw, *values, **named)


def asking(name: str, value: Any) -> Callable[[], Act]:
    return lambda: partial(CATALOGUE[name].make().begin(0).ask, value)  # the threshold's noise is drawn before


def beginning(name: str, threshold: Any) -> Callable[[], Act]:
    return lambda: partial(CATALOGUE[name].make().begin, threshold)


def making(name: str, **changes: Any) -> Callable[[], Act]:
    return lambda: partial(CATALOGUE[name].make, **changes)


def summing(**changes: Any) -> Callable[[], Act]:
    named = {"delta": 0, "attribute": Integer(minimum=0, maximum=9), "step": 1, "protection": ROW, **changes}
    return lambda: partial(BoundedSum.for_epsilon, 1.0, **named)


def counting(**changes: Any) -> Callable[[], Act]:
    named = {"delta": 0, "universe": UNIVERSE, "protection": PERSON, **changes}
    return lambda: partial(NoisyHistogram.for_epsilon, 1.0, **named)


DRAWS: dict[str, Callable[[], Act]] = {
    **{f"{name}: floats": drawing(name, COUNTS + 0.5) for name in ON_COUNTS},
    **{f"{name}: a list": drawing(name, [1, 2]) for name in ON_COUNTS},
    **{
        f"{name}: threshold {value!r}": beginning(name, value)
        for name in IN_SESSIONS
        for value in (0.5, math.nan, math.inf, True, None, 2**63)
    },
    **{
        f"{name}: value {value!r}": asking(name, value)
        for name in IN_SESSIONS
        for value in (0.5, math.nan, math.inf, True, None, "1")
    },
    **{
        f"sparse vector: {positives!r} positives": making("sparse vector", positives=positives)
        for positives in (0, -1, 1.0, True, None, 2**31)
    },
    **{f"{name}: monotone 1": making(name, monotone=1) for name in (*IN_SESSIONS, "noisy max laplace")},
    "response: a code too large": drawing("randomized response", COUNTS + 4),
    "response: a code below 0": drawing("randomized response", COUNTS - 1),
    "response: floats": drawing("randomized response", COUNTS + 0.5),
    "response: one answer": making("randomized response", answers=1),
    "response: answers 2.0": making("randomized response", answers=2.0),
    "count: no ids": drawing("count", TABLE["smoker"]),
    "count: fewer ids": drawing("count", TABLE["smoker"], ids=SHORT),
    "count: weights of nobody": drawing("count", TABLE["smoker"], ids=TABLE["person"], weights=TABLE["age"]),
    "count: a table": drawing("count", TABLE, ids=TABLE["person"]),
    "sum: no ids": drawing("sum", TABLE["days"]),
    "sum: fewer ids": drawing("sum", TABLE["days"], ids=SHORT),
    "mean: fewer ids": drawing("mean", TABLE["days"], ids=SHORT),
    "value: text": drawing("value", "7"),
    "value: a flag": drawing("value", value=True),
    **{f"sum: step {step!r}": summing(step=step) for step in (0, -1, math.nan, math.inf, "no number", None, 100)},
    "sum: so fine that sums overflow": summing(step=Fraction(1, 10**12)),
    "sum: a column without numbers": summing(attribute=Boolean()),
    "sum: bounds of 10^300": summing(attribute=Number((-1e300, 1e300)), step=1),
    "histogram: nothing to count": counting(axes=[]),
    "histogram: a column of nobody's": counting(axes=[["cost"]]),
    "histogram: order 0": counting(order=0),
    "histogram: order 3 of 2": counting(order=3),
    "histogram: a column is lacking": drawing("histogram", TABLE.drop(columns="age")),
    "histogram: the ids are lacking": drawing("histogram", TABLE.drop(columns="person")),
    "histogram: no table": drawing("histogram", [1, 2]),
    "exponential: no such flavour": making("exponential gumbel", flavour="cauchy"),
    "noisy max: no such noise": making("noisy max gumbel", flavour="cauchy"),
    "count: no such noise": making("count", noise="cauchy"),
    "histogram: no such noise": making("histogram", noise="cauchy"),
    "sum: no such noise": making("sum", noise="cauchy"),
}


@pytest.mark.parametrize("what", list(DRAWS))
def test_what_cannot_be_drawn_is_refused(what: str) -> None:
    act = DRAWS[what]()
    with refused():
        act()


def test_an_array_of_both_ends_of_64_bits_gets_its_noise() -> None:
    ends = np.array([2**63 - 1, -(2**63)], dtype=np.int64)
    for name in ON_COUNTS:
        assert CATALOGUE[name].make().draw(ends).shape == (2,)


class TestNeighbours:
    """A sensitivity for the wrong neighbours cannot be said where it is derived, and where it is passed it must at least be possible."""

    @pytest.mark.parametrize("name", ["count", "histogram", "sum", "mean", "randomized response"])
    def test_who_is_protected_must_be_said(self, name: str) -> None:
        for protection in (None, "add-remove", Neighbours.ADD_REMOVE, ONE, 1):
            with refused("[Pp]rotect"):
                CATALOGUE[name].make(protection=protection)

    def test_respondents_who_may_be_added_are_refused(self) -> None:
        with refused("replace-one"):
            RandomizedResponse(epsilon=1.0, answers=2, protection=ROW)

    def test_the_relation_by_its_word_is_the_relation(self) -> None:
        """A plain text that equals the relation's word must not be taken for the other relation."""
        by_word = Protection(unit="row", rows_per_unit=1, neighbours="replace-one")  # type: ignore[arg-type]
        assert by_word.sensitivity == SWAPPED_ROW.sensitivity

    def test_a_relation_that_there_is_not_is_refused(self) -> None:
        with refused("neighbours"):
            Protection(unit="row", rows_per_unit=1, neighbours="swap")  # type: ignore[arg-type]
