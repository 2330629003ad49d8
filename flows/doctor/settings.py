"""Settings under which Prefect stores or sends out more than names, states and public lines: where each was set, and the line that changes it.

dpflow's own tasks are guarded and leak nothing under any of these settings. Other flows on this machine are not. dpflow's own commands
turn off what Prefect reports by default. So a report is a leak only if somebody has turned it on, or if the configured server sends it.
"""

import tomllib
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.doctor.finding import Finding, Level, leak, warning
from flows.doctor.machine import Machine
from flows.doctor.server import value_at

ENVIRONMENT, PROFILE = "the environment", "the Prefect profile"
FILES = (".env", "prefect.toml", "pyproject.toml")
YES = {"1", "true", "yes"}
COLLECTORS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@dataclass(frozen=True)
class Origin:
    """Where a setting comes from.

    Attributes:
        place: The environment, the profile, or a file's name. None if the setting has Prefect's default.
        name: The variable that sets it there, which may be an alias.
    """

    place: str | None
    name: str

    def __str__(self) -> str:
        return f"set in {self.place}" if self.place else "Prefect's default"


@dataclass(frozen=True)
class Unsafe:
    """A setting of Prefect that leaks something if it has a value: any but false, none or an empty one.

    Attributes:
        accessor: Its path, such as `results.persist_by_default`.
        sentence: What it then does. `{value}` stands for the value.
        safe: The value to set it to. None to unset it.
    """

    accessor: str
    sentence: str
    safe: str | None = "false"

    def __call__(self, machine: Machine) -> Finding | None:
        """Return a leak if the setting is unsafe on a machine."""
        value = machine.value(self.accessor)
        if not value:
            return None
        listed = ", ".join(sorted(value)) if isinstance(value, list) else str(value)
        sentence = self.sentence.replace("{value}", listed)
        return leak(f"{sentence} ({origin(machine, self.accessor)})", mend(machine, self.accessor, to=self.safe))


@dataclass(frozen=True)
class UnsafeServer:
    """A setting of the server that is unsafe by default: judged at the configured server, or else for a server started here.

    Attributes:
        accessor: Its path, such as `server.analytics_enabled`.
        sentence: What the server does unless it is false.
        level: How bad that is if somebody chose it.
    """

    accessor: str
    sentence: str
    level: Level = Level.LEAK

    def __call__(self, machine: Machine) -> Finding | None:
        """Return a finding if the setting is unsafe on a machine."""
        served = machine.server.setting(self.accessor) if machine.server else None
        if machine.server and served:
            remedy = f"export {_names(self.accessor)[0]}=false  # where the server is started, then start it again"
            return Finding(self.level, f"{self.sentence}, according to the server at {machine.server.url}", remedy)
        if served is False or not machine.value(self.accessor):
            return None
        remedy = mend(machine, self.accessor, to="false")
        if machine.is_set(self.accessor):
            return Finding(self.level, f"{self.sentence} ({origin(machine, self.accessor)})", remedy)
        return warning(f"{self.sentence} unless dpflow starts it", remedy)


TEST_MODE = "Prefect is in test mode, which sends tracebacks"
MODES = (
    Unsafe("debug_mode", "Prefect is in debug mode, which sends tracebacks"),
    # Prefect takes any text in the test variables, even "false", for true. In these modes it also ignores the profile.
    Unsafe("testing.test_mode", TEST_MODE, safe=None),
    Unsafe("testing.unit_test_mode", TEST_MODE, safe=None),
)
"""The modes of Prefect that send tracebacks."""


def server_result_storage(machine: Machine) -> Finding | None:
    """Return a leak if the server has a default block, to which results are written even if persistence is off."""
    if machine.server and machine.server.has_result_storage:
        return leak(
            "the Prefect server has a default storage block, to which results are written",
            "prefect experimental result-storage clear",
        )
    return None


def usage_reports(machine: Machine) -> Finding | None:
    """Return a finding if Prefect's client sends usage reports to its makers."""
    choice, remedy = machine.environ.get("DO_NOT_TRACK", ""), "export DO_NOT_TRACK=1"
    if choice.lower() in YES:
        return None
    if choice:
        return leak("DO_NOT_TRACK is set so that Prefect's client reports to its makers", remedy)
    return warning("Prefect's client reports to its makers unless dpflow starts it", remedy)


def resource_metrics(machine: Machine) -> Finding | None:
    """Return a leak if memory and CPU time of runs, which grow with the table, are sent to a collector."""
    setting = "telemetry.enable_resource_metrics"
    collectors = [f"the collector of {name}" for name in COLLECTORS if machine.environ.get(name)]
    places = [*collectors, *(["Prefect Cloud"] if machine.settings.connected_to_cloud else [])]
    if not (places and machine.value(setting)):
        return None
    sentence = f"memory and CPU time of runs, which grow with the table, are sent to {places[0]}"
    return leak(sentence, mend(machine, setting, to="false"))


def logfire(machine: Machine) -> Finding | None:
    """Return a leak if the server sends its requests and SQL statements to an outside service."""
    if machine.environ.get("PREFECT_LOGFIRE_ENABLED", "").lower() in YES | {"on", "t", "y"}:
        return leak("the server sends its requests and SQL statements to Logfire", "unset PREFECT_LOGFIRE_ENABLED")
    return None


def origin(machine: Machine, accessor: str) -> Origin:
    """Find where a setting was set: the first source that names it, in Prefect's order of precedence."""
    from dotenv import dotenv_values  # noqa: PLC0415  the parser that Prefect uses
    from prefect.settings import Settings  # noqa: PLC0415  after the quiet import

    from flows.prefect_compat import ProfileSettingsTomlLoader  # noqa: PLC0415

    names = _names(accessor)
    sources: dict[str, Container[str]] = {
        ENVIRONMENT: {name.upper() for name in machine.environ},
        FILES[0]: {name.upper() for name in dotenv_values(FILES[0], interpolate=False)},
        FILES[1]: names if value_at(_toml(FILES[1]), accessor) is not None else (),
        FILES[2]: names if value_at(_toml(FILES[2]), f"tool.prefect.{accessor}") is not None else (),
        PROFILE: ProfileSettingsTomlLoader(Settings).profile_settings,
    }
    origins = (Origin(place, name) for place, source in sources.items() for name in names if name in source)
    return next(origins, Origin(None, names[0]))


def mend(machine: Machine, accessor: str, *, to: str | None) -> str:
    """Return the line that sets a setting to a value, or unsets it if the value is None."""
    where, name = origin(machine, accessor), _names(accessor)[0]
    if where.place == PROFILE:
        return f"prefect config unset --yes {where.name}" if to is None else f"prefect config set {name}={to}"
    if to is not None:
        return f"export {name}={to}"  # the environment takes precedence over every file
    if where.place in FILES:
        return f"sed -i '/{accessor.rpartition('.')[2]}/Id' {where.place}"
    return f"unset {where.name}"


def _names(accessor: str) -> tuple[str, ...]:
    """Return the names of the variables that set a setting, the canonical one first."""
    from prefect.settings import Settings  # noqa: PLC0415  after the quiet import

    model: Any = Settings
    *groups, last = accessor.split(".")
    for group in groups:
        model = model.model_fields[group].annotation
    aliases = getattr(model.model_fields[last].validation_alias, "choices", ())
    usual = f"PREFECT_{accessor.replace('.', '_').upper()}"
    return tuple(dict.fromkeys([usual, *(alias.upper() for alias in aliases if isinstance(alias, str))]))


def _toml(name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
