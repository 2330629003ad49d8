"""One PostgreSQL server with the three roles, for all tests of what they may do: roles belong to all databases of a server."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from psycopg import sql

from dpcore.ledger import open_ledger
from tests.campaign import CAMPAIGN
from tests.dpcore.ledger.catalogue import lines_of_new_ledgers, run_script
from tests.dpcore.ledger.postgres import name_of
from tests.postgres import PostgresServer, postgres_folder, system_programs

MEMBERS = {"maria": "dpflow_steward", "nightly": "dpflow_runner", "auditor": "dpflow_reader", "stranger": None}


@dataclass(frozen=True)
class Guarded:
    """A server with roles, each of which has a member whose password is the name.

    Attributes:
        server: The server.
        plain: A ledger that was made before there were roles.
        of_boss: A ledger that was made before, by an administrator who is no superuser and has made the roles.
        lines: What `catalogue.txt` has to say.
        new: A ledger that was made after.
    """

    server: PostgresServer
    plain: str
    of_boss: str
    lines: list[str]
    new: str

    def as_role(self, url: str, who: str) -> str:
        """Return the URL of a database for a member of a role."""
        return self.server.url(name_of(url), user=who, password=who)


@pytest.fixture(scope="session", params=["18", *(("of the system",) if CAMPAIGN else ())])
def guarded(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    """Run a server with roles; at length, of two versions of PostgreSQL."""
    programs = None if request.param == "18" else system_programs()
    with PostgresServer(postgres_folder(), durable=False, programs=programs) as server:
        plain, of_boss = server.new_database(), server.new_database()
        with server.admin() as connection:
            connection.execute("CREATE ROLE boss LOGIN CREATEROLE PASSWORD 'boss'")
            connection.execute(sql.SQL("ALTER DATABASE {} OWNER TO boss").format(sql.Identifier(name_of(of_boss))))
        of_boss = server.url(name_of(of_boss), user="boss", password="boss")  # noqa: S106  a test's
        for url in (plain, of_boss):
            open_ledger(url, create=True).close()
        lines = lines_of_new_ledgers(server, make_roles=lambda: run_script(server, of_boss))
        new = server.new_database()
        run_script(server, new)
        open_ledger(new, create=True).close()
        with server.admin() as connection:
            for who, role in MEMBERS.items():
                member = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(who), who)
                connection.execute(member + sql.SQL(f" IN ROLE {role}" if role else ""))
        yield Guarded(server, plain, of_boss, lines, new)
