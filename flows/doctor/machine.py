"""The machine as the checks see it: Prefect's settings, the configured server, and the steward's files and ledger."""

import importlib
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcore.errors import UsageError
from dpcore.places import private_folder, registry_folder, set_variables
from dpcore.steward.inventory import LedgerKeeping, SpecKeeping, ledger_keeping, spec_keepings
from flows.doctor.server import Server, ask
from flows.server.connection import homes, no_warnings
from flows.server.password import kept_password
from flows.server.running import running_url
from flows.server.temporary import own_home

if TYPE_CHECKING:
    from prefect.settings import Settings


@dataclass(frozen=True)
class Machine:
    """Everything that the checks read. Folders need not exist.

    Attributes:
        settings: Prefect's settings, from the environment, the files in the working folder, and the profile.
        environ: The environment.
        server: The Prefect server that is configured, or that `dpflow ui` runs in this folder, as it answered.
        ledger: The ledger.
        specs: The registered specs.
        private: The absolute path of the steward's folder.
        registry: The absolute path of the registry.
        homes: The absolute paths of Prefect's home folders.
    """

    settings: "Settings"
    environ: Mapping[str, str]
    server: Server | None
    ledger: LedgerKeeping
    specs: tuple[SpecKeeping, ...]
    private: Path
    registry: Path
    homes: tuple[Path, ...]

    @property
    def releases(self) -> tuple[Path, ...]:
        """The folders to which releases are written."""
        declared = {spec.releases.resolve() for spec in self.specs if spec.releases}
        return tuple(sorted(declared | {Path("releases").resolve()}))

    @cached_property
    def logging(self) -> Mapping[str, Any]:
        """The logging configuration that Prefect would use, as a dictionary. Empty if it can't be read."""
        from prefect.context import SettingsContext, get_settings_context  # noqa: PLC0415  after the quiet import

        from flows.prefect_compat import DEFAULT_LOGGING_SETTINGS_PATH, load_logging_config  # noqa: PLC0415

        own = self.settings.logging.config_path
        path = own if own.exists() else DEFAULT_LOGGING_SETTINGS_PATH
        with SettingsContext(profile=get_settings_context().profile, settings=self.settings):
            try:
                return load_logging_config(path)
            except Exception:  # noqa: BLE001  the file may contain anything, and its error may quote it
                return {}

    def value(self, accessor: str) -> Any:
        """Return one of Prefect's settings by its path, such as `results.persist_by_default`."""
        return attrgetter(accessor)(self.settings)

    def is_set(self, accessor: str) -> bool:
        """Return whether a setting was set, rather than left at Prefect's default."""
        group, _, name = accessor.rpartition(".")
        return name in (self.value(group) if group else self.settings).model_fields_set


def look(settings: "Settings | None" = None) -> Machine:
    """Read everything that the checks need, changing nothing.

    Args:
        settings: Prefect's settings. Read again from all their sources unless given.

    Raises:
        UsageError: Prefect's settings, or the registry, can't be read.
    """
    settings = settings or _settings()
    url, secret = settings.api.url, None
    if not url and (url := running_url()):
        secret = kept_password()
    return Machine(
        settings=settings,
        environ=dict(os.environ),
        server=ask(url, settings, secret=secret) if url else None,
        ledger=ledger_keeping(),
        specs=spec_keepings(),
        private=private_folder().resolve(),
        registry=registry_folder().resolve(),
        homes=tuple(sorted({settings.home.resolve(), own_home().resolve()})),
    )


def _settings() -> "Settings":
    """Read Prefect's settings as `prefect` itself would here."""
    try:
        with no_warnings(), set_variables(_missing_home()):
            _import_quietly()
            from prefect.settings import Settings  # noqa: PLC0415  not before its import is made quiet

            return Settings()
    except (ValueError, RuntimeError, OSError):  # each may quote the value of a setting
        pass
    raise UsageError("Prefect's settings can't be read, so no run would start; see: prefect config validate")


def _import_quietly() -> None:
    """Import Prefect without side effects: by default, its import creates a home folder and, at a terminal, reports a new user."""
    if "prefect.context" in sys.modules:
        return
    with tempfile.TemporaryDirectory() as home, set_variables({"DO_NOT_TRACK": "1", "PREFECT_HOME": home}):
        importlib.import_module("prefect.context")


def _missing_home() -> dict[str, str]:
    """Return the home variables that an account without a home folder, as in containers, also gets for a run. Prefect can't start without."""
    variables = homes()
    return variables if "HOME" in variables else {}
