"""Checks of which log lines leave the process, under the logging configuration that Prefect would really use.

That is Prefect's own file or the user's, with the entries that `PREFECT_LOGGING_...` variables override.
"""

import logging
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flows.doctor.finding import Finding, leak, warning
from flows.doctor.machine import Machine
from flows.doctor.settings import MODES, Unsafe

OF_RUNS = {"prefect.extra", "prefect.flow_runs", "prefect.task_runs", "prefect.workers"}
"""The loggers whose lines make up a run's log."""

TO_SERVER = {"prefect.logging.handlers.APILogHandler", "prefect.logging.handlers.WorkerAPILogHandler"}
TO_TERMINAL = {
    "prefect.logging.handlers.PrefectConsoleHandler",
    "prefect.logging.handlers._SafeStreamHandler",
    "logging.StreamHandler",
    "logging.NullHandler",
}
OVERRIDES = ("PREFECT_LOGGING_LOGGERS_", "PREFECT_LOGGING_HANDLERS_", "PREFECT_LOGGING_ROOT_")


def debug_lines(machine: Machine) -> Finding | None:
    """Return a leak if lines below the level INFO, which include tracebacks of crashes, are sent to the server."""
    loud = [
        name
        for name, handler, level in _outlets(machine.logging)
        if handler in TO_SERVER and max(_level(machine.logging, name), level) < logging.INFO
    ]
    if not loud:
        return None
    sentence = f"lines of level DEBUG are sent to the server by {_listed(loud)}"
    for mode in filter(None, (mode(machine) for mode in MODES)):
        return replace(mode, found=f"{sentence}, because of Prefect's mode")
    if _number(machine.settings.logging.level) < logging.INFO:
        return Unsafe("logging.level", sentence, safe="INFO")(machine)
    return leak(sentence, _undo(machine))


def routed_lines(machine: Machine) -> Finding | None:
    """Return a leak if lines of loggers other than those of runs are sent, or lines go anywhere but the server and the terminal."""
    others = [
        name
        for name, handler, _ in _outlets(machine.logging)
        if handler not in TO_TERMINAL and not (handler in TO_SERVER and name in OF_RUNS)
    ]
    if not others:
        return None
    return leak(f"lines of {_listed(others)} are sent to the server, a file or elsewhere", _undo(machine))


def logging_file(machine: Machine) -> Finding | None:
    """Return a warning if a file of the user replaces Prefect's own logging configuration."""
    path = machine.settings.logging.config_path
    if not path.exists():
        return None
    unread = "can't be read, and Prefect would fail" if not machine.logging else "was checked here"
    return warning(f"{path} replaces Prefect's logging configuration; it {unread}", _move_away(machine))


def _outlets(configuration: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield each logger with the kind and the level of each of its handlers."""
    handlers = configuration.get("handlers") or {}
    loggers = {**(configuration.get("loggers") or {}), "root": configuration.get("root") or {}}
    for name, logger in loggers.items():
        for used in (logger or {}).get("handlers") or ():
            handler = handlers.get(used) or {}
            kind = handler.get("class") or handler.get("()")
            yield name, str(kind), _number(handler.get("level"))


def _level(configuration: Mapping[str, Any], name: str) -> int:
    """Return a logger's effective level: its own, or that of the nearest ancestor that has one."""
    loggers = configuration.get("loggers") or {}
    while name:
        level = _number((loggers.get(name) or {}).get("level"))
        if level:
            return level
        name = name.rpartition(".")[0]
    return _number((configuration.get("root") or {}).get("level")) or logging.WARNING


def _number(level: object) -> int:
    text = str(level or 0).upper()
    return int(text) if text.isdigit() else logging.getLevelNamesMapping().get(text, logging.NOTSET)


def _undo(machine: Machine) -> str:
    """Return the line that removes all differences from Prefect's own configuration."""
    names = sorted(name for name in machine.environ if name.startswith(OVERRIDES))
    parts = [f"unset {' '.join(names)}"] if names else []
    return "; ".join([*parts, *([_move_away(machine)] if machine.settings.logging.config_path.exists() else [])])


def _move_away(machine: Machine) -> str:
    path = str(machine.settings.logging.config_path)
    return f"mv {shlex.quote(path)} {shlex.quote(f'{path}.off')}"


def _listed(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(names))
