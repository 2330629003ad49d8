"""Checks of the steward's files, ledger and specs: who can read or change them, and whether runs would be refused."""

import re
import resource
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

from dpcore.runs.paying import opening_command
from dpcore.steward.inventory import SpecKeeping
from flows.doctor.finding import Finding, leak, warning
from flows.doctor.machine import Machine
from flows.doctor.settings import FILES, PROFILE, origin

READ, WRITE, ENTER = 0o4, 0o2, 0o1
EVERYBODY, GROUP = 0, 3  # the bits by which their rights are shifted
OTHERS = 0o077
SECRET_SETTINGS = (
    "api.auth_string",
    "api.key",
    "server.api.auth_string",
    "server.database.connection_url",
    "server.database.password",
)


def private_folder(machine: Machine) -> Finding | None:
    """Return a leak if the steward's folder is open to the group or to everybody."""
    folder = machine.private
    if folder.exists() and _mode(folder) & OTHERS:
        return leak(f"the private folder {folder} is open to others", f"chmod 700 {_quoted(folder)}")
    return None


def private_files(machine: Machine) -> Finding | None:
    """Return a finding if a file in the steward's folder is open to others, even if the folder itself keeps them out."""
    exposed = [path for path in _below(machine.private) if _mode(path) & OTHERS]
    if not exposed:
        return None
    sentence = f"{len(exposed)} files in the private folder are open to others"
    remedy = f"chmod -R go= {_quoted(machine.private)}"
    if _mode(machine.private) & OTHERS:
        return leak(sentence, remedy)
    return warning(f"{sentence}; only the folder's own mode protects them", remedy)


def private_place(machine: Machine) -> Finding | None:
    """Return a leak if the steward's folder lies in a shared folder: Prefect's home, or a folder of releases."""
    shared = _shared_folder([machine.private], machine)
    if shared is None:
        return None
    new = shared.parent / "dpflow-private"
    return leak(
        f"the private folder lies in the shared folder {shared}",
        f"mv {_quoted(machine.private, new)} && export DPFLOW_PRIVATE={_quoted(new)}",
    )


def private_in_git(machine: Machine) -> Finding | None:
    """Return a finding if `git add` would add the steward's folder."""
    tree = next((folder for folder in machine.private.parents if (folder / ".git").exists()), None)
    if tree is None:
        return None
    inside = machine.private.relative_to(tree).as_posix()
    git = shutil.which("git")
    # Ask about a file in the folder: git can't match a folder rule against a folder that does not exist yet.
    question = ["-C", str(tree), "-c", "core.fsmonitor=false", "check-ignore", "-q", "--", f"{inside}/failures.log"]
    code = subprocess.run([git, *question], check=False, capture_output=True).returncode if git else None  # noqa: S603
    if code == 0:
        return None
    sentence = f"the private folder is in the git work tree {tree}"
    remedy = f"echo {shlex.quote(f'/{inside}/')} >> {_quoted(tree / '.gitignore')}"
    if code == 1:
        return leak(f"{sentence}, which does not ignore it", remedy)
    return warning(f"{sentence}, and git does not say whether it ignores it", remedy)


def passwords(machine: Machine) -> Finding | None:
    """Return a leak if others can read a file that contains a password for the Prefect server or its database."""
    files = {PROFILE: machine.settings.profiles_path, **{name: Path(name).absolute() for name in FILES}}
    places = {origin(machine, accessor).place for accessor in SECRET_SETTINGS}
    names = _exposed((path for place, path in files.items() if place in places), READ)
    if not names:
        return None
    return leak(f"others can read {names}, which contains a password for Prefect", f"chmod go= {names}")


def ledger_file(machine: Machine) -> Finding | None:
    """Return a leak if others can change the ledger, or read it, which reveals which runs read the same table."""
    file = machine.ledger.file
    if file is None:
        return None
    names = _exposed((file.with_name(f"{file.name}{end}") for end in ("", "-wal", "-shm", ".outputs")), READ | WRITE)
    return leak(f"the ledger {file} is open to others", f"chmod -R go= {names}") if names else None


def ledger_folder(machine: Machine) -> Finding | None:
    """Return a finding if others can replace the ledger file, or list the files beside it."""
    if machine.ledger.file is None:
        return None
    folder = machine.ledger.file.parent.absolute()
    remedy = f"chmod go-rw {_quoted(folder)}"
    # In a folder with the sticky bit, such as /tmp, others can add files, but not replace one.
    if _exposed([folder], WRITE) and not folder.stat().st_mode & stat.S_ISVTX:
        return leak(f"others can replace the ledger file in {folder}", remedy)
    return warning(f"others can list the ledger's folder {folder}", remedy) if _exposed([folder], READ) else None


def registry_folder(machine: Machine) -> Finding | None:
    """Return a leak if others can change which specs may be run, or remove the approval that a spec needs."""
    registry = machine.registry
    if not registry.exists() or not _exposed([registry, *_below(registry)], WRITE):
        return None
    return leak(f"others can change which specs may be run, in {registry}", f"chmod -R go-w {_quoted(registry)}")


