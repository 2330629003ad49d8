"""Replay the protocol from the events alone, to derive what every account, block, allowance, share and run must be.

An event that the protocol would not have allowed at its position is rejected. The order of timestamps is not checked, because a
clock may be set back. The attempts of a step are checked by `check`, which reads the operations' rows in that order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, TypeAlias

from dpcore.errors import UsageError
from dpcore.ledger.checks import checked_across, checked_budget, require_across_applies
from dpcore.ledger.findings import at_event, require
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
    RunState,
    Share,
)
from dpcore.ledger.verification.replayed_run import Details, ReplayedRun, reserved
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

BlockKey: TypeAlias = tuple[str, str]
"""The names of an account and of one of its blocks."""
AllowanceKey: TypeAlias = tuple[str, str, str]
"""The name of an account, the kind of an allowance, and the name of its analyst or purpose."""

ShareKey: TypeAlias = tuple[str, str]
"""The id of a run, and the name of an analyst who has a share of it."""


class Replay:
    """The state that the events so far lead to.

    Args:
        allowed: All allowances that the ledger ends up with. Usage counts from a name's first run, which may precede its
            allowance. Knowing the names in advance avoids keeping every name that any run ever used in memory.
    """

    def __init__(self, allowed: Iterable[AllowanceKey]) -> None:
        self.accounts: dict[str, Account] = {}
        self.runs: dict[str, ReplayedRun] = {}
        self._used: dict[BlockKey, int] = {}
        self._growing: set[BlockKey] = set()
        self._allowances: dict[AllowanceKey, Allowance] = {}
        self._allowed_by: set[tuple[str, str]] = set()
        self._used_by: dict[AllowanceKey, int] = dict.fromkeys(allowed, 0)
        self.shares: dict[ShareKey, Share] = {}

    def follow(self, event: Event, details: Details) -> None:
        """Apply an event. Raise if the protocol does not allow it here."""
        change = self._OF_NO_RUN.get(event.kind)
        require(event, bool(event.account) and event.run != "", "has an empty account or run")
        known = event.account in self.accounts
        require(
            event,
            known != (event.kind == EventKind.ACCOUNT_OPENED),
            "is of an account that was never opened, or opens it again",
        )
        if change is not None:
            change(self, event, details)
        elif event.kind == EventKind.RESERVED:
            self._reserve(event, details)
        elif event.kind in {EventKind.WITHDRAWN, EventKind.REMOVED}:
            self._withdraw(event)
        else:
            self._change_run(event, details)

    def blocks(self) -> dict[BlockKey, Block]:
        """Return every block as its row in the ledger must be, according to the events so far."""
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
        """Return every allowance as its row in the ledger must be, likewise."""
        return {key: replace(allowance, used=self._used_by[key]) for key, allowance in self._allowances.items()}

    def _open_account(self, event: Event, details: Details) -> None:
        named = {"currency": Currency(details["currency"]), "neighbours": Neighbours(details["neighbours"])}
        terms = {key: value for key, value in details.items() if key != "salt"} | named
        account = Account(name=event.account, **terms, state=AccountState.OPEN, opened_at=event.at)
        _require_budget(event, account)
        _require_across(event, account)
        self.accounts[event.account] = account
        if account.blocks_by is None:
            self._used[event.account, WHOLE] = 0

    def _raise_cap(self, event: Event, details: Details) -> None:
        account = self._open(event)
        raised = replace(account, cap=details["cap"], epsilon=details["epsilon"])
        require(event, raised.cap > account.cap and raised.epsilon >= account.epsilon, "does not raise the cap")
        _require_budget(event, raised)
        self.accounts[event.account] = raised

    def _raise_across(self, event: Event, details: Details) -> None:
        account = self._open(event)
        raised = replace(account, across=details["across"], across_epsilon=details["across_epsilon"])
        before = (account.across, account.across_epsilon)
        higher = None not in before and details["across"] > before[0] and details["across_epsilon"] >= before[1]
        require(event, higher, "does not raise the cap across blocks")
        _require_across(event, raised)
        self.accounts[event.account] = raised

    def _close_account(self, event: Event, _: Details) -> None:
        self.accounts[event.account] = replace(self._open(event), state=AccountState.CLOSED)

    def _allow(self, event: Event, details: Details) -> None:
        key = (event.account, details["kind"], details["name"])
        require(event, key in self._used_by, "sets an allowance that has no row")
        require(event, details["cap"] >= self._used_by[key], "allows less than was used already")
        terms = {"cap": details["cap"], "epsilon": details["epsilon"]}
        _require_budget(event, replace(self._open(event), **terms))
        kind = AllowanceKind(details["kind"])
        self._allowances[key] = Allowance(account=event.account, kind=kind, name=details["name"], **terms, used=0)
        self._allowed_by.add((event.account, kind))

    def _open_blocks(self, event: Event, details: Details) -> None:
        require(event, self._open(event).blocks_by is not None, "opens blocks of an account that has none")
        for name in details["blocks"]:
            require(event, (event.account, name) not in self._used, "opens a block that exists already")
            self._used[event.account, name] = 0
            self._growing.add((event.account, name))

    def _seal_blocks(self, event: Event, details: Details) -> None:
        self._open(event)
        for name in details["blocks"]:
            require(event, (event.account, name) in self._growing, "seals a block that is not open")
            self._growing.remove((event.account, name))

    def _republish(self, event: Event, details: Details) -> None:
        """Change nothing: runs that have ended may be too many to keep in memory."""

    def _share(self, event: Event, details: Details) -> None:
        run = self.runs.get(details["run"])  # None if nothing changes it any more: it is no longer kept in memory
        removed = details["token"] is None
        is_open = run is None or removed or run.run.state is RunState.OPEN
        own = run is None or run.run.account == event.account
        require(event, is_open and own, "shares a run that has ended, or of another account")
        key = (details["run"], details["analyst"])
        spent = self.shares[key].spent if key in self.shares else 0
        require(event, details["cap"] >= spent, "shares less than its analyst has spent")
        self.shares[key] = Share(**details, spent=spent, last=event.seq)

    def _spend_share(self, event: Event, details: Details) -> None:
        """Add a charge to what its analyst has spent. Raise if that is more than the analyst's share."""
        if details["analyst"] is None:
            return
        key = (str(event.run), details["analyst"])
        share = self.shares.get(key)
        if share is None or share.token is None:
            raise at_event(event, "is charged for an analyst who has no share")
        require(event, details["amount"] <= share.remaining, "takes more than its analyst's share has left")
        self.shares[key] = replace(share, spent=share.spent + details["amount"], last=event.seq)

    def _adopt(self, event: Event, _: Details) -> None:
        self._open(event)

    def _restore(self, event: Event, details: Details) -> None:
        require(event, details["hash"] != event.previous, "accepts the loss of an event that exists")

    def _reserve(self, event: Event, details: Details) -> None:
        by_block = self._open(event).blocks_by is not None
        require(
            event,
            (details["blocks"] is not None) == by_block,
            "names blocks although its account has none, or lacks them",
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

    def _withdraw(self, event: Event) -> None:
        """Change nothing: a withdrawal refunds nothing, and the row of its run stays as it was settled."""
        run = self.runs.get(str(event.run))  # None if it has ended and is no longer kept in memory
        ended = run is None or run.run.state is RunState.SETTLED
        require(event, ended, "withdraws the release of a run that was not settled")

    def _change_run(self, event: Event, details: Details) -> None:
        run = self.runs.get(str(event.run))
        if run is None:
            raise at_event(event, "is of a run that is not reserved, or whose row names an earlier event as its last")
        run.change(event, details)
        if event.kind == EventKind.CHARGED:
            self._spend_share(event, details)
        if event.kind in {EventKind.SETTLED, EventKind.REFUNDED}:
            self._use(event, run, amount=-details["returned"])

    def _use(self, event: Event, run: ReplayedRun, *, amount: int) -> None:
        """Add to the used amounts of the run's blocks, the cap across blocks and its allowances. Raise if one exceeds its cap."""
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
        EventKind.SHARED: _share,
        EventKind.ADOPTED: _adopt,
        EventKind.RESTORED: _restore,
    }


def _require_across(event: Event, account: Account) -> None:
    """Raise if a cap across blocks does not match its declared epsilon, or bounds nothing."""
    if account.across is None and account.across_epsilon is None:
        return
    try:
        require_across_applies(unit=account.unit, blocks_by=account.blocks_by)
        checked_across(account.across, epsilon=account.across_epsilon, currency=account.currency, delta=account.delta)
    except UsageError:
        raise at_event(event, "declares a cap across blocks that does not match its epsilon and delta") from None


def _require_budget(event: Event, account: Account) -> None:
    """Raise if a cap does not match its declared total. An allowance's cap is checked like an account's."""
    terms = {"currency": account.currency, "cap": account.cap, "epsilon": account.epsilon, "delta": account.delta}
    try:
        checked_budget(**terms)  # type: ignore[arg-type]
    except UsageError:
        raise at_event(event, "declares a cap that does not match its epsilon and delta") from None
