"""Checks of whether others can read or change the steward's files."""

import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

from dpcore.steward.inventory import SpecKeeping
from flows.doctor.finding import Finding, leak, ok, warning
from flows.doctor.machine import Machine
from flows.doctor.origin import FILES, PROFILE, origin

READ, WRITE, ENTER = 0o4, 0o2, 0o1
EVERYBODY, GROUP = 0, 3
OTHERS = 0o077
SECRET_SETTINGS = (
    "api.auth_string",
    "api.key",
    "server.api.auth_string",
    "server.database.connection_url",
    "server.database.password",
)


def private_folder(machine: Machine) -> Finding:
    """Check whether the steward's folder is open to the group or to everybody."""
    if not machine.private.exists():
        return ok("the private folder does not exist yet")
    if _mode(machine.private) & OTHERS:
        return leak(f"the private folder {machine.private} is open to others", f"chmod 700 {_quoted(machine.private)}")
    return ok("the private folder is closed to others")


def private_files(machine: Machine) -> Finding:
    """Check whether a file in the steward's folder is open to others, even if the folder itself keeps them out."""
    open_ones = [path for path in _below(machine.private) if _mode(path) & OTHERS]
    if not open_ones:
        return ok("no file in the private folder is open to others")
    kept_out = not _mode(machine.private) & OTHERS
    found = f"{len(open_ones)} files in the private folder are open to others"
    line = f"chmod -R go= {_quoted(machine.private)}"
    return warning(f"{found}; only the folder's own mode protects them", line) if kept_out else leak(found, line)


def private_place(machine: Machine) -> Finding:
    """Check whether the steward's folder lies in a shared folder: Prefect's home, or a folder of releases."""
    outer = _shared_folder(machine.private, machine)
    if outer is None:
        return ok("the private folder lies in no shared folder")
    new = outer.parent / "dpflow-private"
    return leak(
        f"the private folder lies in the shared folder {outer}",
        f"mv {_quoted(machine.private)} {_quoted(new)} && export DPFLOW_PRIVATE={_quoted(new)}",
    )


def private_in_git(machine: Machine) -> Finding:
    """Check whether `git add` would add the steward's folder."""
    tree = next((folder for folder in machine.private.parents if (folder / ".git").exists()), None)
    if tree is None:
        return ok("the private folder is in no git work tree")
    inside = machine.private.relative_to(tree).as_posix()
    line = f"echo {shlex.quote(f'/{inside}/')} >> {_quoted(tree / '.gitignore')}"
    git = shutil.which("git")
    # Ask about a file in the folder: git can't match a folder rule against a folder that does not exist yet.
    question = ["-C", str(tree), "-c", "core.fsmonitor=false", "check-ignore", "-q", "--", f"{inside}/failures.log"]
    answer = subprocess.run([git, *question], check=False, capture_output=True).returncode if git else None  # noqa: S603
    if answer == 0:
        return ok("git ignores the private folder")
    if answer == 1:
        return leak(f"the private folder is in the git work tree {tree}, which does not ignore it", line)
    return warning(
        f"the private folder is in the git work tree {tree}, and git does not say whether it ignores it", line
    )


def passwords(machine: Machine) -> Finding:
    """Check whether others can read a file that contains a password for the Prefect server or its database."""
    files = {PROFILE: machine.settings.profiles_path, **{name: Path(name).absolute() for name in FILES}}
    places = {origin(machine, accessor).place for accessor in SECRET_SETTINGS}
    open_ones = [path for place, path in files.items() if place in places and _is_open(path, READ)]
    if open_ones:
        names = " ".join(map(_quoted, open_ones))
        return leak(f"others can read {names}, which contains a password for Prefect", f"chmod go= {names}")
    return ok("no file with a password for Prefect is open to others")


