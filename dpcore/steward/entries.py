"""The steward's decisions as small JSON files, one per name, which can be read, copied and repaired by hand."""

import os
import re
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dpcore.errors import DpflowError, OutputError, UsageError
from dpcore.release.atomic_files import replacing
from dpcore.spec.parts import NAME
from dpcore.steward.schedule import checked_schedule


def checked_name(name: str, *, what: str) -> str:
    """Return the name. Raise unless it is also safe as a file name."""
    if not re.fullmatch(NAME, name):
        raise UsageError(
            f"{name[:100]!r} can't be {what}; use letters, digits, dots, dashes and underscores, "
            "at most 100, and begin with a letter or digit"
        )
    return name


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A decision of the steward. Its `__post_init__` validates the values, whether from a file or a call."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def to_json(self) -> dict[str, Any]:
        """Return the entry as plain JSON values, as in its file."""
        plain: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return plain


@dataclass(frozen=True, kw_only=True)
class Scheduled(Entry):
    """What may be run by its name, maybe on a schedule.

    Attributes:
        name: Its name in forms, schedules and verbs.
        account: The ledger account that pays.
        cron: Its schedule; None if it is not scheduled.
        timezone: The time zone of `cron`; None if there is no `cron`.
        registered_at: When it was registered.
    """

    what: ClassVar[str]

    name: str
    account: str
    cron: str | None
    timezone: str | None
    registered_at: datetime

    def __post_init__(self) -> None:
        checked_name(self.name, what=f"the name of a {self.what}")
        checked_schedule(self.cron, self.timezone)

    @property
    def when(self) -> str:
        """Its schedule as text; empty if it has none."""
        return f"{self.cron} ({self.timezone})" if self.cron else ""


EntryKind = TypeVar("EntryKind", bound=Entry)


@dataclass(frozen=True)
class Entries(Generic[EntryKind]):
    """The entries of one kind in a folder.

    Attributes:
        folder: Their folder. It is created with the first entry, and other users may read it.
        suffix: The suffix of their file names.
        form: The dataclass of an entry.
        mend: The advice for a file that is not a valid entry. `{name}` stands for its name.
    """

    folder: Path
    suffix: str
    form: type[EntryKind]
    mend: str

    def names(self) -> tuple[str, ...]:
        """Return the sorted names of all entries, valid or not."""
        try:
            files = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return ()
        except OSError:
            raise UsageError(
                f"{self.folder} can't be read as a folder; check it, its permissions and DPFLOW_REGISTRY"
            ) from None
        named = (file.removesuffix(self.suffix) for file in files if file.endswith(self.suffix))
        return tuple(sorted(name for name in named if re.fullmatch(NAME, name)))

    def read(self, name: str) -> EntryKind | None:
        """Return the entry of a name, or None if there is none. Raise if its file is invalid."""
        if not re.fullmatch(NAME, name):
            return None
        path = self._path(name)
        # An entry must be a regular file: do not follow a link, and do not block on a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            with os.fdopen(os.open(path, flags), "rb") as file:
                return self._adapter.validate_json(file.read())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError, DpflowError):
            raise UsageError(f"{path} is unreadable, or not as dpflow wrote it; {self._mend(name)}") from None

    def write(self, name: str, entry: EntryKind) -> None:
        """Store an entry under a name, replacing the one before. After a failure the earlier entry is unchanged."""
        path = self._path(checked_name(name, what="a name here"))
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UsageError(f"{path} is not a regular file; {self._mend(name)}")
        _make(self.folder)
        with replacing(self.folder, [path.name]) as (partial,):
            partial.write_bytes(self._adapter.dump_json(entry, indent=2) + b"\n")
            partial.chmod(0o644)

    def remove(self, name: str) -> bool:
        """Remove the entry of a name, even an invalid one. Return whether there was one."""
        if not re.fullmatch(NAME, name):
            return False
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            return False
        except OSError:
            raise OutputError(f"{self._path(name)} can't be removed; check the permissions of its folder") from None
        return True

    @cached_property
    def _adapter(self) -> TypeAdapter[EntryKind]:
        return TypeAdapter(self.form)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{self.suffix}"

    def _mend(self, name: str) -> str:
        return self.mend.format(name=name)


def _make(folder: Path) -> None:
    """Create the folder, readable for everyone. Its parent may be the ledger's own folder, and is created readable for its owner only."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir()
        folder.chmod(0o755)  # whatever the umask
    except FileExistsError:
        if not folder.is_dir():
            raise OutputError(f"{folder} is not a folder; move it away, or set DPFLOW_REGISTRY to another") from None
    except OSError:
        raise OutputError(
            f"{folder} can't be created; check the permissions, or set DPFLOW_REGISTRY to another folder"
        ) from None
