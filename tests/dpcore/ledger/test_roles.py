"""Who may do what in PostgreSQL: the steward, the runner and the reader, through the ledger and past it."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg import sql

from dpcore import Budget
from dpcore.errors import BudgetRefused, LedgerDamaged, LedgerError, UsageError
from dpcore.ledger import AllowanceKind, EventKind, Ledger, loss_accepted, open_ledger
from dpcore.ledger.chain import canonical, link
from dpcore.ledger.events import EVENTS, Writer
from dpcore.ledger.heads import SeenHead
from dpcore.ledger.postgres.triggers import RULES
from dpcore.ledger.verification import Verified, verify
from tests.dpcore.ledger.catalogue import run_script
from tests.dpcore.ledger.conftest import MEMBERS, Guarded
from tests.dpcore.ledger.fixtures import BODIES, MECHANISM, SHA256, opened, opened_by_month

TABLES = ("version", "account", "block", "allowance", "event", "run", "share", "operation")
NOT_SO = "denies this to the current role"


@pytest.fixture(scope="module")
def prepared(guarded: Guarded) -> str:
    """Return a ledger that a steward has made after the script, with runs in all states."""
    url = guarded.server.new_database()
    run_script(guarded.server, url)
    with open_ledger(guarded.as_role(url, "maria"), create=True) as ledger:
        fill(ledger)
    return url


def fill(ledger: Ledger) -> None:
    opened(ledger)
    opened_by_month(ledger, "2026-01", "2026-02", unit="person", across=2_000, across_epsilon=2.0)
    ledger.allow("visits", kind=AllowanceKind.ANALYST, name="ana", cap=500, epsilon=1.0, reason="r")
    ledger.reserve("open", account="clinic", amount=100, claim="c")
    lease = ledger.lease("open")
    ledger.commit(ledger.charge(lease, step="done", amount=10, mechanism=MECHANISM), b"noisy")
    ledger.charge(lease, step="begun", amount=10, mechanism=MECHANISM)
    ledger.share("open", analyst="ana", cap=30, token=SHA256)
    ledger.reserve("idle", account="clinic", amount=100, claim="c")
    ledger.reserve("settled", account="clinic", amount=100, claim="c")
    ledger.settle("settled", release=None, lease=None)


@pytest.fixture
def url(guarded: Guarded, prepared: str) -> str:
    return guarded.server.new_database(template=prepared)


@contextmanager
def unchanged(url: str) -> Iterator[None]:
    before = dump(url)
    yield
    assert dump(url) == before


def dump(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        queries = (sql.SQL("SELECT * FROM dpflow.{} ORDER BY 1, 2").format(sql.Identifier(table)) for table in TABLES)
        return [connection.execute(query).fetchall() for query in queries]


def whole(ledger: Ledger) -> Verified:
    return verify(ledger, price=lambda _mechanism, _currency: 0, heads={})


def whole_run(ledger: Ledger) -> None:
    """Do all that a run ever does, on the way to a release and on the way back."""
    ledger.open_blocks("visits", ["2026-03"])
    ledger.seal_blocks("visits", ["2026-03"])
    blocks = ["2026-01", "2026-03"]
    for _ in range(2):
        ledger.reserve("new", account="visits", amount=90, claim="c", blocks=blocks, analyst="ana")
        ledger.refund("new", lease=ledger.lease("new"))
    ledger.reserve("new", account="visits", amount=90, claim="c", blocks=blocks, analyst="ana")
    lease = ledger.lease("new")
    ledger.record_data_version(lease, "v")
    ledger.charge(lease, step="s", amount=20, mechanism=MECHANISM)
    lease = ledger.lease("new")
    ledger.commit(ledger.charge(lease, step="s", amount=20, mechanism=MECHANISM), b"1")
    ledger.settle("new", release="release", lease=lease, manifest="manifest.json", manifest_sha256="0" * 64)
    assert [balance.used for _, balance in ledger.blocks("visits")] == [40, 0, 40]
    assert ledger.allowances("visits")[0].used == 40
    assert ledger.account("visits").across_used == 40


def accept_loss(ledger: Ledger) -> None:
    ledger._lost = SeenHead(ledger=ledger.identity(), seq=999, hash="9" * 64, at="2026-01-01T00:00:00", place="")
    ledger.accept_restoration(reason="r")


STEWARDSHIP: dict[str, Callable[[Ledger], object]] = {
    "open an account": lambda ledger: opened(ledger, "births"),
    "raise a cap": lambda ledger: ledger.raise_cap("clinic", cap=2_000, epsilon=2.0, reason="r"),
    "allow": lambda ledger: ledger.allow(
        "clinic", kind=AllowanceKind.PURPOSE, name="p", cap=5, epsilon=1.0, reason="r"
    ),
    "change an allowance": lambda ledger: ledger.allow(
        "visits", kind=AllowanceKind.ANALYST, name="ana", cap=9, epsilon=1.0, reason="r"
    ),
    "raise a cap across blocks": lambda ledger: ledger.raise_across("visits", cap=9_000, epsilon=9.0, reason="r"),
    "adopt": lambda ledger: ledger.adopt("clinic", folder="/releases/clinic", owner=None, reason="r"),
    "accept a loss": accept_loss,
    "share": lambda ledger: ledger.share("open", analyst="ana", cap=40, token=SHA256),
    "close an account": lambda ledger: ledger.close_account("clinic", reason="r"),
}
RUNNING: dict[str, Callable[[Ledger], object]] = {
    "open blocks": lambda ledger: ledger.open_blocks("visits", ["2026-03"]),
    "reserve": lambda ledger: ledger.reserve("new", account="clinic", amount=90, claim="c"),
    "lease": lambda ledger: ledger.lease("idle"),
    "settle": lambda ledger: ledger.settle("idle", release=None, lease=None),
    "refund": lambda ledger: ledger.refund("idle", lease=None),
}


@pytest.mark.parametrize("who", ["maria", "nightly"])
def test_steward_and_runner_can_do_all_that_a_run_needs(guarded: Guarded, url: str, who: str) -> None:
    with open_ledger(guarded.as_role(url, who)) as ledger:
        whole_run(ledger)
        whole(ledger)


def test_a_runner_pays_for_any_function(
    guarded: Guarded, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("private", "registry"):
        monkeypatch.setenv(f"DPFLOW_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("DPFLOW_LEDGER_URL", guarded.as_role(url, "nightly"))
    clinic = Budget("clinic")
    with (
        clinic.reserve(epsilon="3/1000000000000"),
        clinic.spend("count", unit="row", epsilon="1/1000000000000") as paid,
    ):
        assert paid.keep(7) == 7
    with open_ledger() as ledger:
        assert ledger.run(ledger.runs("clinic")[-1].id).spent <= 1
        whole(ledger)


def test_a_steward_can_do_all_that_is_the_stewards(guarded: Guarded, url: str) -> None:
    with open_ledger(guarded.as_role(url, "maria")) as ledger:
        for verb in STEWARDSHIP.values():
            verb(ledger)
        whole(ledger)


def test_others_cannot_and_change_nothing(guarded: Guarded, prepared: str) -> None:
    for who, verbs in (("nightly", STEWARDSHIP), ("auditor", STEWARDSHIP | RUNNING)):
        with open_ledger(guarded.as_role(prepared, who)) as ledger, unchanged(prepared):
            for verb in verbs.values():
                with pytest.raises(LedgerError, match=NOT_SO):
                    verb(ledger)
                assert ledger.account("clinic").cap == 1_000  # the ledger itself is as useful as before


def test_a_reader_reads_and_verifies_everything(guarded: Guarded, prepared: str) -> None:
    with open_ledger(guarded.as_role(prepared, "auditor")) as ledger:
        assert [account.name for account in ledger.accounts()] == ["clinic", "visits"]
        assert ledger.balance("clinic").spent == 20
        assert len(ledger.blocks("visits")) == 2
        assert ledger.allowances("visits")[0].name == "ana"
        assert [operation.output for operation in ledger.transcript("open")] == [b"noisy"]
        assert whole(ledger).events == sum(1 for _ in ledger.history(None))


def test_who_has_none_of_the_roles_sees_nothing(guarded: Guarded, prepared: str) -> None:
    with pytest.raises(LedgerError, match=NOT_SO):
        open_ledger(guarded.as_role(prepared, "stranger"))
    with (
        psycopg.connect(guarded.as_role(prepared, "stranger")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("SELECT * FROM dpflow.event")


def test_only_a_steward_makes_a_ledger(guarded: Guarded) -> None:
    url = guarded.server.new_database()
    run_script(guarded.server, url)
    for who in ("nightly", "auditor"):
        with pytest.raises(UsageError, match="no ledger"):
            open_ledger(guarded.as_role(url, who))
        with pytest.raises(LedgerError, match=NOT_SO):
            open_ledger(guarded.as_role(url, who), create=True)
    open_ledger(guarded.as_role(url, "maria"), create=True).close()
    open_ledger(guarded.as_role(url, "nightly")).close()


RIGHTS = """
SELECT 'schema', nspowner::regrole, unnest(nspacl) FROM pg_namespace WHERE nspname = 'dpflow'
UNION ALL
SELECT oid::regclass::text, relowner::regrole, unnest(coalesce(relacl, '{=/postgres}')) FROM pg_class
WHERE relnamespace = 'dpflow'::regnamespace
UNION ALL
SELECT attrelid::regclass || '.' || attname, NULL, unnest(attacl) FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid
WHERE relnamespace = 'dpflow'::regnamespace
UNION ALL
SELECT proname, proowner::regrole, unnest(proacl) FROM pg_proc WHERE pronamespace = 'dpflow'::regnamespace
"""


def rights(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        return {str(row) for row in connection.execute(RIGHTS)}


def test_a_ledger_that_was_there_before_the_roles_gets_the_same_rights(guarded: Guarded, prepared: str) -> None:
    plain = guarded.server.new_database(template=guarded.plain)
    assert rights(plain) != rights(prepared)
    for url in (guarded.of_boss, plain):  # neither an administrator who is no superuser nor one who is
        run_script(guarded.server, url)
        assert rights(url) == rights(prepared)
    with psycopg.connect(guarded.of_boss) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT * FROM dpflow.account")  # to run the script makes nobody a steward


def test_an_owner_who_drops_the_rules_is_found_out(guarded: Guarded, url: str) -> None:
    with open_ledger(guarded.as_role(url, "maria")) as ledger:
        whole(ledger)
        with psycopg.connect(guarded.as_role(url, "maria")) as connection:
            connection.execute("ALTER TABLE dpflow.block DISABLE TRIGGER block_follows_chain")
            connection.execute("UPDATE dpflow.block SET used = 0")
        with pytest.raises(LedgerDamaged, match="block 'clinic', 'all' differs from the events"):
            whole(ledger)


FORBIDDEN = (
    "UPDATE dpflow.account SET cap = cap + 1",
    "UPDATE dpflow.account SET epsilon = 9, delta = 0.5",
    "UPDATE dpflow.account SET state = 'closed'",
    "UPDATE dpflow.account SET unit = 'row', neighbours = 'add-remove'",
    "INSERT INTO dpflow.account VALUES ('mine', 'pure', 9, 1, 0, 'row', 'add-remove', '', NULL, 'open', '')",
    "UPDATE dpflow.account SET across = across + 1 WHERE name = 'visits'",
    "UPDATE dpflow.account SET across_moved = 0",
    "UPDATE dpflow.block SET cap = cap + 1",
    "UPDATE dpflow.block SET moved = 0",
    "UPDATE dpflow.block SET name = 'b' WHERE name = '2026-01'",
    "UPDATE dpflow.allowance SET cap = cap + 1",
    "UPDATE dpflow.allowance SET moved = 0",
    "INSERT INTO dpflow.allowance VALUES ('clinic', 'analyst', 'eve', 5, 1, 0)",
    "UPDATE dpflow.event SET body = '{}'",
    "UPDATE dpflow.run SET reserved = reserved + 1",
    "UPDATE dpflow.run SET claim = 'another', analyst = 'bob'",
    "UPDATE dpflow.share SET cap = cap + 1",
    "UPDATE dpflow.share SET token = NULL",
    "INSERT INTO dpflow.share VALUES ('open', 'eve', 5, NULL, 0, 1)",
    "UPDATE dpflow.operation SET amount = 1",
    "UPDATE dpflow.operation SET mechanism = '{}'",
    "UPDATE dpflow.version SET number = 1",
    *(f"DELETE FROM dpflow.{table}" for table in TABLES),  # noqa: S608  a test's own
    *(f"TRUNCATE dpflow.{table} CASCADE" for table in TABLES),
    *(f"LOCK TABLE dpflow.{table} IN SHARE MODE" for table in TABLES),
    "ALTER TABLE dpflow.event DISABLE TRIGGER ALL",
    "DROP TRIGGER event_kept ON dpflow.event",
    "ALTER TABLE dpflow.block DROP CONSTRAINT block_within_cap",
    "ALTER TABLE dpflow.event OWNER TO CURRENT_USER",
    "DROP TABLE dpflow.operation",
    "DROP SCHEMA dpflow CASCADE",
    "CREATE TABLE dpflow.mine ()",
    "CREATE FUNCTION dpflow.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION dpflow.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE TRIGGER mine BEFORE INSERT ON dpflow.event EXECUTE FUNCTION dpflow.refuse()",
    "CREATE RULE mine AS ON INSERT TO dpflow.event DO INSTEAD NOTHING",
    "CREATE TEMP TABLE mine (seq int); CREATE TRIGGER t BEFORE INSERT ON mine EXECUTE FUNCTION dpflow.refuse()",
    "SELECT dpflow.grant_roles()",
    "GRANT dpflow_steward TO nightly",
    "SET ROLE dpflow_steward",
    "SET session_replication_role = replica",
)
"""What neither runner nor reader may do."""
READERS = (
    "LOCK TABLE dpflow.writer IN EXCLUSIVE MODE",
    "LOCK TABLE dpflow.writer IN ROW EXCLUSIVE MODE",
    "SELECT seq FROM dpflow.event FOR KEY SHARE",
    "UPDATE dpflow.block SET used = used",
    "UPDATE dpflow.account SET across_used = across_used",
    "UPDATE dpflow.allowance SET used = used",
    "UPDATE dpflow.run SET spent = spent",
    "UPDATE dpflow.share SET spent = spent",
    "UPDATE dpflow.operation SET output = output",
    "INSERT INTO dpflow.block VALUES ('visits', 'b', 'open', 1000, 0)",
    "INSERT INTO dpflow.event SELECT seq + 999, '', 'settled', 'clinic', 'idle', '{}', hash, hash FROM dpflow.event LIMIT 1",
)
"""What a reader may not do besides."""


def test_the_database_refuses_them(guarded: Guarded, prepared: str) -> None:
    for who, statements in (("nightly", FORBIDDEN), ("auditor", FORBIDDEN + READERS)):
        with closing(psycopg.connect(guarded.as_role(prepared, who))) as connection:
            for statement in statements:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
                connection.rollback()


def test_nothing_is_wrong_with_them_but_who_sends_them(prepared: str) -> None:
    with closing(psycopg.connect(prepared)) as connection:
        for statement in FORBIDDEN + READERS:
            connection.execute("SET session_replication_role = replica")  # no rules: they would hold a superuser too
            connection.execute(statement)
            connection.rollback()


RUNNERS = {
    "blocks-opened", "blocks-sealed", "reserved", "leased", "data-version", "charged", "committed", "settled", "refunded",
    "republished", "removed",
}  # fmt: skip
NO_RUN = {
    "account-opened", "cap-raised", "across-raised", "account-closed", "allowed", "shared", "adopted", "restored",
    "blocks-opened", "blocks-sealed", "republished",
}  # fmt: skip
Recorded = set[tuple[str, str, bool]]
"""Who can record which kind of event, with a run or without."""


def insert(connection: psycopg.Connection[Any], **changes: Any) -> None:
    """Append an event past the protocol. Its hash is right, unless it is changed too."""
    found = connection.execute("SELECT seq, hash FROM dpflow.event ORDER BY seq DESC LIMIT 1").fetchone()
    seq, previous = found or (0, "0" * 64)
    told = {"at": "2026-11-15T00:00:00+00:00", "kind": "foo", "account": "clinic", "run": "open", "body": "{}"}
    event = vars(link(previous, seq=seq + 1, **{key: changes.get(key, value) for key, value in told.items()}))
    connection.execute(
        "INSERT INTO dpflow.event VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", [*(event | changes).values()]
    )


def recorded(guarded: Guarded, url: str) -> Recorded:
    """Try to record every kind of event as everybody. Nothing stays."""
    done = set()
    for who in MEMBERS:
        with closing(psycopg.connect(guarded.as_role(url, who))) as connection:
            for (kind, body), run in product(BODIES.items(), (None, "open")):
                with suppress(psycopg.Error), connection.transaction(force_rollback=True):
                    insert(connection, kind=kind, run=run, body=canonical(body))
                    done.add((who, str(kind), run is not None))
    return done


def expected() -> Recorded:
    who = [("maria", EVENTS), ("nightly", RUNNERS)]
    return {(name, str(kind), kind not in NO_RUN) for name, kinds in who for kind in kinds}


def test_everybody_records_exactly_what_the_table_of_events_allows(guarded: Guarded, prepared: str) -> None:
    assert {kind for kind, rule in EVENTS.items() if rule.writer is Writer.RUNNER} == RUNNERS
    assert {kind for kind, rule in EVENTS.items() if not rule.of_run} == NO_RUN
    assert BODIES.keys() == EVENTS.keys() == set(EventKind)
    assert recorded(guarded, prepared) == expected()


FORMER = "NEW.run IS NULL AND NEW.kind NOT IN ('blocks-opened', 'blocks-sealed', 'republished')"
"""By which a steward's event was known: it names no run."""


