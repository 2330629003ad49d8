"""How a ledger file of an earlier version becomes one of the next; what was recorded stays, event for event.

A migration is never changed once it is out: it is what stands between an old file and today's tables.
"""

from dpcore.ledger.sqlite.schema import RULES, TABLES

# Blocks, allowances and leases came with version 2. What was there before is an account of one block, and a run that nobody leased.
_TO_VERSION_2 = f"""
DROP TRIGGER event_in_order;
DROP TRIGGER event_kept_as_written;
DROP TRIGGER event_kept;
DROP TRIGGER operation_kept_as_committed;
DROP TRIGGER operation_kept;
DROP INDEX run_by_account;
DROP INDEX operation_once;
DROP INDEX operation_in_order;
ALTER TABLE account RENAME TO account_1;
ALTER TABLE event RENAME TO event_1;
ALTER TABLE run RENAME TO run_1;
ALTER TABLE operation RENAME TO operation_1;
{TABLES}
INSERT INTO account
SELECT name, currency, cap, epsilon, delta, unit, neighbours, '', NULL, 'open', opened_at, NULL, NULL, 0 FROM account_1;
INSERT INTO block
SELECT name, 'all', 'sealed', cap, spent + reserved FROM account_1;
INSERT INTO event
SELECT seq, at, kind, account, run, body, previous, hash FROM event_1 ORDER BY seq;
CREATE INDEX event_1_by_run ON event_1 (run, seq);
INSERT INTO run
SELECT number, id, account, reserved, spent, state, claim, NULL, NULL, data_version, opened_at, release, 0, NULL, 0,
    (SELECT max(seq) FROM event_1 WHERE run = run_1.id AND kind = 'reserved'),
    (SELECT max(seq) FROM event_1 WHERE run = run_1.id)
FROM run_1 ORDER BY number;
INSERT INTO operation
SELECT started, run, step, attempt, state, amount, mechanism, 0, committed, sha256, output FROM operation_1;
DROP TABLE operation_1;
DROP TABLE run_1;
DROP TABLE event_1;
DROP TABLE account_1;
{RULES}
"""

MIGRATIONS = {1: _TO_VERSION_2}
"""The script that leads from each version to the next."""
