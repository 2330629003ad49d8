"""Convert the errors of PostgreSQL and its driver to DpflowErrors that say what to do next.

The original messages are never shown: they may quote an address, or a value.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from dpcore.errors import LedgerDamaged, LedgerError, UsageError
from dpcore.ledger.store import CONTRADICTS, DAMAGED, DISK_FULL, LOCKED, NO_MEMORY, TOO_LARGE, Meaning

_GONE = "cannot be reached; check DPFLOW_LEDGER_URL and that the database runs, then run again: nothing that was stored is lost"
_BROKE = "lost its connection; run again: what was stored is found, and at most the step in flight is paid twice"

_MEANINGS: dict[str, Meaning] = {
    "55P03": LOCKED,
    "57014": (LedgerError, "took too long to answer; try again"),
    "57P03": (LedgerError, _GONE),
    "40P01": (LedgerError, "had a deadlock with another transaction; try again"),
    "40001": (LedgerError, "had a conflict with a concurrent transaction; try again"),
    "25006": (LedgerError, "is read-only, as on a standby; name the primary database in DPFLOW_LEDGER_URL"),
    "25P03": (LedgerError, _BROKE),
    "42501": (
        LedgerError,
        "denies this to the current role; a steward's command needs the steward's role, a run the runner's",
    ),
    "28P01": (LedgerError, "refuses this user or password; check DPFLOW_LEDGER_URL"),
    "28000": (LedgerError, "refuses this user; check DPFLOW_LEDGER_URL"),
    "3D000": (UsageError, "is in a database that does not exist; create it, or check DPFLOW_LEDGER_URL"),
    "53100": DISK_FULL,
    "53200": NO_MEMORY,
    "53300": (LedgerError, "has too many connections; close some, or raise max_connections"),
    "54000": TOO_LARGE,
    "P0001": CONTRADICTS,
}
_CLASSES: dict[str, Meaning] = {
    "08": (LedgerError, _BROKE),
    "57": (LedgerError, _BROKE),
    "23": CONTRADICTS,
    "42": DAMAGED,
    "22": DAMAGED,
    "3F": DAMAGED,
    "XX": (LedgerDamaged, "is damaged according to PostgreSQL; check the server's log, and restore it from a backup"),
}
_WORDS = {
    r"password authentication failed|no password supplied": "28P01",
    r'role ".*" does not exist|not permitted to log in|authentication failed|no pg_hba\.conf entry': "28000",
    r'database ".*" does not exist': "3D000",
    r"permission denied for database": "42501",
    r"too many (clients|connections)|connection slots are reserved": "53300",
}
"""English server messages for rejected connections, for which the driver passes on no error code."""


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Convert every error of the database, its driver and SQLAlchemy to a one-line error about the ledger at `place`."""
    try:
        yield
    except (psycopg.Error, DBAPIError) as error:
        kind, meaning = _meaning(error)
        raise kind(f"the ledger at {place} {meaning}") from error
    except SQLAlchemyError as error:
        raise LedgerError(f"the ledger at {place} {_GONE}") from error


def _meaning(error: psycopg.Error | DBAPIError) -> Meaning:
    said = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(said, "sqlstate", None)
    if code is None and isinstance(error, DBAPIError):  # no connection could be made
        code = next((code for words, code in _WORDS.items() if re.search(words, str(said))), None)
        if code is None:
            return LedgerError, _GONE
    if code is None:
        return LedgerError, _BROKE
    unforeseen = (LedgerError, f"cannot be used (PostgreSQL code {code}); check the server's log")
    return _MEANINGS.get(code) or _CLASSES.get(code[:2]) or unforeseen
