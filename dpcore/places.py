"""Find the steward's folder `.dpflow` as git finds `.git`, and locate the ledger, the private folder and the registry.

The search starts in a folder that the caller names, the spec's or the working folder, and goes upwards. So the same spec is
charged to the same ledger, whatever folder a command is run in. The variables `DPFLOW_LEDGER_URL`, `DPFLOW_PRIVATE` and
`DPFLOW_REGISTRY` override the result. `DPFLOW_PRIVATE` and `DPFLOW_REGISTRY` must be absolute paths: a relative one would mean another
folder after every `cd`, without the remembered heads or without the approval thresholds.

A ledger in a database has no folder of its own. If `DPFLOW_LEDGER_URL` names one, no `.dpflow` is found and a variable is not set, the
private folder or the registry would depend on the working folder as well. Then such a ledger can be read, but nothing is written. Only
`ledger open` creates a `.dpflow`.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import UsageError

NAME = ".dpflow"
LEDGER_FILE = "ledger.sqlite"
LEDGER_VARIABLE, PRIVATE_VARIABLE, REGISTRY_VARIABLE = "DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"
SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Places:
    """The locations that belong to one ledger. All paths are absolute.

    Attributes:
        start: The folder in which the search started.
        folder: The `.dpflow` folder that was found, or the one that `ledger open` would create.
        found: Whether `folder` exists.
        outer: Another `.dpflow` further up, which is not used.
        ledger_url: The ledger's address, including a password if it has one.
        named: Whether `DPFLOW_LEDGER_URL`, or the caller, names the ledger.
        private: The folder for keys, logs and remembered heads.
        registry: The folder of registered specs and approvals.
        private_fixed: Whether `private` exists by a decision of the steward, and does not just follow from the working folder.
        registry_fixed: The same for `registry`.
    """

    start: Path
    folder: Path
    found: bool
    outer: Path | None
    ledger_url: str
    named: bool
    private: Path
    registry: Path
    private_fixed: bool
    registry_fixed: bool

    @property
    def home(self) -> Path:
        """The folder for the files of Prefect programs that dpflow starts: the `.dpflow` folder, or the private folder if there is none."""
        return self.private if self.private_fixed and not self.found else self.folder

    @property
    def not_fixed(self) -> str:
        """Why nothing may be written if the private folder or the registry is not fixed, and what to do."""
        if not self.named:
            return (
                f"no {NAME} folder was found from {self.start} upwards; change to the folder of the ledger, or, only if there is no ledger "
                "yet, open the account that pays first: dpflow ledger open"
            )
        return (
            f"no {NAME} folder was found from {self.start} upwards, so remembered heads and approval thresholds would be others in each "
            f"working folder; work in the project's folder, or set {PRIVATE_VARIABLE} and {REGISTRY_VARIABLE}"
        )

    def require_fixed(self) -> None:
        """Raise unless the private folder and the registry are the same ones in every working folder."""
        if not (self.private_fixed and self.registry_fixed):
            raise UsageError(self.not_fixed)

    @property
    def ledger_shown(self) -> str:
        """The ledger's address without any password, or a note that there is none."""
        if not (self.named or self.found):
            return f"none: no {NAME} folder was found from {self.start} upwards"
        if self.ledger_url.startswith(SQLITE):
            return self.ledger_url.removeprefix(SQLITE)
        scheme, _, rest = self.ledger_url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables that give another process, in any working folder, the same places."""
        return {
            LEDGER_VARIABLE: self.ledger_url,
            PRIVATE_VARIABLE: str(self.private),
            REGISTRY_VARIABLE: str(self.registry),
        }


_current: ContextVar[Places | None] = ContextVar("places", default=None)


def places_from(start: Path, *, ledger_url: str | None = None) -> Places:
    """Return the places found from a folder.

    Args:
        start: The folder in which to start: the spec's folder, or the working folder for a command without a spec.
        ledger_url: The ledger's address, if the caller knows it. It takes precedence over `DPFLOW_LEDGER_URL`.

    Raises:
        UsageError: If the `.dpflow` found belongs to another user, or is not a folder, or `DPFLOW_PRIVATE` or `DPFLOW_REGISTRY` is a
            relative path.
    """
    url = ledger_url or os.environ.get(LEDGER_VARIABLE) or None
    named = url is not None
    start = start.resolve()
    above = [folder / NAME for folder in (start, *start.parents) if _is_folder(folder / NAME)]
    folder = above[0] if above else start / NAME
    beside = folder
    if url is None:
        url = f"{SQLITE}{folder / LEDGER_FILE}"
    elif url.startswith(SQLITE) and "\0" not in url and url not in {SQLITE, f"{SQLITE}:memory:"}:
        # Resolve links, so that a ledger has the same heads and keys under every name.
        beside = Path(url.removeprefix(SQLITE)).resolve().parent
        url = f"{SQLITE}{Path(url.removeprefix(SQLITE)).absolute()}"
    private, registry = os.environ.get(PRIVATE_VARIABLE), os.environ.get(REGISTRY_VARIABLE)
    for variable, value in ((PRIVATE_VARIABLE, private), (REGISTRY_VARIABLE, registry)):
        if value:
            _require_absolute(variable, value, project=folder.parent)
    by_file = named and url.startswith(SQLITE)
    searched = beside == folder and not by_file
    if searched and not (named and private and registry):
        _require_no_other_thing(start)
        if above:
            # A folder found by searching is trusted only if it belongs to this user: anyone can create one in /tmp.
            _require_own(folder)
    return Places(
        start=start,
        folder=folder,
        found=bool(above),
        outer=above[1] if above[1:] else None,
        ledger_url=url,
        named=named,
        private=Path(private or beside / "private"),
        registry=Path(registry or beside / "registry"),
        private_fixed=bool(private or above or by_file),
        registry_fixed=bool(registry or above or by_file),
    )


def places_of_spec(spec: Path) -> Places:
    """Return the places that a spec's runs use. A link to the spec is resolved."""
    return places_from(spec.resolve().parent)


