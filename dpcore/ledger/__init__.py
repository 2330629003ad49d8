"""The budget ledger: it refuses a charge before anything is drawn, and keeps every charge durably."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path

from dpcore.errors import NoLedger, UsageError
from dpcore.ledger.chain import GENESIS
from dpcore.ledger.heads import FOLDER, HeadMemory, continues, last_accepted_loss, loss_accepted
from dpcore.ledger.ledger import LEASE_SECONDS, Ledger
from dpcore.ledger.refusals import budget_refused
from dpcore.ledger.rows import (
    WHOLE,
    Account,
    AccountState,
    Allowance,
    AllowanceKind,
    Balance,
    Block,
    BlockState,
    Event,
    EventKind,
    Lease,
    Operation,
    OperationState,
    Run,
    RunState,
    in_currency,
)
from dpcore.ledger.series import claim_in
from dpcore.ledger.sqlite import SqliteStore
from dpcore.ledger.store import Store
from dpcore.places import LEDGER_FILE, NAME, SQLITE, Places, current_places, places_from, working_folder

__all__ = [
    "GENESIS",
    "LEASE_SECONDS",
    "WHOLE",
    "Account",
    "AccountState",
    "Allowance",
    "AllowanceKind",
    "Balance",
    "Block",
    "BlockState",
    "Event",
    "EventKind",
    "Lease",
    "Ledger",
    "Operation",
    "OperationState",
    "Run",
    "RunState",
    "budget_refused",
    "claim_in",
    "continues",
    "in_currency",
    "last_accepted_loss",
    "loss_accepted",
    "noting_opened",
    "open_ledger",
]

OPENING = "dpflow ledger open ACCOUNT --epsilon E --delta D --unit UNIT --neighbours add-remove"
"""The command that opens an account, if the spec that the account pays for is not known."""

_opened: ContextVar[list[Ledger] | None] = ContextVar("opened", default=None)


def open_ledger(
    url: str | None = None,
    *,
    places: Places | None = None,
    create: bool = False,
    clock: Callable[[], datetime] | None = None,
    opening: str = OPENING,
) -> Ledger:
    """Open a ledger, and compare it with the newest head that the private folder remembers of it.

    Args:
        url: `postgresql://USER@HOST/DATABASE`, or `sqlite:///PATH`. The path is relative to the working folder, or absolute
            with one more slash.
        places: The locations of the ledger and of the private folder. Defaults to the current places; ignored if `url` is given.
        create: Create the ledger if it does not exist. Without this, nothing is created.
        clock: Returns the current time. Defaults to the clock of the database server, or of this machine for SQLite.
        opening: The command that opens the missing account, which the error names if there is no ledger.

    Raises:
        NoLedger: If there is no ledger.
        UsageError: If this user may not read its folder.
    """
    if url is not None:
        places = places_from(working_folder(), ledger_url=url)
    elif places is None:
        places = current_places()
    try:
        return _opened_ledger(places, create=create, clock=clock, opening=opening)
    except PermissionError as error:
        unreadable = error.filename or places.folder
    raise UsageError(f"{unreadable} cannot be read by this user; ask its owner")


def _opened_ledger(places: Places, *, create: bool, clock: Callable[[], datetime] | None, opening: str) -> Ledger:
    if not (places.named or places.found or create):
        raise NoLedger(
            f"no {NAME} folder was found from {places.start} upwards; change to the folder of the ledger, or set DPFLOW_LEDGER_URL to the "
            f"ledger; only if there is no ledger yet, open an account first: {opening}"
        )
    if places.outer and not places.named and not (places.folder / LEDGER_FILE).exists():
        raise UsageError(
            f"{places.folder} holds no ledger and hides {places.outer}, which lies further up; remove the inner folder, "
            "or set DPFLOW_LEDGER_URL to the intended ledger"
        )
    memory = HeadMemory(places.private / FOLDER)
    # `ledger open` creates the `.dpflow` folder, and everything else needs one, or the variables that replace it.
    not_fixed = None if places.private_fixed or create else places.not_fixed
    try:
        store = _store(places, memory, create=create)
    except NoLedger as missing:
        raise NoLedger(f"{missing}; open an account first: {opening}") from None
    ledger = Ledger(store, clock=clock, memory=memory)
    try:
        ledger.recall()
    except BaseException:
        ledger.close()
        raise
    ledger.not_fixed = not_fixed
    if places.outer and not places.named:
        ledger.hides = str(places.outer)
    if (noted := _opened.get()) is not None:
        noted.append(ledger)
    return ledger


@contextmanager
def noting_opened() -> Iterator[list[Ledger]]:
    """Collect the ledgers that are opened inside the context, so that a command can report which one it used."""
    noted: list[Ledger] = []
    token = _opened.set(noted)
    try:
        yield noted
    finally:
        _opened.reset(token)


def _store(places: Places, memory: HeadMemory, *, create: bool) -> Store:
    url = places.ledger_url
    scheme = url.partition(":")[0]
    if scheme.lower() in {"postgresql", "postgres", "postgresql+psycopg"}:
        from dpcore.ledger.postgres import PostgresStore  # noqa: PLC0415  its driver takes a while to load

        return PostgresStore(url, create=create)
    path = url.removeprefix(SQLITE)
    if path == url:
        # The rest of the address may hold a password.
        named = f"not {scheme}" if ":" in url else "and this has no scheme"
        raise UsageError(
            f"a ledger is at sqlite:///PATH or postgresql://USER@HOST/DATABASE, {named}; set DPFLOW_LEDGER_URL to such an address"
        )
    if not path or path == ":memory:" or "\0" in path:
        raise UsageError("a SQLite ledger needs a file; name it, as in sqlite:///.dpflow/ledger.sqlite")
    memory.require_never_lost(Path(path))
    return SqliteStore(Path(path), create=create)
