"""The rules that the database enforces on every statement: a row changes only as the last event of the chain says.

The protocol is implemented once, in Python. The triggers repeat it, because several programs may have a password for a PostgreSQL
database. A runner's password permits reserving and spending within the caps, in the order of the protocol, and nothing else, whatever
statements are sent with it. The steward, who owns the tables, is bound by the same rules but can drop them; `verify` then reports it.

Every function runs with the rights of the statement's sender and resolves names only in `dpflow`. PostgreSQL caches query plans, so each
query is written for one plan that suits one block or thousands, the first event or the millionth: rows are looked up by key, and the old
and new rows of a change are joined without nested loops.
"""

from typing import Final

from dpcore.ledger.events import DEEPEST, EVENTS, FLOAT, INTEGER, Writer
from dpcore.ledger.rows import EventKind


def _listed(*, by: Writer | None = None, of_run: bool | None = None) -> str:
    """Return the kinds of events with these properties, as a list in SQL."""
    return ", ".join(
        f"'{kind}'"
        for kind, rule in EVENTS.items()
        if (by is None or rule.writer is by) and (of_run is None or rule.of_run is of_run)
    )


# Dollar quotes: a session may change what a backslash means in others.
_FORMS = "\n".join(f"        WHEN '{kind}' THEN $form$^{rule.pattern}\\Z$form$" for kind, rule in EVENTS.items())

_OF_BLOCKS = ", ".join(f"'{kind}'" for kind, rule in EVENTS.items() if "blocks" in rule.body)
_WITHDRAWALS = f"'{EventKind.WITHDRAWN}', '{EventKind.REMOVED}'"

