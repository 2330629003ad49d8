"""The one thread that owns a session, and what needs not wait for it: answers that were free before, the columns, and budgets.

A session belongs to the thread that joined it. So questions that are new wait for each other, also behind a purchase; analysts take turns. A free answer
that was given before is given again at once, without the session and without the ledger. Budgets are read by a thread of their own.
"""

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from dpcore.answers.plain import plain_rows
from dpcore.errors import DpflowError, LedgerError, SourceError, UsageError
from dpcore.ledger import Ledger, open_ledger
from dpcore.places import places_of_spec
from dpcore.private_log import record
from dpcore.service.problems import Problem, Refused, refusal_of
from dpcore.service.queue import FairThread
from dpcore.session.analysts import budget_for
from dpcore.session.price import Payer, Price
from dpcore.session.session import Session

progress = logging.getLogger("dpcore.progress")

MOST_WAITING = 64
"""How many questions of one analyst may wait. More are refused at once. Analysts take turns, so none waits for all questions of another."""

STEWARD = ""
"""Who opens and closes the session: no analyst has this name."""

MOST_CELLS = 1 << 16
"""The most cells of a question. A larger one would let all others wait for many seconds."""

MOST_REMEMBERED = 10_000
MOST_REMEMBERED_ROWS = 200
"""Longer answers are computed again, so that memory stays small."""

Result = TypeVar("Result")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Question:
    """A query, and how accurate its answer must be."""

    query: str
    within: float | str
    level: float

    @property
    def accuracy(self) -> dict[str, Any]:
        """The accuracy as arguments of a session."""
        return {"within": self.within, "level": self.level}


class _Memory(Generic[Value]):
    """The last values that were kept, up to a number of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Question, Value] = OrderedDict()

    def get(self, question: Question) -> Value | None:
        if question in self._kept:
            self._kept.move_to_end(question)
        return self._kept.get(question)

    def keep(self, question: Question, value: Value) -> None:
        self._kept[question] = value
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)


class Desk:
    """Prices and answers of one session, as plain JSON values.

    Args:
        spec: The spec's path.
        session: The session's id; None for the newest open one.
    """

    def __init__(self, spec: Path, session: str | None) -> None:
        self._spec = spec
        self.session = session or ""
        self._joined: Session | None = None
        self._ledger: Ledger | None = None
        self._columns: list[dict[str, Any]] = []
        self._thread = FairThread("session")
        self._budgets = ThreadPoolExecutor(1, thread_name_prefix="budgets")
        self._prices: _Memory[dict[str, Any]] = _Memory(MOST_REMEMBERED)
        self._answers: _Memory[dict[str, Any]] = _Memory(MOST_REMEMBERED)

    def open(self) -> None:
        """Join the session, and read its model and its table.

        It is the steward who learns of a table that has changed or cannot be read. Answers that need no purchase are given nevertheless.
        """

        def join() -> None:
            session = self._join()
            self.session, self._columns = session.id, session.columns()
            try:
                session.prepare()
            except (SourceError, UsageError) as error:
                progress.warning(
                    "nothing can be bought: %s. Only answers that are free or bought already are given; start the service again when the table "
                    "is back",
                    error,
                )

        self._thread.submit(STEWARD, join).result()

    def close(self) -> None:
        """Finish what was begun, and leave the session."""
        self._thread.submit(STEWARD, self._leave).result()
        self._thread.close()
        self._budgets.submit(self._disconnect).result()
        self._budgets.shutdown()

    async def price(self, question: Question, analyst: str) -> dict[str, Any]:
        """Return what an answer would cost now, and its expected half width. No data is touched."""
        known = self._prices.get(question)
        if known is not None:
            return known
        price = await self._run(
            lambda session: session.price(question.query, payer=Payer(analyst), **question.accuracy), analyst
        )
        told = _told(price, question)
        if price.free:
            self._prices.keep(question, told)
        return told

    async def ask(self, question: Question, payer: Payer) -> dict[str, Any]:
        """Answer a question, for the least price that its accuracy needs."""
        known = self._answers.get(question)
        if known is not None:
            return known

        def answered(session: Session) -> dict[str, Any]:
            reply = session.ask(question.query, payer=payer, **question.accuracy)
            rows = plain_rows(reply.table)
            return {
                "columns": [str(name) for name in reply.table.columns],
                "rows": rows,
                "price": _told(reply.price, question),
            }

        told = await self._run(answered, payer.analyst or STEWARD)
        if told["price"]["free"] and len(told["rows"]) <= MOST_REMEMBERED_ROWS:
            self._answers.keep(question, told)
        return told

    async def columns(self) -> list[dict[str, Any]]:
        """Return the columns that can be asked about. No data is touched."""
        return self._columns

    async def budget(self, analyst: str) -> dict[str, Any]:
        """Return what an analyst and the session have left."""
        return await asyncio.get_running_loop().run_in_executor(self._budgets, self._told_budget, analyst)

    async def bought(self, analyst: str) -> list[dict[str, Any]]:
        """Return the answers that an analyst has bought, oldest first."""
        return await self._run(lambda session: session.bought_by(analyst), analyst)

    async def _run(self, job: Callable[[Session], Result], analyst: str) -> Result:
        """Call a function with the session, in the session's thread, when it is the analyst's turn."""
        if self._thread.waiting(analyst) >= MOST_WAITING:
            raise Refused(
                503,
                Problem(code="busy", reason="too many of your questions wait; ask again later"),
                headers={"Retry-After": "5"},
            )
        return await asyncio.wrap_future(self._thread.submit(analyst, lambda: self._called(job)))

    def _called(self, job: Callable[[Session], Result]) -> Result:
        with _refusing(after=self._leave):
            return job(self._join())

    def _told_budget(self, analyst: str) -> dict[str, Any]:
        with _refusing(after=self._disconnect):
            self._ledger = self._ledger or open_ledger(places=places_of_spec(self._spec))
            return budget_for(self._ledger, self._ledger.run(self.session), analyst)

    def _disconnect(self) -> None:
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()

    def _join(self) -> Session:
        if self._joined is None:
            self._joined = Session.join(self._spec, session=self.session or None)
            self._joined.most_cells = MOST_CELLS
        return self._joined

    def _leave(self) -> None:
        joined, self._joined = self._joined, None
        self._prices = _Memory(MOST_REMEMBERED)  # a session that is joined anew has forgotten what was free before
        if joined is not None:
            joined.leave()


@contextmanager
def _refusing(*, after: Callable[[], None]) -> Iterator[None]:
    """Turn every error into a refusal. If the ledger or the service has failed, call a function, so that the next request begins anew."""
    try:
        yield
    except DpflowError as error:
        if isinstance(error, LedgerError):
            after()
        raise refusal_of(error) from None
    except Exception as error:  # noqa: BLE001  its text may be private
        record(error, where="dpflow serve-answers")
        after()
        reason = "the service failed; the details are in the steward's log"
        raise Refused(500, Problem(code="failed", reason=reason)) from None


def _told(price: Price, question: Question) -> dict[str, Any]:
    return {
        "free": price.free,
        "stored": price.stored,
        "cost": price.cost,
        "currency": price.currency,
        "epsilon": price.epsilon,
        "epsilon_after": price.epsilon_after,
        "epsilon_of": price.epsilon_of,
        "half_width": price.half_width if math.isfinite(price.half_width) else None,
        "level": question.level,
    }
