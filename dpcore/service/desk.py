"""The one thread that owns a session, and what needs not wait for it: answers that were free before, the columns, and budgets.

A session belongs to the thread that joined it. So questions that are new wait for each other, also behind a purchase; analysts take turns. A free answer
that was given before is given again at once, without the session and without the ledger. Budgets are read by other threads.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dpcore.answers.answer import plain_rows
from dpcore.errors import DpflowError, LedgerError, SourceError, UsageError
from dpcore.ledger import open_ledger
from dpcore.places import places_of_spec
from dpcore.service.problems import LATER, Refused, refusal_of
from dpcore.session.analysts import budget_for
from dpcore.session.price import Payer
from dpcore.session.questions import Question
from dpcore.session.session import MOST_REMEMBERED, Session

progress = logging.getLogger("dpcore.progress")

MOST_WAITING = 64
"""How many questions of one analyst may wait. More are refused at once. Analysts take turns, so none waits for all questions of another."""

MOST_CELLS = 1 << 16
"""The most cells of a question. A larger one would let all others wait for many seconds."""

MOST_REMEMBERED_ROWS = 200
"""Longer answers are computed again, so that memory stays small."""

Result = TypeVar("Result")


class Desk:
    """Prices and answers of one session, as plain JSON values.

    Args:
        spec: The spec's path.
        session: The session's id; None for the newest open one.
    """

    def __init__(self, spec: Path, session: str | None) -> None:
        self._spec = spec
        self.session = session or ""
        self.columns: list[dict[str, Any]] = []
        self._joined: Session | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="session")
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: Counter[str] = Counter()
        self._answers: dict[
            tuple[Question, str], dict[str, Any]
        ] = {}  # by the analyst, too: prices say what each has left

    def open(self) -> None:
        """Join the session, and read its model and its table.

        It is the steward who learns of a table that has changed or cannot be read. Answers that need no purchase are given nevertheless.
        """

        def join() -> None:
            session = self._join()
            self.session, self.columns = session.id, session.columns()
            try:
                session.prepare()
            except (SourceError, UsageError) as error:
                progress.warning(
                    "nothing can be bought: %s. Only answers that are free or bought already are given; start the service again when the table "
                    "is back",
                    error,
                )

        self._thread.submit(join).result()

    def close(self) -> None:
        """Finish what was begun, and leave the session."""
        self._thread.submit(self._leave).result()
        self._thread.shutdown()

    async def price(self, question: Question, analyst: str) -> dict[str, Any]:
        """Return what an answer would cost now, and its expected half width. No data is touched."""
        if (question, analyst) in self._answers:
            return dict(self._answers[question, analyst]["price"])
        price = await self._run(lambda session: session.price(**question.terms, payer=Payer(analyst)), analyst)
        return price.to_json()

    async def ask(self, question: Question, analyst: str, *, at_most: int | None) -> dict[str, Any]:
        """Answer a question, for the least price that its accuracy needs, and for no more than the analyst agrees to."""
        if (question, analyst) in self._answers:
            return self._answers[question, analyst]

        def answered(session: Session) -> dict[str, Any]:
            reply = session.ask(**question.terms, payer=Payer(analyst, at_most))
            columns = [str(name) for name in reply.table.columns]
            return {"columns": columns, "rows": plain_rows(reply.table), "price": reply.price.to_json()}

        answer = await self._run(answered, analyst)
        if not answer["price"]["free"]:
            self._answers.clear()  # less is left
        elif len(answer["rows"]) <= MOST_REMEMBERED_ROWS:
            self._answers[question, analyst] = answer
            if len(self._answers) > MOST_REMEMBERED:
                del self._answers[next(iter(self._answers))]
        return answer

    async def budget(self, analyst: str) -> dict[str, Any]:
        """Return what an analyst and the session have left."""

        def read() -> dict[str, Any]:
            with _refusing(), open_ledger(places=places_of_spec(self._spec)) as ledger:
                return budget_for(ledger, ledger.run(self.session), analyst)

        return await asyncio.to_thread(read)

    async def bought(self, analyst: str) -> list[dict[str, Any]]:
        """Return the answers that an analyst has bought, oldest first."""
        return await self._run(lambda session: session.bought_by(analyst), analyst)

    async def _run(self, job: Callable[[Session], Result], analyst: str) -> Result:
        """Call a function with the session, in the session's thread. Each analyst has at most one question in its queue, so all take turns."""
        if self._waiting[analyst] >= MOST_WAITING:
            raise Refused(503, "busy", "too many of your questions wait; ask again later", headers=LATER)

        def called() -> Result:
            with _refusing(after=self._leave):
                return job(self._join())

        self._waiting[analyst] += 1
        try:
            async with self._turns[analyst]:
                return await asyncio.get_running_loop().run_in_executor(self._thread, called)
        finally:
            self._waiting[analyst] -= 1

    def _join(self) -> Session:
        if self._joined is None:
            self._joined = Session.join(self._spec, session=self.session or None)
            self._joined.most_cells = MOST_CELLS
        return self._joined

    def _leave(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            joined.leave()


@contextmanager
def _refusing(*, after: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Turn every error into a refusal. If the ledger or the service has failed, call a function, so that the next request begins anew."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  its text may be private
        if isinstance(error, LedgerError) or not isinstance(error, DpflowError):
            after()
        raise refusal_of(error) from None
