"""What the tests of a ledger in PostgreSQL do to its database, behind its back."""

import os
import traceback
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dpcore.ledger import Lease, Ledger
from tests.dpcore.ledger.fixtures import MECHANISM

LEASE = Lease("run", 1)
"""The lease of the worker who wrote what `postgres_url` has."""


def run_as_owner(url: str, *statements: str, options: str = "") -> None:
    with psycopg.connect(url, autocommit=True, options=options) as connection:
        for statement in statements:
            connection.execute(statement)


def past_the_rules(url: str, *statements: str) -> None:
    run_as_owner(url, *statements, options="-c session_replication_role=replica -c search_path=dpflow")


def name_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def measure(ledger: Ledger) -> None:
    ledger.commit(ledger.charge(LEASE, step="measure", amount=20, mechanism=MECHANISM), b"noisy")


def in_children(act: Callable[[int], None], *, number: int) -> list[int]:
    """Do something in several forked processes at once; return how each of them ended."""
    gate, opener = os.pipe()
    children = []
    for which in range(number):
        child = os.fork()
        if child == 0:
            try:
                os.close(opener)
                os.read(gate, 1)
                act(which)
                os._exit(0)
            except BaseException:  # noqa: BLE001  a child must never return into the tests
                traceback.print_exc()
            finally:
                os._exit(1)
        children.append(child)
    os.close(opener)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(gate)
    return ends


def interrupted(ledger: Ledger, statement: str, act: Callable[[], object]) -> None:
    """Do something just before the ledger's next statement that begins like this."""
    store: Any = ledger._store
    execute = type(store).execute

    def interrupt(text: str, parameters: Any = None) -> Any:
        if text.startswith(statement):
            del store.execute
            act()
        return execute(store, text, parameters)

    store.execute = interrupt
