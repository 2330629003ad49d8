"""The protocol once more, from the events alone: what every account, block, allowance and run must be after them.

An event that the protocol would not have allowed where it stands is refused. The order of times is not looked at: a clock may be
set back. What the attempts of a step must be is left to `verification`, which sees the operations' rows in that order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, TypeAlias

from dpcore.errors import UsageError
from dpcore.ledger.checks import checked_across, checked_budget, require_across_applies
from dpcore.ledger.rows import (
    WHOLE,
    Account,
    AccountState,
    Allowance,
    AllowanceKind,
    Block,
    BlockState,
    Event,
    EventKind,
)
from dpcore.ledger.verification.findings import at_event, require
from dpcore.ledger.verification.replayed_run import Details, ReplayedRun, reserved
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

BlockKey: TypeAlias = tuple[str, str]
"""An account and a block of it."""
AllowanceKey: TypeAlias = tuple[str, str, str]
"""An account, a kind of allowance, and whose it is."""


class Replay:
    """What the events so far have led to.

    Args:
        allowed: The allowances that there will ever be. What is used in a name counts from its first run on, long before it
            may get an allowance, and to remember every name that any run ever gave would take too much memory.
    """

    def __init__(self, allowed: Iterable[AllowanceKey]) -> None:
        self.accounts: dict[str, Account] = {}
        self.runs: dict[str, ReplayedRun] = {}
        self._used: dict[BlockKey, int] = {}
        self._growing: set[BlockKey] = set()
        self._allowances: dict[AllowanceKey, Allowance] = {}
        self._allowed_by: set[tuple[str, str]] = set()
        self._used_by: dict[AllowanceKey, int] = dict.fromkeys(allowed, 0)

    def follow(self, event: Event, details: Details) -> None:
        """Make the change that an event tells of, or refuse it."""
        change = self._OF_NO_RUN.get(event.kind)
        require(event, (event.run is None) == (change is not None), "names a run that it is not about, or lacks one")
        require(event, bool(event.account) and event.run != "", "names nobody")
        known = event.account in self.accounts
        require(
            event,
            known != (event.kind == EventKind.ACCOUNT_OPENED),
            "is of an account that is not open, or opens it again",
        )
        if change is not None:
            change(self, event, details)
        elif event.kind == EventKind.RESERVED:
            self._reserve(event, details)
        else:
            self._change_run(event, details)

    def blocks(self) -> dict[BlockKey, Block]:
        """Return all blocks as their rows must be."""
        return {
            (account, name): Block(
                account=account,
                name=name,
                state=BlockState.OPEN if (account, name) in self._growing else BlockState.SEALED,
                cap=self.accounts[account].cap,
                used=used,
            )
            for (account, name), used in self._used.items()
        }

    def allowances(self) -> dict[AllowanceKey, Allowance]:
        """Return all allowances as their rows must be."""
        return {key: replace(allowance, used=self._used_by[key]) for key, allowance in self._allowances.items()}

    def _open_account(self, event: Event, details: Details) -> None:
        named = {"currency": Currency(details["currency"]), "neighbours": Neighbours(details["neighbours"])}
        account = Account(name=event.account, **{**details, **named}, state=AccountState.OPEN, opened_at=event.at)
        _require_budget(event, account)
        _require_across(event, account)
        self.accounts[event.account] = account
        if account.blocks_by is None:
            self._used[event.account, WHOLE] = 0

    def _raise_cap(self, event: Event, details: Details) -> None:
        account = self._open(event)
        raised = replace(account, cap=details["cap"], epsilon=details["epsilon"])
        require(event, raised.cap > account.cap, "does not raise the cap")
        _require_budget(event, raised)
        self.accounts[event.account] = raised

    def _raise_across(self, event: Event, details: Details) -> None:
        account = self._open(event)
        raised = replace(account, across=details["across"], across_epsilon=details["across_epsilon"])
        higher = account.across is not None and details["across"] > account.across
        require(event, higher, "does not raise the cap across blocks")
        _require_across(event, raised)
        self.accounts[event.account] = raised

    def _close_account(self, event: Event, _: Details) -> None:
        self.accounts[event.account] = replace(self._open(event), state=AccountState.CLOSED)

    def _allow(self, event: Event, details: Details) -> None:
        key = (event.account, details["kind"], details["name"])
        require(event, key in self._used_by, "tells of an allowance that has no row")
        require(event, details["cap"] >= self._used_by[key], "allows less than was used already")
        terms = {"cap": details["cap"], "epsilon": details["epsilon"]}
        _require_budget(event, replace(self._open(event), **terms))
        kind = AllowanceKind(details["kind"])
        self._allowances[key] = Allowance(account=event.account, kind=kind, name=details["name"], **terms, used=0)
        self._allowed_by.add((event.account, kind))

    def _open_blocks(self, event: Event, details: Details) -> None:
        require(event, self._open(event).blocks_by is not None, "opens blocks of an account that has none")
        for name in details["blocks"]:
            require(event, (event.account, name) not in self._used, "opens a block that is there already")
            self._used[event.account, name] = 0
            self._growing.add((event.account, name))

    def _seal_blocks(self, event: Event, details: Details) -> None:
        self._open(event)
        for name in details["blocks"]:
            require(event, (event.account, name) in self._growing, "seals a block that is not open")
            self._growing.remove((event.account, name))

    def _republish(self, event: Event, details: Details) -> None:
        """Change nothing: which runs have ended and led to that release may be too many to remember."""

    def _adopt(self, event: Event, _: Details) -> None:
        self._open(event)

    def _restore(self, event: Event, details: Details) -> None:
        require(event, details["hash"] != event.previous, "accepts the loss of an event that is there")

    def _reserve(self, event: Event, details: Details) -> None:
        by_block = self._open(event).blocks_by is not None
        require(
            event, (details["blocks"] is not None) == by_block, "names blocks that its account has not, or lacks them"
        )
        run = reserved(event, details, earlier=self.runs.get(str(event.run)))
        for name in run.blocks:
            sealed = (event.account, name) in self._used and (event.account, name) not in self._growing
            require(event, sealed, "charges a block that is not sealed")
        for kind in AllowanceKind:
            free = (event.account, kind) not in self._allowed_by
            require(
                event,
                free or (event.account, kind, details[kind]) in self._allowances,
                f"lacks an allowance for its {kind}",
            )
        self._use(event, run, amount=details["amount"])
        self.runs[run.run.id] = run

    def _change_run(self, event: Event, details: Details) -> None:
        run = self.runs.get(str(event.run))
        if run is None:
            raise at_event(
                event, "is of a run that is not reserved, or whose row tells of an earlier change as the last"
            )
        run.change(event, details)
        if event.kind in {EventKind.SETTLED, EventKind.REFUNDED}:
            self._use(event, run, amount=-details["returned"])

    def _use(self, event: Event, run: ReplayedRun, *, amount: int) -> None:
        """Add to what is used of the run's blocks, across them and in its names, within what each of them has."""
        account = self.accounts[event.account]
        if account.across is not None:
            across_used = account.across_used + amount
            require(event, across_used <= account.across, "takes more than the cap across blocks has left")
            self.accounts[event.account] = replace(account, across_used=across_used)
        for name in run.blocks:
            used = self._used[event.account, name] + account.weight * amount
            require(event, used <= account.cap, "takes more than one of its blocks has left")
            self._used[event.account, name] = used
        for kind in AllowanceKind:
            key = (event.account, kind, run.request[kind])
            if key in self._used_by:
                self._used_by[key] += amount
                within = key not in self._allowances or self._used_by[key] <= self._allowances[key].cap
                require(event, within, f"takes more than its {kind} is allowed")

    def _open(self, event: Event) -> Account:
        account = self.accounts[event.account]
        require(event, account.state is AccountState.OPEN, "is of an account that is closed")
        return account

    _OF_NO_RUN: ClassVar[Mapping[str, Callable[["Replay", Event, Details], None]]] = {
        EventKind.ACCOUNT_OPENED: _open_account,
        EventKind.CAP_RAISED: _raise_cap,
        EventKind.ACROSS_RAISED: _raise_across,
        EventKind.ACCOUNT_CLOSED: _close_account,
        EventKind.ALLOWED: _allow,
        EventKind.BLOCKS_OPENED: _open_blocks,
        EventKind.BLOCKS_SEALED: _seal_blocks,
        EventKind.REPUBLISHED: _republish,
        EventKind.ADOPTED: _adopt,
        EventKind.RESTORED: _restore,
    }


def _require_across(event: Event, account: Account) -> None:
    """Refuse a cap across blocks that does not stand for its declared epsilon, or that bounds nothing."""
    if account.across is None and account.across_epsilon is None:
        return
    try:
        require_across_applies(unit=account.unit, blocks_by=account.blocks_by)
        checked_across(account.across, epsilon=account.across_epsilon, currency=account.currency, delta=account.delta)
    except UsageError:
        raise at_event(event, "declares a cap across blocks that its epsilon and delta do not stand for") from None


def _require_budget(event: Event, account: Account) -> None:
    """Refuse a cap that does not stand for its declared total; that of an allowance is checked as if it were an account's."""
    terms = {"currency": account.currency, "cap": account.cap, "epsilon": account.epsilon, "delta": account.delta}
    try:
        checked_budget(**terms)  # type: ignore[arg-type]
    except UsageError:
        raise at_event(event, "declares a cap that its epsilon and delta do not stand for") from None