def raw_files(machine: Machine) -> Finding | None:
    """Return a warning if every account on this machine can read a raw table."""
    specs = [spec for spec in machine.specs if _exposed(spec.sources, READ, classes=(EVERYBODY,))]
    if not specs:
        return None
    names = ", ".join(spec.name for spec in specs)
    remedy = f"chmod -R o= {' '.join(map(_source, specs))}"
    return warning(f"every account on this machine can read the raw table of {names}", remedy)


def raw_places(machine: Machine) -> Finding | None:
    """Return a leak if a raw table lies in a shared folder: Prefect's home, or a folder of releases."""
    for spec in machine.specs:
        shared = _shared_folder([path.resolve() for path in spec.sources], machine)
        if shared:
            new = _quoted(shared.parent / "dpflow-raw")
            return leak(
                f"the raw table of {spec.name} lies in the shared folder {shared}",
                f"mkdir -m 700 {new} && mv {_source(spec)} {new}",
            )
    return None


def ledger_password(machine: Machine) -> Finding | None:
    """Return a warning if the ledger's URL contains a password, which child processes and `docker inspect` would show."""
    if not machine.ledger.has_password:
        return None
    address = shlex.quote(machine.ledger.address or "postgresql://USER@HOST/DATABASE")
    return warning(
        "DPFLOW_LEDGER_URL contains the ledger's password, where other processes can read it",
        f"export PGPASSFILE=~/.pgpass DPFLOW_LEDGER_URL={address}  # the file, with mode 600, contains HOST:PORT:DATABASE:USER:PASSWORD",
    )


def ledger_role(machine: Machine) -> Finding | None:
    """Return a warning if the ledger is opened by a role that owns its tables and could drop its triggers, as no worker should."""
    if not machine.ledger.owns_tables:
        return None
    return warning(
        "the ledger's role owns its tables: right for a steward, wrong for a worker",
        "psql -d ledger -c \"CREATE ROLE nightly LOGIN PASSWORD '...' IN ROLE dpflow_runner\"",
    )


def accounts(machine: Machine) -> Finding | None:
    """Return a warning if a registered spec has no account."""
    ledger = machine.ledger
    if ledger.trouble and (ledger.file is None or ledger.file.exists()):
        # The text after the semicolon says what to do, which is the other half of a finding.
        return warning(ledger.trouble.partition(";")[0], "dpflow ledger show")
    specs = {spec.entry.account: spec for spec in machine.specs if spec.entry}
    missing = sorted(specs.keys() - set(ledger.accounts))
    if not missing and ledger.accounts:
        return None
    declaration = specs[missing[0]].declaration if missing else None
    return warning(
        f"the ledger has no account{' ' if missing else ''}{', '.join(missing)}: runs are refused",
        opening_command(declaration, name=missing[0]) if declaration else "dpflow ledger open --help",
    )


def changed_specs(machine: Machine) -> Finding | None:
    """Return a warning if a registered spec is no longer what the steward registered."""
    changed = [spec for spec in machine.specs if spec.changed]
    if not changed:
        return None
    first, names = changed[0], ", ".join(spec.name for spec in changed)
    return warning(
        f"changed or missing since registration: {names}; runs are refused",
        first.entry.command if first.entry and first.declaration else f"dpflow register {first.name} --remove",
    )


def core_dumps(_machine: Machine) -> Finding | None:
    """Return a warning if a crash would write the memory, and the table in it, to disk."""
    if resource.getrlimit(resource.RLIMIT_CORE)[0] == 0:
        return None
    return warning("a crash writes the memory, and the table in it, to disk", "ulimit -c 0")


def _source(spec: SpecKeeping) -> str:
    """Quote the path of a raw table as the spec writes it. The name of a file that a pattern matches may be private."""
    return re.sub(r"[^\w*?\[\]./-]", r"\\\g<0>", str(spec.declared_source))


def _shared_folder(paths: Iterable[Path], machine: Machine) -> Path | None:
    """Return the first shared folder that contains one of the paths, if any."""
    shared = (*machine.homes, *machine.releases)
    return next((folder for path in paths for folder in shared if path.is_relative_to(folder)), None)


def _exposed(paths: Iterable[Path], rights: int, *, classes: tuple[int, ...] = (EVERYBODY, GROUP)) -> str:
    """Return the quoted paths on which everybody or the group has one of the rights, and which they can reach through the parent folders."""
    return _quoted(*(path for path in paths if path.exists() and _is_open(path, rights, classes)))


def _is_open(path: Path, rights: int, classes: tuple[int, ...]) -> bool:
    # A parent folder may belong to another group; for it, a member of the path's group counts as anybody.
    return any(
        _mode(path) & rights << shift
        and all(_mode(folder) & (ENTER << shift | ENTER) for folder in path.resolve().parents)
        for shift in classes
    )


def _below(folder: Path) -> list[Path]:
    """Return all paths below a folder, except links, whose targets are elsewhere."""
    return [path for path in sorted(folder.rglob("*")) if not path.is_symlink()]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _quoted(*paths: Path) -> str:
    return " ".join(shlex.quote(str(path)) for path in paths)
