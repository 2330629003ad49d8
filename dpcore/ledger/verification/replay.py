"""Replay the protocol from the events alone, to derive what every account, block, allowance, share and run must be.

An event that the protocol would not have allowed at its position is rejected. The replay shares no code with the protocol's own writing
of rows. The order of timestamps is not checked, because a clock may be set back. The attempts of a step are checked by `check`, which reads
the operations' rows in that order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

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
    Run,
    RunState,
    Share,
)
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

Details: TypeAlias = Mapping[str, Any]
"""The parsed body of an event."""
BlockKey: TypeAlias = tuple[str, str]
"""The names of an account and of one of its blocks."""
AllowanceKey: TypeAlias = tuple[str, str, str]
"""The name of an account, the kind of an allowance, and the name of its analyst or purpose."""
ShareKey: TypeAlias = tuple[str, str]
"""The id of a run, and the name of an analyst who has a share of it."""


class Replay:
    """The rows that the events so far lead to.

    Args:
        allowed: All allowances that the ledger ends up with. Usage counts from a name's first run, which may precede its
            allowance. Knowing the names in advance avoids keeping every name that any run ever used in memory.
    """

    def __init__(self, allowed: Iterable[AllowanceKey]) -> None:
        self.accounts: dict[str, Account] = {}
        self.blocks: dict[BlockKey, Block] = {}
        self.allowances: dict[AllowanceKey, Allowance] = {}
        self.shares: dict[ShareKey, Share] = {}
        self.runs: dict[str, SimpleNamespace] = {}
        """Each with the fields of its row. It changes with every operation, so it is not frozen."""
        self._requests: dict[str, Details] = {}
        self._used_by: dict[AllowanceKey, int] = dict.fromkeys(allowed, 0)

    def follow(self, event: Event, details: Details) -> None:
        """Apply an event. Raise if the protocol does not allow it here."""
        require(event, bool(event.account) and event.run != "", "has an empty account or run")
        require(
            event,
            (event.account in self.accounts) != (event.kind == EventKind.ACCOUNT_OPENED),
            "is of an account that was never opened, or opens it again",
        )
        self._RULES[event.kind](self, event, details)

    def forget(self, run_id: str) -> Run | None:
        """Return a run that nothing changes any more, and no longer keep it in memory."""
        self._requests.pop(run_id, None)
        run = self.runs.pop(run_id, None)
        return None if run is None else Run(**vars(run))

    def _open_account(self, event: Event, details: Details) -> None:
        named = {"currency": Currency(details["currency"]), "neighbours": Neighbours(details["neighbours"])}
        terms = {key: value for key, value in details.items() if key != "salt"} | named
        account = Account(name=event.account, **terms, state=AccountState.OPEN, opened_at=event.at)
        self._declare(event, account)
        if account.blocks_by is None:
            self._add_block(event, WHOLE, state=BlockState.SEALED)

    def _raise_cap(self, event: Event, details: Details) -> None:
        account = self._open(event)
        raised = replace(account, cap=details["cap"], epsilon=details["epsilon"])
        require(event, raised.cap > account.cap and raised.epsilon >= account.epsilon, "does not raise the cap")
        self._declare(event, raised)
        for key, block in self.blocks.items():
            if block.account == event.account:
                self.blocks[key] = replace(block, cap=raised.cap)

    def _raise_across(self, event: Event, details: Details) -> None:
        account = self._open(event)
        raised = replace(account, across=details["across"], across_epsilon=details["across_epsilon"])
        before = (account.across, account.across_epsilon)
        higher = None not in before and details["across"] > before[0] and details["across_epsilon"] >= before[1]
        require(event, higher, "does not raise the cap across blocks")
        self._declare(event, raised)

    def _declare(self, event: Event, account: Account) -> None:
        """Keep an account with its terms. Raise if a cap does not match its declared total, or the cap across blocks bounds nothing."""
        _require_budget(event, account)
        if account.across is not None or account.across_epsilon is not None:
            try:
                require_across_applies(unit=account.unit, blocks_by=account.blocks_by)
                terms = {"epsilon": account.across_epsilon, "currency": account.currency, "delta": account.delta}
                checked_across(account.across, **terms)  # type: ignore[arg-type]
            except UsageError:
                raise at_event(
                    event, "declares a cap across blocks that does not match its epsilon and delta"
                ) from None
        self.accounts[event.account] = account

    def _close_account(self, event: Event, _: Details) -> None:
        self.accounts[event.account] = replace(self._open(event), state=AccountState.CLOSED)

    def _allow(self, event: Event, details: Details) -> None:
        key = (event.account, details["kind"], details["name"])
        require(event, key in self._used_by, "sets an allowance that has no row")
        require(event, details["cap"] >= self._used_by[key], "allows less than was used already")
        terms = {"cap": details["cap"], "epsilon": details["epsilon"]}
        _require_budget(event, replace(self._open(event), **terms))
        kind = AllowanceKind(details["kind"])
        self.allowances[key] = Allowance(event.account, kind, details["name"], **terms, used=self._used_by[key])

    def _open_blocks(self, event: Event, details: Details) -> None:
        require(event, self._open(event).blocks_by is not None, "opens blocks of an account that has none")
        for name in details["blocks"]:
            require(event, (event.account, name) not in self.blocks, "opens a block that exists already")
            self._add_block(event, name, state=BlockState.OPEN)

    def _add_block(self, event: Event, name: str, *, state: BlockState) -> None:
        cap = self.accounts[event.account].cap
        self.blocks[event.account, name] = Block(event.account, name, state, cap, used=0)

    def _seal_blocks(self, event: Event, details: Details) -> None:
        self._open(event)
        for name in details["blocks"]:
            block = self.blocks.get((event.account, name))
            if block is None or block.state is not BlockState.OPEN:
                raise at_event(event, "seals a block that is not open")
            self.blocks[event.account, name] = replace(block, state=BlockState.SEALED)

    def _change_nothing(self, event: Event, details: Details) -> None:
        """Accept an event whose effects are not kept, or are compared with rows: there may be too many for memory."""

    def _share(self, event: Event, details: Details) -> None:
        run = self.runs.get(details["run"])  # None if nothing changes it any more: it is no longer kept in memory
        is_open = run is None or details["token"] is None or run.state is RunState.OPEN
        own = run is None or run.account == event.account
        require(event, is_open and own, "shares a run that has ended, or of another account")
        key = (details["run"], details["analyst"])
        spent = self.shares[key].spent if key in self.shares else 0
        require(event, details["cap"] >= spent, "shares less than its analyst has spent")
        self.shares[key] = Share(**details, spent=spent, last=event.seq)

    def _adopt(self, event: Event, _: Details) -> None:
        self._open(event)

    def _restore(self, event: Event, details: Details) -> None:
        require(event, details["hash"] != event.previous, "accepts the loss of an event that exists")

    def _reserve(self, event: Event, details: Details) -> None:
        run_id, by_block = str(event.run), self._open(event).blocks_by is not None
        require(
            event,
            (details["blocks"] is not None) == by_block,
            "names blocks although its account has none, or lacks them",
        )
        earlier = self.runs.get(run_id)
        if earlier is not None:
            require(event, earlier.state is RunState.REFUNDED, "reserves a run that is open or settled")
            same = earlier.account == event.account and self._requests[run_id] == details
            require(event, same, "reuses the id of a run for another request")
        for name in details["blocks"] or (WHOLE,):
            block = self.blocks.get((event.account, name))
            sealed = block is not None and block.state is BlockState.SEALED
            require(event, sealed, "charges a block that is not sealed")
        for kind in AllowanceKind:
            required = any(key[:2] == (event.account, kind) for key in self.allowances)
            allowed = not required or (event.account, kind, details[kind]) in self.allowances
            require(event, allowed, f"lacks an allowance for its {kind}")
        self._requests[run_id] = details
        self._use(event, amount=details["amount"])
        self.runs[run_id] = SimpleNamespace(
            id=run_id,
            account=event.account,
            reserved=details["amount"],
            spent=0,
            state=RunState.OPEN,
            claim=details["claim"],
            analyst=details["analyst"],
            purpose=details["purpose"],
            data_version=None,
            opened_at=earlier.opened_at if earlier else event.at,
            release=None,
            fence=earlier.fence if earlier else 0,
            holder=None,
            lease_seconds=0,
            first=event.seq,
            last=event.seq,
        )

    def _withdraw(self, event: Event, _: Details) -> None:
        """Change nothing: a withdrawal refunds nothing, and the row of its run stays as it was settled."""
        run = self.runs.get(str(event.run))  # None if it has ended and is no longer kept in memory
        ended = run is None or run.state is RunState.SETTLED
        require(event, ended, "withdraws the release of a run that was not settled")

    def _lease(self, event: Event, details: Details) -> None:
        fence = details["fence"]
        require(event, fence == self._running(event).fence + 1, "does not have the next fence of its run")
        self._change(event, fence=fence, holder=details["holder"], lease_seconds=details["seconds"])

    def _record_data_version(self, event: Event, details: Details) -> None:
        require(event, self._running(event).data_version is None, "binds its run to a second version of the data")
        self._change(event, data_version=details["version"])

    def _charge(self, event: Event, details: Details) -> None:
        run = self._running(event)
        require(event, details["fence"] == run.fence, "comes from a worker whose run was taken over")
        require(event, details["amount"] <= run.reserved - run.spent, "takes more than its run has left")
        self._change(event, spent=run.spent + details["amount"])
        if details["analyst"] is not None:
            self._spend_share(event, details)

    def _spend_share(self, event: Event, details: Details) -> None:
        """Add a charge to what its analyst has spent. Raise if that is more than the analyst's share."""
        key = (str(event.run), details["analyst"])
        share = self.shares.get(key)
        if share is None or share.token is None:
            raise at_event(event, "is charged for an analyst who has no share")
        require(event, details["amount"] <= share.remaining, "takes more than its analyst's share has left")
        self.shares[key] = replace(share, spent=share.spent + details["amount"], last=event.seq)

    def _commit(self, event: Event, _: Details) -> None:
        self._running(event)
        self._change(event)

    def _settle(self, event: Event, details: Details) -> None:
        run = self._running(event)
        require(event, details["spent"] == run.spent, "does not state what its run has spent")
        require(event, details["returned"] == run.reserved - run.spent, "does not return the uncharged amount")
        both = (details["manifest"] is None) == (details["manifest_sha256"] is None)
        require(event, both, "names a manifest without its hash, or a hash without its manifest")
        self._use(event, amount=-details["returned"])
        self._change(event, state=RunState.SETTLED, release=details["release"])

    def _refund(self, event: Event, details: Details) -> None:
        run = self._running(event)
        require(event, run.spent == 0, "refunds a run that was charged")
        require(event, details["returned"] == run.reserved, "does not return the reserved amount")
        self._use(event, amount=-details["returned"])
        self._change(event, state=RunState.REFUNDED)

    def _running(self, event: Event) -> SimpleNamespace:
        """Return the run of an event. Raise unless it is open, and of the event's account."""
        run = self.runs.get(str(event.run))
        if run is None:
            raise at_event(event, "is of a run that is not reserved, or whose row names an earlier event as its last")
        require(event, run.account == event.account, "is of a run of another account")
        require(event, run.state is RunState.OPEN, "changes a run that has ended")
        return run

    def _change(self, event: Event, **values: Any) -> None:
        vars(self.runs[str(event.run)]).update(values, last=event.seq)

    def _use(self, event: Event, *, amount: int) -> None:
        """Add to the used amounts of the run's blocks, the cap across blocks and its allowances. Raise if one exceeds its cap."""
        account, request = self.accounts[event.account], self._requests[str(event.run)]
        if account.across is not None:
            across_used = account.across_used + amount
            require(event, across_used <= account.across, "takes more than the cap across blocks has left")
            self.accounts[event.account] = replace(account, across_used=across_used)
        for name in request["blocks"] or (WHOLE,):
            block = self.blocks[event.account, name]
            block = replace(block, used=block.used + account.weight * amount)
            require(event, block.used <= block.cap, "takes more than one of its blocks has left")
            self.blocks[event.account, name] = block
        for kind in AllowanceKind:
            key = (event.account, kind, request[kind])
            if key in self._used_by:
                self._used_by[key] += amount
            if key in self.allowances:
                self.allowances[key] = allowance = replace(self.allowances[key], used=self._used_by[key])
                require(event, allowance.used <= allowance.cap, f"takes more than its {kind} is allowed")

    def _open(self, event: Event) -> Account:
        account = self.accounts[event.account]
        require(event, account.state is AccountState.OPEN, "is of an account that is closed")
        return account

    _RULES: ClassVar[Mapping[str, Callable[["Replay", Event, Details], None]]] = {
        EventKind.ACCOUNT_OPENED: _open_account,
        EventKind.CAP_RAISED: _raise_cap,
        EventKind.ACROSS_RAISED: _raise_across,
        EventKind.ACCOUNT_CLOSED: _close_account,
        EventKind.ALLOWED: _allow,
        EventKind.BLOCKS_OPENED: _open_blocks,
        EventKind.BLOCKS_SEALED: _seal_blocks,
        EventKind.REPUBLISHED: _change_nothing,
        EventKind.SHARED: _share,
        EventKind.ADOPTED: _adopt,
        EventKind.RESTORED: _restore,
        EventKind.RESERVED: _reserve,
        EventKind.WITHDRAWN: _withdraw,
        EventKind.REMOVED: _withdraw,
        EventKind.LEASED: _lease,
        EventKind.DATA_VERSION: _record_data_version,
        EventKind.CHARGED: _charge,
        EventKind.COMMITTED: _commit,
        EventKind.SETTLED: _settle,
        EventKind.REFUNDED: _refund,
    }


def _require_budget(event: Event, account: Account) -> None:
    """Raise if a cap does not match its declared total. An allowance's cap is checked like an account's."""
    terms = {"currency": account.currency, "cap": account.cap, "epsilon": account.epsilon, "delta": account.delta}
    try:
        checked_budget(**terms)  # type: ignore[arg-type]
    except UsageError:
        raise at_event(event, "declares a cap that does not match its epsilon and delta") from None
