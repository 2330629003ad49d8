"""Ask a list of questions of one session, all with the same wanted accuracy, and publish the answers.

Questions, prices and answers are public: answers are noisy, and the session has paid for them. First all questions are priced, so that a
mistake in one of them costs nothing. Then those that are not known accurately enough are bought, one after the other. A purchase changes
the model, so all are priced again afterwards, until nothing more must be bought. So all answers come from the same state of the session,
and whoever repeats the questions in that state pays nothing.

Answers are published as Parquet: one file for each query, as `dpflow answer` shows it, and a list of all of them. The newest answers replace
those before, so that programs that draw a dashboard always read the same paths.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import BudgetRefused, DpflowError, OutputError, UsageError
from dpcore.object_store import AnyPath, ObjectPath
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.release.atomic_files import replacing
from dpcore.session.price import Reply, as_epsilon
from dpcore.session.questions import Question, Questions
from dpcore.session.session import Session
from dpcore.spec import Declaration

WIDER = "wider than wanted"

FOLDER = "_answers"
"""The folder beside those of the datasets. No dataset can have this name, because names begin with a letter or digit."""

LIST = "answers.parquet"

_QUERY = re.compile(r"query-[0-9]+\.parquet")


@dataclass(frozen=True)
class Priced:
    """All questions are priced as things stand. `to_buy` are the numbers, from 1, of those that are not accurate enough yet."""

    to_buy: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Answered:
    """An answer of a dashboard.

    Attributes:
        number: The question's number, from 1.
        question: The question.
        reply: The answer, and what the wanted accuracy would still cost.
        paid: What this run has paid for it, in the account's currency.
        epsilon: That price as an epsilon by itself.
        reason: Why the answer is wider than wanted; empty if it is not.
    """

    number: int
    question: Question
    reply: Reply
    paid: float
    epsilon: float
    reason: str

    @property
    def status(self) -> str:
        """How the answer came about, in a few words."""
        if self.reason or not self.reply.price.free:
            return WIDER
        if self.paid:
            return "bought"
        return "bought before" if self.reply.price.stored else "free"


class Dashboard:
    """Questions that are being asked of a session."""

    def __init__(self, session: Session, questions: Questions) -> None:
        self.session = session
        self.questions = questions
        self._numbers = range(1, len(questions.queries) + 1)
        self._replies: dict[int, Reply] = {}
        self._paid: dict[int, int] = {}
        self._free: dict[int, Reply] = {}  # answers that were free when they were to be bought
        self._wider: dict[int, str] = {}

    def price(self) -> Priced:
        """Price all questions. No data is touched, and nothing is charged.

        Raises:
            BudgetRefused: If what is left of the session's budget cannot pay for all of them, unless wider answers are accepted.
            QueryError: If a statement cannot be understood. The message names the query, and the line and column in it.
            UsageError: If an answer cannot be made as accurate, unless wider answers are accepted.
        """
        for number in self._numbers:
            reply = self._look(number)
            self._replies[number] = reply if reply.price.free else self._free.get(number, reply)
        prices = {number: reply.price for number, reply in self._replies.items()}
        to_buy = [n for n in self._numbers if not (n in self._wider or n in self._paid or prices[n].free)]
        amount, remaining = sum(prices[number].amount for number in to_buy), self.session.run.remaining
        if amount > remaining and not self.questions.accept_wider:
            raise BudgetRefused(
                f"{len(to_buy)} of {len(self._numbers)} answers must be bought and cost {self.session.in_epsilon(amount)} together, "
                f"but session {self.session.id} has {self.session.in_epsilon(remaining)} left; ask for wider intervals or fewer queries, "
                "accept wider answers, or open another session",
                requested=amount,
                remaining=remaining,
            )
        return Priced(tuple(to_buy))

    def buy(self, number: int) -> None:
        """Buy one answer, unless it has become free. With `accept_wider`, one that cannot be bought stays as it is known."""
        with _named(number):
            try:
                reply = self.session.ask(**self.questions[number].terms)
            except (BudgetRefused, UsageError) as error:
                if not self.questions.accept_wider:
                    raise
                self._wider[number] = str(error)
            else:
                self._paid[number] = reply.price.amount
                if reply.price.free:
                    self._free[number] = reply

    def answers(self) -> list[Answered]:
        """Return all answers, as they were when they were last priced."""
        return [
            Answered(
                number=number,
                question=self.questions[number],
                reply=self._replies[number],
                paid=self._paid.get(number, 0) / AMOUNT_OF_ONE,
                epsilon=as_epsilon(self._paid.get(number, 0), self.session.account),
                reason=self._wider.get(number, ""),
            )
            for number in self._numbers
        ]

    @property
    def balance(self) -> str:
        """What all answers together have cost in this run, and what is left of the session's budget, in epsilon first."""
        paid, left = sum(self._paid.values()), self.session.run.remaining
        return f"paid {self.session.in_epsilon(paid)}, {self.session.in_epsilon(left)} left in the session"

    @property
    def remaining(self) -> float:
        """What is left of the session's budget, in the account's currency."""
        return self.session.run.remaining / AMOUNT_OF_ONE

    def _look(self, number: int) -> Reply:
        question = self.questions[number]
        with _named(number):
            if number not in self._wider:
                try:
                    return self.session.look(**question.terms)
                except UsageError as error:
                    if (
                        not self.questions.accept_wider or type(error) is not UsageError
                    ):  # a mistake in the SQL stays one
                        raise
                    self._wider[number] = str(error)
            return self.session.look(question.query, within=None, level=question.level)


