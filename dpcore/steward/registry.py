"""The registry of release specs that may be run by name, from a form or by a schedule.

A person who may start runs names a registered spec and never a path, so nobody can run a spec that the steward has not seen. The
registry stores the hash of each spec: a spec that was edited since is refused until it is registered again.
"""

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dpcore.errors import SpecError, UsageError
from dpcore.places import fixed_registry_folder, places_of_spec, registry_folder, using
from dpcore.spec import Declaration, load_spec
from dpcore.steward.entries import Entries, Scheduled
from dpcore.steward.schedule import checked_schedule

SPEC_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, kw_only=True)
class Registered(Scheduled):
    """A spec that may be run by its name.

    Attributes:
        spec: The absolute path of the spec.
        sha256: The digest of the registered spec.
    """

    what = "registered spec"

    spec: Path
    sha256: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name.endswith(SPEC_SUFFIXES):
            raise UsageError(f"{self.name!r} is named like a file; choose a name without {Path(self.name).suffix}")
        if not self.spec.is_absolute():
            raise UsageError(f"the path {self.spec} is not absolute; register the spec again")

    @property
    def command(self) -> str:
        """The command that registers it again with the same schedule."""
        when = f' --cron "{self.cron}" --timezone {self.timezone}' if self.cron else ""
        return f"dpflow register {shlex.quote(str(self.spec))} --name {self.name}{when}"


def register(
    spec: str | Path, *, name: str | None = None, cron: str | None = None, timezone: str | None = None
) -> Registered:
    """Validate a spec, without reading data, and register it to be run by name.

    Args:
        spec: The spec's file. Registering it again updates the entry.
        name: Its name; by default the file's, without the suffix.
        cron: Its schedule. None removes an earlier schedule.
        timezone: The time zone of `cron`, by default UTC.
    """
    path = Path(spec)
    with using(places_of_spec(path)):
        if path.is_symlink():
            raise UsageError(f"{path} is a link, which may point elsewhere tomorrow; register the file itself")
        name = path.stem if name is None else name
        cron, timezone = checked_schedule(cron, timezone)
        declaration = load_spec(path.parent.resolve() / path.name)
        fixed_registry_folder()
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
                f"{name!r} is already the name of {before.spec}; choose another with --name, "
                f"or remove that one first: dpflow register {name} --remove"
            )
        _entries().write(name, entry)
        return entry


def unregister(name: str) -> None:
    """Remove a spec from the registry. Its releases stay."""
    fixed_registry_folder()
    if not _entries().remove(name):
        raise _unknown(name)


def registered(name: str) -> Registered:
    """Return the entry with this name. Raise, listing the registered names, if there is none."""
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
    """Return the sorted names of all registered specs."""
    return _entries().names()


def all_registered() -> tuple[Registered, ...]:
    """Return all registered specs, sorted by name."""
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
                f"{release!r} is both a registered name and a file here; give the file's full path, or rename it"
            )
        return _as_registered(entry)
    if not path.suffix and len(path.parts) == 1 and not path.exists():
        raise _unknown(release)
    return load_spec(path)


def _as_registered(entry: Registered) -> Declaration:
    """Return the declaration of a registered spec. Raise if its file is missing or has changed since it was registered."""
    if not entry.spec.exists():
        raise UsageError(
            f"the spec of {entry.name!r} is no longer at {entry.spec}; put it back, "
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
        raise UsageError(f"{changed_since}; if that is intended, register it again: {entry.command}")
    return declaration


def _unknown(name: str) -> UsageError:
    names = ", ".join(registered_names())
    advice = f"registered specs: {names}" if names else "none is registered yet"
    return UsageError(f"no spec is registered as {name[:100]!r}; {advice}; register one with `dpflow register SPEC`")


def _entries() -> Entries[Registered]:
    mend = "remove it with `dpflow register {name} --remove`, then register the spec again"
    return Entries(registry_folder(), ".json", Registered, mend)
