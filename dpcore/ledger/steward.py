"""The steward's side of a ledger: accounts, caps, blocks and allowances. Each change is recorded as an event."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from dpcore.errors import UsageError
from dpcore.ledger import checks
from dpcore.ledger.heads import HeadMemory, SeenHead
from dpcore.ledger.reader import LedgerReader
from dpcore.ledger.refusals import known_account, known_open_account, listed
from dpcore.ledger.rows import (
    WHOLE,
    Account,
    AccountState,
    Allowance,
    AllowanceKind,
    Block,
    BlockState,
    EventKind,
)
from dpcore.ledger.store import Store
from dpcore.ledger.transaction import Head
from dpcore.ledger.writing import WritingTransaction
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours


class Stewardship(LedgerReader):
    """The changes that only a steward makes. Every method is one transaction: all of its changes happen, or none."""

    def __init__(
        self, store: Store, *, clock: Callable[[], datetime] | None = None, memory: HeadMemory | None = None
    ) -> None:
        super().__init__(store, memory=memory)
        self._clock = clock

    @contextmanager
    def _writing(self) -> Iterator[WritingTransaction]:
        """Begin an exclusive write transaction. An exception rolls it back."""
        self.require_current()
        with self._changing() as rows:
            yield rows

    @contextmanager
    def _changing(self) -> Iterator[WritingTransaction]:
        if self.not_fixed is not None:
            raise UsageError(self.not_fixed)
        with self._store.transaction(writing=True):
            now = self._clock() if self._clock else None
            rows = WritingTransaction(self._store, now=now, seen=self._seen)
            self._require_same_content(rows)
            yield rows
            if self._memory is not None and not self._wrote:
                # After the change was checked, because this creates folders, and before it is stored.
                self._memory.require_writable()
            identity = self._identity or rows.hash_of(1)
        self._identity, self._seen, self._wrote = identity, rows.known_last or self._seen, True

    def accept_restoration(self, *, reason: str) -> tuple[SeenHead, Head]:
        """Continue with an older copy after events were lost. The spending that they recorded no longer counts.

        Returns:
            The lost head, and the head from which the ledger continues.
        """
        checks.checked_text(reason, what="a reason")
        lost, before = self._lost, self._seen
        if lost is None or before is None:
            self.require_current()
            raise UsageError("this ledger holds everything that was seen in it before; there is no loss to accept")
        body = {"seq": lost.seq, "hash": lost.hash, "reason": reason}
        with self._changing() as rows:
            for account in rows.accounts():
                rows.record(EventKind.RESTORED, account=account.name, run=None, body=body)
        self._lost = self.warning = None
        if self._memory is not None and self._identity is not None and self._seen is not None:
            self._memory.replace(self._identity, self._seen, place=self.place)
        return lost, before

    def adopt(self, account: str, *, folder: str, owner: str | None, reason: str) -> None:
        """Record that this ledger takes over an output folder that another ledger owned.

        Args:
            account: The account whose releases go to the folder.
            folder: The folder.
            owner: The identity of the ledger that owned it; None if it could not be read.
            reason: The reason to record.
        """
        checks.checked_text(reason, what="a reason")
        checks.checked_text(folder, what="a folder's path", longest=4096)
        with self._writing() as rows:
            known_open_account(rows, account)
            body = {"folder": folder, "owner": owner, "reason": reason}
            rows.record(EventKind.ADOPTED, account=account, run=None, body=body)

    def open_account(  # noqa: PLR0913  an account is declared in full
        self,
        name: str,
        *,
        currency: Currency,
        cap: int,
        epsilon: float,
        delta: float,
        unit: str,
        neighbours: Neighbours,
        description: str = "",
        blocks_by: str | None = None,
        across: int | None = None,
        across_epsilon: float | None = None,
    ) -> Account:
        """Open an account. Afterwards its caps and their epsilons can be raised; its other terms never change.

        Without `blocks_by` the whole table is one block, sealed from the start, which pays for every run.
        `across` caps the amounts of all runs together, which bounds the loss of a person with rows in many blocks. It is
        `across_epsilon` converted at the account's delta.
        """
        currency = checks.checked_choice(Currency, currency, what="the currency must be")
        terms = {
            "currency": currency,
            "cap": checks.checked_budget(currency=currency, cap=cap, epsilon=epsilon, delta=delta),
            "epsilon": float(epsilon),
            "delta": float(delta),
            "unit": checks.checked_text(unit, what="the unit"),
            "neighbours": checks.checked_choice(Neighbours, neighbours, what="the neighbours must be"),
            "description": description and checks.checked_text(description, what="a description"),
            "blocks_by": blocks_by if blocks_by is None else checks.checked_text(blocks_by, what="the block rule"),
            "across": across,
            "across_epsilon": None if across_epsilon is None else float(across_epsilon),
        }
        if across is not None or across_epsilon is not None:
            checks.require_across_applies(unit=unit, blocks_by=blocks_by)
            checks.checked_across(across, epsilon=across_epsilon, currency=currency, delta=delta)
        checks.checked_text(name, what="an account's name")
        with self._writing() as rows:
            if rows.account(name) is not None:
                raise UsageError(f"account '{name}' exists already, and its terms cannot change; choose another name")
            account = Account(name=name, **terms, state=AccountState.OPEN, opened_at=rows.at)  # type: ignore[arg-type]
            rows.add_account(account)
            # The first event identifies the ledger, and its time is a minute, in which others may be opened with the same terms.
            body = terms | {"salt": uuid.uuid4().hex}
            rows.record(EventKind.ACCOUNT_OPENED, account=name, run=None, body=body)
            if blocks_by is None:
                rows.add_block(Block(name, WHOLE, BlockState.SEALED, cap=account.cap, used=0))
        return account

    def raise_cap(self, name: str, *, cap: int, epsilon: float, reason: str) -> Account:
        """Raise the cap of an account and of each of its blocks, and record the reason."""
        checks.checked_text(reason, what="a reason")
        with self._writing() as rows:
            account = known_open_account(rows, name)
            checks.checked_budget(currency=account.currency, cap=cap, epsilon=epsilon, delta=account.delta)
            if cap <= account.cap or epsilon < account.epsilon:
                raise UsageError(
                    f"the cap of account '{name}' can only be raised; it is epsilon {account.epsilon!r} now"
                )
            account = replace(account, cap=cap, epsilon=float(epsilon))
            rows.replace_account(account)
            body = {"cap": cap, "epsilon": account.epsilon, "reason": reason}
            rows.record(EventKind.CAP_RAISED, account=name, run=None, body=body)
        return account

    def raise_across(self, name: str, *, cap: int, epsilon: float, reason: str) -> Account:
        """Raise an account's cap across blocks, and record the reason."""
        checks.checked_text(reason, what="a reason")
        with self._writing() as rows:
            account = known_open_account(rows, name)
            if account.across is None or account.across_epsilon is None:
                raise UsageError(f"account '{name}' was opened without a cap across blocks; open another one with it")
            checks.checked_across(cap, epsilon=epsilon, currency=account.currency, delta=account.delta)
            if cap <= account.across or epsilon < account.across_epsilon:
                raise UsageError(
                    f"the cap across blocks of account '{name}' can only be raised; it is epsilon "
                    f"{account.across_epsilon!r} now"
                )
            account = replace(account, across=cap, across_epsilon=float(epsilon))
            rows.replace_account(account)
            body = {"across": cap, "across_epsilon": account.across_epsilon, "reason": reason}
            rows.record(EventKind.ACROSS_RAISED, account=name, run=None, body=body)
        return account

    def close_account(self, name: str, *, reason: str) -> Account:
        """Close an account to new runs. Runs that hold a reservation may finish. Closing again changes nothing."""
        checks.checked_text(reason, what="a reason")
        with self._writing() as rows:
            account = known_account(rows, name)
            if account.state is AccountState.CLOSED:
                return account
            account = replace(account, state=AccountState.CLOSED)
            rows.replace_account(account)
            rows.record(EventKind.ACCOUNT_CLOSED, account=name, run=None, body={"reason": reason})
        return account

    def allow(  # noqa: PLR0913  whom, how much, and why
        self, account: str, *, kind: AllowanceKind, name: str, cap: int, epsilon: float, reason: str
    ) -> Allowance:
        """Set how much one analyst, or one purpose, may use of an account. From then on every run must name one.

        Earlier runs under the same name count. An allowance may be raised or lowered, but not below the amount already used.
        """
        kind = checks.checked_choice(AllowanceKind, kind, what="an allowance is for")
        checks.checked_text(name, what=f"the {kind}'s name")
        checks.checked_text(reason, what="a reason")
        with self._writing() as rows:
            terms = known_open_account(rows, account)
            checks.checked_budget(currency=terms.currency, cap=cap, epsilon=epsilon, delta=terms.delta)
            used = rows.used_by(account, kind, name)
            if cap < used:
                raise UsageError(
                    f"{kind} '{name}' has already used more than that of account '{account}'; allow at least as much"
                )
            allowance = Allowance(account, kind, name, cap=cap, epsilon=float(epsilon), used=used)
            rows.put_allowance(allowance)
            body = {"kind": kind, "name": name, "cap": cap, "epsilon": allowance.epsilon, "reason": reason}
            rows.record(EventKind.ALLOWED, account=account, run=None, body=body)
        return allowance

    def open_blocks(self, account: str, names: Iterable[str]) -> tuple[str, ...]:
        """Open new blocks, each with the account's cap, and return their names. A block's data may grow until it is sealed."""
        wanted = checks.checked_names(names, what="block")
        with self._writing() as rows:
            terms = self._by_block(rows, account)
            if known := [block.name for block in rows.blocks(account, wanted)]:
                raise UsageError(
                    f"account '{account}' has a block {listed(known)} already; data that comes late goes into a new block"
                )
            rows.record(EventKind.BLOCKS_OPENED, account=account, run=None, body={"blocks": wanted})
            for name in wanted:
                rows.add_block(Block(account, name, BlockState.OPEN, cap=terms.cap, used=0))
        return wanted

    def seal_blocks(self, account: str, names: Iterable[str]) -> tuple[str, ...]:
        """Declare the data of these blocks complete, so that they can be charged, and return their names.

        Sealing a block again changes nothing.
        """
        wanted = checks.checked_names(names, what="block")
        with self._writing() as rows:
            self._by_block(rows, account)
            found = {block.name: block.state for block in rows.blocks(account, wanted)}
            if unknown := [name for name in wanted if name not in found]:
                raise UsageError(f"account '{account}' has no block {listed(unknown)}; open it first")
            growing = tuple(name for name in wanted if found[name] is BlockState.OPEN)
            if growing:
                rows.record(EventKind.BLOCKS_SEALED, account=account, run=None, body={"blocks": growing})
                rows.seal_blocks(account, growing)
        return wanted

    def _by_block(self, rows: WritingTransaction, name: str) -> Account:
        account = known_open_account(rows, name)
        if account.blocks_by is None:
            raise UsageError(f"account '{name}' is not kept by block; open an account with --blocks to have blocks")
        return account
