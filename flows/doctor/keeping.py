"""Checks of the ledger's credentials and accounts, of changed specs, and of core dumps."""

import resource
import shlex

from dpcore.runs.paying import opening_command
from dpcore.steward.inventory import SpecKeeping
from flows.doctor.finding import Finding, ok, warning
from flows.doctor.machine import Machine


def ledger_password(machine: Machine) -> Finding:
    """Check whether the ledger's URL contains a password, which child processes and `docker inspect` would show."""
    if not machine.ledger.has_password:
        return ok("DPFLOW_LEDGER_URL contains no password")
    address = shlex.quote(machine.ledger.address or "postgresql://USER@HOST/DATABASE")
    return warning(
        "DPFLOW_LEDGER_URL contains the ledger's password, where other processes can read it",
        f"export PGPASSFILE=~/.pgpass DPFLOW_LEDGER_URL={address}  # the file, with mode 600, contains HOST:PORT:DATABASE:USER:PASSWORD",
    )


def ledger_role(machine: Machine) -> Finding:
    """Check whether the ledger is opened by a role that owns its tables and could drop its triggers, as no worker should."""
    if machine.ledger.owns_tables:
        return warning(
            "the ledger's role owns its tables: right for a steward, wrong for a worker",
            "psql -d ledger -c \"CREATE ROLE nightly LOGIN PASSWORD '...' IN ROLE dpflow_runner\"",
        )
    return ok("the ledger's role can't change its rules" if machine.ledger.file is None else "the ledger has no roles")


def accounts(machine: Machine) -> Finding:
    """Check whether every registered spec has an account."""
    ledger = machine.ledger
    if ledger.trouble and (ledger.file is None or ledger.file.exists()):
        # The text after the semicolon says what to do, which is the other half of a finding.
        return warning(ledger.trouble.partition(";")[0], "dpflow ledger show")
    wanted = {spec.entry.account: spec for spec in machine.specs if spec.entry}
    missing = sorted(wanted.keys() - set(ledger.accounts))
    if missing:
        return warning(
            f"the ledger has no account {', '.join(missing)}: runs are refused", _opening(wanted[missing[0]])
        )
    if not ledger.accounts:
        return warning("the ledger has no account: runs are refused", "dpflow ledger open --help")
    return ok("every registered spec has its account")


def _opening(spec: SpecKeeping) -> str:
    """Return the line that opens a spec's account, with a budget for one run."""
    if not (spec.entry and spec.declaration):
        return "dpflow ledger open --help"
    return opening_command(spec.declaration, name=spec.entry.account)


def changed_specs(machine: Machine) -> Finding:
    """Check whether a registered spec is still what the steward registered."""
    changed = [spec for spec in machine.specs if spec.changed]
    if not changed:
        return ok("the registered specs are unchanged")
    first = changed[0]
    again = first.entry.command if first.entry and first.declaration else f"dpflow register {first.name} --remove"
    names = ", ".join(spec.name for spec in changed)
    return warning(f"changed or missing since registration: {names}; runs are refused", again)


def core_dumps(_machine: Machine) -> Finding:
    """Check whether a crash would write the memory, and the table in it, to disk."""
    if resource.getrlimit(resource.RLIMIT_CORE)[0] == 0:
        return ok("a crash writes no memory to disk")
    return warning("a crash writes the memory, and the table in it, to disk", "ulimit -c 0")
