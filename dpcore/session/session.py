"""A session: questions in SQL, each with a wanted accuracy, answered for nothing if the model knows enough and otherwise for the least price.

The ledger is the state of a session. Its run holds the reservation, and its transcript holds everything that was bought. So processes can be
killed, and several can serve one session: each purchase takes the run's lease, looks again at what was bought by then, charges, draws and
stores the answer with its charge.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from dpcore.answers.answer import frame_of, plain_rows
from dpcore.answers.query import Query
from dpcore.answers.sql import parse
from dpcore.answers.sql.errors import as_written
from dpcore.curator.curator import Curator
from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import Account, Lease, Ledger, Run, RunState
from dpcore.marginals.measurements import Counts
from dpcore.places import places_of_spec
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.release.descriptors import field_of, words_about
from dpcore.runs.paying import ledger_of, paying_account
from dpcore.session.analysts import bought_by
from dpcore.session.bought import Bought, digest_of, step_of
from dpcore.session.knowledge import Knowledge, recalled, remembered
from dpcore.session.opening import (
    FIRST_SHARE,
    claim_of,
    first_release,
    joined,
    started,
    with_epsilon,
    with_unchanged_table,
)
from dpcore.session.overview import described, end_session
from dpcore.session.price import SESSION, Payer, Price, Reply, as_epsilon, in_epsilon
from dpcore.session.publishing import publish_knowledge
from dpcore.session.questions import Within
from dpcore.session.quote import Quote, quote
from dpcore.session.table import SessionTable
from dpcore.session.turns import PATIENCE, turn
from dpcore.session.values import Values, have_sums
from dpcore.spec import Declaration, load_spec

ANY_WIDTH = 1e300
"""A half width that no answer exceeds."""

MOST_REMEMBERED = 10_000
"""How many free answers a process remembers. They are kept so that nobody pays later for what was free before."""


class Purse(NamedTuple):
    """What a payer has left, of how much, whose it is, and what to do if it is too little."""

    left: int
    budget: int
    owner: str
    advice: str


class Session:
    """An open session. Use `Session.open` for a new one, and `Session.join` for one that was opened before, also by another process.

    Like the ledger's connection, it belongs to the thread that opened it; other threads join the session themselves. Leave it to free
    its memory and its connection; that does not close the session.

    Attributes:
        id: The id of the session, and of its run.
        account: The account that pays.
        most_cells: The most cells that may be computed for a question that is not stored; None for no limit of its own.
    """

    def __init__(self, declaration: Declaration, run: Run, *, ledger: Ledger, table: Any = None) -> None:
        self.id = run.id
        self._ledger = ledger
        self._private = places_of_spec(declaration.path).private
        self._first = first_release(ledger, declaration, run)
        self._first_run = ledger.run(claim_of(run).first)
        self._declaration = declaration.limited(int(self._first.manifest["privacy"]["max_rows_per_unit"]))
        self.account: Account = paying_account(ledger, declaration)
        self._have_sums = have_sums(self._declaration, self._first.universe)
        self._source = SessionTable(self._declaration, table=table)
        self._curator = Curator(
            ledger=ledger,
            run_id=run.id,
            protection=self._declaration.protection,
            currency=self.account.currency,
        )
        self._seen: tuple[int, Knowledge] = 0, Knowledge(self._first)
        self._given: dict[tuple[str, float], Quote] = {}
        self.most_cells: int | None = None

    @classmethod
    def open(  # noqa: PLR0913  what a session is opened with
        cls,
        spec: str | Path,
        *,
        epsilon: float | None = None,
        first_share: float = FIRST_SHARE,
        unchanged: bool = False,
        session: str | None = None,
        table: Any = None,
    ) -> "Session":
        """Open a new session: reserve its budget, and buy its first release for a share of it.

        Args:
            spec: The spec's path.
            epsilon: The session's budget; None for the spec's.
            first_share: The share of the budget for the first release.
            unchanged: Whether you declare that the table is the same as for the dataset's newest release, as `prior` in a spec does. Then its
                measurements count, too. If noisy counts contradict that, nothing is opened.
            session: The session's id; None for a new one. A session that was interrupted while it was opened is opened again by its id.
            table: A table to read instead of the spec's `source`.

        Raises:
            BudgetRefused: If the account cannot pay. Nothing was reserved.
        """
        declaration = load_spec(spec, with_table=table is not None)
        declaration = declaration if epsilon is None else with_epsilon(declaration, epsilon)
        declaration = with_unchanged_table(declaration) if unchanged else declaration
        name = session or str(uuid.uuid4())
        with (
            _kept_ledger(declaration) as ledger,
            started(ledger, declaration, name, share=first_share, table=table) as run,
        ):
            return cls(declaration, run, ledger=ledger, table=table)

    @classmethod
    def join(cls, spec: str | Path, *, session: str | None = None, table: Any = None) -> "Session":
        """Use a session that was opened before: the newest open one of this spec, or the one with this id. This never spends anything."""
        declaration = load_spec(spec, with_table=table is not None)
        with _kept_ledger(declaration) as ledger:
            return cls(declaration, joined(ledger, declaration, session), ledger=ledger, table=table)

    @property
    def run(self) -> Run:
        """The session's run in the ledger."""
        return self._ledger.run(self.id)

    def in_epsilon(self, amount: int) -> str:
        """Return an amount of the account's currency as text, in epsilon first."""
        return in_epsilon(amount, self.account)

    @property
    def knowledge(self) -> Knowledge:
        """What the session knows now. Purchases of other processes are included."""
        run = self.run
        seen, knowledge = self._seen
        if run.last != seen:
            stored = [Bought.of(operation) for operation in self._ledger.transcript(self.id)]
            news = len(stored) > len(knowledge.bought)
            if stored and not knowledge.bought:
                knowledge = recalled(knowledge, stored, session=self.id, folder=self._private)
            for bought in stored[len(knowledge.bought) :]:
                knowledge = knowledge.after(bought)
            if news:
                remembered(knowledge, session=self.id, folder=self._private)
            self._seen = run.last, knowledge
        return knowledge

    def prepare(self) -> None:
        """Read the model and the table now, if the session is open, so that no later answer has to wait for that.

        Raises:
            SourceError: If the table cannot be read.
            UsageError: If it has changed since the session began.
        """
        _ = self.knowledge.intervals
        if self.run.state is RunState.OPEN:
            self._read_table()

    def price(self, query: str, *, within: float | str, level: float = 0.95, payer: Payer = SESSION) -> Price:
        """Return what an answer would cost now. No data is touched, and nothing is charged.

        Args:
            query: One SQL statement, as for `dpcore.answer`.
            within: The wanted half width of the intervals: a number such as 50, in rows or in the units of a mean's column; or a text, "2%" of each
                number, or "2 points" of a share.
            level: The level of the intervals.
            payer: Who would pay. Default: the session itself.

        Raises:
            QueryError: If the statement cannot be understood. It has a line and a column.
            UsageError: If no measurement could make the answer as accurate.
        """
        accuracy = Within.of(within, level=level)
        return self._price(self._quote(self._parsed(query), accuracy), payer)

    def look(self, query: str, *, within: float | str | None, level: float = 0.95) -> Reply:
        """Return an answer as it is known now, however wide. Its price is what the wanted accuracy would cost; None wants none.

        No data is touched, and nothing is charged. Unlike `ask`, this does not return what was free before the model learned more.
        """
        accuracy = Within.of(ANY_WIDTH if within is None else within, level=level)
        quoted = self._quote_now(self._parsed(query), accuracy)
        return Reply(frame_of(quoted.prepared, quoted.numbers), self._price(quoted, SESSION))

    def ask(self, query: str, *, within: float | str, level: float = 0.95, payer: Payer = SESSION) -> Reply:
        """Answer a question. It is free if the model knows the answer well enough, or if the same question was bought before.

        Otherwise the counts or sums that the question distinguishes are measured, with the most noise that still makes the answer accurate
        enough. The price is charged before the noise is drawn, and the answer is stored with its charge.

        Args:
            query: One SQL statement, as for `dpcore.answer`.
            within: The wanted half width of the intervals, as for `price`.
            level: The level of the intervals.
            payer: Who pays, and how much at most. Default: the session itself, as much as it has left.

        Raises:
            BudgetRefused: If the rest of the session's budget, or of the payer's share, cannot pay. Nothing was charged.
            QueryError: If the statement cannot be understood. It has a line and a column.
            UsageError: If no measurement could make the answer as accurate, or the table has changed.
        """
        accuracy, parsed = Within.of(within, level=level), self._parsed(query)
        until = time.monotonic() + PATIENCE
        while True:
            quoted = self._quote(parsed, accuracy)
            price = self._price(quoted, payer)
            if price.free:
                return Reply(frame_of(quoted.prepared, quoted.numbers), price)
            self._refuse_beyond(quoted, price, payer)
            self._read_table(None if quoted.purchase is None else quoted.purchase.values)
            with turn(self._ledger, self.id, until=until) as lease:
                # Others may have bought something meanwhile, perhaps the same answer.
                if lease is not None and self._is_current():
                    bought = self._buy(query, quoted, lease, payer.analyst)
                    return Reply(frame_of(quoted.prepared, bought.answer(parsed)), price)

    def described(self) -> dict[str, Any]:
        """Return what the session has reserved, spent and bought, as plain JSON values."""
        return described(self._ledger, self.run)

    def columns(self) -> list[dict[str, Any]]:
        """Return the columns that can be asked about, as the fields of a Table Schema. They are public: no data is read.

        `sql` is the name as a question has it: in double quotes if it needs them.
        """
        about = words_about(self._declaration.spec)
        return [
            field_of(name, attribute) | about.get(name, {}) | {"sql": as_written(name)}
            for name, attribute in self._first.universe.attributes.items()
        ]

    def bought_by(self, analyst: str) -> list[dict[str, Any]]:
        """Return the answers that an analyst has bought, oldest first, as plain JSON values."""
        prepared = self.knowledge.intervals.ensemble.prepared
        return [
            {**paid, "rows": plain_rows(frame_of(prepared(query), bought.answer(query)))}
            for bought, paid in bought_by(self._ledger, self.id, analyst)
            for query in [self._parsed(bought.question)]
        ]

    def release(self) -> dict[str, Any]:
        """Publish what the session knows as a release. Nothing is charged, and the session goes on."""
        return publish_knowledge(
            self.knowledge, self._declaration, session=self.run, ledger=self._ledger, account=self.account
        )

    def close(self) -> dict[str, Any]:
        """Close the session for good, for all processes. What it has not spent returns to its account."""
        return end_session(self._ledger, self.run)

    def leave(self) -> None:
        """Free the memory and the connection. The session stays open in the ledger, and can be joined again."""
        self._source.close()
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _parsed(self, query: str) -> Query:
        return parse(query, self._first.universe, tables=("release", self._first.name))

    def _quote(self, query: Query, within: Within) -> Quote:
        """Return the answer, or what it takes to give one. What was given for nothing before is given again.

        Intervals may widen a little when the model learns, and nobody pays for an answer that was free before.
        """
        name = digest_of(query), within.level
        free = self._given.get(name)
        try:
            quoted = self._quote_now(query, within)
        except UsageError:
            if free is None or not free.is_within(within):
                raise
        else:
            if quoted.noise is None:
                self._given[name] = quoted
                if len(self._given) > MOST_REMEMBERED:
                    del self._given[next(iter(self._given))]
            if quoted.noise is None or free is None or not free.is_within(within):
                return quoted
        # This query may have other names, another order and another limit.
        return replace(free, query=query, prepared=self.knowledge.intervals.ensemble.prepared(query))

    def _quote_now(self, query: Query, within: Within) -> Quote:
        return quote(
            query,
            self.knowledge,
            within=within,
            currency=self.account.currency,
            protection=self._declaration.protection,
            have_sums=self._have_sums,
            most_cells=self.most_cells,
        )

    def _price(self, quoted: Quote, payer: Payer) -> Price:
        amount, purse = quoted.amount(self.account.currency), self._purse(payer)
        return Price(
            amount=amount,
            cost=amount / AMOUNT_OF_ONE,
            currency=self.account.currency.symbol,
            epsilon=as_epsilon(amount, self.account),
            half_width=quoted.half_width,
            level=quoted.within.level,
            stored=quoted.stored,
            remaining=purse.left / AMOUNT_OF_ONE,
            epsilon_after=as_epsilon(purse.left - amount, self.account) if amount <= purse.left else None,
            epsilon_of=as_epsilon(purse.budget, self.account),
        )

    def _purse(self, payer: Payer) -> Purse:
        """Return the share of an analyst who pays, or the session's budget if that has less left."""
        run = self.run
        share = None if payer.analyst is None else self._ledger.shares(self.id).get(payer.analyst)
        if share is not None and share.remaining < run.remaining:
            return Purse(share.remaining, share.cap, f"analyst {share.analyst}", "ask the steward for a larger share")
        return Purse(run.remaining, run.reserved, f"session {self.id}", "open another session")

    def _is_current(self) -> bool:
        """Return whether nobody has bought anything since the last look. Called under the lease, so nobody can until it is given back."""
        return len(self._ledger.transcript(self.id)) == len(self._seen[1].bought)

    def _refuse_beyond(self, quoted: Quote, price: Price, payer: Payer) -> None:
        """Raise if the session is closed, or the rest of its budget or of the payer's share cannot pay. The ledger checks both again."""
        if self.run.state is not RunState.OPEN:
            raise UsageError(
                f"session {self.id} is closed and buys no more answers; open another: dpflow session open SPEC"
            )
        if payer.at_most is not None and price.amount > payer.at_most:
            raise BudgetRefused(
                f"this answer now costs {self.in_epsilon(price.amount)}, more than was agreed to; look at its price again",
                requested=price.amount,
                remaining=payer.at_most,
            )
        left, _, owner, instead = self._purse(payer)
        if price.amount > left:
            advice = "accept a wider interval"
            with suppress(UsageError):  # too little for any noise
                advice = f"for what is left, ask within {quoted.reachable(left, self.account.currency):.4g} or more"
            raise BudgetRefused(
                f"this answer costs {self.in_epsilon(price.amount)}, but {owner} has {self.in_epsilon(left)} left; {advice}, or {instead}",
                requested=price.amount,
                remaining=left,
            )

    def _read_table(self, values: Values | None = None) -> None:
        """Read the private table, in finer cells of a column if given. It must be the one of the first release."""
        run = self._first_run
        self._source.read(self._first.universe, values, run_id=run.id, version=str(run.data_version))

    def _buy(self, question: str, quoted: Quote, lease: Lease, analyst: str | None) -> Bought:
        """Charge for a question's numbers, draw their noise, and store them with the answer. In this order."""
        purchase, noise = quoted.purchase, quoted.noise
        if purchase is None or noise is None:
            raise UsageError("a free answer cannot be bought; report this")
        digest = digest_of(quoted.query)
        earlier = sum(bought.digest == digest for bought in self._seen[1].bought)
        step = step_of(digest, earlier + 1)

        def keep(noisy: Counts) -> bytes:
            numbers = quoted.answer(noisy)
            return Bought(
                step=step,
                question=question,
                digest=digest,
                within=quoted.within,
                grid=purchase.grid,
                counts=np.rint(purchase.split(noisy)[0]).astype(np.int64),
                noise=purchase.rows_noise,
                drawn=None if purchase.weighing is None else noisy,
                numbers=tuple(numbers[number] for number in quoted.query.numbers()),
            ).to_bytes()

        self._ledger.record_data_version(lease, str(self._first_run.data_version))
        axes = self._source.hand_to(self._curator, purchase, lease=lease, analyst=analyst)
        stored = self._curator.measure_grid(step, axes, mechanism=noise, keep=keep, weighing=purchase.weighing)
        return Bought.from_bytes(stored, step=step)


@contextmanager
def _kept_ledger(declaration: Declaration) -> Iterator[Ledger]:
    """Open the ledger of a spec. It stays open afterwards, unless the caller raises."""
    with ExitStack() as stack:
        ledger = stack.enter_context(ledger_of(declaration))
        ledger.require_current()
        yield ledger
        stack.pop_all()
