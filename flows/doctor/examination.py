"""Run all checks, and report their findings and a verdict."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpcore.cli.output import Answer
from flows.doctor import exposure, folders, keeping, lines, stored, telemetry
from flows.doctor.finding import Finding, Level, warning
from flows.doctor.machine import Machine

Check = Callable[[Machine], Finding]

CHECKS: Mapping[str, tuple[Check, ...]] = {
    "what Prefect stores": (
        stored.persisted_results,
        stored.result_storage,
        stored.printed_lines,
        stored.extra_loggers,
        stored.debug_mode,
        lines.debug_lines,
        lines.routed_lines,
        lines.logging_file,
    ),
    "what Prefect tells outsiders": (
        telemetry.usage_reports,
        telemetry.server_analytics,
        telemetry.new_pages,
        telemetry.promotions,
        telemetry.resource_metrics,
        telemetry.served_metrics,
        telemetry.logfire,
    ),
    "who reaches the server": (
        exposure.server_started_here,
        exposure.server_configured,
        exposure.way_to_server,
        exposure.forged_requests,
        exposure.server_version,
        exposure.server_database,
    ),
    "who reads the steward's files": (
        folders.private_folder,
        folders.private_files,
        folders.private_place,
        folders.private_in_git,
        folders.passwords,
        folders.ledger_file,
        folders.ledger_folder,
        folders.registry_folder,
        folders.raw_files,
        folders.raw_places,
    ),
    "how the ledger is kept": (
        keeping.ledger_password,
        keeping.ledger_role,
        keeping.accounts,
        keeping.changed_specs,
        keeping.core_dumps,
    ),
}

NOT_LOOKED_AT = (
    "other machines, such as workers and databases; logins and group members of this machine; backups, swap and running "
    "processes; what the specs declare, and what other flows do"
)


@dataclass(frozen=True)
class Checked:
    """A check's name, the group it is in, and its finding."""

    group: str
    check: str
    finding: Finding

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON values."""
        found = self.finding
        return {
            "group": self.group,
            "check": self.check,
            "level": found.level.value,
            "found": found.found,
            "mend": found.mend,
        }


def examine(machine: Machine) -> tuple[Checked, ...]:
    """Run all checks. The worst findings of a group come first, and so does the group with the worst finding."""
    groups = [
        sorted((_checked(group, check, machine) for check in checks), key=_rank) for group, checks in CHECKS.items()
    ]
    return tuple(checked for group in sorted(groups, key=lambda group: _rank(group[0])) for checked in group)


def answer(checked: tuple[Checked, ...]) -> Answer:
    """Return all findings as JSON, and as a text that spells out only leaks and warnings."""
    leaks, warnings = (sum(each.finding.level is level for each in checked) for level in (Level.LEAK, Level.WARNING))
    verdict = _verdict(leaks, warnings)
    data = {
        "leaks": leaks,
        "warnings": warnings,
        "verdict": verdict,
        "not_looked_at": NOT_LOOKED_AT,
        "findings": [each.to_json() for each in checked],
    }
    groups = dict.fromkeys(each.group for each in checked)
    texts = [_text(group, [each for each in checked if each.group == group]) for group in groups]
    text = "\n\n".join([*texts, f"not checked: {NOT_LOOKED_AT}", verdict])
    return Answer(data, text, exit_code=1 if leaks else 0)


def _checked(group: str, check: Check, machine: Machine) -> Checked:
    name = check.__name__.replace("_", " ")
    try:
        finding = check(machine)
    except OSError:  # a folder that this account can't read
        finding = warning(f"{name}: could not be checked by this account", "sudo -u ACCOUNT dpflow doctor")
    return Checked(group, name, finding)


def _rank(checked: Checked) -> int:
    return checked.finding.level.rank


def _text(group: str, checked: list[Checked]) -> str:
    bad = [each.finding for each in checked if each.finding.level is not Level.OK]
    good = [each.check for each in checked if each.finding.level is Level.OK]
    rows = [f"  {found.level:<8} {found.found}; fix: {found.mend}" for found in bad]
    return "\n".join([group, *rows, *([f"  {Level.OK:<8} {', '.join(good)}"] if good else [])])


def _verdict(leaks: int, warnings: int) -> str:
    beside = f"{warnings} warning{'' if warnings == 1 else 's'}" if warnings else "no warnings"
    if leaks:
        return f"{leaks} leak{'' if leaks == 1 else 's'} to fix, {beside}."
    return f"No leaks found; {beside}."
