"""The flow `budget`: the page of each account kept up to date, and events that tell how much of it is used."""

import logging

from prefect.runtime import flow_run

from dpcore.reporting.overview import look
from flows.pages.announcements import announce
from flows.pages.artifacts import publish_account
from flows.tasks.guard import private_flow, step

progress = logging.getLogger("dpcore.progress")


def _run_name() -> str:
    return f"budget of {flow_run.parameters.get('account') or 'all accounts'}"


@private_flow(name="budget", flow_run_name=_run_name)
def budget(account: str = "") -> None:
    """Write the page of an account, or of all of them, where something has changed, and tell how much of each is used.

    Args:
        account: The account to look at. Empty: all of them.
    """
    found = step("look", look)(account.strip() or None)
    for each in found.accounts:
        name = each.account.name
        written = step(f"{name}/page", publish_account)(each)
        progress.info(
            "account %s: %s", name, "its page is written" if written else "nothing has changed since its last page"
        )
        _, balance = each.most_used
        step(f"{name}/announce", announce)(each.account, balance, ledger=found.ledger)
