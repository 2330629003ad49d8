"""Every rule of a ledger in PostgreSQL is compared by its complete definition: whoever weakens one is found out, by its name."""

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger import Ledger, open_ledger
from dpcore.ledger.postgres import catalogue
from dpcore.ledger.postgres.catalogue import EXPECTED, rules_changed
from dpcore.ledger.verification import verify
from tests.dpcore.ledger.catalogue import run_script
from tests.dpcore.ledger.conftest import Guarded
from tests.dpcore.ledger.fixtures import MECHANISM, opened

BODY = "RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS 'BEGIN RETURN NEW; END'"
AGAIN = "DROP TRIGGER event_kept ON event; CREATE TRIGGER event_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON event FOR EACH STATEMENT"

WEAKENED = {
    "constraint block.block_within_cap is changed": [
        "ALTER TABLE block DROP CONSTRAINT block_within_cap, ADD CONSTRAINT block_within_cap CHECK (used >= 0)",
        (
            "ALTER TABLE block DROP CONSTRAINT block_within_cap, "
            "ADD CONSTRAINT block_within_cap CHECK (used >= 0 AND used <= cap) NOT VALID"
        ),
        (
            "ALTER TABLE block DROP CONSTRAINT block_within_cap, "
            "ADD CONSTRAINT block_within_cap CHECK (used >= 0 AND used <= cap OR cap > 5)"
        ),
    ],
    "constraint block.block_within_cap is missing": ["ALTER TABLE block DROP CONSTRAINT block_within_cap"],
    "constraint account.account_within_across is changed": [
        "ALTER TABLE account DROP CONSTRAINT account_within_across, ADD CONSTRAINT account_within_across CHECK (TRUE)"
    ],
    "constraint block.block_account_fkey is changed": [
        "ALTER TABLE block ALTER CONSTRAINT block_account_fkey DEFERRABLE INITIALLY DEFERRED",
        (
            "ALTER TABLE block DROP CONSTRAINT block_account_fkey, "
            "ADD CONSTRAINT block_account_fkey FOREIGN KEY (account) REFERENCES account (name) ON DELETE CASCADE"
        ),
    ],
    "constraint operation.operation_run_step_attempt_key is changed": [
        (
            "ALTER TABLE operation DROP CONSTRAINT operation_run_step_attempt_key, "
            "ADD CONSTRAINT operation_run_step_attempt_key UNIQUE (run, step, attempt, charged)"
        )
    ],
    "trigger event.event_kept is changed": [
        "ALTER TABLE event DISABLE TRIGGER event_kept",
        "ALTER TABLE event ENABLE REPLICA TRIGGER event_kept",
        f"{AGAIN} WHEN (FALSE) EXECUTE FUNCTION refuse('events are never changed or deleted')",
        f"{AGAIN.replace('UPDATE OR DELETE OR ', '')} EXECUTE FUNCTION refuse('events are never changed or deleted')",
        f"{AGAIN} EXECUTE FUNCTION refuse('no')",
        (
            f"CREATE FUNCTION public.refuse() {BODY}; {AGAIN} "
            "EXECUTE FUNCTION public.refuse('events are never changed or deleted')"
        ),
    ],
    "trigger event.event_has_effect is changed": [
        (
            "DROP TRIGGER event_has_effect ON event; CREATE CONSTRAINT TRIGGER event_has_effect AFTER INSERT ON event "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind = 'none') EXECUTE FUNCTION have_effect()"
        )
    ],
    "trigger run.run_account_fkey RI_FKey_check_ins is changed": ["ALTER TABLE run DISABLE TRIGGER ALL"],
    "trigger block.refund was added": [
        "CREATE TRIGGER refund AFTER UPDATE ON block FOR EACH STATEMENT EXECUTE FUNCTION refuse('no')"
    ],
    "index operation_once is changed": [
        "DROP INDEX operation_once; CREATE INDEX operation_once ON operation (run, step) WHERE state = 'committed'",
        "DROP INDEX operation_once; CREATE UNIQUE INDEX operation_once ON operation (run, step) WHERE state = 'none'",
        (
            "DROP INDEX operation_once; CREATE UNIQUE INDEX operation_once ON operation (run, step, charged) "
            "WHERE state = 'committed'"
        ),
        "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'operation_once'::regclass",
    ],
    "index more was added": ["CREATE INDEX more ON event (at)"],
    "function keep_cap() is changed": [
        f"CREATE OR REPLACE FUNCTION keep_cap() {BODY}",
        "ALTER FUNCTION keep_cap() RESET search_path",
        "ALTER FUNCTION keep_cap() SET search_path = public, dpflow",
        "ALTER FUNCTION keep_cap() SECURITY DEFINER",
        "ALTER FUNCTION keep_cap() IMMUTABLE",
        "ALTER FUNCTION keep_cap() STRICT",
        "ALTER FUNCTION keep_cap() SET session_replication_role = replica",
        "ALTER FUNCTION keep_cap() OWNER TO stranger",
    ],
    "function blocks_in(request json, more integer) was added": [
        "CREATE FUNCTION blocks_in(request json, more int) RETURNS TEXT[] LANGUAGE sql AS $$ SELECT '{}'::text[] $$"
    ],
    "column block.used is changed": [
        "ALTER TABLE block ALTER used DROP NOT NULL",
        "ALTER TABLE block ALTER used SET DEFAULT 0",
    ],
    "column operation.mechanism is changed": ["ALTER TABLE operation ALTER mechanism TYPE varchar"],
    "column run.number is changed": ["ALTER TABLE run ALTER number ADD GENERATED BY DEFAULT AS IDENTITY"],
    "column block.name is changed": ['ALTER TABLE block ALTER name TYPE text COLLATE "POSIX"'],
    "column event.note was added": ["ALTER TABLE event ADD note TEXT"],
    "relation operation is changed": [
        "ALTER TABLE operation SET UNLOGGED",
        "ALTER TABLE operation OWNER TO stranger",
        "ALTER TABLE operation ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE operation SET (autovacuum_enabled = off)",
    ],
    "policy event.mine was added": ["CREATE POLICY mine ON event USING (seq < 9)"],
    "rewrite rule event.mine was added": ["CREATE RULE mine AS ON DELETE TO event DO INSTEAD NOTHING"],
    "inheritance event was added": ["CREATE TABLE public.more () INHERITS (dpflow.event)"],
    "object view dpflow.mine was added": ["CREATE VIEW mine AS SELECT * FROM event"],
    "object operator dpflow.<>": [
        "CREATE OPERATOR dpflow.<> (FUNCTION = public.json_never, LEFTARG = json, RIGHTARG = json)"
    ],
    "grant account (relation dpflow_runner UPDATE) was added": ["GRANT UPDATE ON account TO dpflow_runner"],
    "grant account.cap (column dpflow_runner UPDATE) was added": ["GRANT UPDATE (cap) ON account TO dpflow_runner"],
    "grant event (relation stranger SELECT) was added": ["GRANT SELECT ON event TO stranger"],
    "grant event (relation PUBLIC SELECT) was added": ["GRANT SELECT ON event TO PUBLIC"],
    "grant event (relation dpflow_reader SELECT with grant option) was added": [
        "GRANT SELECT ON event TO dpflow_reader WITH GRANT OPTION"
    ],
    "grant grant_roles (function PUBLIC EXECUTE) was added": ["GRANT EXECUTE ON FUNCTION grant_roles TO PUBLIC"],
    "grant dpflow (schema dpflow_runner CREATE) was added": ["GRANT CREATE ON SCHEMA dpflow TO dpflow_runner"],
    "grant session_replication_role (parameter dpflow_runner SET) was added": [
        "GRANT SET ON PARAMETER session_replication_role TO dpflow_runner"
    ],
    "grant event (relation dpflow_reader SELECT) is missing": ["REVOKE SELECT ON event FROM dpflow_reader"],
    "default privileges OWNER r was added": [
        "ALTER DEFAULT PRIVILEGES FOR ROLE dpflow_steward IN SCHEMA dpflow GRANT ALL ON TABLES TO PUBLIC",
        "ALTER DEFAULT PRIVILEGES FOR ROLE dpflow_steward GRANT ALL ON TABLES TO PUBLIC",
    ],
    "role dpflow_runner as steward was added": ["GRANT dpflow_steward TO dpflow_runner"],
    "role dpflow_runner is changed": ["ALTER ROLE dpflow_runner SUPERUSER", "ALTER ROLE dpflow_runner LOGIN"],
    "setting session_replication_role was added": [
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET session_replication_role = replica', current_database()); END $$",
        "SET session_replication_role = replica",
        "SET session_replication_role = local",
    ],
    "trigger block.block_kept_sealed is changed": [
        (
            "UPDATE pg_trigger SET tgfoid = 'pg_catalog.suppress_redundant_updates_trigger'::regproc"
            " WHERE tgname = 'block_kept_sealed'"
        ),
    ],
    # A role that is called like the word by which the owner is written.
    "relation block is changed": [
        'CREATE ROLE "OWNER"; ALTER TABLE block OWNER TO "OWNER"',
        'CREATE ROLE "OWNER options"; ALTER TABLE block OWNER TO "OWNER options"',
    ],
    "grant event (relation owner SELECT) was added": ["CREATE ROLE owner; GRANT SELECT ON event TO owner"],
    "role nightly as steward was added": [
        "GRANT dpflow_steward TO nightly",
        "CREATE ROLE middle; GRANT dpflow_steward TO middle; GRANT middle TO nightly",
    ],
    "role auditor as steward was added": ["GRANT dpflow_steward TO auditor"],
    "role maria as steward was added": ["GRANT dpflow_runner TO maria"],
}
LOGINS = ("auditor", "nightly", "maria")
NEVER = "CREATE FUNCTION public.json_never(json, json) RETURNS bool LANGUAGE sql AS 'SELECT false'"
SOUND = (
    "GRANT pg_monitor, pg_read_all_data TO auditor",
    "GRANT dpflow_reader TO nightly",
    "CREATE ROLE team IN ROLE dpflow_steward; GRANT team TO stranger",
    "ALTER ROLE nightly CREATEDB CONNECTION LIMIT 5",
    "ALTER ROLE maria SUPERUSER",
    "CREATE ROLE owner IN ROLE dpflow_steward",
    "GRANT dpflow_steward TO maria WITH ADMIN OPTION",
    "CREATE VIEW public.mine AS SELECT 1 AS one; GRANT SELECT ON public.mine TO PUBLIC",
    "ALTER DEFAULT PRIVILEGES FOR ROLE stranger GRANT ALL ON TABLES TO PUBLIC",
    # Who administers the roles without being a superuser, and is a member of them by that alone in newer versions.
    (
        "ALTER ROLE stranger CREATEROLE; SET LOCAL SESSION AUTHORIZATION stranger; CREATE ROLE tim;"
        " RESET SESSION AUTHORIZATION; GRANT dpflow_runner TO tim"
    ),
)
"""Changes around a ledger that weaken none of its rules."""


