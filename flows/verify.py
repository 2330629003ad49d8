"""The flow `verify`: check the whole ledger, and every release against it, and write the result as a page."""

from collections.abc import Sequence
from typing import Any

from prefect.artifacts import create_markdown_artifact

from dpcore import load_spec
from dpcore.errors import DpflowError, LedgerDamaged, SpecError, UsageError
from dpcore.object_store import AnyPath
from dpcore.release.integrity import access_errors, is_folder
from dpcore.reporting.markdown import page, plain, table
from dpcore.steward.registry import registered, registered_names
from dpcore.steward.verify import verify_ledger
from flows.tasks.guard import private_flow, private_task

KEY = "verify"


@private_task(name="folders")
def find_folders() -> tuple[list[AnyPath], list[str]]:
    """Find the folders of releases."""
    return release_folders()


@private_task(name="verify")
def check_ledger(releases: list[AnyPath]) -> Any:
    """Check the ledger and the releases in these folders."""
    return verify_ledger(releases=releases)


@private_task(name="page")
def write_page(text: str, _before: Any) -> None:
    """Write the result page. Passing the result of the task before makes Prefect draw the page after that task."""
    create_markdown_artifact(text, key=KEY, description="The result of verifying the ledger")


@private_flow(name="verify", flow_run_name="verify the ledger")
def verify() -> None:
    """Check every hash, price, sum and output in the ledger, and every release of the registered specs against it."""
    folders, unread = find_folders()
    before: Any = folders
    damage = None
    try:
        before = verified = check_ledger(folders)
        text = sound_page(verified, unread=unread)
    except LedgerDamaged as error:
        damage, text = error, damaged_page(str(error))
    try:
        write_page(text, before)
    except DpflowError:
        if damage is None:
            raise
    if damage is not None:
        raise damage


def release_folders() -> tuple[list[AnyPath], list[str]]:
    """Return the existing release folders of registered specs, and the names of registered specs that can't be read."""
    folders, unread = set(), []
    for name in registered_names():
        try:
            folder = load_spec(registered(name).spec).output_folder
        except (SpecError, UsageError):
            unread.append(name)
        else:
            with access_errors():
                if is_folder(folder):
                    folders.add(folder)
    return sorted(folders, key=str), unread


def sound_page(verified: Any, *, unread: Sequence[str]) -> str:
    """Return the page of a ledger that passed every check."""
    rows = [[what, f"{number:,}", claim] for what, number, claim in verified.claims]
    if verified.absent:
        rows.append(["releases not found here", f"{verified.absent:,}", "not checked"])
    if verified.others:
        rows.append(["manifests of another ledger", f"{verified.others:,}", "not checked"])
    names = ", ".join(map(plain, unread))
    return page(
        "# The ledger is sound",
        table(["what", "number", "result"], rows, right=["number"]),
        f"Head: `{verified.head}`. Keep a copy elsewhere: `dpflow ledger verify --head` checks later that the ledger still contains this history.",
        f"The specs registered as {names} can't be read, so their release folders were not searched." if unread else "",
    )


def damaged_page(sentence: str) -> str:
    """Return the page of a ledger that failed a check."""
    return page(
        "# The ledger is damaged",
        f"**{plain(sentence)}**",
        "Do not rely on any account figure until this is repaired. Start no run, and keep the ledger unchanged for the investigation.",
    )