def with_former_rule(url: str) -> None:
    """Plant the former trigger, which asked for the steward only if an event named no run, and looked at neither form nor hash."""
    chain = re.search(r"CREATE FUNCTION extend_chain.*?\$\$;", RULES, flags=re.DOTALL)
    assert chain is not None
    changed = re.sub(r"IF \(NEW.kind IN .*?\) IS NOT TRUE AND", f"IF {FORMER} AND", chain[0])
    changed = re.sub(r"    IF \(NEW.body ~ form.*?END IF;\n", "", changed, flags=re.DOTALL)
    changed = re.sub(r"    IF NEW.hash <>.*?END IF;\n", "", changed, flags=re.DOTALL)
    with psycopg.connect(url, options="-c search_path=dpflow") as connection:
        connection.execute(changed.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))


def test_the_former_rule_would_be_caught(guarded: Guarded, url: str) -> None:
    with_former_rule(url)
    let_through = recorded(guarded, url) - expected()
    assert {("nightly", kind, True) for kind in set(EVENTS) - RUNNERS} <= let_through


ATTACKS: dict[str, dict[str, Any]] = {
    "raise a share": {"kind": "shared", "run": "x", "body": canonical(BODIES[EventKind.SHARED])},
    "accept a loss": {"kind": "restored", "run": "x", "body": canonical(BODIES[EventKind.RESTORED])},
    "tell of a kind that there is not": {"kind": "foo", "run": "x"},
    "tell something that is no JSON": {"kind": "data-version", "body": "no JSON"},
    "tell something that only begins like JSON": {"kind": "data-version", "body": '{"version":"v"} and more'},
    "tell something in another order": {"kind": "leased", "body": '{"seconds":1,"holder":"h","fence":1}'},
    "tell something twice": {"kind": "data-version", "body": '{"version":"v","version":"w"}'},
    "tell of a mechanism that is no JSON": {
        "kind": "charged",
        "body": '{"amount":1,"analyst":null,"attempt":1,"fence":1,"mechanism":{"a":},"step":"s"}',
    },
    **{
        f"tell of a mechanism with {words}": {
            "kind": "charged",
            "body": f'{{"amount":1,"analyst":null,"attempt":1,"fence":1,"mechanism":{mechanism},"step":"s"}}',
        }
        for words, mechanism in {
            "a key twice": '{"a":1,"a":2}',
            "a key twice, deep inside": '{"a":[{"b":1,"b":2}]}',
            "keys in another order": '{"z":1,"a":2}',
            "a number that is no float": '{"a":1e400}',
            "a number beyond all floats": '{"a":1e+399}',
            "a float in other letters": '{"a":1.0E5}',
            "a float with an exponent that it does not need": '{"a":1.5e+02}',
            "a float with a zero at its end": '{"a":1.50}',
            "a float with more digits than it needs": '{"a":0.10000000000000001}',
            "a small float without an exponent": '{"a":0.00001}',
            "a large float with more digits than it needs": '{"a":4.8542221819804557e+17}',
            "a tiny float with other digits": '{"a":4e-324}',
            "a zero below zero": '{"a":-0}',
            "too many digits": '{"a":' + 5_000 * "9" + "}",
            "too many levels": '{"a":' + 3_000 * "[" + 3_000 * "]" + "}",
        }.items()
    },
    "tell of blocks in another order": {"kind": "blocks-opened", "run": None, "body": '{"blocks":["b","a"]}'},
    "tell of a block twice": {"kind": "blocks-opened", "run": None, "body": '{"blocks":["a","a"]}'},
    "lease for ever": {"kind": "leased", "body": canonical({"fence": 1, "holder": "h", "seconds": 9 * 10**18})},
    **{
        f"tell a time in the year {year}": {
            "kind": "data-version",
            "body": '{"version":"v"}',
            "at": f"{year}-01-01T00:00:00+00:00",
        }
        for year in ("0001", "9999", "20000")
    },
    "tell the wrong hash": {"kind": "data-version", "body": '{"version":"v"}', "hash": "0" * 64},
    "tell no time": {"kind": "data-version", "body": '{"version":"v"}', "at": "2026-11-15"},
    "tell of no account": {"kind": "data-version", "body": '{"version":"v"}', "account": ""},
}