@pytest.fixture
def session(guarded: Guarded) -> Iterator[psycopg.Connection]:
    """A connection to a ledger with roles, all of whose changes are undone."""
    with closing(psycopg.connect(guarded.new, options="-c search_path=dpflow")) as connection:
        yield connection
        connection.rollback()


def check(url: str) -> None:
    with open_ledger(url) as ledger:
        verify(ledger, price=lambda mechanism, currency: 1, heads={})


def test_a_new_ledger_is_as_it_should_be_with_and_without_roles(guarded: Guarded) -> None:
    """After a change of tables or rules, write the stored catalogue anew: python -m tests.dpcore.ledger.catalogue."""
    assert guarded.lines == EXPECTED.read_text(encoding="utf-8").splitlines()
    url, plain = guarded.new, guarded.server.new_database(template=guarded.plain)
    check(plain)  # which belongs to nobody's role, though there are roles by now
    check(url)
    for who in LOGINS:
        check(guarded.as_role(url, who))
    for each in (url, plain):  # from now on it has the same rights as the other
        run_script(guarded.server, each)
        check(each)


def test_every_weakened_rule_is_found_by_its_name_whoever_looks(session: psycopg.Connection) -> None:
    sound, useful, missed = _results(session), set(), []
    for named, changes in WEAKENED.items():
        for change in changes:
            session.execute(NEVER)
            session.execute(change)
            useful |= {number for number, lines in enumerate(_results(session)) if lines != sound[number]}
            told = _all_named(session)
            session.execute("SET LOCAL SESSION AUTHORIZATION auditor")
            missed += [] if named in told == _all_named(session) else [(change, told)]
            session.rollback()
    assert missed == []
    assert useful == set(range(len(sound))), "each query finds some of the changes"


