"""Statements sent past the protocol: the tables' rules refuse whatever differs from what the protocol writes."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

from dpcore.errors import DpflowError, LedgerDamaged
from dpcore.ledger import AllowanceKind, EventKind, Lease, Ledger, open_ledger
from dpcore.ledger.chain import canonical, link
from dpcore.ledger.postgres.store import PostgresStore
from dpcore.ledger.rows import Event
from dpcore.ledger.verification import verify
from dpcore.ledger.writing import WritingTransaction
from dpcore.privacy.protection import Neighbours
from tests.dpcore.ledger.fixtures import MECHANISM, SHA256, opened, opened_by_month
from tests.dpcore.ledger.tampering import others
from tests.postgres import PostgresServer

Parameters = Mapping[str, Any]
Act = Callable[[Ledger], object]
Meddling = Callable[[Parameters], Sequence[Parameters]]
"""What is sent in place of a statement: it again, with each of these parameters."""
WRITES = ("INSERT", "UPDATE", "WITH")
FREE = {"size", "manifest", "manifest_sha256", "reason"}
"""What only the chain states, so that no row contradicts it."""


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """Return a ledger with runs in every state, the last of which has just been settled."""
    url = postgres_server.new_database()
    with open_ledger(url, create=True) as ledger:
        opened(ledger)
        opened(ledger, "closed")
        terms = {"unit": "person", "across": 900, "across_epsilon": 1.0, "neighbours": Neighbours.REPLACE_ONE}
        opened_by_month(ledger, "2026-01", "2026-02", "2026-03", **terms)
        for analyst in ("ana", "bob"):
            ledger.allow("visits", kind=AllowanceKind.ANALYST, name=analyst, cap=500, epsilon=1.0, reason="r")
        ledger.reserve("bobs", account="visits", amount=40, claim="c", blocks=["2026-02"], analyst="bob")
        ledger.reserve("open", account="clinic", amount=100, claim="c")
        ledger.reserve("refunded", account="clinic", amount=100, claim="c")
        ledger.refund("refunded", lease=None)
        ledger.close_account("closed", reason="r")
        lease = ledger.lease("open")
        ledger.commit(ledger.charge(lease, step="done", amount=10, mechanism=MECHANISM), b"noisy")
        ledger.charge(lease, step="begun", amount=10, mechanism=MECHANISM)
        ledger.open_blocks("visits", ["2026-04"])
        for release in ("older", "newer"):
            ledger.reserve(release, account="clinic", amount=10, claim="c")
            ledger.settle(release, release=release, lease=None, manifest="m", manifest_sha256=SHA256)
        for analyst in ("ana", "bob"):
            ledger.share("open", analyst=analyst, cap=30, token=SHA256)
        ledger.reserve("settled", account="clinic", amount=100, claim="c")
        ledger.settle("settled", release=None, lease=ledger.lease("settled"))
    return url


def reserve(ledger: Ledger) -> object:
    blocks = ["2026-01", "2026-02"]
    return ledger.reserve("new", account="visits", amount=40, claim="c", blocks=blocks, analyst="ana")


def charge(ledger: Ledger) -> object:
    return ledger.charge(Lease("open", 1), step="begun", amount=20, mechanism=MECHANISM, analyst="ana")


def commit(ledger: Ledger) -> object:
    with ledger.reading() as rows:
        _, newest, _ = rows.run_and_attempt("open", "begun")
    return ledger.commit(newest, b"answer")


ACTS: Sequence[Act] = (
    lambda ledger: ledger.open_blocks("visits", ["2026-05", "2026-06"]),
    lambda ledger: ledger.seal_blocks("visits", ["2026-04", "2026-05"]),
    reserve,
    lambda ledger: ledger.refund("new", lease=None),
    reserve,
    lambda ledger: ledger.lease("new", holder="h", seconds=5),
    lambda ledger: ledger.record_data_version(Lease("new", 1), "v"),
    charge,
    commit,
    lambda ledger: ledger.settle("open", release="r", lease=Lease("open", 1), manifest="m", manifest_sha256=SHA256),
    lambda ledger: ledger.settle("open", release="r", lease=Lease("open", 1), manifest="m", manifest_sha256="0" * 64),
    lambda ledger: ledger.withdraw("older", reason="r", keep=1),
)
"""All that a runner does, in the order in which it can be done."""


class Undone(BaseException):
    """An act that the database has let through, and that is undone."""


def attempt(
    ledger: Ledger, act: Act, *, at: int = -1, meddling: Meddling = lambda it: [it]
) -> tuple[list[Parameters], str | None]:
    """Do something, with the write statement of this number sent otherwise, and undo it.

    Returns:
        The parameters of all write statements, and the rule of the database that refused one; None if none did.
    """
    store: Any = ledger._store
    execute, writes = store.execute, []

    def instead(statement: str, parameters: Parameters | None = None) -> Any:
        if statement == "COMMIT" and writes:
            execute("SET CONSTRAINTS ALL IMMEDIATE")
            raise Undone
        if not statement.startswith(WRITES) or parameters is None:
            return execute(statement, parameters)
        writes.append({key: value for key, value in parameters.items() if re.search(rf":{key}\b", statement)})
        for changed in meddling(parameters) if len(writes) - 1 == at else [parameters]:
            execute(statement, changed)
        return ()

    store.execute = instead
    try:
        act(ledger)
    except Undone:
        return writes, None
    except DpflowError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error):
            raise
        return writes, f"{cause.diag.context}: {cause.diag.message_primary}"
    finally:
        del store.execute
    raise AssertionError("nothing was committed")


def meddlings(parameters: Parameters) -> dict[str, Meddling]:
    """Return all that is tried with a statement: to leave it out, to send it twice, and to change each of its parameters a little."""
    tries: dict[str, Meddling] = {"left out": lambda _: [], "twice": lambda it: [it, it]}
    for key, value in parameters.items():
        changed = [value[:-1], [*value, "2026-03"]] if isinstance(value, list) else others(value, "TEXT")
        tries |= {f"{key} {other!r}": lambda it, key=key, other=other: [{**it, key: other}] for other in changed}
    return tries


def told_otherwise(event: Event) -> Iterator[dict[str, Any]]:
    """Yield what an event may say instead, in its body or beside it."""
    yield from ({"kind": "foo"}, {"kind": "leased"}, {"account": "closed"}, {"run": "settled"}, {"run": None})
    for key, value in event.details.items():
        for other in ["x", None] if isinstance(value, dict | list) else others(value, "TEXT"):
            yield {"body": canonical(event.details | {key: other})}
    yield {"body": canonical(event.details | {"more": 1})}
    yield {"body": event.body.replace(":", ": ", 1)}


@contextmanager
def telling(changes: dict[str, Any]) -> Iterator[list[Event]]:
    """Let every event say something else, with a hash that fits. Collect the events as they would have been."""
    events: list[Event] = []
    honest = WritingTransaction.next_event

    def forged(rows: WritingTransaction, kind: EventKind, **content: Any) -> Event:
        event = honest(rows, kind, **content)
        events.append(event)
        kept = {key: getattr(event, key) for key in ("seq", "at", "kind", "account", "run", "body")}
        return link(event.previous, **(kept | changes))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WritingTransaction, "next_event", forged)
        yield events


def forgeries(ledger: Ledger, act: Act) -> Iterator[tuple[str, str | None]]:
    """Try everything with an act: yield what, and the rule that refuses it."""
    with telling({}) as events:
        writes, refused = attempt(ledger, act)
    assert refused is None
    for number, parameters in enumerate(writes):
        for what, meddling in meddlings(parameters).items():
            if what != "left out" or len(writes) > 1:
                yield f"{number} {what}", attempt(ledger, act, at=number, meddling=meddling)[1]
    (event,) = events
    for changes in told_otherwise(event):
        if any(changes[key] != getattr(event, key) for key in changes):
            with telling(changes):
                yield f"event {changes}", attempt(ledger, act)[1]


NOTHING_NEW = {"1 twice", "1 names ['2026-04', '2026-05', '2026-03']", "2 names ['all', '2026-03']"}
"""To seal what is sealed, and to name a block that the account does not have, changes no row."""
OUT_OF_NOWHERE = (
    "UPDATE block SET used = used - 1 WHERE account = 'clinic'",
    "UPDATE block SET cap = cap + 1",
    "UPDATE block SET state = 'open' WHERE name = '2026-03'",
    "UPDATE block SET state = 'sealed' WHERE name = '2026-04'",
    "INSERT INTO block VALUES ('visits', 'mine', 'open', 1000, 0)",
    "INSERT INTO block VALUES ('visits', 'mine', 'sealed', 1000, 7)",
    "INSERT INTO block VALUES ('clinic', 'mine', 'sealed', 1000, 0)",
    "DELETE FROM block WHERE name = '2026-03'",
    "UPDATE account SET cap = 999 WHERE name = 'closed'",
    "UPDATE account SET across = 899 WHERE name = 'visits'",
    "UPDATE account SET across = NULL, across_epsilon = NULL, across_used = 0 WHERE name = 'visits'",
    "UPDATE account SET across_used = across_used - 1 WHERE name = 'visits'",
    ("INSERT INTO account VALUES ('mine', 'pure', 9, 1, 0, 'person', 'add-remove', '', 'month', 'open', '', 9, 1, 5)"),
    "UPDATE allowance SET used = used - 1 WHERE name = 'bob'",
    "DELETE FROM allowance",
    "UPDATE run SET state = 'open' WHERE id = 'settled'",
    "UPDATE run SET spent = 0 WHERE id = 'open'",
    "UPDATE run SET fence = fence + 1 WHERE id = 'open'",
    "DELETE FROM run WHERE id = 'refunded'",
    "UPDATE share SET cap = 99 WHERE analyst = 'ana'",
    "UPDATE share SET spent = spent + 1 WHERE analyst = 'ana'",
    "INSERT INTO share VALUES ('open', 'eve', 99, repeat('a', 64), 0, 1)",
    "DELETE FROM share",
    "UPDATE operation SET amount = 1 WHERE step = 'begun'",
    "UPDATE operation SET output = 'exact' WHERE step = 'done'",
    "DELETE FROM operation",
    "UPDATE event SET at = 'never' WHERE seq = 3",
    "DELETE FROM event WHERE kind = 'leased'",
)
"""Changes that no event tells of."""


def test_whatever_differs_from_the_protocol_is_refused(url: str) -> None:
    refusals, accepted = set(), []
    with psycopg.connect(url, options="-c search_path=dpflow") as connection:
        for statement in OUT_OF_NOWHERE:
            with (
                pytest.raises(psycopg.errors.RaiseException, match="the ledger: ") as refused,
                connection.transaction(),
            ):
                connection.execute(f"{statement}; SET CONSTRAINTS ALL IMMEDIATE")
            refusals.add(f"{refused.value.diag.context}: {refused.value.diag.message_primary}")
        rules = connection.execute(
            "SELECT tgname, proname, encode(tgargs, 'escape') FROM pg_trigger JOIN pg_proc AS p ON p.oid = tgfoid WHERE NOT tgisinternal"
        ).fetchall()
    with open_ledger(url) as ledger:
        for act in ACTS:
            for what, rule in forgeries(ledger, act):
                refusals.add(rule)
                accepted += [what] if rule is None else []
            act(ledger)  # and what follows it is done
        verify(ledger, price=lambda _mechanism, _currency: 0, heads={})
    free = {what for what in accepted if what.startswith("event ")}
    assert set(accepted) - free == NOTHING_NEW
    assert all(any(f'"{key}":' in what for key in FREE) for what in free)
    told = " ".join(map(str, refusals))
    unused = {
        name for name, function, said in rules if f" {function}()" not in told or said.removesuffix("\\000") not in told
    }
    # An account's row cannot be deleted while others refer to it, rule or not; the other only notes.
    assert unused == {"account_kept", "block_notes_move"}


def test_without_the_rules_most_of_it_would_pass(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for table in ("account", "block", "allowance", "event", "run", "share", "operation"):
            connection.execute(sql.SQL("ALTER TABLE dpflow.{} DISABLE TRIGGER USER").format(sql.Identifier(table)))
        connection.execute(
            "SET search_path = dpflow; SET session_replication_role = replica"
        )  # no key refers to another
        for statement in OUT_OF_NOWHERE:
            with connection.transaction(force_rollback=True):
                assert connection.execute(statement).rowcount > 0, statement
    with open_ledger(url) as ledger:
        passed = [rule is None for act in (reserve, charge) for _, rule in forgeries(ledger, act)]
    assert sum(passed) > 0.6 * len(passed) > 100


def test_every_function_looks_names_up_in_the_ledger_alone(url: str) -> None:
    with psycopg.connect(url) as connection:
        functions = connection.execute(
            "SELECT proname, proconfig[1], prosecdef FROM pg_proc WHERE pronamespace = 'dpflow'::regnamespace"
        ).fetchall()
    assert functions
    assert {(path, definer) for _, path, definer in functions} == {("search_path=dpflow, pg_temp", False)}


def test_one_event_pays_each_of_a_thousand_blocks(postgres_server: PostgresServer) -> None:
    months = [f"month {number}" for number in range(1_000)]
    with open_ledger(postgres_server.new_database(), create=True) as ledger:
        opened_by_month(ledger, *months, neighbours=Neighbours.REPLACE_ONE)
        ledger.reserve("r", account="visits", amount=40, claim="c", blocks=months)
        assert {block.used for block, _ in ledger.blocks("visits")} == {80}
        ledger.refund("r", lease=None)
        assert {block.used for block, _ in ledger.blocks("visits")} == {0}


def test_retention_removes_no_release_that_is_kept_and_none_is_published_again_that_was_not(url: str) -> None:
    """What a runner's Python refuses, the database refuses, too."""
    told = {"release": "newer", "reason": "r", "keep": 1}
    for kind, run, body in (
        (EventKind.REMOVED, "newer", told),
        (EventKind.REMOVED, "older", told | {"release": "older", "keep": 2}),
        (EventKind.WITHDRAWN, "settled", {"release": "r", "reason": "r"}),
        (EventKind.REPUBLISHED, None, {"run": "mine", "release": "mine", "manifest": "m", "manifest_sha256": SHA256}),
        (EventKind.REPUBLISHED, None, {"run": "newer", "release": "x", "manifest": "m", "manifest_sha256": SHA256}),
    ):
        with (
            open_ledger(url) as ledger,
            pytest.raises(LedgerDamaged, match="contradicts itself"),
            ledger._writing() as rows,
        ):
            rows.record(kind, account="clinic", run=run, body=body)


def test_steps_that_share_a_transaction_are_checked_one_by_one_and_must_be(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reserved_and_leased(ledger: Ledger, run: str) -> None:
        with ledger.together():
            ledger.reserve(run, account="clinic", amount=10, claim="c")
            ledger.lease(run)

    with open_ledger(url) as ledger:
        reserved_and_leased(ledger, "first")
        monkeypatch.setattr(PostgresStore, "end_step", lambda _store: None)
        with pytest.raises(DpflowError):
            reserved_and_leased(ledger, "second")
        assert {run.id for run in ledger.runs("clinic")} >= {"first"}
        assert "second" not in {run.id for run in ledger.runs("clinic")}
