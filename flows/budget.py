"""The flow `budget`: update the page of each account, and emit events that report how much of it is used."""

import logging

from prefect.runtime import flow_run

from dpcore.reporting import overview
from dpcore.reporting.overview import AccountOverview, Overview
from flows.pages.announcements import announce
from flows.pages.artifacts import publish_account
from flows.tasks.guard import private_flow, private_task

progress = logging.getLogger("dpcore.progress")


class Accounts:
    """The accounts by name, and the identity of their ledger. Not a dataclass: Prefect would walk through every run of every account."""

    def __init__(self, read: Overview) -> None:
        self.ledger = read.ledger
        self.by_name: dict[str, AccountOverview] = {summary.account.name: summary for summary in read.accounts}


@private_task(name="look")
def look(account: str) -> Accounts:
    """Read one account of the ledger, or all of them."""
    return Accounts(overview.look(account or None))


@private_task(name="page", task_run_name="{account}/page")
def write_page(accounts: Accounts, account: str) -> None:
    """Write the page of an account if something has changed."""
    written = publish_account(accounts.by_name[account])
    progress.info("account %s: %s", account, "page written" if written else "nothing has changed since its last page")


@private_task(name="announce", task_run_name="{account}/announce")
def announce_use(accounts: Accounts, account: str) -> None:
    """Report how much of an account is used."""
    summary = accounts.by_name[account]
    announce(summary.account, summary.most_used[1], ledger=accounts.ledger)


def _run_name() -> str:
    return f"budget of {flow_run.parameters.get('account') or 'all accounts'}"


@private_flow(name="budget", flow_run_name=_run_name)
def budget(account: str = "") -> None:
    """Update the page of one account, or of all accounts, and report how much of each is used.

    Args:
        account: The account whose page is updated. Empty: all accounts.
    """
    accounts = look(account.strip())
    for name in accounts.by_name:
        write_page(accounts, name)
        announce_use(accounts, name)
