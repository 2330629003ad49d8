"""Compare the ledger's rules, as PostgreSQL's catalogue defines them, with those of a new ledger.

Comparing names and counts is not enough: a check can be weakened under the same name, a trigger can be disabled, a function can run with
another search path or other rights, and a grant or a child table can bypass all of them. So every object that a schema can contain is
listed with its complete definition, one line per object. `catalogue.txt` holds the lines of a new ledger. Any role may read the
catalogue, and the comparison creates nothing, so a reader verifies as much as the owner.

The owner of the schema is written as `owner`, and no other role is. The owner's privileges are left out: they differ between versions of
PostgreSQL, and an owner can grant them to itself again. Lines of `catalogue.txt` that begin with `roles ` apply if the ledger belongs to
`dpflow_steward`.

The comparison also covers ways to bypass the rules without changing them: the session's settings, the right to change settings, views and
functions elsewhere that lend the steward's rights or other powers, statistics elsewhere that call functions, subscriptions, casts and
objects added to PostgreSQL itself and the right to add them, closed functions and untrusted languages that were opened, and the powers that the members of
`dpflow_runner` and `dpflow_reader` have through their attributes, other roles and objects they own. A new ledger has no line of these kinds.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Execute = Callable[[str], Sequence[Any]]

EXPECTED = Path(__file__).with_name("catalogue.txt")
WITH_ROLES = "roles "
_MOST_NAMED = 3

# Each query returns the kind of an object, its name, and the definition to compare.
# A role name that could be mistaken for `PUBLIC`, `owner` or more than one word is written as a literal.
_WHOSE = (
    "CASE WHEN {role} = 0 THEN 'PUBLIC' WHEN {role} = home.nspowner THEN 'owner'"
    " WHEN {name} ~ '^[a-z0-9_]+$' AND {name} <> 'owner' THEN {name} ELSE quote_literal({name}) END"
)
_HOME = "pg_namespace AS home"
_HERE = "home.nspname = 'dpflow'"
_TABLES = f"{_HOME} JOIN pg_class AS c ON {_HERE} AND c.relnamespace = home.oid"
_WITH_ROLES_HERE = f"{_HERE} AND pg_get_userbyid(home.nspowner) = 'dpflow_steward'"

# `holder` contains every role that can act as runner or reader, and `reach` every role that each holder can act as, itself included.
# Since PostgreSQL 16, a role that is not a superuser gets, for each role it creates, a membership that only permits administering it. With
# it, a role can make itself a full member, so the membership counts for `reach`. It does not make the administrator a holder.
_REACH = (
    "WITH RECURSIVE link AS (SELECT m.member, m.roleid,"
    " coalesce(CAST(to_jsonb(m) ->> 'inherit_option' AS boolean), TRUE)"
    " OR coalesce(CAST(to_jsonb(m) ->> 'set_option' AS boolean), TRUE) AS acts FROM pg_auth_members AS m),"
    " holder (role) AS (SELECT oid FROM pg_roles WHERE rolname IN ('dpflow_runner', 'dpflow_reader')"
    " UNION SELECT link.member FROM holder JOIN link ON link.roleid = holder.role AND link.acts),"
    " reach (role, other) AS (SELECT role, role FROM holder"
    " UNION SELECT reach.role, link.roleid FROM reach JOIN link ON link.member = reach.other)"
)
# The predefined roles that only read. Any other, including those of later PostgreSQL versions, is more than a runner or reader needs.
_ONLY_READ = "'pg_read_all_data', 'pg_monitor', 'pg_read_all_settings', 'pg_read_all_stats', 'pg_stat_scan_tables', 'pg_database_owner'"
_BYPASSES = (
    "(o.rolsuper OR o.rolcreaterole OR o.rolreplication OR o.rolbypassrls"
    f" OR left(o.rolname, 3) = 'pg_' AND o.rolname NOT IN ({_ONLY_READ}))"
)
# `powerful` contains every role that can bypass the rules, and every role that can act as one of these.
_POWERFUL = (
    f"powerful (role) AS (SELECT o.oid FROM pg_roles AS o WHERE {_BYPASSES}"
    " UNION SELECT link.member FROM powerful JOIN link ON link.roleid = powerful.role)"
)

# Whoever owns an extension may make an object of their own a member of it. The members that an extension created itself belong to the
# first superuser, whose id is 10: the script of a trusted extension runs as this role, whoever creates it.
_FIRST_SUPERUSER = "10"

# The functions that an aggregate calls, without a right of the caller to them.
_PARTS_OF_AGGREGATE = "(g.aggtransfn, g.aggfinalfn, g.aggcombinefn, g.aggserialfn, g.aggdeserialfn, g.aggmtransfn, g.aggminvtransfn, g.aggmfinalfn)"


def _of_extension(catalogue: str, object_id: str, *, owner: str) -> str:
    """Return the condition that an object came with an extension."""
    return (
        f"{owner} = {_FIRST_SUPERUSER} AND EXISTS (SELECT FROM pg_depend AS d"
        f" WHERE d.classid = CAST('pg_catalog.{catalogue}' AS regclass) AND d.objid = {object_id} AND d.deptype = 'e')"
    )


def _whose(role: str) -> str:
    return _WHOSE.format(role=role, name=f"CAST(pg_get_userbyid({role}) AS text)")


def _grants(kind: str, name: str, held: str, tables: str) -> str:
    """Return a query of the privileges in an object's access control list, except its owner's."""
    return (
        f"SELECT 'grant', {name}, concat_ws(' ', '{kind}', {_whose('given.grantee')}, given.privilege_type,"
        f" CASE WHEN given.is_grantable THEN 'with grant option' END)"
        f" FROM {tables} CROSS JOIN LATERAL aclexplode({held}) AS given WHERE {{owner}} <> given.grantee"
    )


_QUERIES = (
    # Every object in the schema except functions, which are listed below.
    (
        "SELECT 'object', o.type || ' ' || o.identity, ''"
        f" FROM {_HOME} JOIN pg_depend AS d ON {_HERE} AND d.refobjid = home.oid"
        " AND d.refclassid = CAST('pg_catalog.pg_namespace' AS regclass)"
        " CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, 0) AS o"
        " WHERE d.classid NOT IN (CAST('pg_catalog.pg_proc' AS regclass), CAST('pg_catalog.pg_default_acl' AS regclass))"
    ),
    # Tables and indexes, and anything else of this kind, such as a sequence, which a ledger has none of.
    (
        f"SELECT 'relation', c.relname, concat_ws(' ', c.relkind, c.relpersistence, {_whose('c.relowner')},"
        " 'options', c.reloptions, 'row security', c.relrowsecurity, c.relforcerowsecurity, 'partition', c.relispartition,"
        " 'access', a.amname, 'of type', c.reloftype,"
        # The server looks for triggers, indexes and checks only where these flags are set. A flag that outlives its last object is harmless.
        " 'applied', c.relhastriggers OR NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid),"
        " c.relhasindex OR NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid),"
        " c.relchecks = (SELECT count(*) FROM pg_constraint WHERE conrelid = c.oid AND contype = 'c'))"
        f" FROM {_TABLES} LEFT JOIN pg_am AS a ON a.oid = c.relam"
    ),
    (
        "SELECT 'column', c.relname || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),"
        " CASE WHEN a.attnotnull THEN 'not null' END, 'identity', nullif(CAST(a.attidentity AS text), ''),"
        " 'generated', nullif(CAST(a.attgenerated AS text), ''), 'default', pg_get_expr(d.adbin, d.adrelid),"
        " 'collation', n.nspname || '.' || o.collname)"
        f" FROM {_TABLES} AND c.relkind NOT IN ('i', 'I') JOIN pg_attribute AS a"
        " ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum"
        " LEFT JOIN pg_collation AS o ON o.oid = a.attcollation LEFT JOIN pg_namespace AS n ON n.oid = o.collnamespace"
    ),
    # NOT NULL is compared with the column. Newer versions also have a constraint for it, which must be valid for all rows.
    (
        "SELECT 'constraint', c.relname || '.' || k.conname, concat_ws(' ', k.contype, pg_get_constraintdef(k.oid),"
        " 'deferrable', k.condeferrable, k.condeferred, 'valid', k.convalidated, 'local', k.conislocal, k.coninhcount)"
        f" FROM {_TABLES} JOIN pg_constraint AS k ON k.conrelid = c.oid AND NOT (k.contype = 'n' AND k.convalidated)"
    ),
    (
        "SELECT 'index', c.relname, concat_ws(' ', pg_get_indexdef(i.indexrelid), 'unique', i.indisunique, i.indimmediate,"
        " 'valid', i.indisvalid, i.indisready, i.indislive)"
        f" FROM {_TABLES} JOIN pg_index AS i ON i.indexrelid = c.oid"
    ),
    # The names of foreign key triggers contain object ids, so these triggers are identified by their constraint and function instead.
    (
        "SELECT 'trigger', c.relname || '.' || CASE WHEN t.tgisinternal THEN concat_ws(' ', k.conname, p.proname)"
        " ELSE t.tgname END, concat_ws(' ', 'enabled', t.tgenabled, 'calls', n.nspname || '.' || p.proname,"
        " CASE WHEN NOT t.tgisinternal THEN pg_get_triggerdef(t.oid) END)"
        f" FROM {_TABLES} JOIN pg_trigger AS t ON t.tgrelid = c.oid"
        " JOIN pg_proc AS p ON p.oid = t.tgfoid JOIN pg_namespace AS n ON n.oid = p.pronamespace LEFT JOIN pg_constraint AS k ON k.oid = t.tgconstraint"
    ),
    (
        f"SELECT 'function', p.proname || '(' || pg_get_function_arguments(p.oid) || ')', concat_ws(' ', {_whose('p.proowner')},"
        " p.prokind, 'returns', pg_get_function_result(p.oid), 'language', l.lanname, 'volatile', p.provolatile,"
        " 'definer', p.prosecdef, 'leakproof', p.proleakproof, 'strict', p.proisstrict, 'parallel', p.proparallel,"
        " 'support', p.prosupport, 'set', p.proconfig, 'body', encode(sha256(convert_to(p.prosrc, 'UTF8')), 'hex'), p.prosqlbody)"
        f" FROM {_HOME} JOIN pg_proc AS p ON {_HERE} AND p.pronamespace = home.oid JOIN pg_language AS l ON l.oid = p.prolang"
    ),
    (
        "SELECT 'rewrite rule', c.relname || '.' || r.rulename, concat_ws(' ', r.ev_enabled, pg_get_ruledef(r.oid))"
        f" FROM {_TABLES} JOIN pg_rewrite AS r ON r.ev_class = c.oid"
    ),
    (
        "SELECT 'policy', c.relname || '.' || p.polname, concat_ws(' ', p.polcmd, p.polpermissive, p.polroles,"
        " pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))"
        f" FROM {_TABLES} JOIN pg_policy AS p ON p.polrelid = c.oid"
    ),
    # A child table, in whatever schema, adds its rows to queries of its parent.
    (
        "SELECT 'inheritance', c.relname, concat_ws(' ', CAST(i.inhrelid AS regclass), 'from', CAST(i.inhparent AS regclass))"
        f" FROM {_TABLES} AND c.relkind <> 'i' JOIN pg_inherits AS i ON c.oid IN (i.inhrelid, i.inhparent)"
    ),
    _grants("schema", "home.nspname", "home.nspacl", _HOME).format(owner="home.nspowner") + f" AND {_HERE}",
    _grants("relation", "c.relname", "c.relacl", _TABLES).format(owner="c.relowner"),
    _grants(
        "column",
        "c.relname || '.' || a.attname",
        "a.attacl",
        f"{_TABLES} JOIN pg_attribute AS a ON a.attrelid = c.oid",
    ).format(owner="c.relowner"),
    _grants(
        "function",
        "p.proname",
        "coalesce(p.proacl, acldefault('f', p.proowner))",
        f"{_HOME} JOIN pg_proc AS p ON {_HERE} AND p.pronamespace = home.oid",
    ).format(owner="p.proowner"),
    (
        f"SELECT 'default privileges', concat_ws(' ', {_whose('d.defaclrole')}, d.defaclobjtype), CAST(d.defaclacl AS text)"
        f" FROM {_HOME} JOIN pg_default_acl AS d ON {_HERE} AND (d.defaclnamespace = home.oid"
        " OR d.defaclnamespace = 0 AND d.defaclrole = home.nspowner)"
    ),
    # A view, or a rule of a table, in another schema accesses these tables with the rights of its own owner.
    (
        "SELECT DISTINCT 'view or rule', n.nspname || '.' || v.relname, concat_ws(' ', r.rulename, 'uses', c.relname)"
        f" FROM {_TABLES} JOIN pg_depend AS d ON d.refclassid = CAST('pg_catalog.pg_class' AS regclass) AND d.refobjid = c.oid"
        " AND d.classid = CAST('pg_catalog.pg_rewrite' AS regclass) JOIN pg_rewrite AS r ON r.oid = d.objid"
        " JOIN pg_class AS v ON v.oid = r.ev_class AND v.relnamespace <> home.oid JOIN pg_namespace AS n ON n.oid = v.relnamespace"
    ),
    # Extended statistics are the only part of a table's definition that may lie in another schema. Whoever analyses the table, such as its
    # owner, calls the functions in their expressions.
    (
        "SELECT 'statistics', n.nspname || '.' || x.stxname, pg_get_statisticsobjdef(x.oid)"
        f" FROM {_TABLES} JOIN pg_statistic_ext AS x ON x.stxrelid = c.oid JOIN pg_namespace AS n ON n.oid = x.stxnamespace"
    ),
    # SECURITY DEFINER functions in other schemas that run with the rights of the steward, or of a role that may administer the steward's; or
    # with those of another role that can bypass the rules, if a runner or reader may call them, directly or through a trigger, an event
    # trigger or an aggregate, which need no right to the function. Functions that came with an extension are left out.
    (
        f"{_REACH}, {_POWERFUL} SELECT DISTINCT 'definer function', n.nspname || '.' || p.proname || '(' || pg_get_function_arguments(p.oid) || ')',"
        f" {_whose('p.proowner')} FROM {_HOME} JOIN pg_proc AS p ON {_HERE} AND p.pronamespace <> home.oid AND p.prosecdef"
        " JOIN pg_roles AS o ON o.oid = p.proowner"
        " AND (o.oid IN (SELECT role FROM powerful) OR pg_has_role(o.oid, home.nspowner, 'MEMBER'))"
        " JOIN pg_namespace AS n ON n.oid = p.pronamespace"
        f" WHERE NOT ({_of_extension('pg_proc', 'p.oid', owner='p.proowner')}) AND (NOT o.rolsuper AND pg_has_role(o.oid, home.nspowner, 'MEMBER')"
        f" OR {_WITH_ROLES_HERE} AND (p.prorettype IN (CAST('trigger' AS regtype), CAST('event_trigger' AS regtype))"
        f" OR EXISTS (SELECT FROM pg_aggregate AS g WHERE p.oid IN {_PARTS_OF_AGGREGATE})"
        " OR EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS given"
        " WHERE given.grantee = 0 OR given.grantee IN (SELECT other FROM reach))))"
    ),
    # A subscription writes rows here as another server has them, and no ordinary trigger fires.
    (
        "SELECT 'subscription', CAST(s.subname AS text), 'writes to ' || c.relname"
        f" FROM {_TABLES} JOIN pg_subscription_rel AS r ON r.srrelid = c.oid JOIN pg_subscription AS s ON s.oid = r.srsubid"
    ),
    # An event trigger runs in the session of any role that logs in or changes a definition, including the steward's.
    (
        "SELECT 'event trigger', e.evtname, concat_ws(' ', e.evtevent, e.evtenabled, CAST(e.evtfoid AS regprocedure))"
        f" FROM {_HOME} JOIN pg_event_trigger AS e ON {_HERE} JOIN pg_proc AS p ON p.oid = e.evtfoid"
        f" WHERE NOT (p.proowner = {_FIRST_SUPERUSER} AND {_of_extension('pg_event_trigger', 'e.oid', owner='e.evtowner')})"
    ),
    # An object added to pg_catalog takes precedence over one of the same name here, and a cast applies without a name. Object ids from 16384
    # on belong to objects that did not come with the server.
    (
        "SELECT 'cast', format_type(k.castsource, NULL) || ' as ' || format_type(k.casttarget, NULL), concat_ws(' ', k.castcontext, k.castmethod)"
        f" FROM {_HOME} JOIN pg_cast AS k ON {_HERE} AND k.oid >= 16384"
        " JOIN pg_type AS s ON s.oid = k.castsource JOIN pg_type AS t ON t.oid = k.casttarget"
        " WHERE s.typnamespace IN (home.oid, 11) AND t.typnamespace IN (home.oid, 11)"
    ),
    (
        "SELECT 'system object', o.type || ' ' || o.identity, '' FROM (SELECT CAST('pg_catalog.pg_proc' AS regclass) AS class, oid,"
        " proowner AS owner FROM pg_proc WHERE pronamespace = 11 UNION ALL SELECT CAST('pg_catalog.pg_operator' AS regclass), oid, oprowner"
        " FROM pg_operator WHERE oprnamespace = 11 UNION ALL SELECT CAST('pg_catalog.pg_class' AS regclass), oid, relowner"
        " FROM pg_class WHERE relnamespace = 11 UNION ALL SELECT CAST('pg_catalog.pg_type' AS regclass), oid, typowner"
        # A table has a type for its rows, and each type one for its arrays. They are in the same schema, and no members of its extension.
        " FROM pg_type AS t WHERE typnamespace = 11 AND typrelid = 0 AND NOT EXISTS (SELECT FROM pg_type WHERE typarray = t.oid))"
        " AS added CROSS JOIN LATERAL pg_identify_object(added.class, added.oid, 0) AS o"
        f" WHERE added.oid >= 16384 AND NOT (added.owner = {_FIRST_SUPERUSER} AND EXISTS (SELECT FROM pg_depend AS d"
        " WHERE d.classid = added.class AND d.objid = added.oid AND d.deptype = 'e'))"
    ),
    # Nobody but a superuser may add such objects, not even for a moment.
    (
        f"SELECT 'grant', 'pg_catalog', concat_ws(' ', 'schema', {_whose('given.grantee')}, given.privilege_type) FROM {_HOME}"
        f" JOIN pg_namespace AS system ON {_HERE} AND system.oid = 11"
        " CROSS JOIN LATERAL aclexplode(coalesce(system.nspacl, acldefault('n', system.nspowner))) AS given"
        " LEFT JOIN pg_roles AS r ON r.oid = given.grantee WHERE given.privilege_type = 'CREATE' AND r.rolsuper IS NOT TRUE"
    ),
    # All objects that came with the server belong to the first superuser, for which PostgreSQL records no owner here. `public` has the id
    # 2200, and no rule depends on it. Whoever creates a large object chooses its id.
    (
        f"{_REACH} SELECT DISTINCT 'ownership', r.rolname, 'of ' || pg_describe_object(s.classid, s.objid, 0) FROM {_HOME}"
        f" JOIN reach ON {_WITH_ROLES_HERE} JOIN pg_roles AS r ON r.oid = reach.role JOIN pg_shdepend AS s ON s.refobjid = reach.other"
        " AND s.refclassid = CAST('pg_catalog.pg_authid' AS regclass) AND s.deptype = 'o' AND s.objid < 16384 AND s.objid <> 2200"
        " AND s.classid <> CAST('pg_catalog.pg_largeobject' AS regclass)"
        " AND s.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ),
    # Functions of the server, and of extensions, that read and write its files or log in as the server are closed at first. One that others
    # may call lets them change its settings or act as another role.
    (
        f"{_REACH} SELECT DISTINCT 'grant', n.nspname || '.' || p.proname || '(' || oidvectortypes(p.proargtypes) || ')',"
        f" concat_ws(' ', 'function', {_whose('given.grantee')}, given.privilege_type) FROM {_HOME}"
        f" JOIN pg_proc AS p ON {_WITH_ROLES_HERE} JOIN pg_namespace AS n ON n.oid = p.pronamespace"
        " LEFT JOIN pg_init_privs AS i ON i.classoid = CAST('pg_catalog.pg_proc' AS regclass) AND i.objoid = p.oid AND i.objsubid = 0"
        " CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS given"
        " WHERE (p.oid < 16384 OR i.objoid IS NOT NULL) AND (given.grantee = 0 OR given.grantee IN (SELECT other FROM reach))"
        " AND NOT EXISTS (SELECT FROM aclexplode(coalesce(i.initprivs, acldefault('f', p.proowner))) AS initial"
        " WHERE initial.grantee IN (0, given.grantee))"
    ),
    # The same code under another name: a function in an untrusted language that came neither with the server nor with an extension. Each
    # aggregate is in the language `internal`. It lends a part in an untrusted language that not all may call. The constructors of a range
    # type are in `internal` too, and belong to the type.
    (
        f"{_REACH} SELECT DISTINCT 'untrusted function', n.nspname || '.' || p.proname || '(' || oidvectortypes(p.proargtypes) || ')',"
        f" concat_ws(' ', l.lanname, {_whose('given.grantee')}) FROM {_HOME} JOIN pg_proc AS p ON {_WITH_ROLES_HERE} AND p.oid >= 16384"
        " JOIN pg_language AS l ON l.oid = p.prolang AND NOT l.lanpltrusted"
        " JOIN pg_namespace AS n ON n.oid = p.pronamespace JOIN pg_roles AS o ON o.oid = p.proowner"
        " CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS given"
        " WHERE (given.grantee = 0 OR given.grantee IN (SELECT other FROM reach)) AND NOT EXISTS (SELECT FROM pg_depend AS d"
        " WHERE d.classid = CAST('pg_catalog.pg_proc' AS regclass) AND d.objid = p.oid"
        " AND (d.deptype = 'e' AND o.rolsuper OR d.deptype = 'i' AND d.refclassid = CAST('pg_catalog.pg_type' AS regclass)))"
        " AND (p.prokind <> 'a' OR EXISTS (SELECT FROM pg_aggregate AS g JOIN pg_proc AS part ON g.aggfnoid = p.oid"
        f" AND part.oid IN {_PARTS_OF_AGGREGATE} JOIN pg_language AS w ON w.oid = part.prolang AND NOT w.lanpltrusted"
        " WHERE NOT EXISTS (SELECT FROM aclexplode(coalesce(part.proacl, acldefault('f', part.proowner))) AS held WHERE held.grantee = 0)))"
    ),
    # Whoever may write functions in an untrusted language can run any code as the server. `internal` and `c` have the ids 12 and 13.
    # Trusted languages come with the server or with an extension.
    (
        f"SELECT 'trusted language', l.lanname, '' FROM {_HOME} JOIN pg_language AS l ON {_WITH_ROLES_HERE} AND l.lanpltrusted"
        " WHERE l.oid IN (12, 13) OR l.lanname LIKE 'pl%u'"
        f" OR l.oid >= 16384 AND NOT ({_of_extension('pg_language', 'l.oid', owner='l.lanowner')})"
    ),
    (
        f"{_REACH} SELECT 'grant', l.lanname, concat_ws(' ', 'language', {_whose('given.grantee')}, given.privilege_type)"
        f" FROM {_HOME} JOIN pg_language AS l ON {_WITH_ROLES_HERE} AND NOT l.lanpltrusted CROSS JOIN LATERAL aclexplode(l.lanacl) AS given"
        " WHERE given.grantee = 0 OR given.grantee IN (SELECT other FROM reach)"
    ),
    # With this setting no ordinary trigger fires and no foreign key is checked.
    (
        "SELECT 'setting', 'session_replication_role', coalesce((SELECT concat_ws(' ', datname) FROM pg_database"
        " WHERE oid = s.setdatabase), 'every database') FROM pg_db_role_setting AS s CROSS JOIN LATERAL unnest(s.setconfig) AS line"
        " WHERE lower(line) = 'session_replication_role=replica'"
        " AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))"
    ),
    # The server's configuration, an administrator or the address can also set it.
    (
        "SELECT 'setting', 'session_replication_role', 'this session' WHERE current_setting('session_replication_role') <> 'origin'"
    ),
    # Using the right to set it leaves no trace. Some other settings let a role run code as the server.
    (
        f"{_REACH} SELECT 'grant', p.parname, concat_ws(' ', 'parameter', {_whose('given.grantee')}, given.privilege_type,"
        f" CASE WHEN given.is_grantable THEN 'with grant option' END) FROM {_HOME} JOIN pg_parameter_acl AS p ON {_HERE}"
        " CROSS JOIN LATERAL aclexplode(p.paracl) AS given LEFT JOIN pg_roles AS r ON r.oid = given.grantee"
        " WHERE r.rolsuper IS NOT TRUE AND (p.parname = 'session_replication_role' OR"
        f" ({_WITH_ROLES_HERE} AND (given.grantee = 0 OR given.grantee IN (SELECT other FROM reach))))"
    ),
    # The roles of the script only carry privileges: nobody logs in as one, and none is a member of another.
    (
        f"SELECT 'role', r.rolname, concat_ws(' ', 'superuser', r.rolsuper, 'login', r.rolcanlogin, 'create', r.rolcreaterole,"
        f" r.rolcreatedb, 'replication', r.rolreplication, 'bypass', r.rolbypassrls) FROM {_HOME}"
        f" JOIN pg_roles AS r ON {_WITH_ROLES_HERE} AND r.rolname IN ('dpflow_steward', 'dpflow_runner', 'dpflow_reader')"
    ),
    (
        "SELECT 'membership', member.rolname, 'in ' || whole.rolname FROM pg_auth_members AS m"
        " JOIN pg_roles AS member ON member.oid = m.member JOIN pg_roles AS whole ON whole.oid = m.roleid"
        " WHERE member.rolname IN ('dpflow_steward', 'dpflow_runner', 'dpflow_reader')"
    ),
    # A role that can act as runner or reader must not be able to act as a role that can bypass the rules.
    (
        f"{_REACH} SELECT 'privilege', r.rolname, concat_ws(' ', CASE WHEN o.oid <> r.oid THEN 'member of ' || o.rolname END,"
        " CASE WHEN o.rolsuper THEN 'superuser' END, CASE WHEN o.rolcreaterole THEN 'createrole' END,"
        " CASE WHEN o.rolreplication THEN 'replication' END, CASE WHEN o.rolbypassrls THEN 'bypassrls' END)"
        f" FROM {_HOME} JOIN reach ON {_WITH_ROLES_HERE} JOIN pg_roles AS r ON r.oid = reach.role"
        f" JOIN pg_roles AS o ON o.oid = reach.other WHERE o.oid = home.nspowner OR {_BYPASSES}"
    ),
    # Nor may it drop the database, or make other roles runners and readers.
    (
        f"{_REACH} SELECT 'ownership', r.rolname, 'of the database' FROM {_HOME} JOIN reach ON {_WITH_ROLES_HERE}"
        " JOIN pg_roles AS r ON r.oid = reach.role JOIN pg_database AS d ON d.datname = current_database() AND d.datdba = reach.other"
    ),
    (
        f"{_REACH} SELECT DISTINCT 'administration', r.rolname, 'of ' || whole.rolname FROM {_HOME} JOIN reach ON {_WITH_ROLES_HERE}"
        " JOIN pg_roles AS r ON r.oid = reach.role JOIN pg_auth_members AS m ON m.member = reach.other AND m.admin_option"
        " JOIN pg_roles AS whole ON whole.oid = m.roleid"
        " WHERE whole.rolname IN ('dpflow_steward', 'dpflow_runner', 'dpflow_reader')"
    ),
)


def found(execute: Execute) -> Counter[tuple[str, str, str]]:
    """Return every object of the ledger in this database, as kind, name and definition."""
    rows = (row for query in _QUERIES for row in execute(query))
    return Counter((str(kind), str(name), str(text).replace("\t", " ").replace("\n", " ")) for kind, name, text in rows)


def rules_changed(execute: Execute) -> str | None:
    """Describe the objects that are missing, added or changed compared with a new ledger. Return None if there are none."""
    ((owner,),) = execute("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'dpflow'")
    there, expected = found(execute), Counter(_expected(roles=owner == "dpflow_steward"))
    missing, added = expected - there, there - expected
    if not missing and not added:
        return None
    names = dict.fromkeys((kind, name) for kind, name, _ in sorted([*missing, *added]))
    told = [f"{kind} {name} {_problem(kind, name, missing, added)}" for kind, name in names]
    more = f" and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
    return ", ".join(told[:_MOST_NAMED]) + more


def _problem(kind: str, name: str, missing: Iterable[tuple[str, ...]], added: Iterable[tuple[str, ...]]) -> str:
    was, now = ([line[2] for line in lines if line[:2] == (kind, name)] for lines in (missing, added))
    if kind in {"grant", "membership", "privilege", "ownership", "administration"}:
        return f"({', '.join(now or was)}) was {'added' if now else 'taken away'}"
    return "is changed" if was and now else "was added" if now else "is missing"


def written(lines: Collection[tuple[str, str, str]]) -> list[str]:
    """Return objects as sorted lines of text."""
    return sorted("\t".join(line) for line in lines)


@cache
def _expected(*, roles: bool) -> tuple[tuple[str, str, str], ...]:
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    chosen = (line.removeprefix(WITH_ROLES) for line in lines if roles or not line.startswith(WITH_ROLES))
    return tuple((kind, name, text) for kind, name, text in (line.split("\t") for line in chosen))
