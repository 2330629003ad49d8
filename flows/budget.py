"""The flow `budget`: update the page of each account, and emit events that report how much of it is used."""

import logging

from prefect.runtime import flow_run

from dpcore.reporting import overview
from dpcore.reporting.overview import AccountOverview, Overview
from flows.pages.announcements import announce
from flows.pages.artifacts import publish_account
from flows.tasks.guard import private_flow, private_task

progress = logging.getLogger("dpcore.progress")


class Found:
    """The accounts by name, and the identity of their ledger. Not a dataclass: Prefect would walk through every run of every account."""

    def __init__(self, found: Overview) -> None:
        self.ledger = found.ledger
        self.accounts: dict[str, AccountOverview] = {each.account.name: each for each in found.accounts}


@private_task(name="look")
def look(account: str) -> Found:
    """Read one account of the ledger, or all of them."""
    return Found(overview.look(account or None))


@private_task(name="page", task_run_name="{account}/page")
def write_page(found: Found, account: str) -> None:
    """Write the page of an account if something has changed."""
    written = publish_account(found.accounts[account])
    progress.info("account %s: %s", account, "page written" if written else "nothing has changed since its last page")


@private_task(name="announce", task_run_name="{account}/announce")
def announce_use(found: Found, account: str) -> None:
    """Report how much of an account is used."""
    each = found.accounts[account]
    _, balance = each.most_used
    announce(each.account, balance, ledger=found.ledger)


def _run_name() -> str:
    return f"budget of {flow_run.parameters.get('account') or 'all accounts'}"


@private_flow(name="budget", flow_run_name=_run_name)
def budget(account: str = "") -> None:
    """Update the page of one account, or of all accounts, and report how much of each is used.

    Args:
        account: The account whose page is updated. Empty: all accounts.
    """
    found = look(account.strip())
    for name in found.accounts:
        write_page(found, name)
        announce_use(found, name)
