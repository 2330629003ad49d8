"""The releases of a dataset: find the newest, list them with their promises, and withdraw one."""

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path

from dpcore.errors import UsageError
from dpcore.ledger import EventKind, Ledger, open_ledger
from dpcore.object_store import AnyPath, ObjectPath, any_path
from dpcore.places import current_places, working_folder
from dpcore.release.dataset_folder import LATEST
from dpcore.release.integrity import MALFORMED, MANIFEST, one_line, read_manifest, readable, refuse_store_error
from dpcore.release.listing import pointed
from dpcore.release.manifest import manifest_in
from dpcore.release.withdrawal import Notice, read_notice, withdraw
from dpcore.reporting.lineage import going_back_to, needed_by_open_runs
from dpcore.reporting.session_claims import beginnings
from dpcore.spec import load_spec
from dpcore.steward.registry import SPEC_SUFFIXES, registered, registered_names

progress = logging.getLogger("dpcore.progress")

RELEASES = "releases"


def dataset_folder(name: str) -> AnyPath:
    """Return the folder that holds a dataset's releases.

    Args:
        name: The folder itself or its address, one of its releases, a spec, the name of a registered spec, or the name of a dataset.

    Raises:
        UsageError: If there is no such dataset.
    """
    path = any_path(name)
    with readable():
        is_folder = path.is_dir()
    if is_folder:
        return path.parent if (path / MANIFEST).exists() and not (path / LATEST).exists() else path
    if isinstance(path, ObjectPath):
        raise UsageError(
            f"there is no release at {one_line(path)}; name the folder of a dataset, such as s3://bucket/{RELEASES}/DATASET"
        )
    if path.suffix in SPEC_SUFFIXES:
        return load_spec(path).output_folder
    if name in registered_names():
        return load_spec(registered(name).spec).output_folder
    folders = _project_folders()
    if len(path.parts) == 1:
        for folder in folders:
            if (folder / name).is_dir():
                return folder / name
    raise UsageError(
        f"there is no dataset {one_line(name)} in {_as_text(folders)}; name the folder of its releases, such as {RELEASES}/DATASET, a spec, "
        "or a registered spec"
    )


def _project_folders() -> list[Path]:
    """Return where datasets are looked for by name: `releases` in the working folder, and beside the `.dpflow` that is found upwards."""
    places = current_places()
    folders = [Path(RELEASES)]
    if places.found and places.folder.parent != working_folder():
        folders.append(places.folder.parent / RELEASES)
    return folders


def _as_text(folders: Sequence[Path]) -> str:
    return " or ".join(one_line(folder.absolute()) for folder in folders)


def only_folder() -> AnyPath:
    """Return the folder of the only dataset whose releases the project holds. Raise if it holds those of none, or of several."""
    folders = _project_folders()
    datasets = {path.parent.name: path.parent for folder in reversed(folders) for path in folder.glob(f"*/{LATEST}")}
    if len(datasets) == 1:
        return next(iter(datasets.values()))
    held = f"releases of {', '.join(map(one_line, sorted(datasets)))}" if datasets else "no releases"
    raise UsageError(
        f"there are {held} in {_as_text(folders)}; name a dataset, its folder, or its spec: dpflow releases NAME"
    )


def latest(name: str) -> AnyPath:
    """Return the folder of a dataset's newest release that is not withdrawn.

    Raises:
        UsageError: If there is none, or it is damaged.
    """
    folder = dataset_folder(name)
    newest = pointed(folder)
    if newest is None:
        raise UsageError(f"{one_line(folder)} holds no release yet; make one with: dpflow run SPEC")
    if notice := read_notice(folder / newest):
        raise UsageError(f"{notice.sentence}; there is no other release, so make a new one with: dpflow run SPEC")
    manifest_in(folder / newest)  # raises if it is damaged
    return folder / newest


def withdraw_release(place: str, *, reason: str) -> tuple[Notice, AnyPath, bool]:
    """Withdraw a release, as the steward.

    Args:
        place: The folder of the release, or its name.
        reason: The reason, which is recorded in the ledger and published beside the manifest.

    Returns:
        The notice, the folder, and whether this call recorded it: a release is withdrawn once, and a repeated call finishes the removal.

    Raises:
        UsageError: If it is not a release of this ledger.
        OutputError: If its files cannot be removed.
    """
    with open_ledger() as ledger:
        ledger.require_current()
        run, release = _release_of(ledger, place)
        account = ledger.run(run).account
        if session := beginnings(ledger, account).get(run):
            progress.warning(
                "warning: session %s began with this release and cannot go on without it; close it with: dpflow session close SPEC "
                "--session %s",
                session,
                session,
            )
        _warn_of_later(ledger, run)
        before = ledger.withdrawals(account).get(run)
        notice = withdraw(ledger, run, release, reason=reason)
        return notice, release, before is None or before.seq != notice.event


def _warn_of_later(ledger: Ledger, run: str) -> None:
    """Warn if other releases go back to the one that is withdrawn, over however many others, so that its structure may be found in them, too."""
    account = ledger.run(run).account
    if waiting := needed_by_open_runs(ledger, account).get(run):
        progress.warning(
            "warning: run %s starts from this release and cannot go on without it; start a new run instead", waiting
        )
    gone = ledger.withdrawals(account)
    for later, direct in going_back_to(run, ledger.runs(account)):
        if later.release is not None and later.id not in gone:
            progress.warning(
                "warning: release %s %s this one, so what this one says may be found there, too",
                later.release,
                "has started from" if direct else "goes back to",
            )


def _release_of(ledger: Ledger, place: str) -> tuple[str, AnyPath]:
    """Return the run that made a release, and the folder of the release."""
    path = any_path(place)
    with readable():
        of_dataset, of_release = (path / LATEST).exists(), (path / MANIFEST).exists()
    if of_dataset:
        raise UsageError(
            f"{one_line(path)} is the folder of a dataset; name one of its releases, see: dpflow releases {one_line(path)}"
        )
    if not of_release:
        return _by_name(ledger, place)
    try:
        written = read_manifest(path / MANIFEST)
        privacy = json.loads(written)["privacy"]
        run, owner = str(privacy["run"]), str(privacy["ledger"])
    except (OSError, *MALFORMED) as error:
        refuse_store_error(path, error)
        raise UsageError(f"{MANIFEST} of {one_line(path)} cannot be read; restore it from a backup first") from None
    if owner != ledger.identity():
        raise UsageError(
            f"{one_line(path)} belongs to ledger {one_line(owner[:12])}..., not to this one at {ledger.place}; see DPFLOW_LEDGER_URL"
        )
    if hashlib.sha256(written).hexdigest() not in ledger.manifests_of(run):
        raise UsageError(
            f"{one_line(path)} is not recorded in the ledger: its run is still open, or its {MANIFEST} was changed; "
            "see: dpflow ledger verify"
        )
    return run, path


def _by_name(ledger: Ledger, name: str) -> tuple[str, AnyPath]:
    """Find a release by its name, for example because its folder was removed by hand."""
    release = None
    for event in ledger.history(None):
        if event.kind in {EventKind.SETTLED, EventKind.REPUBLISHED} and event.details.get("release") == name:
            release = str(event.run or event.details["run"]), any_path(str(event.details["manifest"])).parent
    if release is None:
        raise UsageError(
            f"there is no release at {one_line(name)}, and none of this name in the ledger; see: dpflow releases DATASET"
        )
    return release
