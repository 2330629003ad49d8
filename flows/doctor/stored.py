"""Does Prefect store or send more of a run than names, states and public lines?

dpflow's own steps are sealed and give nothing away under any of these settings; whatever else runs here is not.
"""

from flows.doctor.finding import Finding, leak, ok
from flows.doctor.machine import Machine
from flows.doctor.origin import mend, origin


def persisted_results(machine: Machine) -> Finding:
    """Look whether what tasks return is written to a disk, as a pickle that everybody may read and nobody deletes."""
    for accessor in ("results.persist_by_default", "tasks.default_persist_result"):
        if machine.value(accessor):
            return leak(
                f"what tasks return is stored on a disk ({origin(machine, accessor)})",
                mend(machine, accessor, to="false"),
            )
    return ok("what tasks return is not stored")


def result_storage(machine: Machine) -> Finding:
    """Look whether a storage block is set: results then go there, though nobody asked for results to be kept."""
    for accessor in ("results.default_storage_block", "tasks.scheduling.default_storage_block"):
        if machine.value(accessor) is not None:
            return leak(
                f"a block is set to which results go by default ({origin(machine, accessor)})",
                mend(machine, accessor, to=None),
            )
    if machine.server and machine.server.has_result_storage:
        return leak(
            "on the Prefect server a block is set to which results go by default",
            "prefect experimental result-storage clear",
        )
    return ok("no block is set for results")


def printed_lines(machine: Machine) -> Finding:
    """Look whether what a flow prints becomes a part of its log."""
    if machine.settings.logging.log_prints:
        return leak(
            f"what flows print is sent to the server ({origin(machine, 'logging.log_prints')})",
            mend(machine, "logging.log_prints", to="false"),
        )
    return ok("what flows print is not sent")


def extra_loggers(machine: Machine) -> Finding:
    """Look whether lines of libraries, which may quote the table, become a part of a run's log."""
    extra = machine.settings.logging.extra_loggers
    if extra:
        names = ", ".join(sorted([extra] if isinstance(extra, str) else extra))
        return leak(
            f"the lines of {names} are sent to the server ({origin(machine, 'logging.extra_loggers')})",
            mend(machine, "logging.extra_loggers", to=""),
        )
    return ok("no library's lines are sent")


def debug_mode(machine: Machine) -> Finding:
    """Look whether Prefect is debugged or in a mode for its own tests, in which it also ignores the profile."""
    for accessor in ("debug_mode", "testing.test_mode", "testing.unit_test_mode"):
        if machine.value(accessor):
            mode = "for debugging" if accessor == "debug_mode" else "for its own tests"
            return leak(
                f"Prefect is in its mode {mode}, which sends tracebacks ({origin(machine, accessor)})",
                # Prefect takes any text in the test variables, also "false", for yes.
                mend(machine, accessor, to="false" if accessor == "debug_mode" else None),
            )
    return ok("neither debugged nor tested")
