"""The catalogue of a new ledger, with and without the roles, from a real server.

Run it to write `catalogue.txt` anew after a change of the tables or rules: python -m tests.dpcore.ledger.catalogue
"""

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg

from dpcore.ledger import open_ledger
from dpcore.ledger.postgres.catalogue import EXPECTED, WITH_ROLES, found, written
from tests.postgres import PostgresServer, postgres_folder

SCRIPT = Path(__file__).parents[3] / "deployments" / "postgres-roles.sql"


def catalogue_of(url: str) -> Counter[tuple[str, str, str]]:
    with psycopg.connect(url, options="-c search_path=dpflow") as connection:
        return found(lambda query: connection.execute(query).fetchall())


def run_script(server: PostgresServer, url: str) -> None:
    psql = [server._programs / "psql", "-X", "-v", "ON_ERROR_STOP=1", "-d", url, "-f", SCRIPT]
    done = subprocess.run(psql, check=True, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["BEGIN", "DO", "COMMIT"], "")


def lines_of_new_ledgers(server: PostgresServer, *, make_roles: Callable[[], None] = lambda: None) -> list[str]:
    """Make a ledger before there are roles, and one after, and return what `catalogue.txt` has to say of the two."""
    plain, guarded = server.new_database(), server.new_database()
    open_ledger(plain, create=True).close()
    common = catalogue_of(plain)
    make_roles()
    run_script(server, guarded)
    open_ledger(guarded, create=True).close()
    with_roles = catalogue_of(guarded)
    assert not common - with_roles, "the roles only add to what there is"
    return [*written(common), *(f"{WITH_ROLES}{line}" for line in written(with_roles - common))]


if __name__ == "__main__":
    with PostgresServer(postgres_folder(), durable=False) as server:
        EXPECTED.write_text("\n".join(lines_of_new_ledgers(server)) + "\n", encoding="utf-8")
