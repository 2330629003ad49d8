-- Three roles for a dpflow ledger in PostgreSQL, and its schema. The database administrator runs this once:
--
--     psql -d DATABASE -f deployments/postgres-roles.sql
--
-- It runs in one transaction, and running it again changes nothing. It also works on a ledger that is older than the roles.
-- Then give each person and each worker a login role:
--
--     CREATE ROLE maria LOGIN PASSWORD '...' IN ROLE dpflow_steward;     opens accounts, raises caps, allows, closes
--     CREATE ROLE nightly LOGIN PASSWORD '...' IN ROLE dpflow_runner;    reserves and spends within the caps
--     CREATE ROLE auditor LOGIN PASSWORD '...' IN ROLE dpflow_reader;    reads everything, changes nothing
--
-- A steward's first `dpflow ledger open` creates the tables. Users in none of the roles have no rights to them. In a database that
-- contains nothing else, you may want to keep other users out altogether:
--
--     REVOKE ALL ON DATABASE ledger FROM PUBLIC;
--     GRANT CONNECT ON DATABASE ledger TO dpflow_steward, dpflow_runner, dpflow_reader;

BEGIN;

DO $$
DECLARE
    belongs BOOLEAN;
    role TEXT;
    change TEXT;
BEGIN
    FOREACH role IN ARRAY ARRAY['dpflow_steward', 'dpflow_runner', 'dpflow_reader'] LOOP
        IF to_regrole(role) IS NULL THEN EXECUTE format('CREATE ROLE %I NOLOGIN', role); END IF;
    END LOOP;

    -- Only a member of a role, or a superuser, can transfer ownership to it.
    belongs := pg_has_role('dpflow_steward', 'USAGE');
    IF NOT belongs THEN GRANT dpflow_steward TO CURRENT_USER; END IF;

    IF to_regnamespace('dpflow') IS NULL THEN CREATE SCHEMA dpflow; END IF;
    FOR change IN
        SELECT 'ALTER SCHEMA dpflow'
        UNION ALL
        SELECT format('ALTER TABLE %s', oid::regclass) FROM pg_class
        WHERE relnamespace = 'dpflow'::regnamespace AND relkind = 'r'
        UNION ALL
        SELECT format('ALTER ROUTINE %s', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'dpflow'::regnamespace
    LOOP
        EXECUTE change || ' OWNER TO dpflow_steward';
    END LOOP;

    -- From here on as the steward, because objects that were in the schema before may belong to anybody.
    SET LOCAL ROLE dpflow_steward;
    REVOKE ALL ON SCHEMA dpflow FROM PUBLIC;
    GRANT USAGE ON SCHEMA dpflow TO dpflow_runner, dpflow_reader;
    IF to_regprocedure('dpflow.grant_roles()') IS NOT NULL THEN PERFORM dpflow.grant_roles(); END IF;
    RESET ROLE;

    IF NOT belongs THEN REVOKE dpflow_steward FROM CURRENT_USER; END IF;
END $$;

COMMIT;
