-- Three logins for a ledger, each with its own password; nobody else can connect to its database. compose.yaml runs this once, after
-- postgres-roles.sql, when the database is new. The passwords are read from files and appear in no stored statement.

\set steward `cat /run/secrets/STEWARD_PASSWORD`
\set runner `cat /run/secrets/RUNNER_PASSWORD`
\set auditor `cat /run/secrets/AUDITOR_PASSWORD`

BEGIN;
CREATE ROLE steward LOGIN PASSWORD :'steward' IN ROLE dpflow_steward;
CREATE ROLE runner LOGIN PASSWORD :'runner' IN ROLE dpflow_runner;
CREATE ROLE auditor LOGIN PASSWORD :'auditor' IN ROLE dpflow_reader;
REVOKE ALL ON DATABASE ledger FROM PUBLIC;
GRANT CONNECT ON DATABASE ledger TO dpflow_steward, dpflow_runner, dpflow_reader;
COMMIT;