def test_a_runner_cannot(guarded: Guarded, prepared: str) -> None:
    refusals = (psycopg.errors.InsufficientPrivilege, psycopg.errors.RaiseException, psycopg.errors.DataError)
    with closing(psycopg.connect(guarded.as_role(prepared, "nightly"))) as connection, unchanged(prepared):
        for attack in ATTACKS.values():
            with pytest.raises(refusals):
                insert(connection, **attack)
            connection.rollback()


def test_with_the_former_rule_a_runner_could(guarded: Guarded, former: str) -> None:
    with closing(psycopg.connect(guarded.as_role(former, "nightly"))) as connection:
        for attack in ATTACKS.values():
            insert(connection, **attack)
            connection.rollback()


@pytest.fixture(scope="module")
def former(guarded: Guarded, prepared: str) -> str:
    url = guarded.server.new_database(template=prepared)
    with_former_rule(url)
    return url


def test_what_a_runner_recorded_for_a_steward_counts_for_nobody(guarded: Guarded, former: str) -> None:
    with psycopg.connect(former) as connection:
        connection.execute("ALTER TABLE dpflow.event DISABLE TRIGGER event_has_effect")
    with psycopg.connect(guarded.as_role(former, "nightly")) as connection:
        for attack in ("raise a share", "accept a loss"):
            insert(connection, **ATTACKS[attack])
    with open_ledger(guarded.as_role(former, "nightly")) as ledger:
        assert ledger.shares("open")["ana"].cap == 30
        with pytest.raises(LedgerDamaged, match="names a run although it concerns none"), ledger.reading() as rows:
            loss_accepted(rows, seq=999, digest=SHA256)
        with pytest.raises(LedgerDamaged, match="names a run although it concerns none"):
            whole(ledger)


