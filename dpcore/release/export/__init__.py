"""What a ledger says to those who do not open it: its history as Parquet, its guarantees as JSON and as a page."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from dpcore.ledger import Ledger
from dpcore.release.atomic_files import replacing
from dpcore.release.export.history import write_history
from dpcore.release.export.markdown import page
from dpcore.release.export.statements import AccountStatement, group_sizes, statements
from dpcore.reporting.overview import overview

__all__ = ["Exported", "export", "group_sizes"]

FILES = ("history.parquet", "statement.json", "statement.md")


@dataclass(frozen=True)
class Exported:
    """What was written: the files, the number of events in them, the head that they belong to, and the statements."""

    files: tuple[Path, ...]
    events: int
    head: str
    accounts: tuple[AccountStatement, ...]


def export(ledger: Ledger, folder: Path, *, account: str | None, sizes: tuple[int, ...]) -> Exported:
    """Write history and statements of one account, or of all, into a folder; an earlier export there is replaced.

    All files tell of the same moment, whoever charges the ledger meanwhile.
    """
    found = overview(ledger, account)
    stated = statements(found, sizes=sizes)
    currencies = {each.account.name: each.account.currency for each in found.accounts}
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    data = {
        "made_at": made_at,
        "events": found.events,
        "head": found.head,
        "accounts": [statement.to_json() for statement in stated],
    }
    with replacing(folder, FILES) as (history, as_json, as_page):
        events = takewhile(lambda event: event.seq <= found.events, ledger.history(account))
        count = write_history(history, events, currencies=currencies, head=found.head)
        as_json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        text = page(stated, sizes=sizes, head=found.head, events=found.events, made_at=made_at)
        as_page.write_text(text, encoding="utf-8")
    return Exported(tuple(folder / name for name in FILES), count, found.head, stated)
