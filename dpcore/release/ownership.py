"""Record which ledger owns the releases of a dataset, so that no second ledger pays for the same data unnoticed.

A small file beside the releases names the ledger. It also holds the ledger's newest head at the last release. A stale copy of the
ledger has the same identity, but it lacks this event or has another one in its place.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from dpcore.errors import LedgerDamaged, OutputError, UsageError
from dpcore.ledger import EventKind, Ledger, continues, last_accepted_loss, loss_accepted
from dpcore.ledger.chain import is_sha256
from dpcore.object_store import AnyPath
from dpcore.release.atomic_files import write_note
from dpcore.release.integrity import (
    LARGEST_NOTE,
    MALFORMED,
    MANIFEST,
    is_there,
    one_line,
    read_manifest,
    read_regular,
    refuse_store_error,
    require_permitted,
)

FILE = "ledger.json"


@dataclass(frozen=True)
class Owner:
    """The ledger that pays for the releases in a folder.

    Attributes:
        ledger: Its identity.
        account: The account, which has the name of the dataset.
        seq: The number of the ledger's newest event when a release was last made here; 0 if unknown.
        hash: The hash of that event.
        restored: The number of the newest accepted loss in the ledger at that time; 0 if none. Only a later accepted loss explains a
            missing event.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    ledger: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    account: str
    seq: Annotated[int, Field(ge=0)]
    hash: str
    restored: int = 0


_OWNER = TypeAdapter(Owner)


def owner_of(folder: AnyPath, *, accounts: Collection[str] = ()) -> Owner | None:
    """Return the owner of a dataset's releases. Without the file, return the ledger that the newest manifest names.

    Args:
        folder: The folder that holds the releases of a dataset.
        accounts: The accounts that the file may name. Default: the one with the name of the folder.

    Raises:
        UsageError: If the file, or without it the newest manifest, cannot be read.
        OutputError: If the store of the folder fails. Nobody should take the folder over because of that.
    """
    path = folder / FILE
    try:
        owner = _OWNER.validate_json(read_regular(path, limit=LARGEST_NOTE))
    except FileNotFoundError:
        return _owner_by_manifest(folder)
    except (OSError, ValidationError) as error:
        refuse_store_error(path, error)
        owner = None
    if owner is None or owner.account not in (accounts or {folder.name}):
        raise _unreadable(path)
    return owner


def check_owner(ledger: Ledger, folder: AnyPath) -> None:
    """Raise if another ledger, or a later state of this one, has already published to a folder.

    Raises:
        UsageError: If the folder belongs to another ledger, or its owner cannot be determined.
        LedgerDamaged: If this ledger is a copy that lacks events of the owner.
    """
    owner, identity = owner_of(folder), ledger.identity()
    if owner is None:
        return
    if owner.ledger != identity:
        raise UsageError(
            f"the releases in {folder} belong to ledger {owner.ledger[:12]}..., but this is ledger {identity[:12]}... at "
            f"{ledger.place}, with a separate budget; use the other ledger (see DPFLOW_LEDGER_URL), or, as the steward, "
            "take the folder over with: dpflow run SPEC --adopt REASON"
        )
    if (events := _events_without(ledger, owner)) is not None:
        raise LedgerDamaged(
            f"the releases in {folder} were made when ledger {identity[:12]}... had event {owner.seq}, but the copy at "
            f"{ledger.place}, with {events} events, lacks it; restore the newest copy, or, as the steward, continue from "
            "this one with: dpflow run SPEC --adopt REASON"
        )


def _events_without(ledger: Ledger, owner: Owner) -> int | None:
    """Return the ledger's number of events if it lacks the owner's event and that loss was not accepted, else None."""
    with ledger.reading() as rows:
        head = rows.head()
        if continues(rows, head, seq=owner.seq, digest=owner.hash) or loss_accepted(
            rows, seq=owner.seq, digest=owner.hash, since=owner.restored
        ):
            return None
    return head.seq


