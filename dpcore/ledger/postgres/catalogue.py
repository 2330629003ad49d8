"""Compare the ledger's rules, as PostgreSQL's catalogue defines them, with those of a new ledger.

Comparing names and counts is not enough: a check can be weakened under the same name, a trigger can be disabled, a function can run with
another search path or other rights, and a grant or a child table can bypass all of them. So every object of the schema is listed with its
complete definition, one line per object, and so are the grants on them, the settings that turn triggers off, and the three roles.
`catalogue.txt` holds the lines of a new ledger. Any role may read the catalogue, and the comparison creates nothing, so a reader verifies
as much as the owner. Whoever administers the server is trusted beyond this: see `docs/explanation/threat-model.md`.

The owner of the schema is written as `OWNER`, and no other role is. The owner's privileges are left out: they differ between versions of
PostgreSQL, and an owner can grant them to itself again. Lines of `catalogue.txt` that begin with `roles ` apply if the ledger belongs to
`dpflow_steward`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Execute = Callable[[str], Sequence[Any]]

EXPECTED = Path(__file__).with_name("catalogue.txt")
WITH_ROLES = "roles "
_MOST_NAMED = 3

# Each query returns the kind of an object, its name, and the definition to compare.
_HOME = "pg_namespace AS home"
_HERE = "home.nspname = 'dpflow'"
_TABLES = f"{_HOME} JOIN pg_class AS c ON {_HERE} AND c.relnamespace = home.oid"
_OF_STEWARD = f"{_HOME} JOIN pg_roles AS r ON {_HERE} AND pg_get_userbyid(home.nspowner) = 'dpflow_steward'"


def _whose(role: str) -> str:
    """Return the name of a role in SQL. One that is called like the owner or the public is quoted, or written in small letters."""
    return (
        f"CASE WHEN {role} = 0 THEN 'PUBLIC' WHEN {role} = home.nspowner THEN 'OWNER'"
        f" ELSE quote_ident(pg_get_userbyid({role})) END"
    )


def _grants(kind: str, name: str, held: str, tables: str, *, owner: str) -> str:
    """Return a query of the privileges in an object's access control list, except its owner's."""
    return (
        f"SELECT 'grant', {name} || concat_ws(' ', ' ({kind}', {_whose('given.grantee')}, given.privilege_type,"
        f" CASE WHEN given.is_grantable THEN 'with grant option' END) || ')', ''"
        f" FROM {tables} CROSS JOIN LATERAL aclexplode({held}) AS given WHERE {owner} <> given.grantee"
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
        " 'access', a.amname, 'of type', c.reloftype)"
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
    _grants("schema", "home.nspname", "home.nspacl", _HOME, owner="home.nspowner") + f" AND {_HERE}",
    _grants("relation", "c.relname", "c.relacl", _TABLES, owner="c.relowner"),
    _grants(
        "column",
        "c.relname || '.' || a.attname",
        "a.attacl",
        f"{_TABLES} JOIN pg_attribute AS a ON a.attrelid = c.oid",
        owner="c.relowner",
    ),
    _grants(
        "function",
        "p.proname",
        "coalesce(p.proacl, acldefault('f', p.proowner))",
        f"{_HOME} JOIN pg_proc AS p ON {_HERE} AND p.pronamespace = home.oid",
        owner="p.proowner",
    ),
    (
        f"SELECT 'default privileges', concat_ws(' ', {_whose('d.defaclrole')}, d.defaclobjtype), CAST(d.defaclacl AS text)"
        f" FROM {_HOME} JOIN pg_default_acl AS d ON {_HERE} AND (d.defaclnamespace = home.oid"
        " OR d.defaclnamespace = 0 AND d.defaclrole = home.nspowner)"
    ),
    # With this setting no ordinary trigger fires and no foreign key is checked. The server's configuration or the address can also set it.
    (
        "SELECT 'setting', 'session_replication_role', coalesce((SELECT concat_ws(' ', datname) FROM pg_database"
        " WHERE oid = s.setdatabase), 'every database') FROM pg_db_role_setting AS s CROSS JOIN LATERAL unnest(s.setconfig) AS line"
        " WHERE lower(line) = 'session_replication_role=replica'"
        " AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))"
    ),
    "SELECT 'setting', 'session_replication_role', 'this session' WHERE current_setting('session_replication_role') <> 'origin'",
    # Using the right to set it leaves no trace. It belongs to the first superuser, whose id is 10.
    _grants(
        "parameter",
        "p.parname",
        "p.paracl",
        f"{_HOME} JOIN pg_parameter_acl AS p ON {_HERE} AND p.parname = 'session_replication_role'",
        owner="10",
    ),
    # The roles of the script only carry privileges: nobody logs in as one, and none is a member of another.
    (
        f"SELECT 'role', r.rolname, concat_ws(' ', 'superuser', r.rolsuper, 'login', r.rolcanlogin, 'create', r.rolcreaterole,"
        f" r.rolcreatedb, 'replication', r.rolreplication, 'bypass', r.rolbypassrls) FROM {_OF_STEWARD}"
        " WHERE r.rolname IN ('dpflow_steward', 'dpflow_runner', 'dpflow_reader')"
    ),
    # Whoever runs or reads must not be the steward too. Superusers administer the server.
    (
        f"SELECT DISTINCT 'role', r.rolname || ' as steward', '' FROM {_OF_STEWARD} JOIN pg_roles AS lesser"
        " ON lesser.rolname IN ('dpflow_runner', 'dpflow_reader') AND pg_has_role(r.oid, lesser.oid, 'USAGE')"
        " WHERE NOT r.rolsuper AND pg_has_role(r.oid, home.nspowner, 'MEMBER')"
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
    missing, added = ({line[:2] for line in lines} for lines in (expected - there, there - expected))
    changes = [
        f"{kind} {name} {'was added' if name_of not in missing else 'is changed' if name_of in added else 'is missing'}"
        for name_of in sorted(missing | added)
        for kind, name in [name_of]
    ]
    more = f" and {len(changes) - _MOST_NAMED} more" if len(changes) > _MOST_NAMED else ""
    return ", ".join(changes[:_MOST_NAMED]) + more or None


def written(lines: Collection[tuple[str, str, str]]) -> list[str]:
    """Return objects as sorted lines of text."""
    return sorted("\t".join(line) for line in lines)


@cache
def _expected(*, roles: bool) -> tuple[tuple[str, str, str], ...]:
    lines = EXPECTED.read_text(encoding="utf-8").splitlines()
    chosen = (line.removeprefix(WITH_ROLES) for line in lines if roles or not line.startswith(WITH_ROLES))
    return tuple((kind, name, text) for kind, name, text in (line.split("\t") for line in chosen))