RULES: Final = f"""
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
BEGIN RAISE EXCEPTION 'the ledger: %', TG_ARGV[0]; END $$;

CREATE TRIGGER event_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON event
FOR EACH STATEMENT EXECUTE FUNCTION refuse('events are never changed or deleted');
CREATE TRIGGER account_kept BEFORE DELETE OR TRUNCATE ON account
FOR EACH STATEMENT EXECUTE FUNCTION refuse('accounts are never deleted');
CREATE TRIGGER account_begins_unused BEFORE INSERT ON account FOR EACH ROW
WHEN (NEW.across_used <> 0) EXECUTE FUNCTION refuse('an account begins unused');
CREATE TRIGGER account_only_raised BEFORE UPDATE ON account FOR EACH ROW
WHEN (NEW.cap < OLD.cap OR NEW.across < OLD.across OR (NEW.across IS NULL) <> (OLD.across IS NULL)) EXECUTE FUNCTION refuse('a cap is only raised');
CREATE TRIGGER block_kept BEFORE DELETE OR TRUNCATE ON block
FOR EACH STATEMENT EXECUTE FUNCTION refuse('blocks are never deleted');
CREATE TRIGGER block_kept_sealed BEFORE UPDATE ON block FOR EACH ROW
WHEN (OLD.state = 'sealed' AND NEW.state <> 'sealed') EXECUTE FUNCTION refuse('a sealed block stays sealed');
CREATE TRIGGER block_begins_unused BEFORE INSERT ON block FOR EACH ROW
WHEN (NEW.used <> 0) EXECUTE FUNCTION refuse('a block begins unused');
CREATE TRIGGER allowance_kept BEFORE DELETE OR TRUNCATE ON allowance
FOR EACH STATEMENT EXECUTE FUNCTION refuse('allowances are never deleted');
CREATE TRIGGER run_kept BEFORE DELETE OR TRUNCATE ON run
FOR EACH STATEMENT EXECUTE FUNCTION refuse('runs are never deleted');
CREATE TRIGGER run_stays_spent BEFORE UPDATE ON run FOR EACH ROW
WHEN (NEW.spent < OLD.spent OR OLD.state = 'settled') EXECUTE FUNCTION refuse('what a run has spent stays spent');
CREATE TRIGGER share_kept BEFORE DELETE OR TRUNCATE ON share
FOR EACH STATEMENT EXECUTE FUNCTION refuse('shares are never deleted');
CREATE TRIGGER operation_kept BEFORE DELETE OR TRUNCATE ON operation
FOR EACH STATEMENT EXECUTE FUNCTION refuse('operations are never deleted');
CREATE TRIGGER operation_kept_as_committed BEFORE UPDATE ON operation FOR EACH ROW
WHEN (OLD.state = 'committed') EXECUTE FUNCTION refuse('committed operations are never changed');

CREATE FUNCTION keep_cap() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    terms RECORD;
BEGIN
    SELECT cap, blocks_by INTO terms FROM account WHERE name = NEW.account;
    IF NEW.cap IS DISTINCT FROM terms.cap THEN RAISE EXCEPTION 'the ledger: a block has the cap of its account'; END IF;
    IF NEW.name <> 'all' AND terms.blocks_by IS NULL THEN
        RAISE EXCEPTION 'the ledger: an account that is not kept by block has one block';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER block_has_the_cap BEFORE INSERT OR UPDATE OF cap ON block FOR EACH ROW EXECUTE FUNCTION keep_cap();

CREATE FUNCTION blocks_in(request JSON) RETURNS TEXT[] LANGUAGE sql SET search_path = dpflow, pg_temp AS $$
SELECT coalesce(nullif(ARRAY(SELECT json_array_elements_text(
    CASE json_typeof(request -> 'blocks') WHEN 'array' THEN request -> 'blocks' END)), '{{}}'), '{{all}}') $$;

CREATE FUNCTION is_sorted(names TEXT[]) RETURNS BOOLEAN LANGUAGE sql SET search_path = dpflow, pg_temp AS $$
SELECT names = ARRAY(SELECT DISTINCT name COLLATE "C" FROM unnest(names) AS name ORDER BY 1) COLLATE "C" $$;

CREATE FUNCTION digits_of(number TEXT) RETURNS TEXT LANGUAGE sql SET search_path = dpflow, pg_temp AS $$
SELECT btrim(translate(split_part(number, 'e', 1), '-.', ''), '0') $$;

-- Whether parameters are written as Python's encoder does it, apart from spaces and escapes: keys in order, and the shortest digits of each number.
CREATE FUNCTION is_canonical(parameters JSON) RETURNS BOOLEAN LANGUAGE sql
SET search_path = dpflow, pg_temp SET extra_float_digits = 1 AS $$
WITH RECURSIVE part (content, depth) AS (
    SELECT parameters, 1
    UNION ALL
    SELECT inner_part.value, depth + 1 FROM part CROSS JOIN LATERAL (
        SELECT value FROM json_each(CASE json_typeof(content) WHEN 'object' THEN content END)
        UNION ALL SELECT value FROM json_array_elements(CASE json_typeof(content) WHEN 'array' THEN content END)) AS inner_part
    WHERE depth <= {DEEPEST})
SELECT bool_and(depth <= {DEEPEST} AND CASE json_typeof(content)
    WHEN 'object' THEN is_sorted(ARRAY(SELECT json_object_keys(content)))
    WHEN 'number' THEN CASE
        WHEN CAST(content AS text) ~ $form$^(?:{INTEGER})\\Z$form$ THEN TRUE
        WHEN CAST(content AS text) ~ $form$^(?:{FLOAT})\\Z$form$ THEN (
            -- Where fewer digits lie exactly between two large floats, such as 1e+23, Python writes these, and PostgreSQL writes more.
            SELECT length(digits) < length(shortest) OR digits = shortest AND NOT (
                number ~ 'e[+][1-4][0-9]$' AND value = CAST(concat(
                    round(CAST(split_part(number, 'e', 1) AS numeric), length(digits) - 2), 'e', split_part(number, 'e', 2)) AS double precision))
            FROM CAST(content AS text) AS number, CAST(number AS double precision) AS value,
                digits_of(number) AS digits, digits_of(CAST(value AS text)) AS shortest)
        ELSE FALSE END
    ELSE TRUE END) FROM part $$;

-- `dpcore/ledger/events.py` states who may record each kind of event, and its form. A role that may open accounts is a steward.
-- The hash is that of `dpcore/ledger/chain.py`, over text in which everything but ASCII is escaped.
CREATE FUNCTION extend_chain() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    form TEXT := CASE NEW.kind
{_FORMS}
        END;
    content TEXT := concat('[', NEW.seq, ',', to_json(NEW.at), ',', to_json(NEW.kind), ',', to_json(NEW.account), ',',
        coalesce(CAST(to_json(NEW.run) AS text), 'null'), ',', to_json(NEW.body), ']');
BEGIN
    IF (NEW.kind IN ({_listed(by=Writer.RUNNER)})) IS NOT TRUE AND NOT has_table_privilege('dpflow.account', 'INSERT') THEN
        RAISE insufficient_privilege USING MESSAGE = 'the ledger: this event is for a steward to record';
    END IF;
    IF NEW.previous IS DISTINCT FROM coalesce(
        (SELECT hash FROM event WHERE seq = NEW.seq - 1), CASE NEW.seq WHEN 1 THEN repeat('0', 64) END)
    THEN
        RAISE EXCEPTION 'the ledger: an event follows the head of the chain';
    END IF;
    IF (NEW.body ~ form AND CAST(NEW.body AS jsonb) IS NOT NULL
        AND (NEW.kind NOT IN ({_OF_BLOCKS}) OR is_sorted(blocks_in(CAST(NEW.body AS json))))
        AND (NEW.kind <> 'charged' OR is_canonical(CAST(NEW.body AS json) -> 'mechanism'))
        AND (NEW.run IS NOT NULL) = (NEW.kind IN ({_listed(of_run=True)})) AND NEW.account <> '' AND NEW.run IS DISTINCT FROM ''
        AND NEW.at ~ '^[12][0-9]{{3}}-' AND NEW.at = to_char(CAST(NEW.at AS timestamptz) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI":00+00:00"')) IS NOT TRUE
    THEN
        RAISE EXCEPTION 'the ledger: an event has the form of its kind';
    END IF;
    IF content !~ '^[ -~]*$' THEN
        content := (
            SELECT string_agg(CASE WHEN code < 127 THEN letter
                WHEN code < 65536 THEN concat(chr(92), 'u', lpad(to_hex(code), 4, '0'))
                ELSE concat(chr(92), 'u', to_hex(55232 + code / 1024), chr(92), 'u', to_hex(56320 + code % 1024)) END, '' ORDER BY place)
            FROM regexp_split_to_table(content, '') WITH ORDINALITY AS split (letter, place), ascii(letter) AS code);
    END IF;
    IF NEW.hash <> encode(sha256(decode(NEW.previous, 'hex') || convert_to(content, 'UTF8')), 'hex') THEN
        RAISE EXCEPTION 'the ledger: an event has the hash of its content';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER event_in_order BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION extend_chain();

-- At the end of a transaction all that an event changes has changed by it: blocks; the run; the operation and the analyst's share; and all
-- that paid for the run, or that gets back what the run has left. Whether a steward's other events had their effect, only `verify` sees.
-- A release that is withdrawn or published again belongs to a settled run, which does not change. Retention removes only what has newer releases.
CREATE FUNCTION have_effect() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    told JSON := CAST(NEW.body AS json);
    changed run%ROWTYPE;
    had BOOLEAN;
BEGIN
    SELECT * INTO changed FROM run WHERE id = coalesce(NEW.run, told ->> 'run') AND account = NEW.account;
    IF NEW.kind IN ('blocks-opened', 'blocks-sealed') THEN
        had := EXISTS (SELECT 1 FROM account WHERE name = NEW.account AND state = 'open')
            AND have_moved(NEW.account, blocks_in(told), NEW.seq);
    ELSIF NEW.kind IN ({_WITHDRAWALS}, 'republished') THEN
        had := changed.state = 'settled' AND changed.release = told ->> 'release' AND (NEW.kind <> 'removed' OR (
            SELECT count(*) FROM run WHERE account = NEW.account AND release IS NOT NULL AND first > changed.first
            AND id NOT IN (SELECT event.run FROM event WHERE kind IN ({_WITHDRAWALS}))) >= CAST(told ->> 'keep' AS numeric));
    ELSE
        had := changed.last = NEW.seq AND CASE NEW.kind
            WHEN 'charged' THEN EXISTS (
                SELECT 1 FROM operation WHERE charged = NEW.seq AND (analyst IS NULL OR EXISTS (
                    SELECT 1 FROM share WHERE run = NEW.run AND share.analyst = operation.analyst AND last = NEW.seq)))
            WHEN 'committed' THEN EXISTS (
                SELECT 1 FROM operation WHERE run = NEW.run AND step = told ->> 'step'
                AND attempt = CAST(told ->> 'attempt' AS bigint) AND committed = NEW.seq)
            ELSE changed.state = 'open' OR changed.spent = changed.reserved OR (
                SELECT have_moved(NEW.account, blocks_in(request), NEW.seq)
                    AND NOT EXISTS (SELECT 1 FROM account WHERE name = NEW.account AND across IS NOT NULL AND across_moved <> NEW.seq)
                    AND NOT EXISTS (
                        SELECT 1 FROM allowance WHERE account = NEW.account AND name = request ->> kind AND moved <> NEW.seq)
                FROM event, CAST(body AS json) AS request WHERE seq = changed.first) END;
    END IF;
    IF had IS NOT TRUE THEN RAISE EXCEPTION 'the ledger: an event has its effect'; END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER event_has_effect AFTER INSERT ON event DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (NEW.run IS NOT NULL OR NEW.kind IN ({_listed(by=Writer.RUNNER)})) EXECUTE FUNCTION have_effect();

CREATE FUNCTION have_moved(payer TEXT, names TEXT[], by_event BIGINT) RETURNS BOOLEAN
LANGUAGE sql SET search_path = dpflow, pg_temp AS $$
SELECT cardinality(names) = count(*) FROM block WHERE account = payer AND name = ANY (names) AND moved = by_event $$;

CREATE FUNCTION follow_as_share() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    told RECORD;
BEGIN
    SELECT seq, kind, run, CAST(body AS json) AS body INTO told FROM event ORDER BY seq DESC LIMIT 1;
    IF (
        NEW.last = told.seq AND NEW.analyst = told.body ->> 'analyst' AND CASE told.kind
            WHEN 'shared' THEN NEW.run = told.body ->> 'run' AND NEW.spent = coalesce(OLD.spent, 0)
                AND NEW.cap = CAST(told.body ->> 'cap' AS numeric) AND NEW.token IS NOT DISTINCT FROM told.body ->> 'token'
            WHEN 'charged' THEN NEW.run = told.run AND NEW.token IS NOT NULL AND OLD.last < told.seq
                AND NEW.spent = OLD.spent + CAST(told.body ->> 'amount' AS numeric)
                AND (NEW.run, NEW.analyst, NEW.cap, NEW.token) = (OLD.run, OLD.analyst, OLD.cap, OLD.token) END
    ) IS NOT TRUE THEN RAISE EXCEPTION 'the ledger: a share changes only by the event that tells of it'; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER share_follows_chain AFTER INSERT OR UPDATE ON share FOR EACH ROW EXECUTE FUNCTION follow_as_share();

-- `due` is the row that the event leads to.
CREATE FUNCTION follow_as_run() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    told RECORD;
    due run%ROWTYPE := OLD;
    right_so BOOLEAN;
BEGIN
    SELECT seq, at, kind, account, run, body AS text, CAST(body AS json) AS body INTO told
    FROM event ORDER BY seq DESC LIMIT 1;
    IF told.kind = 'reserved' THEN
        due.number := coalesce(OLD.number, told.seq);
        due.id := told.run;
        due.account := told.account;
        due.reserved := told.body ->> 'amount';
        due.spent := 0;
        due.state := 'open';
        due.claim := told.body ->> 'claim';
        due.analyst := told.body ->> 'analyst';
        due.purpose := told.body ->> 'purpose';
        due.data_version := NULL;
        due.opened_at := coalesce(OLD.opened_at, told.at);
        due.fence := coalesce(OLD.fence, 0);
        due.holder := NULL;
        due.lease_seconds := 0;
        due.first := told.seq;
        right_so := (TG_OP = 'INSERT' OR OLD.state = 'refunded' AND (SELECT body FROM event WHERE seq = OLD.first) = told.text)
            -- Every block has paid, and so have the cap across blocks and one allowance of each kind that the account has.
            AND EXISTS (
                SELECT 1 FROM account WHERE name = told.account AND state = 'open'
                AND (across IS NULL OR across_moved = told.seq)
                AND (blocks_by IS NULL) = (json_typeof(told.body -> 'blocks') = 'null'))
            AND have_moved(told.account, blocks_in(told.body), told.seq)
            AND NOT EXISTS (
                SELECT 1 FROM allowance WHERE account = told.account GROUP BY kind
                HAVING count(*) FILTER (WHERE moved = told.seq) <> 1);
    ELSE
        CASE told.kind
            WHEN 'leased' THEN
                due.fence := due.fence + 1;
                due.holder := told.body ->> 'holder';
                due.lease_seconds := told.body ->> 'seconds';
                right_so := due.fence = CAST(told.body ->> 'fence' AS numeric);
            WHEN 'data-version' THEN
                due.data_version := told.body ->> 'version';
                right_so := OLD.data_version IS NULL;
            WHEN 'charged' THEN
                due.spent := due.spent + CAST(told.body ->> 'amount' AS numeric);
                right_so := due.fence = CAST(told.body ->> 'fence' AS numeric);
            WHEN 'committed' THEN
                right_so := TRUE;
            WHEN 'settled' THEN
                due.state := 'settled';
                due.release := told.body ->> 'release';
                right_so := due.spent = CAST(told.body ->> 'spent' AS numeric)
                    AND due.reserved - due.spent = CAST(told.body ->> 'returned' AS numeric)
                    AND (told.body ->> 'manifest' IS NULL) = (told.body ->> 'manifest_sha256' IS NULL);
            WHEN 'refunded' THEN
                due.state := 'refunded';
                right_so := due.reserved - due.spent = CAST(told.body ->> 'returned' AS numeric);
            ELSE
                right_so := FALSE;
        END CASE;
        right_so := right_so AND TG_OP = 'UPDATE' AND OLD.state = 'open' AND OLD.last < told.seq
            AND OLD.id = told.run AND OLD.account = told.account;
    END IF;
    due.last := told.seq;
    IF (right_so AND NEW IS NOT DISTINCT FROM due) IS NOT TRUE THEN
        RAISE EXCEPTION 'the ledger: a run changes only by the event that tells of it';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER run_follows_chain AFTER INSERT OR UPDATE ON run FOR EACH ROW EXECUTE FUNCTION follow_as_run();

CREATE FUNCTION follow_as_operation() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    told RECORD;
    tries RECORD;
BEGIN
    SELECT seq, kind, run, CAST(body AS json) AS body INTO told FROM event ORDER BY seq DESC LIMIT 1;
    SELECT count(*) AS charged, count(committed) AS committed INTO tries FROM operation WHERE run = NEW.run AND step = NEW.step;
    IF (
        told.kind = NEW.state AND told.seq = coalesce(NEW.committed, NEW.charged) AND told.run = NEW.run
        AND told.body ->> 'step' = NEW.step AND CAST(told.body ->> 'attempt' AS numeric) = NEW.attempt
        AND NEW.attempt = tries.charged AND NEW.fence = (SELECT fence FROM run WHERE id = NEW.run)
        AND CASE NEW.state
            WHEN 'charged' THEN tries.committed = 0 AND CAST(told.body ->> 'fence' AS numeric) = NEW.fence
                AND CAST(told.body ->> 'amount' AS numeric) = NEW.amount
                AND CAST(told.body -> 'mechanism' AS text) = NEW.mechanism
                AND told.body ->> 'analyst' IS NOT DISTINCT FROM NEW.analyst
            ELSE told.body ->> 'sha256' = NEW.sha256 AND encode(sha256(NEW.output), 'hex') = NEW.sha256
                AND OLD.amount = NEW.amount AND OLD.mechanism = NEW.mechanism
                AND OLD.analyst IS NOT DISTINCT FROM NEW.analyst END
    ) IS NOT TRUE THEN RAISE EXCEPTION 'the ledger: an operation changes only by the event that tells of it'; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER operation_follows_chain AFTER INSERT OR UPDATE ON operation
FOR EACH ROW EXECUTE FUNCTION follow_as_operation();

-- What the last event moves, for whom: the amount of a reservation, what a run that it has just ended had left, or nothing in its blocks.
CREATE FUNCTION last_move(OUT seq BIGINT, OUT kind TEXT, OUT account TEXT, OUT amount NUMERIC, OUT request JSON)
LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
#variable_conflict use_column
DECLARE
    told RECORD;
BEGIN
    SELECT event.* INTO told FROM event ORDER BY event.seq DESC LIMIT 1;
    seq := told.seq;
    kind := told.kind;
    account := told.account;
    IF told.kind IN ('blocks-opened', 'blocks-sealed') THEN
        request := CAST(told.body AS json);
        amount := 0;
    ELSIF told.kind = 'reserved' THEN
        request := CAST(told.body AS json);
        amount := CAST(request ->> 'amount' AS numeric);
    ELSE
        SELECT run.spent - run.reserved, (SELECT CAST(event.body AS json) FROM event WHERE event.seq = run.first)
        INTO amount, request
        FROM run WHERE run.id = told.run AND run.last = told.seq AND run.state <> 'open';
    END IF;
END $$;

-- Beside what is used stands the event that moved, opened or sealed it last: none does so twice.
CREATE FUNCTION note_move() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
BEGIN
    NEW.moved := (SELECT max(seq) FROM event);
    RETURN NEW;
END $$;
CREATE TRIGGER block_notes_move BEFORE UPDATE OF used, state ON block FOR EACH ROW
WHEN (NEW.used <> OLD.used OR NEW.state <> OLD.state) EXECUTE FUNCTION note_move();

CREATE FUNCTION follow_as_new_block() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    move RECORD := last_move();
BEGIN
    IF (NEW.account = move.account AND CASE move.kind
        WHEN 'account-opened' THEN NEW.state = 'sealed' AND NEW.name = 'all'
        WHEN 'blocks-opened' THEN NEW.state = 'open' AND CAST(move.request AS jsonb) -> 'blocks' ? NEW.name END) IS NOT TRUE
    THEN RAISE EXCEPTION 'the ledger: a block is opened only by the event that tells of it'; END IF;
    NEW.moved := move.seq;
    RETURN NEW;
END $$;
CREATE TRIGGER block_is_told BEFORE INSERT ON block FOR EACH ROW EXECUTE FUNCTION follow_as_new_block();

CREATE FUNCTION follow_as_block() RETURNS trigger LANGUAGE plpgsql
SET search_path = dpflow, pg_temp SET enable_nestloop = off AS $$
DECLARE
    move RECORD := last_move();
    weight INTEGER := (
        SELECT CASE WHEN blocks_by IS NOT NULL AND neighbours = 'replace-one' THEN 2 ELSE 1 END
        FROM account WHERE name = move.account);
    named TEXT[] := blocks_in(move.request);
BEGIN
    IF EXISTS (
        SELECT 1 FROM before JOIN after USING (account, name) LEFT JOIN unnest(named) AS granted (name) USING (name)
        WHERE (after.used <> before.used OR after.state <> before.state) AND (
            account = move.account AND granted.name IS NOT NULL
            AND after.state = CASE move.kind WHEN 'blocks-sealed' THEN 'sealed' ELSE before.state END
            AND before.moved < move.seq AND after.used = before.used + weight * move.amount) IS NOT TRUE
    ) THEN RAISE EXCEPTION 'the ledger: a block changes only by the event that tells of it'; END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER block_follows_chain AFTER UPDATE ON block
REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION follow_as_block();

CREATE FUNCTION follow_as_allowance() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    move RECORD := last_move();
BEGIN
    IF (NEW.account = move.account AND NEW.name = move.request ->> NEW.kind
        AND OLD.moved < move.seq AND NEW.used = OLD.used + move.amount) IS NOT TRUE
    THEN RAISE EXCEPTION 'the ledger: what is used changes only by the event that tells of it'; END IF;
    NEW.moved := move.seq;
    RETURN NEW;
END $$;
CREATE TRIGGER allowance_follows_chain BEFORE UPDATE OF used ON allowance FOR EACH ROW
WHEN (NEW.used <> OLD.used) EXECUTE FUNCTION follow_as_allowance();

-- A run pays its amount once, whatever its number of blocks.
CREATE FUNCTION follow_as_account() RETURNS trigger LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
DECLARE
    move RECORD := last_move();
BEGIN
    IF (NEW.name = move.account AND OLD.across_moved < move.seq AND NEW.across_used = OLD.across_used + move.amount) IS NOT TRUE
    THEN RAISE EXCEPTION 'the ledger: what is used changes only by the event that tells of it'; END IF;
    NEW.across_moved := move.seq;
    RETURN NEW;
END $$;
CREATE TRIGGER account_follows_chain BEFORE UPDATE OF across_used ON account FOR EACH ROW
WHEN (NEW.across_used <> OLD.across_used) EXECUTE FUNCTION follow_as_account();
"""
"""The triggers of a new ledger, and their functions."""