def owner_problems(
    ledger: Ledger, folder: AnyPath, *, accounts: Collection[str], foreign: Sequence[str]
) -> Iterator[str]:
    """Yield what is wrong with the file that names a folder's owner, and releases of other ledgers that the owner has not adopted.

    A file that names another ledger is accepted, since that ledger may have adopted the folder. Runs from this ledger are rejected.

    Args:
        ledger: The ledger to compare with.
        folder: The folder that holds the releases of a dataset. It may have another name than its account, because runs may have
            reached it through a link.
        accounts: The accounts whose runs have published there.
        foreign: The releases in or below the folder whose manifests name another ledger, as they are to be shown.
    """
    if not is_there(folder / FILE):
        return
    require_permitted(folder / FILE)
    try:
        owner = owner_of(folder, accounts=accounts)
    except UsageError:
        yield f"{FILE} cannot be read"
        return
    if owner is None or owner.ledger != ledger.identity():
        return
    if _events_without(ledger, owner) is not None:
        yield f"{FILE} names event {owner.seq} with a hash that is not in this ledger"
    with ledger.reading() as rows:
        adopted = any(event.account in accounts for event in rows.events_of_kind(EventKind.ADOPTED))
    for release in () if adopted else foreign:
        yield f"{one_line(release)} is a release of another ledger, but this ledger has not adopted the folder"


def claim_folder(ledger: Ledger, folder: AnyPath) -> None:
    """Record that this ledger owns a folder, with its current head. Raises the errors of `check_owner`."""
    check_owner(ledger, folder)
    there, before, now = (folder / FILE).exists(), owner_of(folder), _as_owner(ledger, folder)
    if there and before == now:
        return
    _write(folder, now, replace=there)
    check_owner(ledger, folder)  # another ledger may have claimed a new folder first


def adopt_folder(ledger: Ledger, folder: AnyPath, *, reason: str) -> bool:
    """Take over a folder from another ledger, or from a lost state of this one. Return whether that was needed.

    The ledger records the event first, so the file never exists without the event. After a crash between the two, adopting again
    repeats the event.
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
    place = folder.resolve() if isinstance(folder, Path) else folder
    ledger.adopt(folder.name, folder=str(place), owner=owner.ledger if owner else None, reason=reason)
    _write(folder, _as_owner(ledger, folder), replace=True)
    return True


def _as_owner(ledger: Ledger, folder: AnyPath) -> Owner:
    with ledger.reading() as rows:
        head, restored = rows.head(), last_accepted_loss(rows)
    return Owner(ledger=ledger.identity(), account=folder.name, seq=head.seq, hash=head.hash, restored=restored)


def _owner_by_manifest(folder: AnyPath) -> Owner | None:
    """Return the ledger that the newest manifest names. Release names begin with the time of their run."""
    try:
        releases = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        refuse_store_error(folder, error)
        raise _unreadable(folder) from None
    for release in reversed(releases):
        path = release / MANIFEST
        try:
            ledger = json.loads(read_manifest(path).decode("utf-8"))["privacy"]["ledger"]
        except FileNotFoundError:
            continue
        except (OSError, *MALFORMED) as error:
            refuse_store_error(path, error)
            raise _unreadable(path) from None
        if not is_sha256(ledger):
            raise _unreadable(path)
        return Owner(ledger=ledger, account=folder.name, seq=0, hash="")
    return None


def _unreadable(path: AnyPath) -> UsageError:
    return UsageError(
        f"{path} cannot be read, so it is unknown which ledger owns these releases; restore it from a backup, or, as the "
        "steward, take the folder over with: dpflow run SPEC --adopt REASON"
    )


def _write(folder: AnyPath, owner: Owner, *, replace: bool) -> None:
    """Write the file. Without `replace`, keep an existing file."""
    try:
        if isinstance(folder, Path):
            folder.mkdir(parents=True, exist_ok=True)
        write_note(folder / FILE, (json.dumps(asdict(owner), indent=2) + "\n").encode("utf-8"), replace=replace)
    except OSError as error:
        raise OutputError(
            f"{FILE} cannot be written to {folder}: {error.strerror}; make the folder writable, or choose another `output: {{path: ...}}`"
        ) from None