def test_any_name_has_the_hash_that_the_database_computes(guarded: Guarded, prepared: str) -> None:
    with closing(psycopg.connect(guarded.as_role(prepared, "maria"))) as connection:
        for name in ("Z\u00fcrich", "\u65e5\u672c", "\U0001f512\U0010fffd", 'a "b" \\ c', "\x7f\x01\n"):
            insert(connection, kind="account-closed", account=name, run=None, body=canonical({"reason": name}))
            connection.rollback()


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ROUND = st.floats(-1e308, 1e308).map(lambda number: float(f"{number:.3g}"))


@given(numbers=st.lists(FLOATS | ROUND | st.integers(-(2**200), 2**200)))
@example(
    numbers=[
        0.0,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        1e22,
        1e23,
        9007199254740993.0,
        1e15,
        1e16,
        1e-4,
        1e-5,
        0.1 + 0.2,
    ]
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_number_of_a_mechanism_is_accepted_as_it_is_written(prepared: str, numbers: list[float]) -> None:
    with psycopg.connect(prepared, options="-c search_path=dpflow") as connection:
        texts = connection.execute(
            "SELECT t FROM unnest(%s::text[]) AS t WHERE NOT is_canonical(CAST(t AS json))",
            [[canonical({"a": number}) for number in numbers]],
        ).fetchall()
    assert texts == []


def test_a_runner_charges_an_analyst_within_the_share(guarded: Guarded, url: str) -> None:
    with open_ledger(guarded.as_role(url, "nightly")) as ledger:
        lease = ledger.lease("open")
        ledger.charge(lease, step="q", amount=20, mechanism=MECHANISM, analyst="ana")
        with pytest.raises(BudgetRefused, match="the share of analyst 'ana'"):
            ledger.charge(lease, step="r", amount=11, mechanism=MECHANISM, analyst="ana")
        assert ledger.shares("open")["ana"].remaining == 10
        whole(ledger)


def test_a_runner_removes_by_retention_and_a_steward_withdraws(guarded: Guarded, url: str) -> None:
    with open_ledger(guarded.as_role(url, "nightly")) as ledger:
        ledger.settle("idle", release="r", lease=None, manifest="m", manifest_sha256=SHA256)
        with unchanged(url), pytest.raises(LedgerError, match=NOT_SO):
            ledger.withdraw("idle", reason="wrong codes")
        with unchanged(url), pytest.raises(UsageError, match="retention keeps release 'r'"):
            ledger.withdraw("idle", reason="retention", keep=1)
        ledger.reserve("next", account="clinic", amount=1, claim="c")
        ledger.settle("next", release="s", lease=None, manifest="m", manifest_sha256=SHA256)
        ledger.withdraw("idle", reason="retention", keep=1)
    with open_ledger(guarded.as_role(url, "maria")) as ledger:
        withdrawn = ledger.withdraw("idle", reason="wrong codes")
        assert ledger.withdrawals("clinic") == {"idle": withdrawn}
        whole(ledger)


def test_a_reader_does_not_keep_a_runner_waiting(guarded: Guarded, url: str) -> None:
    with psycopg.connect(guarded.as_role(url, "auditor")) as reader:
        reader.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        for table in TABLES:
            reader.execute(sql.SQL("LOCK TABLE dpflow.{} IN ACCESS SHARE MODE").format(sql.Identifier(table)))
            reader.execute(sql.SQL("SELECT * FROM dpflow.{}").format(sql.Identifier(table)))
        with open_ledger(guarded.as_role(url, "nightly")) as ledger:
            whole_run(ledger)


SHADOWS = {
    "an operator": (
        "CREATE FUNCTION mine.never(bigint, bigint) RETURNS bool LANGUAGE sql AS 'SELECT false';"
        "CREATE OPERATOR mine.<> (FUNCTION = mine.never, LEFTARG = bigint, RIGHTARG = bigint);"
        "SET search_path = mine, pg_catalog, dpflow"
    ),
    "a table": (
        "CREATE TEMP TABLE event AS SELECT seq + 1 AS seq, 'reserved' AS kind, account, "
        "json_build_object('amount', -1)::text AS body FROM dpflow.event;"
        "SET search_path = pg_temp, dpflow"
    ),
}


@pytest.mark.parametrize("shadow", SHADOWS)
def test_a_runner_cannot_put_something_else_in_the_place_of_what_a_rule_looks_at(
    guarded: Guarded, url: str, shadow: str
) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA mine AUTHORIZATION nightly")
        connection.execute("ALTER TABLE dpflow.block DISABLE TRIGGER block_notes_move")
    lower = "UPDATE dpflow.block SET used = used - 1 WHERE account = 'clinic'"
    with closing(psycopg.connect(guarded.as_role(url, "nightly"), autocommit=True)) as runner:
        runner.execute(SHADOWS[shadow])
        with pytest.raises(psycopg.errors.RaiseException):
            runner.execute(lower)
        with psycopg.connect(url) as connection:
            for function in ("follow_as_block()", "last_move()", "blocks_in(json)"):
                connection.execute(f"ALTER FUNCTION dpflow.{function} RESET search_path")
        runner.execute(lower)  # so the trick would work


def test_a_backup_that_is_restored_is_whole_and_guarded_as_before(guarded: Guarded, prepared: str) -> None:
    server = guarded.server
    restored = server.new_database()
    backup = subprocess.run([server._programs / "pg_dump", prepared], check=True, capture_output=True)
    psql = [server._programs / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", restored]
    subprocess.run(psql, input=backup.stdout, check=True, capture_output=True)
    assert dump(restored) == dump(prepared)
    assert rights(restored) == rights(prepared)
    with open_ledger(guarded.as_role(restored, "nightly")) as ledger:
        whole_run(ledger)
        whole(ledger)
