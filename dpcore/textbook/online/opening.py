"""Open an online session on a declared table: reserve its budget, read the table, and answer queries until the session is ended."""

import hashlib
import json
import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dpcore.curator.gate import CountQuery, Gatekeeper
from dpcore.errors import RunHeld, UsageError
from dpcore.ledger import Lease, Ledger, RunState
from dpcore.places import places_of_spec, using
from dpcore.privacy.accounting import budget_of
from dpcore.runs.paying import ledger_of, paying_account
from dpcore.runs.reading import Reading, Table
from dpcore.scalars import is_whole
from dpcore.spec import Declaration, load_spec
from dpcore.steward.approvals import approval_for, request
from dpcore.tables.ingest import check_key
from dpcore.textbook.online import OnlineAnswer, OnlineSession, Terms, bounds_for, count_query
from dpcore.universe import Universe


class Online(OnlineSession):
    """An open session: SQL in, answers out. `run_id` is the id to resume it by."""

    def __init__(
        self, universe: Universe, *, terms: Terms, ledger: Ledger, lease: Lease, gatekeeper: Gatekeeper
    ) -> None:
        super().__init__(universe.shape, terms=terms, ledger=ledger, run_id=lease.run, gatekeeper=gatekeeper)
        self.run_id = lease.run
        self._universe = universe
        self._ledger = ledger
        self._lease = lease

    def ask(self, query: str | CountQuery) -> OnlineAnswer:
        """Answer a counting query: SQL such as `select count(*) from release where age >= 65`, or a CountQuery.

        Raises:
            UsageError: If it is no query that can be answered. Nothing is spent.
        """
        return super().ask(count_query(query, self._universe) if isinstance(query, str) else query)

    def end(self) -> None:
        """End the session for good, and refund the part of its reservation that was never charged."""
        self.suspend()
        self._ledger.settle(self.run_id, release=None, lease=self._lease)


@contextmanager
def open_online(  # noqa: PLR0913  the terms of the theorem, and the run
    spec: str | Path,
    *,
    alpha: float,
    beta: float,
    queries: int,
    rows: int,
    restarts: int = 8,
    resume: str | None = None,
    table: Any = None,
    approved: bool = False,
) -> Iterator[Online]:
    """Open a session that answers adaptive counting queries, all within a share of the rows.

    The whole budget of the spec, its `epsilon`, is reserved first. Parameters that cannot hold are refused before that. The number of rows
    is bought first; if it turns out too small for the promise, the session ends, and the rest is refunded. Leaving the context suspends the
    session, so that it can be resumed by its `run_id`; `end` ends it.

    The promise is about one table: the rows that count under the limit on rows per unit. If a unit may have more rows than that, each opening
    draws anew which of them count. The promise of alpha and beta then holds for the answers of one opening, and not for those of a session
    that was resumed. Privacy does not depend on this.

    Args:
        spec: The spec's path. Its universe must be declared in full, and its account must have no blocks.
        alpha: All answers are within this share of the noisy number of rows.
        beta: With at most this probability, some answer is not.
        queries: The most different queries that are answered.
        rows: About how many rows the table has: a public number, used only to refuse parameters that cannot hold.
        restarts: How often the session may be resumed. More of them cost little: they are spare hard rounds.
        resume: The `run_id` of a session to resume, with the same spec and the same numbers.
        table: A pandas, polars or Arrow table to read instead of the spec's `source`.
        approved: Whether the steward approves an epsilon above the account's threshold. A session to resume was approved when it was opened.

    Raises:
        UsageError: If the epsilon needs approval, or if a parameter cannot hold. Nothing is reserved.
    """
    if not is_whole(rows) or rows < 1:
        raise UsageError("rows must be a whole number of at least 1: about how many rows the table has")
    declaration = load_spec(spec, with_table=table is not None)
    if resume is None and not approved:
        _require_no_approval(declaration)
    _require_declared(declaration)
    with using(places_of_spec(declaration.path)), ledger_of(declaration) as ledger:
        ledger.require_current()
        account = paying_account(ledger, declaration)
        privacy = declaration.spec.privacy
        _, amount = budget_of(privacy.epsilon, delta=privacy.delta, currency=account.currency)
        terms = Terms(
            alpha=alpha,
            beta=beta,
            queries=queries,
            restarts=restarts,
            cells=math.prod(declaration.universe.shape),
            amount=amount,
            currency=account.currency,
            protection=declaration.protection,
        )
        bounds_for(terms, rows=rows)
        read = Table.of(declaration, table)
        check_key(read.private)
        try:
            lease = _leased(ledger, declaration, terms, resume)
            reading = Reading(declaration, table=read, ledger=ledger, lease=lease, blocks=None)
            histogram = reading.count(declaration.universe)
            gatekeeper = Gatekeeper(ledger=ledger, currency=account.currency, histogram=histogram, lease=lease)
            try:
                session = Online(declaration.universe, terms=terms, ledger=ledger, lease=lease, gatekeeper=gatekeeper)
            except UsageError:  # the noisy total refutes the terms
                ledger.settle(lease.run, release=None, lease=lease)
                raise
            try:
                yield session
            finally:
                if ledger.run(lease.run).state is RunState.OPEN:
                    with suppress(RunHeld):  # a worker that has taken over the session goes on with it
                        session.suspend()
        finally:
            read.engine.close()


