"""Export a ledger for readers without access to it: its history as Parquet, its guarantees as JSON and as a Markdown page."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.ledger import Event, Ledger
from dpcore.ledger.chain import canonical
from dpcore.ledger.events import read_body
from dpcore.ledger.findings import at_event
from dpcore.ledger.rows import whole_minute
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.release.atomic_files import replacing
from dpcore.release.ledger_export.markdown import page
from dpcore.release.ledger_export.statements import AccountStatement, group_sizes, statements
from dpcore.reporting.overview import overview

__all__ = ["SCHEMA", "Exported", "export", "group_sizes", "write_history"]

FILES = ("history.parquet", "statement.json", "statement.md")
ROWS_PER_GROUP = 10_000

_REQUIRED = {"seq", "at", "kind", "account", "currency", "body", "previous", "hash"}
_TYPES = {
    "seq": pa.int64(),
    "at": pa.timestamp("us", tz="UTC"),
    **dict.fromkeys(("kind", "account", "run", "step"), pa.string()),
    **dict.fromkeys(("attempt", "amount"), pa.int64()),
    "amount_in_currency": pa.float64(),
    **dict.fromkeys(("currency", "mechanism", "body", "previous", "hash"), pa.string()),
}
SCHEMA = pa.schema([pa.field(name, kind, nullable=name not in _REQUIRED) for name, kind in _TYPES.items()])
"""`amount` is the amount a run reserved or an operation charged, in multiples of 1e-12; `body` is the text that was hashed."""


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
    snapshot = overview(ledger, account)
    stated = statements(snapshot, sizes=sizes)
    currencies = {item.account.name: item.account.currency for item in snapshot.accounts}
    made_at = whole_minute(datetime.now(UTC))
    data = {
        "made_at": made_at,
        "events": snapshot.events,
        "head": snapshot.head,
        "accounts": [statement.to_json() for statement in stated],
    }
    with replacing(folder, FILES) as (history, as_json, as_page):
        events = takewhile(lambda event: event.seq <= snapshot.events, ledger.history(account))
        count = write_history(history, events, currencies=currencies, head=snapshot.head)
        as_json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        text = page(stated, sizes=sizes, head=snapshot.head, events=snapshot.events, made_at=made_at)
        as_page.write_text(text, encoding="utf-8")
    return Exported(tuple(folder / name for name in FILES), count, snapshot.head, stated)


def write_history(path: Path, events: Iterable[Event], *, currencies: Mapping[str, Currency], head: str) -> int:
    """Write events to a Parquet file as a stream, with at most one row group in memory, and return their number.

    Args:
        path: The file.
        events: The events, in order.
        currencies: The currency of each account.
        head: The hash of the ledger's last event, stored in the file's metadata.
    """
    count, rows = 0, iter(_row(event, currencies) for event in events)
    with pq.ParquetWriter(path, SCHEMA.with_metadata({"dpflow.head": head}), compression="zstd") as writer:
        while group := list(islice(rows, ROWS_PER_GROUP)):
            writer.write_batch(pa.RecordBatch.from_pylist(group, schema=writer.schema))
            count += len(group)
    return count


def _row(event: Event, currencies: Mapping[str, Currency]) -> dict[str, Any]:
    body = read_body(event)
    mechanism, amount = body.get("mechanism"), body.get("amount")
    currency = currencies.get(event.account)
    if currency is None:
        raise at_event(event, "belongs to an account that does not exist")
    return {
        "seq": event.seq,
        "at": event.time,
        "kind": event.kind.value,
        "account": event.account,
        "run": event.run,
        "step": body.get("step"),
        "attempt": body.get("attempt"),
        "amount": amount,
        "amount_in_currency": None if amount is None else amount / AMOUNT_OF_ONE,
        "currency": currency.value,
        "mechanism": None if mechanism is None else canonical(mechanism),
        "body": event.body,
        "previous": event.previous,
        "hash": event.hash,
    }