def ledger_file(machine: Machine) -> Finding:
    """Check whether others can change the ledger, or read it, which reveals which runs read the same table."""
    file = machine.ledger.file
    if file is None:
        return ok("the ledger is in a database")
    names = [file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm", ".outputs"))]
    open_ones = [path for path in names if path.exists() and _is_open(path, READ | WRITE)]
    if open_ones:
        return leak(f"the ledger {file} is open to others", f"chmod -R go= {' '.join(map(_quoted, open_ones))}")
    return ok("the ledger file is closed to others")


def ledger_folder(machine: Machine) -> Finding:
    """Check whether others can replace the ledger file, or list the files beside it."""
    folder = machine.ledger.file.parent.absolute() if machine.ledger.file else None
    if folder is None or not folder.exists():
        return ok("the ledger has no folder")
    line = f"chmod go-rw {_quoted(folder)}"
    # In a folder with the sticky bit, such as /tmp, others can add files, but not replace one.
    if _is_open(folder, WRITE) and not folder.stat().st_mode & stat.S_ISVTX:
        return leak(f"others can replace the ledger file in {folder}", line)
    if _is_open(folder, READ):
        return warning(f"others can list the ledger's folder {folder}", line)
    return ok("the ledger's folder is closed to others")


def registry_folder(machine: Machine) -> Finding:
    """Check whether others can change which specs may be run, or remove the approval that a spec needs."""
    places = [machine.registry, *_below(machine.registry)] if machine.registry.exists() else []
    if any(_is_open(path, WRITE) for path in places):
        return leak(
            f"others can change which specs may be run, in {machine.registry}",
            f"chmod -R go-w {_quoted(machine.registry)}",
        )
    return ok("only the owner of the registry can change which specs may be run")


def raw_files(machine: Machine) -> Finding:
    """Check whether every account on this machine can read a raw table."""
    read = [spec for spec in machine.specs if any(_is_open(path, READ, classes=(EVERYBODY,)) for path in spec.sources)]
    if not read:
        return ok("no raw table of a registered spec can be read by every account")
    names = ", ".join(spec.name for spec in read)
    return warning(
        f"every account on this machine can read the raw table of {names}",
        f"chmod -R o= {' '.join(map(_source, read))}",
    )


def raw_places(machine: Machine) -> Finding:
    """Check whether a raw table lies in a shared folder: Prefect's home, or a folder of releases."""
    for spec in machine.specs:
        outer = next((outer for path in spec.sources if (outer := _shared_folder(path.resolve(), machine))), None)
        if outer:
            new = outer.parent / "dpflow-raw"
            return leak(
                f"the raw table of {spec.name} lies in the shared folder {outer}",
                f"mkdir -m 700 {_quoted(new)} && mv {_source(spec)} {_quoted(new)}",
            )
    return ok("no raw table of a registered spec lies in a shared folder")


def _source(spec: SpecKeeping) -> str:
    """Quote the path of a raw table as the spec writes it. The name of a file that a pattern matches may be private."""
    return re.sub(r"[^\w*?\[\]./-]", r"\\\g<0>", str(spec.declared_source))


def _shared_folder(path: Path, machine: Machine) -> Path | None:
    """Return the shared folder that contains a path, if any."""
    return next((outer for outer in (*machine.homes, *machine.releases) if path.is_relative_to(outer)), None)


def _is_open(path: Path, rights: int, *, classes: tuple[int, ...] = (EVERYBODY, GROUP)) -> bool:
    """Return whether everybody or the group has one of the rights, and can reach the path through its parent folders."""
    above = path.resolve().parents
    for shift in classes:
        # A parent folder may belong to another group; for it, a member of the path's group counts as anybody.
        passing = ENTER << shift | ENTER
        if _mode(path) & rights << shift and all(_mode(folder) & passing for folder in above):
            return True
    return False


def _below(folder: Path) -> list[Path]:
    """Return all paths below a folder, except links, whose targets are elsewhere."""
    return [path for path in sorted(folder.rglob("*")) if not path.is_symlink()]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