def _leased(ledger: Ledger, declaration: Declaration, terms: Terms, resume: str | None) -> Lease:
    """Reserve the budget of a session, or find its reservation again, and lease its run."""
    spec = declaration.spec
    runs = {run.id: run for run in ledger.runs(spec.dataset)}
    if resume is not None:
        if resume not in runs:
            raise UsageError(f"account {spec.dataset} has no session {resume} to resume; see `dpflow ledger show`")
        if runs[resume].fence > terms.restarts:
            raise UsageError(
                f"session {resume} was resumed {terms.restarts} times, as often as it may be; end it with `dpflow ledger settle {resume}`, "
                "and open another one with more `restarts`"
            )
    run = ledger.reserve(
        resume or str(uuid.uuid4()),
        account=spec.dataset,
        amount=terms.amount,
        claim=_claim(declaration, terms),
        analyst=spec.analyst,
        purpose=spec.purpose,
    )
    return ledger.lease(run.id)


def _claim(declaration: Declaration, terms: Terms) -> str:
    """Return the hash of everything that a session is reserved for."""
    promised = [terms.alpha, terms.beta, terms.queries, terms.restarts]
    meaning = json.dumps(["online", declaration.digest, declaration.universe.names, promised])
    return hashlib.sha256(meaning.encode()).hexdigest()


def _require_declared(declaration: Declaration) -> None:
    """Raise unless the universe, the limit on rows per unit and the rows are fixed before the session begins."""
    if declaration.calendar is not None:
        raise UsageError("an online session reads a whole table; use a spec and an account without `blocks`")
    if declaration.spec.prior is not None:
        raise UsageError(
            "the theorem of an online session needs equal weights at the start; remove `prior` from the spec"
        )
    if declaration.universe.constraints:
        raise UsageError("an online session learns a model without constraints; remove `constraints` from the spec")
    if declaration.lacks_limit:
        raise UsageError(
            "an online session needs a fixed limit on rows per unit; write a number as `max_rows_per_unit`"
        )
    if declaration.descents():
        name = next(iter(declaration.descents()))
        raise UsageError(
            f"an online session needs a universe that is declared in full; give column {name} its values, or a `width` or `edges`"
        )


def _require_no_approval(declaration: Declaration) -> None:
    with using(places_of_spec(declaration.path)):
        approval = approval_for(declaration)
        if approval is not None:
            raise UsageError(
                f"{request(declaration, approval)}; as the steward, open the session with approved=True, or ask for less"
            )
