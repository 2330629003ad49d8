"""Find where a Prefect setting was set, and the line that changes it."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.doctor.machine import Machine

ENVIRONMENT, PROFILE = "the environment", "the Prefect profile"
FILES = (".env", "prefect.toml", "pyproject.toml")


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


def origin(machine: Machine, accessor: str) -> Origin:
    """Find where a setting was set: the first source that names it, in Prefect's order of precedence."""
    names = _names(accessor)
    for place, named in _places(machine, accessor, names):
        if named is not None:
            return Origin(place, named)
    return Origin(None, names[0])


def mend(machine: Machine, accessor: str, *, to: str | None) -> str:
    """Return the line that sets a setting to a value, or unsets it if the value is None."""
    found, name = origin(machine, accessor), _names(accessor)[0]
    if found.place == PROFILE:
        return f"prefect config unset --yes {found.name}" if to is None else f"prefect config set {name}={to}"
    if to is not None:
        return f"export {name}={to}"  # the environment takes precedence over every file
    if found.place in FILES:
        return f"sed -i '/{accessor.rpartition('.')[2]}/Id' {found.place}"
    return f"unset {found.name}"


def _places(machine: Machine, accessor: str, names: tuple[str, ...]) -> list[tuple[str, str | None]]:
    from dotenv import dotenv_values  # noqa: PLC0415  the parser that Prefect uses
    from prefect.settings import Settings  # noqa: PLC0415  after the quiet import

    from flows.prefect_compat import ProfileSettingsTomlLoader  # noqa: PLC0415

    dotenv = {name.upper() for name in dotenv_values(FILES[0], interpolate=False)}
    profile = ProfileSettingsTomlLoader(Settings).profile_settings
    return [
        (ENVIRONMENT, _first(names, {name.upper() for name in machine.environ})),
        (FILES[0], _first(names, dotenv)),
        (FILES[1], names[0] if _holds(_toml(FILES[1]), accessor) else None),
        (FILES[2], names[0] if _holds(_toml(FILES[2]), f"tool.prefect.{accessor}") else None),
        (PROFILE, _first(names, profile)),
    ]


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


def _first(names: tuple[str, ...], known: Any) -> str | None:
    return next((name for name in names if name in known), None)


def _toml(name: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _holds(content: Any, accessor: str) -> bool:
    for part in accessor.split("."):
        if not isinstance(content, Mapping) or part not in content:
            return False
        content = content[part]
    return True
