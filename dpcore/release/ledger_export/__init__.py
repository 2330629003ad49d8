"""Export a ledger for readers without access to it: its history as Parquet, its guarantees as JSON and as a Markdown page."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from dpcore.ledger import Ledger
from dpcore.ledger.rows import whole_minute
from dpcore.release.atomic_files import replacing
from dpcore.release.ledger_export.history import write_history
from dpcore.release.ledger_export.markdown import page
from dpcore.release.ledger_export.statements import AccountStatement, group_sizes, statements
from dpcore.reporting.overview import overview

__all__ = ["Exported", "export", "group_sizes"]

FILES = ("history.parquet", "statement.json", "statement.md")


@dataclass(frozen=True)
class Exported:
    """The result of an export: the files, the number of events written, the ledger head at that moment, and the statements."""

    files: tuple[Path, ...]
    events: int
    head: str
    accounts: tuple[AccountStatement, ...]


def export(ledger: Ledger, folder: Path, *, account: str | None, sizes: tuple[int, ...]) -> Exported:
    """Write the history and statements of one account, or of all, to a folder, and replace an earlier export there.

    All files describe the same moment, even if runs charge the ledger meanwhile.
    """
    found = overview(ledger, account)
    stated = statements(found, sizes=sizes)
    currencies = {each.account.name: each.account.currency for each in found.accounts}
    made_at = whole_minute(datetime.now(UTC))
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
