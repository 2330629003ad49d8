"""What is soaked: a small table, a spec under several names, and one account that can't pay for all runs; and where the databases are."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.steward.registry import register
from tests.conftest import SPEC, visits
from tests.postgres import PostgresServer, postgres_folder, system_programs

STORES = ("postgresql", "sqlite")
ACCOUNT = "visits"
ROWS = 300
EPSILON, DELTA = 1.0, 1e-9
PAYING = 3, 4
"""The part of the runs that the account can pay for."""


def prepare(folder: Path, *, runs: int, names: int) -> tuple[str, ...]:
    """Make table, specs and account, register the specs, and return their names.

    Several names, because runs of one deployment wait for each other; one account, because that is what they are to fight for.
    """
    visits(ROWS, seed=1).to_csv(folder / "visits.csv", index=False)
    registered = []
    for number in range(1, names + 1):
        spec = folder / f"visits-{number:02}.yaml"
        spec.write_text(SPEC, encoding="utf-8")
        registered.append(register(spec).name)
    currency, each = budget_of(EPSILON, delta=DELTA)
    paying, of = PAYING
    # Half a run more than fits, so that what is given back in rounding never makes up another.
    cap = runs * paying // of * each + each // 2
    with open_ledger(create=True) as ledger:
        ledger.open_account(
            ACCOUNT,
            currency=currency,
            cap=cap,
            epsilon=EPSILON * runs,
            delta=DELTA,
            unit="person",
            neighbours=Neighbours.ADD_REMOVE,
        )
    return tuple(registered)


def clean_environment() -> dict[str, str]:
    """Return this process's environment without any setting of Prefect's or ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DPFLOW_"))}


@contextmanager
def databases(store: str, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the variables that name the databases of the ledger and of Prefect's server, both in one kind of store."""
    if store == "sqlite":
        waits = {"PREFECT_SERVER_DATABASE_TIMEOUT": "60", "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60"}
        yield waits | {"DPFLOW_LEDGER_URL": f"sqlite:///{folder / 'ledger.sqlite'}"}
        return
    programs = system_programs()
    if programs is None:
        raise RuntimeError("this machine has no PostgreSQL with pg_trgm; on Debian: apt-get install postgresql")
    with PostgresServer(postgres_folder(), durable=True, programs=programs) as server:
        yield {
            "DPFLOW_LEDGER_URL": server.new_database(),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": server.new_database().replace(
                "postgresql:", "postgresql+asyncpg:"
            ),
        }