def _results(connection: psycopg.Connection) -> list[list[tuple[str, ...]]]:
    return [sorted(connection.execute(query).fetchall()) for query in catalogue._QUERIES]


def test_what_weakens_no_rule_is_no_damage(session: psycopg.Connection) -> None:
    for change in SOUND:
        session.execute(change)
        assert not _all_named(session), change
        session.rollback()


def _all_named(connection: psycopg.Connection) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "_MOST_NAMED", 1000)
        return rules_changed(lambda query: connection.execute(query).fetchall()) or ""


def test_a_comparison_of_names_and_numbers_would_miss_most_of_them(session: psycopg.Connection) -> None:
    names = (
        "SELECT 'function', proname FROM pg_proc WHERE pronamespace = 'dpflow'::regnamespace"
        " UNION ALL SELECT 'trigger', tgname FROM pg_trigger JOIN pg_class AS c ON c.oid = tgrelid AND NOT tgisinternal"
        " WHERE relnamespace = 'dpflow'::regnamespace AND tgenabled IN ('O', 'A')"
        " UNION ALL SELECT contype::text, conname FROM pg_constraint WHERE connamespace = 'dpflow'::regnamespace"
    )
    sound = sorted(session.execute(names).fetchall())
    differs = []
    for change in (change for changes in WEAKENED.values() for change in changes):
        session.execute(NEVER)
        session.execute(change)
        differs.append(sorted(session.execute(names).fetchall()) != sound)
        session.rollback()
    assert sum(differs) < 0.4 * len(differs)