@contextmanager
def _named(number: int) -> Iterator[None]:
    """Add the number of a query to the message of its error."""
    try:
        yield
    except DpflowError as error:
        error.args = (f"query {number}: {error}", *error.args[1:])
        raise


_open: dict[str, Dashboard] = {}


@contextmanager
def open_dashboard(name: str, spec: str | Path, questions: Questions, *, session: str | None) -> Iterator[str]:
    """Join a session, and yield a name by which the steps of a driver find the dashboard. No step needs anything private as an argument."""
    with Session.join(spec, session=session) as joined:
        if name in _open:
            raise UsageError(f"dashboard {name} is already open in this process; wait until it is finished")
        _open[name] = Dashboard(joined, questions)
        try:
            yield name
        finally:
            del _open[name]


def opened(name: str) -> Dashboard:
    """Return an open dashboard by its name."""
    try:
        return _open[name]
    except KeyError:
        raise UsageError(
            f"dashboard {name} is not open in this process; call its steps inside `open_dashboard`"
        ) from None


def total_paid(answers: Sequence[Answered]) -> float:
    """Return what all answers together have cost in this run, in the account's currency."""
    return sum(answered.paid for answered in answers)


def answers_folder(declaration: Declaration, name: str) -> AnyPath:
    """Return the folder of a dashboard's answers."""
    return declaration.output_folder.parent / FOLDER / declaration.spec.dataset / name


def file_of(number: int) -> str:
    """Return the name of the file with the answer to a query.

    >>> file_of(7)
    'query-007.parquet'
    """
    return f"query-{number:03}.parquet"


def publish_answers(dashboard: Dashboard, folder: AnyPath) -> None:
    """Write all answers of a dashboard to a folder. Files of an earlier dashboard with more queries are removed.

    Raises:
        OutputError: If they cannot be written. Earlier answers in a local folder are unchanged then.
    """
    answers = dashboard.answers()
    tables = {file_of(answered.number): _table(answered) for answered in answers} | {LIST: _list(answers, dashboard)}
    if not isinstance(folder, ObjectPath):
        with replacing(folder, list(tables)) as partials:
            for partial, table in zip(partials, tables.values(), strict=True):
                pq.write_table(table, partial)
        _remove_others(folder, tables)
        return
    try:
        for name, table in tables.items():  # an object store replaces one object at a time; the list comes last
            content = pa.BufferOutputStream()
            pq.write_table(table, content)
            (folder / name).write(content.getvalue().to_pybytes())
        _remove_others(folder, tables)
    except OSError as error:
        raise OutputError(f"cannot write to {folder}; check the store and its credentials, then run again") from error


def _remove_others(folder: AnyPath, names: Collection[str]) -> None:
    for path in folder.iterdir():
        if _QUERY.fullmatch(path.name) and path.name not in names:
            path.unlink()


def _table(answered: Answered) -> pa.Table:
    table = pa.Table.from_pandas(answered.reply.table, preserve_index=False)
    return table.replace_schema_metadata({"dpflow.query": answered.question.query, "dpflow.status": answered.status})


def _list(answers: Sequence[Answered], dashboard: Dashboard) -> pa.Table:
    session, questions = dashboard.session, dashboard.questions
    about: dict[str, Any] = {
        "session": session.id,
        "account": session.account.name,
        "currency": session.account.currency.symbol,
        "remaining": dashboard.remaining,
        "within": questions.within,
        "level": questions.level,
    }
    rows = [
        {
            "query": answered.number,
            "sql": answered.question.query,
            "file": file_of(answered.number),
            "status": answered.status,
            "paid": answered.paid,
            "half_width": answered.reply.price.half_width,
            "reason": answered.reason,
        }
        for answered in answers
    ]
    return pa.Table.from_pylist(rows).replace_schema_metadata({"dpflow.dashboard": json.dumps(about)})
