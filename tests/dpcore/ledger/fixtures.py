"""What every test of a ledger needs: an account to charge, and a check that the books balance."""

from collections import Counter
from typing import Any

from dpcore.ledger import GENESIS, WHOLE, Account, EventKind, Ledger
from dpcore.ledger.chain import link
from dpcore.ledger.verification import verify
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

CAP = 1_000
"""What `opened` gives an account unless told otherwise."""
MECHANISM = {"name": "discrete-gaussian", "sensitivity": {"l2_squared": 2}, "sigma": 12.5, "cells": ["age", "sex"]}

SHA256 = "ab" * 32
BODIES: dict[EventKind, dict[str, Any]] = {
    EventKind.ACCOUNT_OPENED: {
        "currency": "zcdp",
        "cap": 1,
        "epsilon": 1.0,
        "delta": 1e-09,
        "unit": "row",
        "neighbours": "add-remove",
        "description": "",
        "blocks_by": None,
        "across": None,
        "across_epsilon": None,
        "salt": 32 * "0",
    },
    EventKind.CAP_RAISED: {"cap": 2, "epsilon": 1e16, "reason": "r"},
    EventKind.ACROSS_RAISED: {"across": 2, "across_epsilon": 2.0, "reason": "r"},
    EventKind.ACCOUNT_CLOSED: {"reason": "r"},
    EventKind.ALLOWED: {"kind": "analyst", "name": "ana", "cap": 1, "epsilon": 0.5, "reason": "r"},
    EventKind.SHARED: {"run": "open", "analyst": "ana", "cap": 1, "token": SHA256},
    EventKind.ADOPTED: {"folder": "/releases", "owner": None, "reason": "r"},
    EventKind.RESTORED: {"seq": 999, "hash": SHA256, "reason": "r"},
    EventKind.WITHDRAWN: {"release": "r", "reason": "r"},
    EventKind.REMOVED: {"release": "r", "reason": "retention", "keep": 1},
    EventKind.BLOCKS_OPENED: {"blocks": ["a", "b"]},
    EventKind.BLOCKS_SEALED: {"blocks": ["a"]},
    EventKind.REPUBLISHED: {"run": "open", "release": "r", "manifest": "m", "manifest_sha256": SHA256},
    EventKind.RESERVED: {"amount": 1, "claim": "c", "blocks": None, "analyst": None, "purpose": None},
    EventKind.LEASED: {"fence": 1, "holder": "h", "seconds": 1},
    EventKind.DATA_VERSION: {"version": "v"},
    EventKind.CHARGED: {
        "step": "s",
        "attempt": 1,
        "amount": 1,
        "mechanism": MECHANISM,
        "fence": 1,
        "analyst": None,
    },
    EventKind.COMMITTED: {"step": "s", "attempt": 1, "sha256": SHA256, "size": 0},
    EventKind.SETTLED: {"spent": 0, "returned": 1, "release": None, "manifest": None, "manifest_sha256": None},
    EventKind.REFUNDED: {"returned": 1},
}
"""A body of each kind of event."""


def opened(ledger: Ledger, name: str = "clinic", **changes: Any) -> Account:
    """Open an account of pure epsilon, with a small cap, except for what is changed."""
    declared: dict[str, Any] = {
        "currency": Currency.PURE,
        "cap": CAP,
        "epsilon": 1.0,
        "delta": 0.0,
        "unit": "row",
        "neighbours": Neighbours.ADD_REMOVE,
    }
    return ledger.open_account(name, **(declared | changes))


def opened_by_month(ledger: Ledger, *months: str, name: str = "visits", **changes: Any) -> Account:
    """Open an account that is kept by month, with these months sealed."""
    account = opened(ledger, name, blocks_by="month of visit_date", **changes)
    ledger.open_blocks(name, months)
    ledger.seal_blocks(name, months)
    return account


def assert_sound(ledger: Ledger) -> None:
    """The ledger verifies, and, counted once more by the plainest means, every sum follows from the events alone."""
    verify(ledger, price=lambda mechanism, currency: 1, heads={})
    previous = GENESIS
    accounts = {account.name: account for account in ledger.accounts()}
    named: dict[str | None, list[str]] = {}
    spent: Counter[tuple[str, str]] = Counter()
    held: Counter[tuple[str, str]] = Counter()
    for number, event in enumerate(ledger.history(None), start=1):
        body = event.details
        again = link(
            previous, seq=number, at=event.at, kind=event.kind, account=event.account, run=event.run, body=event.body
        )
        assert again == event
        previous = event.hash
        if event.kind is EventKind.RESERVED:
            named[event.run] = body.get("blocks") or [WHOLE]
        weight = accounts[event.account].weight
        for block in named.get(event.run, []):
            key = event.account, block
            spent[key] += weight * body["amount"] if event.kind is EventKind.CHARGED else 0
            held[key] += weight * _held(event.kind, body)
    assert ledger.head() == previous
    for name, account in accounts.items():
        for block, balance in ledger.blocks(name):
            assert (balance.spent, balance.reserved) == (spent[name, block.name], held[name, block.name])
            assert balance.used == block.used <= block.cap == account.cap
    assert spent.keys() <= {(name, block.name) for name in accounts for block, _ in ledger.blocks(name)}


def _held(kind: EventKind, body: dict[str, Any]) -> int:
    if kind is EventKind.RESERVED:
        return int(body["amount"])
    if kind is EventKind.CHARGED:
        return -int(body["amount"])
    return -int(body["returned"]) if kind in {EventKind.SETTLED, EventKind.REFUNDED} else 0
