"""Runs that a server submits are untrusted: whoever has its password decides what they ask for.

A process that executes runs for a worker says so in a parameter of the flow, `untrusted`. It does not ask the server.
"""

from typing import Any

from dpcore.errors import UsageError
from flows.tasks.refusals import deployed_run


def checked_trust(*, untrusted: bool, **options: Any) -> bool:
    """Return whether the current run is untrusted, as its caller says or because it comes from a deployment.

    Args:
        untrusted: What the caller says.
        options: What only a caller in this process may choose.

    Raises:
        UsageError: An untrusted run has chosen one of the options.
    """
    if not untrusted and deployed_run() is None:
        return False
    if chosen := [name for name, value in options.items() if value]:
        raise UsageError(
            f"a run of a deployment can't choose `{chosen[0]}`; leave it out, or call `dpflow run` where the ledger is"
        )
    return True
