"""Write the whole history to one Parquet file as a stream: at most one row group is in memory."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.ledger import Event
from dpcore.ledger.chain import canonical
from dpcore.ledger.events import read_body
from dpcore.ledger.findings import at_event
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency

ROWS_PER_GROUP = 10_000
BYTES_PER_GROUP = 8 << 20
"""End a row group early when its event bodies reach this size."""

SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("account", pa.string(), nullable=False),
        pa.field("run", pa.string()),
        pa.field("step", pa.string()),
        pa.field("attempt", pa.int64()),
        pa.field("amount", pa.int64()),
        pa.field("amount_in_currency", pa.float64()),
        pa.field("currency", pa.string(), nullable=False),
        pa.field("mechanism", pa.string()),
        pa.field("body", pa.string(), nullable=False),
        pa.field("previous", pa.string(), nullable=False),
        pa.field("hash", pa.string(), nullable=False),
    ]
)
"""`amount` is the amount a run reserved or an operation charged, in multiples of 1e-12; `body` is the text that was hashed."""


def write_history(path: Path, events: Iterable[Event], *, currencies: Mapping[str, Currency], head: str) -> int:
    """Write events to a Parquet file and return their number.

    Args:
        path: The file.
        events: The events, in order.
        currencies: The currency of each account.
        head: The hash of the ledger's last event, stored in the file's metadata.
    """
    count = 0
    with pq.ParquetWriter(path, SCHEMA.with_metadata({"dpflow.head": head}), compression="zstd") as writer:
        for rows in _groups(_row(event, currencies) for event in events):
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=writer.schema))
            count += len(rows)
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


def _groups(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row["body"])
        if len(group) >= ROWS_PER_GROUP or size >= BYTES_PER_GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group
