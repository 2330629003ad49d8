"""`dpflow ledger history`: one line per event, streamed, so that a history of any length fits in memory."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from dpcore.cli.output import Listing, blocks_text
from dpcore.ledger import Event, EventKind, open_ledger
from dpcore.ledger.events import read_body
from dpcore.ledger.findings import at_event
from dpcore.ledger.holder import process_of
from dpcore.privacy.accounting import Currency
from dpcore.reporting.formatting import at_most, price

Body = Mapping[str, Any]


def history(arguments: argparse.Namespace) -> Listing:
    """List every event, or those of one account. The ledger stays open until the last event is written."""
    with ExitStack() as opened:
        ledger = opened.enter_context(open_ledger())
        events = ledger.history(arguments.account)
        currencies = {account.name: account.currency for account in ledger.accounts()}
        keep = opened.pop_all()

    def following() -> Iterator[Event]:
        with keep:
            yield from events

    whose = () if arguments.account else ("account",)
    return Listing(
        name="events",
        items=following(),
        data=_data,
        heading=("seq", "at (UTC)", "kind", *whose, "run", "what"),
        row=lambda event: _row(event, currencies, whose=bool(whose)),
        right={"seq"},
    )


def _data(event: Event) -> dict[str, Any]:
    read_body(event)  # only validates: the body is shown as it was recorded
    return {
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind.value,
        "account": event.account,
        "run": event.run,
        "body": event.details,
        "previous": event.previous,
        "hash": event.hash,
    }


def _row(event: Event, currencies: Mapping[str, Currency], *, whose: bool) -> tuple[str, ...]:
    body, currency = read_body(event), currencies.get(event.account)
    if currency is None:
        raise at_event(event, "names an account that does not exist")
    at = event.at[:19].replace("T", " ")
    account = (event.account,) if whose else ()
    return str(event.seq), at, event.kind.value, *account, event.run or "-", _WHAT[event.kind](body, currency)


def _opened(body: Body, currency: Currency) -> str:
    at = f" at delta {at_most(body['delta'])}" if body["delta"] else ""
    by = f", by {body['blocks_by']}" if body["blocks_by"] else ""
    across = f", epsilon {at_most(body['across_epsilon'])} across blocks" if body["across_epsilon"] else ""
    return f"epsilon {at_most(body['epsilon'])}{at} in {currency}, {body['unit']}, {body['neighbours']}{by}{across}"


def _reserved(body: Body, currency: Currency) -> str:
    blocks = [blocks_text(body["blocks"])] if body["blocks"] else []
    named = [f"{key} {body[key]}" for key in ("analyst", "purpose") if body[key]]
    return ", ".join([price(body["amount"], currency), *blocks, *named])


def _charged(body: Body, currency: Currency) -> str:
    parts = [body["step"], price(body["amount"], currency)]
    if body["analyst"]:
        parts.append(f"analyst {body['analyst']}")
    if body["attempt"] > 1:
        parts.append(f"attempt {body['attempt']}")
    if "name" in body["mechanism"]:
        parts.append(str(body["mechanism"]["name"]))
    return ", ".join(parts)


def _settled(body: Body, currency: Currency) -> str:
    release = f"release {body['release']}" if body["release"] else "no release"
    return f"{price(body['spent'], currency)} spent, {price(body['returned'], currency)} refunded, {release}"


def _short(digest: str | None) -> str:
    return "an unreadable owner" if digest is None else f"{digest[:12]}..."


_WHAT: Mapping[EventKind, Callable[[Body, Currency], str]] = {
    EventKind.ACCOUNT_OPENED: _opened,
    EventKind.CAP_RAISED: lambda body, _: f"to epsilon {at_most(body['epsilon'])}: {body['reason']}",
    EventKind.ACROSS_RAISED: lambda body, _: (
        f"to epsilon {at_most(body['across_epsilon'])} across blocks: {body['reason']}"
    ),
    EventKind.ACCOUNT_CLOSED: lambda body, _: str(body["reason"]),
    EventKind.ALLOWED: lambda body, _: (
        f"{body['kind']} {body['name']}, epsilon {at_most(body['epsilon'])}: {body['reason']}"
    ),
    EventKind.BLOCKS_OPENED: lambda body, _: blocks_text(body["blocks"]),
    EventKind.BLOCKS_SEALED: lambda body, _: blocks_text(body["blocks"]),
    EventKind.ADOPTED: lambda body, _: f"{body['folder']}, from {_short(body['owner'])}: {body['reason']}",
    EventKind.RESTORED: lambda body, _: f"without event {body['seq']:,} ({_short(body['hash'])}): {body['reason']}",
    EventKind.RESERVED: _reserved,
    EventKind.LEASED: lambda body, _: f"{process_of(body['holder'])}, fence {body['fence']}",
    EventKind.DATA_VERSION: lambda body, _: f"{body['version'][:16]}",
    EventKind.CHARGED: _charged,
    EventKind.COMMITTED: lambda body, _: f"{body['step']}, {body['size']:,} bytes, {body['sha256'][:16]}",
    EventKind.SETTLED: _settled,
    EventKind.REPUBLISHED: lambda body, _: f"release {body['release']} of run {body['run']} was published again",
    EventKind.WITHDRAWN: lambda body, _: f"release {body['release']}: {body['reason']}",
    EventKind.REMOVED: lambda body, _: f"release {body['release']}: {body['reason']}",
    EventKind.SHARED: lambda body, currency: (
        f"analyst {body['analyst']} of run {body['run']}: "
        + ("removed" if body["token"] is None else f"at most {price(body['cap'], currency)}")
    ),
    EventKind.REFUNDED: lambda body, currency: f"{price(body['returned'], currency)} refunded",
}
"""How the last column describes each kind of event."""
