"""Draw many outputs of a mechanism on one made-up table, each encoded as one integer, and compare those of two neighbours."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from dpcore.audit.case import Bug
from dpcore.audit.checks import Draw, EventCheck, StreamCheck
from dpcore.audit.events import Outcomes
from dpcore.audit.planted import of_numpy
from dpcore.mechanisms.query import Exact, Query
from dpcore.privacy.accounting import Currency

Table = TypeVar("Table")

REACH = 12
"""When several noisy counts are encoded together, each is clipped to this distance from 0."""


class Noise(Protocol):
    """A mechanism that adds independent noise to each of an array of counts."""

    def draw(self, counts: npt.NDArray[np.int64], /) -> npt.NDArray[np.int64]:
        """Return noisy counts."""


class Priced(Protocol):
    """A mechanism with a price."""

    def price(self, currency: Currency) -> int:
        """Return the price of one draw."""


def event(  # noqa: PLR0913  a mechanism, who pays what, and two tables
    setting: str,
    draws_on: Callable[[Table], Draw],
    *,
    tables: tuple[Table, Table],
    paid: Priced | int,
    draws: int,
    currency: Currency = Currency.PURE,
    delta: float = 0.0,
) -> EventCheck:
    """Return the check of draws on two neighbours against an amount, or against a mechanism's price. Checks that replace it share its draws."""
    here, there = (once(draws_on(table)) for table in tables)
    charged = paid if isinstance(paid, int) else paid.price(currency)
    return EventCheck(
        setting=setting, currency=currency, charged=charged, here=here, there=there, draws=draws, delta=delta
    )


def once(draw: Draw) -> Draw:
    """Cache draws, so that several checks share them."""
    return lru_cache(maxsize=1)(draw)


def told(answer: Callable[[], float]) -> Draw:
    """Return a draw that calls `answer` once for each number. `answer` must not read the table, since reading takes far longer."""

    def draw(count: int) -> Outcomes:
        return np.rint(np.fromiter((answer() for _ in range(count)), dtype=np.float64, count=count)).astype(np.int64)

    return draw


def answers(query: Query[Any], exact: Exact, code: Callable[[Any], float] = float) -> Draw:
    """Return draws of a query's answer, as a number."""
    return told(lambda: code(query.answer(exact)))


def yes_or_no(answers: Iterable[bool]) -> int:
    """Encode answers as binary digits after a leading 1.

    >>> yes_or_no([False, True])
    5
    """
    code = 1
    for answer in answers:
        code = 2 * code + bool(answer)
    return code


def noisy(mechanism: Noise, counts: Sequence[int]) -> Draw:
    """Return draws of noisy counts: a single count as it is, several as the digits of one number."""

    def draw(count: int) -> Outcomes:
        table = mechanism.draw(np.tile(np.array(counts, dtype=np.int64), (count, 1)))
        if len(counts) == 1:
            return table[:, 0]
        places: Outcomes = (2 * REACH + 1) ** np.arange(len(counts), dtype=np.int64)
        return (np.clip(table, -REACH, REACH) + REACH) @ places

    return draw


FROM_NUMPY = Bug(
    name="numpy randomness",
    how="the noise comes from NumPy's generator, not from the operating system's entropy",
    check=StreamCheck(setting="noise of NumPy's generator", draw=of_numpy),
)
