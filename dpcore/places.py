"""Find the steward's folder `.dpflow` the way git finds `.git`, and say where ledger, private folder and registry lie.

The search begins in a folder that the caller names, the spec's own or the working folder, and goes upwards. So the same spec
pays from the same ledger, whatever folder a command is called in. The variables `DPFLOW_LEDGER_URL`, `DPFLOW_PRIVATE` and
`DPFLOW_REGISTRY` override what is found.
"""

import os
from collections.abc import Iterator
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
    """Where everything lies that belongs to one ledger. All paths are absolute.

    Attributes:
        start: The folder in which the search began.
        folder: The `.dpflow` that was found, or the one that `ledger open` would make.
        found: Whether `folder` exists.
        outer: Another `.dpflow` further up, which is not used.
        ledger_url: The ledger's address, with its password if it has one.
        named: Whether `DPFLOW_LEDGER_URL`, or the caller, names the ledger.
        private: The folder for keys, logs and remembered heads.
        registry: The folder of what may be run by name, and of approvals.
    """

    start: Path
    folder: Path
    found: bool
    outer: Path | None
    ledger_url: str
    named: bool
    private: Path
    registry: Path

    @property
    def ledger_shown(self) -> str:
        """The ledger's address for people, without any password; or that there is none."""
        if not (self.named or self.found):
            return f"none: no {NAME} folder was found from {self.start} upwards"
        if self.ledger_url.startswith(SQLITE):
            return self.ledger_url.removeprefix(SQLITE)
        scheme, _, rest = self.ledger_url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"

    def environment(self) -> dict[str, str]:
        """Return the variables that lead another process, in any working folder, to the same places."""
        return {
            LEDGER_VARIABLE: self.ledger_url,
            PRIVATE_VARIABLE: str(self.private),
            REGISTRY_VARIABLE: str(self.registry),
        }


_current: ContextVar[Places | None] = ContextVar("places", default=None)


def places_from(start: Path, *, ledger_url: str | None = None) -> Places:
    """Return the places for work that begins in a folder.

    Args:
        start: Where to begin to look for `.dpflow`: the spec's folder, or the working folder for what has no spec.
        ledger_url: The ledger's address, if the caller knows it; `DPFLOW_LEDGER_URL` comes next.

    Raises:
        UsageError: If the `.dpflow` that was found belongs to another user, or is no folder.
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
        # Where a link leads to: whatever name a ledger is opened by, its heads and keys are the same.
        beside = Path(url.removeprefix(SQLITE)).resolve().parent
        url = f"{SQLITE}{Path(url.removeprefix(SQLITE)).absolute()}"
    private, registry = os.environ.get(PRIVATE_VARIABLE), os.environ.get(REGISTRY_VARIABLE)
    searched = beside == folder and not (named and url.startswith(SQLITE))
    if searched and not (named and private and registry):
        _require_no_other_thing(start)
        if above:
            # A folder that nobody has named is trusted only if it is ours: anybody may put one into /tmp.
            _require_own(folder)
    return Places(
        start=start,
        folder=folder,
        found=bool(above),
        outer=above[1] if above[1:] else None,
        ledger_url=url,
        named=named,
        private=Path(private or beside / "private").absolute(),
        registry=Path(registry or beside / "registry").absolute(),
    )


def places_of_spec(spec: Path) -> Places:
    """Return the places that a spec's runs use; a link is followed to the file itself."""
    return places_from(spec.resolve().parent)


def current_places() -> Places:
    """Return the places that `using` has set, or else those found from the working folder."""
    chosen = _current.get()
    return chosen if chosen is not None else places_from(working_folder())


@contextmanager
def using(places: Places) -> Iterator[Places]:
    """Let everything inside that asks for `current_places` get these, such as the steward's log."""
    token = _current.set(places)
    try:
        yield places
    finally:
        _current.reset(token)


def private_folder() -> Path:
    """Return the steward's private folder."""
    return current_places().private


def registry_folder() -> Path:
    """Return the folder of what may be run by name."""
    return current_places().registry


def working_folder() -> Path:
    """Return the working folder, where the search begins for whatever has no spec."""
    try:
        return Path.cwd()
    except OSError:
        raise UsageError("the working folder was deleted; change to another one") from None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a folder that this user may not look into can't be used either
        return False


def _require_no_other_thing(start: Path) -> None:
    """Refuse if the nearest `.dpflow` is a file, or a link that leads nowhere: whatever is used instead is another budget."""
    nearest = next((path for path in (each / NAME for each in (start, *start.parents)) if os.path.lexists(path)), None)
    if nearest is not None and not _is_folder(nearest):
        raise UsageError(
            f"{nearest} is a file, or a link that leads nowhere, so nobody can tell which ledger is meant; put the folder back, remove what "
            f"is there, or name the ledger with {LEDGER_VARIABLE}"
        )


def _require_own(folder: Path) -> None:
    """Refuse a folder of another user, or one that a link of another user leads to; root's is trusted as root is."""
    if not hasattr(os, "geteuid"):
        return
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        trusted.add(int(os.environ["SUDO_UID"]))
    if not {folder.stat().st_uid, folder.lstat().st_uid} <= trusted:
        raise UsageError(
            f"{folder} belongs to another user, so it is not used unasked; if it is the right one, "
            f"set {LEDGER_VARIABLE}={SQLITE}{folder / LEDGER_FILE}, otherwise work in a folder that is not below it"
        )
