"""The inventory of the steward's files: the ledger, the registered specs and the raw files that they read.

For checks of a machine, such as `dpflow doctor`. Nothing here reads a row of a table or returns a password.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import psycopg
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from dpcore.errors import DpflowError
from dpcore.ledger import open_ledger
from dpcore.places import SQLITE, current_places
from dpcore.spec import Declaration, load_spec
from dpcore.spec.local_files import local_path
from dpcore.steward.registry import Registered, registered, registered_names
from dpcore.tables.sources.source import Source

_CONNECT_SECONDS = 5
_OWNER = "SELECT bool_or(pg_has_role(tableowner, 'USAGE')) FROM pg_tables WHERE schemaname = 'dpflow'"


@dataclass(frozen=True)
class LedgerKeeping:
    """Where the ledger is and what this user may do with it.

    Attributes:
        file: The path of a SQLite ledger, which need not exist; None for a database.
        address: The URL of a database without any password; None for a file or an invalid URL.
        has_password: Whether the URL contains a password.
        owns_tables: Whether the current role could drop the rules that protect the history.
        accounts: The names of its accounts.
        trouble: Why it could not be opened, if it could not.
    """

    file: Path | None
    address: str | None
    has_password: bool
    owns_tables: bool
    accounts: tuple[str, ...]
    trouble: str | None


@dataclass(frozen=True)
class SpecKeeping:
    """The current state of a registered spec.

    Attributes:
        name: The registered name.
        entry: The registry's entry, if it is valid.
        declaration: The spec's current declaration, if it can be read.
        sources: The files on this machine that hold the raw table.
    """

    name: str
    entry: Registered | None
    declaration: Declaration | None
    sources: tuple[Path, ...]

    @property
    def changed(self) -> bool:
        """Whether the spec differs from what was registered, or is missing."""
        return self.entry is None or self.declaration is None or self.declaration.digest != self.entry.sha256

    @property
    def releases(self) -> Path | None:
        """The folder of this machine for its releases."""
        outputs = self.declaration.outputs if self.declaration else None
        return outputs if isinstance(outputs, Path) else None

    @property
    def declared_source(self) -> Path | None:
        """The file, folder or pattern on this machine that the spec names. It is public, unlike the names of the files it matches."""
        path = self.declaration.spec.source.path if self.declaration else None
        return local_path(path, base=self.declaration.path.parent) if self.declaration and path else None


def ledger_keeping() -> LedgerKeeping:
    """Inspect the current ledger, without changing its records."""
    url = current_places().ledger_url
    accounts: tuple[str, ...] = ()
    trouble = None
    try:
        with open_ledger() as ledger:
            accounts = tuple(account.name for account in ledger.accounts())
    except DpflowError as error:
        trouble = str(error)
    in_file = url.startswith(SQLITE)
    return LedgerKeeping(
        file=Path(url.removeprefix(SQLITE)) if in_file else None,
        address=None if in_file else _without_password(url),
        has_password=not in_file and bool(re.search(r"//[^/@]*:[^@]*@|[?&](ssl)?password=", url)),
        owns_tables=not in_file and trouble is None and _owns_tables(url),
        accounts=accounts,
        trouble=trouble,
    )


def spec_keepings() -> tuple[SpecKeeping, ...]:
    """Inspect all registered specs, including unreadable ones, and find the files of their tables.

    Raises:
        UsageError: If the registry itself can't be read.
    """
    return tuple(map(_spec_keeping, registered_names()))


def _spec_keeping(name: str) -> SpecKeeping:
    entry = declaration = None
    sources: tuple[Path, ...] = ()
    try:
        entry = registered(name)
        declaration = load_spec(entry.spec)
        files = SpecKeeping(name, entry, declaration, sources)
        if files.declared_source is not None:  # sources on other machines are not contacted
            sources = Source.locate(declaration.spec.source, base=declaration.path.parent).local_files
    except DpflowError:  # report what was found so far
        pass
    return SpecKeeping(name, entry, declaration, sources)


def _without_password(url: str) -> str | None:
    try:
        address = make_url(url)
    except (SQLAlchemyError, ValueError):
        return None
    if "@" in f"{address.host}{address.database}":  # the text before the last @ may be a part of the password
        return None
    secret = [key for key in address.query if "password" in key]
    return address.difference_update_query(secret)._replace(password=None).render_as_string()


def _owns_tables(url: str) -> bool:
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(address, connect_timeout=_CONNECT_SECONDS) as connection:
            return bool((connection.execute(_OWNER).fetchone() or (False,))[0])
    except psycopg.Error:
        return False
