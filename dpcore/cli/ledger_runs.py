"""The list of an account's runs in `dpflow ledger show`: each run's promise, spending, and the process that holds its lease."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from dpcore.cli.output import bar, blocks_text, table
from dpcore.ledger import Account, RunState
from dpcore.ledger.holder import process_of, surely_gone
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.reporting.formatting import at_most
from dpcore.reporting.overview import AccountOverview, RunOverview
from dpcore.reporting.session_claims import Claim


def runs_text(summary: AccountOverview, *, most: int | None) -> str:
    """List the latest runs and all open ones, oldest first. Further details follow on indented lines below a run."""
    account, runs = summary.account, summary.runs
    if not runs:
        return ""
    earliest = len(runs) - (most or len(runs))
    shown = [run for number, run in enumerate(runs) if number >= earliest or run.touched]
    rows = [("run", "opened (UTC)", "state", "promise", "spent", "release")] + [
        (
            item.run.id,
            item.run.opened_at[:16].replace("T", " "),
            item.run.state.value,
            at_most(item.promise(account).epsilon),
            bar(spent=item.run.spent, reserved=item.run.remaining, whole=item.run.reserved, width=11),
            item.run.release or "-",
        )
        for item in shown
    ]
    heading, *lines = table(rows, right={"promise"}).splitlines()
    written = [heading]
    for line, item in zip(lines, shown, strict=True):
        written += [line, *(f"    {more}" for more in _more(account, item))]
    if left_out := len(runs) - len(shown):
        written.append(f"{left_out:,} earlier runs are not shown; --all shows them")
    written.append(f"promise: the epsilon of the run's reservation{_at_delta(account)}")
    if any(len(item.made_from) > 1 for item in shown):
        written.append("a run that goes on from others promises the epsilon of all their reservations and its own")
    return "\n".join(written)


def run_data(account: Account, item: RunOverview) -> dict[str, Any]:
    """Return a run as JSON data."""
    run = item.run
    return {
        "run": run.id,
        "opened_at": run.opened_at,
        "state": run.state.value,
        "promise": asdict(item.promise(account)),
        "reserved": run.reserved / AMOUNT_OF_ONE,
        "spent": run.spent / AMOUNT_OF_ONE,
        "remaining": run.remaining / AMOUNT_OF_ONE,
        "analyst": run.analyst,
        "purpose": run.purpose,
        "blocks": list(item.blocks),
        "holder": run.holder,
        "worker": _worker(item),
        "release": run.release,
        "made_from": [part.run for part in item.made_from],
    }


def _at_delta(account: Account) -> str:
    """Name the delta of the listed promises, and say whether a release can state a different (epsilon, delta) pair."""
    if not account.delta:
        return ", which is what its release promises"
    return f" at delta {at_most(account.delta)}; a release at another delta states its own epsilon"


def _more(account: Account, item: RunOverview) -> Iterator[str]:
    run = item.run
    parts = [f"{name} {value}" for name, value in (("analyst", run.analyst), ("purpose", run.purpose)) if value]
    if account.blocks_by is not None:
        parts.append(blocks_text(item.blocks))
    if len(item.made_from) > 1:
        parts.append(f"made from {len(item.made_from):,} runs, since {item.made_from[0].run}")
    if parts:
        yield ", ".join(parts)
    if run.state is RunState.OPEN and Claim.read(run.claim) is not None:
        yield "an open session, which waits for questions"
    elif item.touched:
        yield _worker(item) or "no process is working on it"


def _worker(item: RunOverview) -> str | None:
    """Describe the process that holds an open run's lease, by this machine's clock. The ledger alone decides who holds it."""
    run = item.run
    if run.state is not RunState.OPEN or run.holder is None or item.touched is None:
        return None
    process, until = process_of(run.holder), run.leased_until(item.touched)
    if surely_gone(run.holder):
        return f"{process}, which is gone"
    if datetime.now(UTC) >= until:
        return f"{process}, whose lease expired at {until:%Y-%m-%d %H:%M} UTC"
    return f"{process}, leased until {until:%H:%M:%S} UTC"
