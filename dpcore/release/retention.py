"""Retention: after a publication, remove the data of releases beyond the number that the spec keeps."""

import logging

from dpcore.errors import DpflowError
from dpcore.ledger import EventKind, Ledger
from dpcore.object_store import AnyPath
from dpcore.release.integrity import MANIFEST, is_there
from dpcore.release.withdrawal import is_recorded, remove_data, withdraw
from dpcore.reporting.lineage import needed_by_open_runs
from dpcore.reporting.session_claims import beginnings
from dpcore.spec import Declaration

progress = logging.getLogger("dpcore.progress")


def retain_declared(ledger: Ledger, account: str, declaration: Declaration) -> None:
    """Remove the data of older releases than the spec keeps. A failure does not undo the publication, so it is only a warning."""
    keep = declaration.spec.output.keep
    if keep is None:
        return
    try:
        removed = retain(ledger, account, declaration.output_folder, keep=keep)
    except DpflowError as error:
        progress.warning("warning: older releases were not removed: %s", error)
    except OSError as error:
        progress.warning("warning: older releases were not removed: %s", error.strerror)
    else:
        for name in removed:
            progress.info("removed the data of release %s: the spec keeps %d", name, keep)


def retain(ledger: Ledger, account: str, folder: AnyPath, *, keep: int) -> tuple[str, ...]:
    """Keep the newest releases of a dataset's folder, and remove the data of all others. Return the names of those removed now.

    Newest means reserved last, as for `latest.json`. Runs that end at the same time may both call this. Releases only become more, so neither
    call removes one of the newest. An earlier removal that was interrupted is finished. Releases that open sessions began with, or
    that open runs start from, are neither counted nor removed: those sessions and runs need them.

    Args:
        ledger: The ledger that recorded the releases.
        account: The account that paid for them.
        folder: The folder that holds the releases of the dataset.
        keep: How many releases to keep, at least 1.

    Raises:
        OutputError: If files cannot be removed.
    """
    withdrawn = ledger.withdrawals(account)
    for run_id, event in withdrawn.items():
        release = folder / str(event.details["release"])
        if event.kind is EventKind.REMOVED and _has_files(release) and is_recorded(ledger, run_id, release):
            remove_data(ledger, run_id, release)
    needed = beginnings(ledger, account) | needed_by_open_runs(ledger, account)
    live = sorted(
        (run.first, run.id, run.release)
        for run in ledger.runs(account)
        if run.release is not None
        and run.id not in withdrawn
        and run.id not in needed
        and is_recorded(ledger, run.id, folder / run.release)
    )
    reason = "retention: only the newest release is kept" if keep == 1 else f"retention: the newest {keep} are kept"
    for _, run_id, name in live[:-keep]:
        withdraw(ledger, run_id, folder / name, reason=reason, keep=keep)
    return tuple(name for _, _, name in live[:-keep])


def _has_files(release: AnyPath) -> bool:
    """Return whether a release has more than the manifest and the notice that a removal leaves."""
    return is_there(release / MANIFEST) and sum(1 for _ in release.iterdir()) > 2
