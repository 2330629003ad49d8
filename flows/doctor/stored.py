"""Checks of whether Prefect stores or sends more of a run than names, states and public lines.

dpflow's own tasks are guarded and leak nothing under any of these settings. Other flows on this machine are not.
"""

from flows.doctor.finding import Finding, leak, ok
from flows.doctor.machine import Machine
from flows.doctor.origin import mend, origin


def persisted_results(machine: Machine) -> Finding:
    """Check whether results of tasks are written to disk, as pickles that everybody may read and nobody deletes."""
    for accessor in ("results.persist_by_default", "tasks.default_persist_result"):
        if machine.value(accessor):
            return leak(
                f"results of tasks are stored on disk ({origin(machine, accessor)})",
                mend(machine, accessor, to="false"),
            )
    return ok("results of tasks are not stored")


def result_storage(machine: Machine) -> Finding:
    """Check whether a default storage block is set. Results are then written to it even if persistence is off."""
    for accessor in ("results.default_storage_block", "tasks.scheduling.default_storage_block"):
        if machine.value(accessor) is not None:
            return leak(
                f"a default storage block is set, to which results are written ({origin(machine, accessor)})",
                mend(machine, accessor, to=None),
            )
    if machine.server and machine.server.has_result_storage:
        return leak(
            "the Prefect server has a default storage block, to which results are written",
            "prefect experimental result-storage clear",
        )
    return ok("no storage block is set for results")


def printed_lines(machine: Machine) -> Finding:
    """Check whether the printed output of a flow becomes part of its log."""
    if machine.settings.logging.log_prints:
        return leak(
            f"printed output of flows is sent to the server ({origin(machine, 'logging.log_prints')})",
            mend(machine, "logging.log_prints", to="false"),
        )
    return ok("printed output of flows is not sent")


def extra_loggers(machine: Machine) -> Finding:
    """Check whether log lines of libraries, which may quote the table, become part of a run's log."""
    extra = machine.settings.logging.extra_loggers
    if extra:
        names = ", ".join(sorted([extra] if isinstance(extra, str) else extra))
        return leak(
            f"log lines of {names} are sent to the server ({origin(machine, 'logging.extra_loggers')})",
            mend(machine, "logging.extra_loggers", to=""),
        )
    return ok("no log lines of libraries are sent")


def debug_mode(machine: Machine) -> Finding:
    """Check whether Prefect is in debug mode, or in a mode for its own tests, in which it also ignores the profile."""
    for accessor in ("debug_mode", "testing.test_mode", "testing.unit_test_mode"):
        if machine.value(accessor):
            mode = "debug mode" if accessor == "debug_mode" else "test mode"
            return leak(
                f"Prefect is in {mode}, which sends tracebacks ({origin(machine, accessor)})",
                # Prefect takes any text in the test variables, even "false", for true.
                mend(machine, accessor, to="false" if accessor == "debug_mode" else None),
            )
    return ok("Prefect is in neither debug nor test mode")