GRANTS: Final = """
CREATE OR REPLACE FUNCTION grant_roles() RETURNS void LANGUAGE plpgsql SET search_path = dpflow, pg_temp AS $$
BEGIN
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dpflow FROM PUBLIC;
    IF to_regrole('dpflow_reader') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA dpflow TO dpflow_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA dpflow TO dpflow_reader;
    END IF;
    IF to_regrole('dpflow_runner') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA dpflow TO dpflow_runner;
        GRANT SELECT ON ALL TABLES IN SCHEMA dpflow TO dpflow_runner;
        GRANT EXECUTE ON FUNCTION blocks_in, last_move, have_moved, is_sorted, is_canonical, digits_of TO dpflow_runner;
        GRANT INSERT ON event, run TO dpflow_runner;
        GRANT INSERT (account, name, state, cap, used) ON block TO dpflow_runner;
        GRANT INSERT (run, step, attempt, state, amount, mechanism, fence, analyst, charged) ON operation TO dpflow_runner;
        GRANT UPDATE ON writer TO dpflow_runner;
        GRANT UPDATE (state, used) ON block TO dpflow_runner;
        GRANT UPDATE (used) ON allowance TO dpflow_runner;
        GRANT UPDATE (across_used) ON account TO dpflow_runner;
        GRANT UPDATE (spent, last) ON share TO dpflow_runner;
        GRANT UPDATE (spent, state, data_version, release, fence, holder, lease_seconds, first, last) ON run
            TO dpflow_runner;
        GRANT UPDATE (state, committed, sha256, output) ON operation TO dpflow_runner;
    END IF;
END $$;
SELECT grant_roles();
"""
"""Grants the privileges of each role that exists now. `deployments/postgres-roles.sql` calls the function for roles created later."""
