"""Is the ledger asked by who should ask it, do the specs say what the steward registered, and does memory stay in memory?"""

import resource
import shlex

from dpcore.steward.inventory import SpecKeeping
from flows.doctor.finding import Finding, ok, warning
from flows.doctor.machine import Machine


def ledger_password(machine: Machine) -> Finding:
    """Look whether a password stands in the ledger's URL, which every process, its children and `docker inspect` show."""
    if not machine.ledger.has_password:
        return ok("no password stands in DPFLOW_LEDGER_URL")
    address = shlex.quote(machine.ledger.address or "postgresql://USER@HOST/DATABASE")
    return warning(
        "the ledger's password stands in DPFLOW_LEDGER_URL, where other processes can read it",
        f"export PGPASSFILE=~/.pgpass DPFLOW_LEDGER_URL={address}  # that file, mode 600, has the line HOST:PORT:DATABASE:USER:PASSWORD",
    )


def ledger_role(machine: Machine) -> Finding:
    """Look whether the ledger is opened by a role that could drop its rules, as no worker should."""
    if machine.ledger.owns_tables:
        return warning(
            "the ledger's role owns its tables: right for a steward, wrong for a worker",
            "psql -d ledger -c \"CREATE ROLE nightly LOGIN PASSWORD '...' IN ROLE dpflow_runner\"",
        )
    return ok("the ledger's role can't change its rules" if machine.ledger.file is None else "the ledger has no roles")


def accounts(machine: Machine) -> Finding:
    """Look whether there is an account for every registered spec."""
    ledger = machine.ledger
    if ledger.trouble and (ledger.file is None or ledger.file.exists()):
        # What comes after the semicolon is what to do, which is the other half of a finding.
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
    """Return the line that opens a spec's account: all but the epsilon, which is the steward's to choose."""
    if not (spec.entry and spec.declaration):
        return "dpflow ledger open --help"
    privacy = spec.declaration.spec.privacy
    who = f"--unit {shlex.quote(privacy.unit)} --neighbours {privacy.neighbours.value}"
    return f"dpflow ledger open {spec.entry.account} {who} --delta {privacy.delta!r} --epsilon E"


def changed_specs(machine: Machine) -> Finding:
    """Look whether a registered spec is still what the steward registered."""
    changed = [spec for spec in machine.specs if spec.changed]
    if not changed:
        return ok("the registered specs are as they were")
    first = changed[0]
    again = first.entry.command if first.entry and first.declaration else f"dpflow register {first.name} --remove"
    names = ", ".join(spec.name for spec in changed)
    return warning(f"changed or gone since it was registered: {names}; runs of it are refused", again)


def core_dumps(_machine: Machine) -> Finding:
    """Look whether a crash would write the memory, and the table in it, to a disk."""
    if resource.getrlimit(resource.RLIMIT_CORE)[0] == 0:
        return ok("a crash leaves no memory on a disk")
    return warning("a crash writes the memory, and the table in it, to a disk", "ulimit -c 0")