def test_what_was_weakened_is_named_to_whoever_verifies(guarded: Guarded) -> None:
    url = guarded.server.new_database(template=guarded.plain)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE dpflow.event ENABLE REPLICA TRIGGER event_kept")
    with pytest.raises(
        LedgerDamaged, match=r"made with: trigger event\.event_kept is changed; restore it from a backup"
    ):
        check(url)


HOSTILE = {
    "client_encoding": "SQL_ASCII",
    "datestyle": "German, DMY",
    "timezone": "Asia/Kathmandu",
    "intervalstyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "search_path": "public",
    "synchronous_commit": "off",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "row_security": "off",
    "check_function_bodies": "off",
    "xmloption": "document",
    "client_min_messages": "debug5",
    "plan_cache_mode": "force_generic_plan",
    "enable_indexscan": "off",
    "enable_hashjoin": "off",
    "constraint_exclusion": "on",
    "createrole_self_grant": "set, inherit",
}
"""Settings that a database or a role may have, and that change how values and definitions are written or queries are run."""
ODD = r"Zürich's \\data\n"
ENVIRONMENT = {
    "PGDATESTYLE": "German",
    "PGTZ": "Asia/Kathmandu",
    "PGCLIENTENCODING": "SQL_ASCII",
    "PGOPTIONS": "-c bytea_output=escape",
}


