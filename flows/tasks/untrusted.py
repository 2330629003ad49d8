"""Runs that a server submits are untrusted: anybody with its password chooses their parameters.

A process that executes runs for a worker passes the flow's parameter `untrusted`. It does not ask the server.
"""

from typing import Any

from dpcore.errors import UsageError
from flows.tasks.refusals import deployed_run


def checked_trust(*, untrusted: bool, **options: Any) -> bool:
    """Return whether the current run is untrusted: its caller says so, or it comes from a deployment.

    Args:
        untrusted: Whether the caller says that the run is untrusted.
        options: Options that only a caller in this process may set.

    Raises:
        UsageError: An untrusted run sets one of the options.
    """
    if not untrusted and deployed_run() is None:
        return False
    if chosen := [name for name, value in options.items() if value]:
        raise UsageError(
            f"a deployed run can't set `{chosen[0]}`; leave it out, or call `dpflow run` where the ledger is"
        )
    return True
