"""The registry: which release specs a steward lets be run by name, from a form or by a schedule.

A person who may start runs names a registered spec and never a path, so nobody can run what the steward has not seen. What
was registered is remembered by its hash: a spec that was edited since is refused until it is registered again.
"""

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from dpcore.errors import SpecError, UsageError
from dpcore.places import places_of_spec, registry_folder, using
from dpcore.spec import Declaration, load_spec
from dpcore.steward.entries import Entries, checked_name
from dpcore.steward.schedule import checked_schedule

SPEC_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Registered:
    """A spec that may be run by its name.

    Attributes:
        name: What forms, schedules and `dpflow run` call it.
        spec: The absolute path of the spec.
        sha256: The digest of the spec as it was registered.
        account: The ledger account that pays.
        cron: When it runs by itself, if it does.
        timezone: The time zone of `cron`; None if there is no `cron`.
        registered_at: When it was registered.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    spec: Path
    sha256: str
    account: str
    cron: str | None
    timezone: str | None
    registered_at: datetime

    def __post_init__(self) -> None:
        checked_name(self.name, what="the name of a registered spec")
        if self.name.endswith(SPEC_SUFFIXES):
            raise UsageError(f"{self.name!r} is named like a file; choose a name without {Path(self.name).suffix}")
        if not self.spec.is_absolute():
            raise UsageError(f"the path {self.spec} is not absolute; register the spec again")
        checked_schedule(self.cron, self.timezone)

    @property
    def command(self) -> str:
        """The command that registers it again as it is."""
        when = f' --cron "{self.cron}" --timezone {self.timezone}' if self.cron else ""
        return f"dpflow register {shlex.quote(str(self.spec))} --name {self.name}{when}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return dict(_entries().to_json(self))


def register(
    spec: str | Path, *, name: str | None = None, cron: str | None = None, timezone: str | None = None
) -> Registered:
    """Check a spec wholly, touching no data, and let it be run by name from now on.

    Args:
        spec: The spec's file. One that changed since it was registered is registered anew.
        name: Its name; by default the file's, without the ending.
        cron: When to run it by itself; without it only when somebody asks, whatever was registered before.
        timezone: The time zone of `cron`, by default UTC.
    """
    path = Path(spec)
    with using(places_of_spec(path)):
        return _register(path, name=name, cron=cron, timezone=timezone)


def _register(path: Path, *, name: str | None, cron: str | None, timezone: str | None) -> Registered:
    if path.is_symlink():
        raise UsageError(f"{path} is a link, which may point elsewhere tomorrow; register the file itself")
    name = path.stem if name is None else name
    cron, timezone = checked_schedule(cron, timezone)
    declaration = load_spec(path.parent.resolve() / path.name)
    entry = Registered(
        name=name,
        spec=declaration.path,
        sha256=declaration.digest,
        account=declaration.spec.dataset,
        cron=cron,
        timezone=timezone,
        registered_at=datetime.now(UTC).replace(microsecond=0),
    )
    before = _entries().read(name)
    if before is not None and before.spec != entry.spec:
        raise UsageError(
            f"{name!r} is the name of {before.spec} already; choose another with --name, "
            f"or remove that one first: dpflow register {name} --remove"
        )
    _entries().write(name, entry)
    return entry


def unregister(name: str) -> None:
    """Let a spec be run by name no more; releases that were made of it stay."""
    if not _entries().remove(name):
        raise _unknown(name)


def registered(name: str) -> Registered:
    """Return what is registered under a name, or refuse and list the names there are."""
    entry = _entries().read(name)
    if entry is None:
        raise _unknown(name)
    if entry.name != name:
        raise UsageError(
            f"the registry's file of {name!r} holds {entry.name!r}; "
            f"remove it with `dpflow register {name} --remove`, then register the spec again"
        )
    return entry


def registered_names() -> tuple[str, ...]:
    """Return the names of all registered specs, in order."""
    return _entries().names()


def all_registered() -> tuple[Registered, ...]:
    """Return all registered specs, in the order of their names."""
    return tuple(map(registered, registered_names()))


def declared(release: str, *, registered_only: bool) -> Declaration:
    """Return the declaration of a release, by its registered name or, unless `registered_only`, by the path of a spec."""
    path = Path(release)
    if registered_only:
        return _as_registered(registered(release))
    if release in registered_names():
        entry = registered(release)
        if path.is_file() and path.resolve() != entry.spec:
            raise UsageError(
                f"{release!r} is a registered name and a file here; write the file's whole path, or rename it"
            )
        return _as_registered(entry)
    if not path.suffix and len(path.parts) == 1 and not path.exists():
        raise _unknown(release)
    return load_spec(path)


def _as_registered(entry: Registered) -> Declaration:
    """Return the declaration of a registered spec, unless its file is not what the steward registered."""
    if not entry.spec.exists():
        raise UsageError(
            f"the spec of {entry.name!r} is not at {entry.spec} any more; put it back, "
            f"or run `dpflow register {entry.name} --remove` and register it where it is now"
        )
    changed_since = f"the spec of {entry.name!r}, {entry.spec}, was changed since it was registered"
    try:
        declaration = load_spec(entry.spec)
    except SpecError:
        raise UsageError(
            f"{changed_since}, and is not valid now; see: dpflow check {shlex.quote(str(entry.spec))}"
        ) from None
    if declaration.digest != entry.sha256:
        raise UsageError(f"{changed_since}; if that is as it should be, register it again: {entry.command}")
    return declaration


def _unknown(name: str) -> UsageError:
    names = ", ".join(registered_names())
    known = f"the registered ones are {names}" if names else "none is registered yet"
    return UsageError(f"no spec is registered as {name[:100]!r}; {known}; register one with `dpflow register SPEC`")


def _entries() -> Entries[Registered]:
    mend = "remove it with `dpflow register {name} --remove`, then register the spec again"
    return Entries(registry_folder(), ".json", Registered, mend)