def current_places() -> Places:
    """Return the places set by `using`, or those found from the working folder."""
    chosen = _current.get()
    return chosen if chosen is not None else places_from(working_folder())


@contextmanager
def using(places: Places) -> Iterator[Places]:
    """Make `current_places` return these places inside the context, for example to the private log."""
    token = _current.set(places)
    try:
        yield places
    finally:
        _current.reset(token)


def private_folder() -> Path:
    """Return the steward's private folder."""
    return current_places().private


def made_private_folder() -> Path:
    """Return the steward's private folder, and create it for this user alone if it does not exist. Never create a `.dpflow`.

    Raises:
        UsageError: If the folder would follow from the working folder.
        OSError: If it cannot be created.
    """
    places = current_places()
    if not places.private_fixed:
        raise UsageError(places.not_fixed)
    places.private.parent.mkdir(parents=True, exist_ok=True)
    # An existing folder keeps the mode that its owner gave it.
    places.private.mkdir(mode=0o700, exist_ok=True)
    return places.private


def registry_folder() -> Path:
    """Return the folder of registered specs and approvals."""
    return current_places().registry


def fixed_registry_folder() -> Path:
    """Return the folder of registered specs and approvals, to decide by it or to change it.

    Raises:
        UsageError: If it would follow from the working folder, where another run would not find it.
    """
    places = current_places()
    if not places.registry_fixed:
        raise UsageError(places.not_fixed)
    return places.registry


def working_folder() -> Path:
    """Return the working folder. Raise if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("the working folder was deleted; change to another one") from None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a folder that this user may not read can't be used either
        return False


def _require_no_other_thing(start: Path) -> None:
    """Raise if the nearest `.dpflow` is a file or a broken link: any other ledger would be another budget."""
    nearest = next(
        (path for path in (folder / NAME for folder in (start, *start.parents)) if os.path.lexists(path)), None
    )
    if nearest is not None and not _is_folder(nearest):
        raise UsageError(
            f"{nearest} is a file or a broken link, so the ledger is unknown; put the folder back, remove the file or link, "
            f"or name the ledger with {LEDGER_VARIABLE}"
        )


def _require_absolute(variable: str, folder: str, *, project: Path) -> None:
    """Raise if a folder depends on the working folder: after a `cd`, no head would be remembered and no approval needed."""
    if not Path(folder).is_absolute():
        raise UsageError(
            f"{variable}={folder} is a relative path, which means another folder in each working folder; name the folder in "
            f"full, for example {variable}={project / folder}"
        )


def _require_own(folder: Path) -> None:
    """Raise if the folder, or the link that leads to it, belongs to another user than this one or root."""
    if not hasattr(os, "geteuid"):
        return
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        trusted.add(int(os.environ["SUDO_UID"]))
    if not {folder.stat().st_uid, folder.lstat().st_uid} <= trusted:
        raise UsageError(
            f"{folder} belongs to another user, so it is not used by default; if it is the right one, "
            f"set {LEDGER_VARIABLE}={SQLITE}{folder / LEDGER_FILE}, otherwise work in a folder that is not below it"
        )


@contextmanager
def set_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process while the context is open."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
