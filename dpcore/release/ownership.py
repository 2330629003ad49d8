"""Which ledger owns the releases of a dataset: a small file beside them, so that no second ledger pays for the same data unnoticed.

The file also holds the newest head of that ledger that a release was made from. A copy of the ledger has the same identity, but
lacks this event, or has another one in its place.
"""

import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from dpcore.errors import LedgerDamaged, OutputError, UsageError
from dpcore.ledger import Ledger, continues, last_accepted_loss, loss_accepted
from dpcore.release.draft_folder import new_file
from dpcore.release.integrity import MANIFEST, read_regular, require_permitted

FILE = "ledger.json"


@dataclass(frozen=True)
class Owner:
    """The ledger that pays for the releases in a folder.

    Attributes:
        ledger: Its identity.
        account: The account, which is named like the dataset.
        seq: The number of its newest event when a release was last made here; 0 if that is not known.
        hash: The hash of that event.
        restored: The number of the newest accepted loss that the ledger had on record then; 0 if none. Only a later one accounts for a
            missing event.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    ledger: str
    account: str
    seq: int
    hash: str
    restored: int = 0


_OWNER = TypeAdapter(Owner)


def owner_of(folder: Path) -> Owner | None:
    """Return who owns the releases of a dataset; without the file, the ledger that the newest release names.

    Raises:
        UsageError: If the file, or without it the newest manifest, does not read.
    """
    path = folder / FILE
    try:
        owner = _OWNER.validate_json(read_regular(path))
    except FileNotFoundError:
        return _owner_by_manifest(folder)
    except (OSError, ValidationError):
        owner = None
    if owner is None or owner.account != folder.name:
        raise _unreadable(path)
    return owner


def check_owner(ledger: Ledger, folder: Path) -> None:
    """Refuse to release from a ledger into a folder that another ledger, or a later state of this one, has released to.

    Raises:
        UsageError: If the folder is another ledger's, or nobody can tell.
        LedgerDamaged: If this is a copy that lacks events of the ledger that owns it.
    """
    owner, identity = owner_of(folder), ledger.identity()
    if owner is None:
        return
    if owner.ledger != identity:
        raise UsageError(
            f"the releases in {folder} belong to ledger {owner.ledger[:12]}..., and this is ledger {identity[:12]}... at "
            f"{ledger.place}, with a budget of its own; use the other one (see DPFLOW_LEDGER_URL), or, as the steward, "
            "take the folder over with: dpflow run SPEC --adopt REASON"
        )
    if (events := _events_without(ledger, owner)) is not None:
        raise LedgerDamaged(
            f"the releases in {folder} were made when ledger {identity[:12]}... had event {owner.seq}, which the copy at "
            f"{ledger.place}, with {events} events, lacks; put the newest copy back, or, as the steward, go on from "
            "this one with: dpflow run SPEC --adopt REASON"
        )


def _events_without(ledger: Ledger, owner: Owner) -> int | None:
    """Return how many events the ledger has if it lacks the one that the owner had, and nobody has accepted that; else None."""
    with ledger.reading() as rows:
        head = rows.head()
        if continues(rows, head, seq=owner.seq, digest=owner.hash) or loss_accepted(
            rows, seq=owner.seq, digest=owner.hash, since=owner.restored
        ):
            return None
    return head.seq


def owner_changed(ledger: Ledger, folder: Path) -> str | None:
    """Say what is wrong with the file that names the owner of a folder, or return None.

    One that names another ledger may be right, since that ledger may have adopted the folder; a run from this one is refused.
    """
    if not os.path.lexists(folder / FILE):
        return None
    require_permitted(folder / FILE)
    try:
        owner = owner_of(folder)
    except UsageError:
        return f"{FILE} does not read"
    if owner is not None and owner.ledger == ledger.identity() and _events_without(ledger, owner) is not None:
        return f"{FILE} names event {owner.seq} with a hash that this ledger does not have"
    return None


def claim_folder(ledger: Ledger, folder: Path) -> None:
    """Write down that this ledger owns a folder, and how far it is, unless `check_owner` refuses."""
    check_owner(ledger, folder)
    there, known, now = (folder / FILE).exists(), owner_of(folder), _as_owner(ledger, folder)
    if there and known == now:
        return
    _write(folder, now, replace=there)
    check_owner(ledger, folder)  # another ledger may have been quicker to claim a new folder


def adopt_folder(ledger: Ledger, folder: Path, *, reason: str) -> bool:
    """Take a folder over from another ledger, or from a lost state of this one; return whether there was need to.

    The ledger records it first: a file without the event can't come about, and an event without the file is repeated.
    """
    try:
        check_owner(ledger, folder)
    except (UsageError, LedgerDamaged):
        try:
            owner = owner_of(folder)
        except UsageError:
            owner = None
    else:
        return False
    ledger.adopt(folder.name, folder=str(folder.resolve()), owner=owner.ledger if owner else None, reason=reason)
    _write(folder, _as_owner(ledger, folder), replace=True)
    return True


def _as_owner(ledger: Ledger, folder: Path) -> Owner:
    with ledger.reading() as rows:
        head, restored = rows.head(), last_accepted_loss(rows)
    return Owner(ledger=ledger.identity(), account=folder.name, seq=head.seq, hash=head.hash, restored=restored)


def _owner_by_manifest(folder: Path) -> Owner | None:
    """Return the ledger that the newest release names; the names of releases begin with the time of their run."""
    try:
        releases = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return None
    for release in reversed(releases):
        path = release / MANIFEST
        try:
            ledger = json.loads(read_regular(path).decode("utf-8"))["privacy"]["ledger"]
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            raise _unreadable(path) from None
        if not isinstance(ledger, str):
            raise _unreadable(path)
        return Owner(ledger=ledger, account=folder.name, seq=0, hash="")
    return None


def _unreadable(path: Path) -> UsageError:
    return UsageError(
        f"{path} does not read, so nobody can tell which ledger owns these releases; restore it from a backup, or, as the "
        "steward, take the folder over with: dpflow run SPEC --adopt REASON"
    )


def _write(folder: Path, owner: Owner, *, replace: bool) -> None:
    """Let the file appear whole; without `replace` one that is there already stays."""
    draft = folder / f".{FILE}-{secrets.token_hex(4)}"  # a name that nobody can foresee, and plant something at
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with new_file(draft) as file:
            file.write((json.dumps(asdict(owner), indent=2) + "\n").encode("utf-8"))
        if replace:
            draft.replace(folder / FILE)
        else:
            with suppress(FileExistsError):
                (folder / FILE).hardlink_to(draft)
    except OSError:
        raise OutputError(
            f"{FILE} cannot be written to {folder}; make the folder writable, or choose another `output: {{path: ...}}`"
        ) from None
    finally:
        draft.unlink(missing_ok=True)
