"""The table of all checks, their findings on this machine, and the verdict."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import groupby
from typing import NamedTuple

from dpcore.cli.output import Answer
from flows.doctor import access, lines, settings, steward
from flows.doctor.finding import Finding, Level, warning
from flows.doctor.machine import Machine
from flows.doctor.settings import Unsafe, UnsafeServer

Cause = Callable[[Machine], Finding | None]

STORED = "results of tasks are stored on disk"
BLOCK = "a default storage block is set, to which results are written"

CHECKS: Mapping[str, Mapping[str, tuple[str, *tuple[Cause, ...]]]] = {
    "what Prefect stores": {
        "persisted results": (
            "results of tasks are not stored",
            Unsafe("results.persist_by_default", STORED),
            Unsafe("tasks.default_persist_result", STORED),
        ),
        "result storage": (
            "no storage block is set for results",
            Unsafe("results.default_storage_block", BLOCK, safe=None),
            Unsafe("tasks.scheduling.default_storage_block", BLOCK, safe=None),
            settings.server_result_storage,
        ),
        "printed lines": (
            "printed output of flows is not sent",
            Unsafe("logging.log_prints", "printed output of flows is sent to the server"),
        ),
        "extra loggers": (
            "no log lines of libraries are sent",
            Unsafe("logging.extra_loggers", "log lines of {value} are sent to the server", safe=""),
        ),
        "debug mode": ("Prefect is in neither debug nor test mode", *settings.MODES),
        "debug lines": ("only lines of level INFO and above are sent", lines.debug_lines),
        "routed lines": ("only the lines of runs are sent", lines.routed_lines),
        "logging file": ("Prefect's own logging configuration is in use", lines.logging_file),
    },
    "what Prefect tells outsiders": {
        "usage reports": ("the client sends no usage reports", settings.usage_reports),
        "server analytics": (
            "the server reports nothing to Prefect's makers",
            UnsafeServer("server.analytics_enabled", "the server reports to Prefect's makers"),
        ),
        "new pages": (
            "the server's UI calls no analytics host",
            UnsafeServer("server.ui.v2_enabled", "the server's UI calls an analytics host from the browser"),
        ),
        "promotions": (
            "the server's UI shows no promotions",
            UnsafeServer("server.ui.show_promotional_content", "the server's UI shows promotions", level=Level.WARNING),
        ),
        "resource metrics": ("no resource metrics of runs are sent", settings.resource_metrics),
        "served metrics": (
            "runs open no metrics port",
            Unsafe("client.metrics.enabled", "runs open a port on which anybody can read their memory use"),
        ),
        "logfire": ("the server sends nothing to Logfire", settings.logfire),
    },
    "who reaches the server": {
        "server started here": ("a server started here lets in no other machine unasked", access.server_started_here),
        "server configured": ("no server that runs use lets in anybody without a password", access.server_configured),
        "way to server": ("nothing is sent to another machine unencrypted", access.way_to_server),
        "forged requests": ("web pages can't start runs in a user's name", access.forged_requests),
        "server version": ("runs use the Prefect version of this machine", access.server_version),
        "server database": ("the server's database suits its users", access.server_database),
    },
    "who reads the steward's files": {
        "private folder": ("the private folder is closed to others", steward.private_folder),
        "private files": ("no file in the private folder is open to others", steward.private_files),
        "private place": ("the private folder lies in no shared folder", steward.private_place),
        "private in git": ("git would not add the private folder", steward.private_in_git),
        "passwords": ("no file with a password for Prefect is open to others", steward.passwords),
        "ledger file": ("no ledger file is open to others", steward.ledger_file),
        "ledger folder": ("no folder of a ledger file is open to others", steward.ledger_folder),
        "registry folder": ("only the registry's owner can change which specs may be run", steward.registry_folder),
        "raw files": ("no raw table of a registered spec can be read by every account", steward.raw_files),
        "raw places": ("no raw table of a registered spec lies in a shared folder", steward.raw_places),
    },
    "how the ledger is kept": {
        "ledger password": ("DPFLOW_LEDGER_URL contains no password", steward.ledger_password),
        "ledger role": ("the ledger's role can't change its rules", steward.ledger_role),
        "accounts": ("every registered spec has its account", steward.accounts),
        "changed specs": ("the registered specs are unchanged", steward.changed_specs),
        "core dumps": ("a crash writes no memory to disk", steward.core_dumps),
    },
}
"""For each group and check, what holds if all is well, and what would speak against it: the first cause that applies is its finding."""

NOT_LOOKED_AT = (
    "other machines, such as workers and databases; logins and group members of this machine; backups, swap and running "
    "processes; what the specs declare, and what other flows do"
)


class Checked(NamedTuple):
    """A check's group and name, and its finding."""

    group: str
    check: str
    finding: Finding


def find(machine: Machine, name: str) -> Finding:
    """Run one check."""
    well, *causes = {name: row for checks in CHECKS.values() for name, row in checks.items()}[name]
    try:
        return next(filter(None, (cause(machine) for cause in causes)), Finding(Level.OK, well, None))
    except OSError:  # a folder that this account can't read
        return warning(f"{name}: could not be checked by this account", "sudo -u ACCOUNT dpflow doctor")


def examine(machine: Machine) -> tuple[Checked, ...]:
    """Run all checks. The worst findings of a group come first, and so does the group with the worst finding."""
    groups = [
        sorted((Checked(group, name, find(machine, name)) for name in checks), key=_rank)
        for group, checks in CHECKS.items()
    ]
    return tuple(checked for group in sorted(groups, key=lambda group: _rank(group[0])) for checked in group)


def answer(examined: tuple[Checked, ...]) -> Answer:
    """Return all findings as JSON, and as a text that spells out only leaks and warnings."""
    levels = [finding.level for _, _, finding in examined]
    leaks, warnings = levels.count(Level.LEAK), levels.count(Level.WARNING)
    beside = f"{warnings or 'no'} warning{'' if warnings == 1 else 's'}"
    verdict = f"{leaks} leak{'' if leaks == 1 else 's'} to fix, {beside}." if leaks else f"No leaks found; {beside}."
    data = {
        "leaks": leaks,
        "warnings": warnings,
        "verdict": verdict,
        "not_looked_at": NOT_LOOKED_AT,
        "findings": [{"group": group, "check": check, **asdict(finding)} for group, check, finding in examined],
    }
    texts = [_text(group, list(checks)) for group, checks in groupby(examined, key=lambda checked: checked.group)]
    text = "\n\n".join([*texts, f"not checked: {NOT_LOOKED_AT}", verdict])
    return Answer(data, text, exit_code=1 if leaks else 0)


def _rank(checked: Checked) -> int:
    """Return the position of a finding's level among the levels. The worst is 0."""
    return list(Level).index(checked.finding.level)


def _text(group: str, examined: list[Checked]) -> str:
    bad = [finding for _, _, finding in examined if finding.mend]
    good = ", ".join(check for _, check, finding in examined if not finding.mend)
    rows = [f"  {finding.level:<8} {finding.found}; fix: {finding.mend}" for finding in bad]
    return "\n".join([group, *rows, *([f"  {Level.OK:<8} {good}"] if good else [])])