def test_a_sound_ledger_is_sound_and_usable_under_any_setting(guarded: Guarded) -> None:
    """All settings at once, for the database and then for the roles; the environment's own come on top."""
    url = guarded.server.new_database(template=guarded.new)
    database = str(conninfo_to_dict(url)["dbname"])
    with guarded.server.admin() as connection:
        known = {name for (name,) in connection.execute("SELECT lower(name) FROM pg_settings")}
        settings = {name: value for name, value in HOSTILE.items() if name in known}
        assert len(settings) >= len(HOSTILE) - 1
        _set(connection, f"DATABASE {database}", settings)
    members = {who: guarded.as_role(url, who) for who in LOGINS}
    with open_ledger(members["maria"]) as ledger:
        opened(ledger, epsilon=1 / 3, description=ODD)
    _use_and_verify(members, run="under the database's")
    with guarded.server.admin() as connection:
        for who in LOGINS:
            _set(connection, f"ROLE {who} IN DATABASE {database}", settings)
    _use_and_verify(members, run="under the roles'")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        _use_and_verify(members, run="under the environment's")
        with open_ledger(guarded.server.new_database(), create=True) as ledger:
            opened(ledger, epsilon=1 / 3, description=ODD)
            verify(ledger, price=lambda mechanism, currency: 1, heads={})


UNPINNED = "SELECT set_config('search_path', 'dpflow', FALSE)"


def test_without_the_pinned_settings_a_sound_ledger_would_not_pass(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, name = guarded.server.new_database(template=guarded.new), "quote_all_identifiers"
    with open_ledger(url) as ledger:
        opened(ledger, epsilon=1 / 3, description=ODD)
    with guarded.server.admin() as connection:
        _set(connection, f"DATABASE {conninfo_to_dict(url)['dbname']}", {name: HOSTILE[name]})
    check(url)
    monkeypatch.setattr("dpcore.ledger.postgres.store._FIX", UNPINNED)
    with pytest.raises((LedgerDamaged, NotImplementedError)):
        _use_and_verify({"nightly": url}, run="unpinned")


def _set(connection: psycopg.Connection, whose: str, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        chosen = value if name in {"datestyle", "createrole_self_grant"} else f"'{value}'"
        connection.execute(f"ALTER {whose} SET {name} = {chosen}")


def _use_and_verify(members: dict[str, str], *, run: str) -> None:
    with open_ledger(members["nightly"]) as ledger:
        _run(ledger, run)
    for url in members.values():
        check(url)


def _run(ledger: Ledger, run: str) -> None:
    ledger.reserve(run, account="clinic", amount=10, claim="c")
    lease = ledger.lease(run)
    ledger.commit(ledger.charge(lease, step="s", amount=1, mechanism=MECHANISM), bytes(range(256)))
    ledger.settle(run, release=None, lease=lease)


def test_a_server_that_turns_triggers_off_is_found_and_nothing_is_written(guarded: Guarded) -> None:
    url = guarded.server.new_database(template=guarded.new)
    as_member = {who: guarded.as_role(url, who) for who in LOGINS}
    with open_ledger(as_member["maria"]) as ledger:
        opened(ledger, epsilon=1 / 3, description=ODD)
    with open_ledger(as_member["nightly"]) as long_open, guarded.server.admin() as connection:
        _run(long_open, "before")
        head = long_open.head()
        try:
            connection.execute("ALTER SYSTEM SET session_replication_role = replica")
            _reload(connection, long_open, until="replica")
            for who in LOGINS:
                with pytest.raises(LedgerDamaged, match="setting session_replication_role was added"):
                    check(as_member[who])
            with open_ledger(as_member["nightly"]) as new:
                for ledger in (long_open, new):
                    with pytest.raises(LedgerError, match=r"does not apply its rules.*administrator to reset it"):
                        _run(ledger, "meanwhile")
                    assert ledger.head() == head
        finally:
            connection.execute("ALTER SYSTEM RESET session_replication_role")
            _reload(connection, long_open, until="origin")
        _run(long_open, "after")
    check(url)


def _reload(connection: psycopg.Connection, ledger: Ledger, *, until: str) -> None:
    """Have the server read its configuration again, and wait until old and new sessions show it."""
    connection.execute("SELECT pg_reload_conf()")
    asked = "SELECT current_setting('session_replication_role')"
    while ledger._store.execute(asked) != [(until,)]:
        pass
    while True:
        with psycopg.connect(connection.info.dsn) as new:
            if new.execute(asked).fetchall() == [(until,)]:
                return
