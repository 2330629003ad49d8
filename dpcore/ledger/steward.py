"""The steward's side of a ledger: accounts, caps, blocks, allowances, shares and withdrawals. Each change is recorded as an event."""

import re
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dpcore.errors import UsageError
from dpcore.ledger import checks
from dpcore.ledger.chain import is_sha256
from dpcore.ledger.connection import Connection
from dpcore.ledger.heads import SeenHead
from dpcore.ledger.reader import withdrawals_of
from dpcore.ledger.refusals import known_account, known_open_account, known_run, listed, refuse_unless_open
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
from dpcore.ledger.transaction import Head
from dpcore.ledger.writing import WritingTransaction
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

_ANALYST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Stewardship(Connection):
    """The changes of what runs may use. Every method is one transaction: all of its changes happen, or none."""

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
        with self.changing() as rows:
            for account in rows.accounts():
                rows.record(EventKind.RESTORED, account=account.name, body=body)
        self._forget_loss()
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
            rows.record(EventKind.ADOPTED, account=account, body=body)

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
            rows.insert(account)
            # The first event identifies the ledger, and its time is a minute, in which others may be opened with the same terms.
            body = terms | {"salt": uuid.uuid4().hex}
            rows.record(EventKind.ACCOUNT_OPENED, account=name, body=body)
            if blocks_by is None:
                rows.insert(Block(name, WHOLE, BlockState.SEALED, cap=account.cap, used=0))
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
            return _changed(rows, account, EventKind.CAP_RAISED, reason=reason, cap=cap, epsilon=float(epsilon))

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
            raised = {"across": cap, "across_epsilon": float(epsilon)}
            return _changed(rows, account, EventKind.ACROSS_RAISED, reason=reason, **raised)

    def close_account(self, name: str, *, reason: str) -> Account:
        """Close an account to new runs. Runs that hold a reservation may finish. Closing again changes nothing."""
        checks.checked_text(reason, what="a reason")
        with self._writing() as rows:
            account = known_account(rows, name)
            if account.state is AccountState.CLOSED:
                return account
            rows.replace_account(replace(account, state=AccountState.CLOSED))
            rows.record(EventKind.ACCOUNT_CLOSED, account=name, body={"reason": reason})
            return replace(account, state=AccountState.CLOSED)

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
            rows.record(EventKind.ALLOWED, account=account, body=body)
        return allowance

    def open_blocks(self, account: str, names: Iterable[str]) -> tuple[str, ...]:
        """Open new blocks, each with the account's cap, and return their names. A block's data may grow until it is sealed."""
        blocks = checks.checked_names(names, what="block")
        with self._writing() as rows:
            terms = self._by_block(rows, account)
            if existing := [block.name for block in rows.blocks(account, blocks)]:
                raise UsageError(
                    f"account '{account}' has a block {listed(existing)} already; data that comes late goes into a new block"
                )
            rows.record(EventKind.BLOCKS_OPENED, account=account, body={"blocks": blocks})
            for name in blocks:
                rows.insert(Block(account, name, BlockState.OPEN, cap=terms.cap, used=0))
        return blocks

    def seal_blocks(self, account: str, names: Iterable[str]) -> tuple[str, ...]:
        """Declare the data of these blocks complete, so that they can be charged, and return their names.

        Sealing a block again changes nothing.
        """
        blocks = checks.checked_names(names, what="block")
        with self._writing() as rows:
            self._by_block(rows, account)
            states = {block.name: block.state for block in rows.blocks(account, blocks)}
            if unknown := [name for name in blocks if name not in states]:
                raise UsageError(f"account '{account}' has no block {listed(unknown)}; open it first")
            growing = tuple(name for name in blocks if states[name] is BlockState.OPEN)
            if growing:
                rows.record(EventKind.BLOCKS_SEALED, account=account, body={"blocks": growing})
                rows.seal_blocks(account, growing)
        return blocks

    def share(self, run_id: str, *, analyst: str, cap: int, token: str | None) -> None:
        """Set an analyst's cap and token, in place of earlier ones. What the analyst has spent still counts.

        Args:
            run_id: The run. It must be open, unless the analyst is removed.
            analyst: The analyst's name.
            cap: The most that the analyst may spend of the run's reservation, and no less than was spent.
            token: The SHA-256 of the analyst's token. None removes the analyst.
        """
        if not _ANALYST.fullmatch(analyst):
            raise UsageError(
                "an analyst's name has at most 64 letters, digits, dots, dashes and underscores; choose another"
            )
        checks.checked_amount(cap)
        if token is not None and not is_sha256(token):
            raise UsageError("a token is recorded as its SHA-256 only; report this")
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if token is not None:  # a token can be revoked at any time: a closed session still gives free answers
                refuse_unless_open(run)
            earlier = rows.share(run_id, analyst)
            spent = earlier.spent if earlier else 0
            if cap < spent:
                raise UsageError(
                    f"analyst '{analyst}' has already spent more than that of run '{run_id}'; give at least as much, or remove the analyst"
                )
            body = {"run": run_id, "analyst": analyst, "cap": cap, "token": token}
            event = rows.record(EventKind.SHARED, account=run.account, body=body)
            rows.put_share(Share(run_id, analyst, cap, token, spent=spent, last=event.seq))
        self._remember()

    def withdraw(self, run_id: str, *, reason: str, keep: int | None = None) -> Event:
        """Record that the release of a settled run is withdrawn, and return the event. Nothing is refunded.

        A release is withdrawn once: repeating it returns the first event. Only a steward's withdrawal of a release that retention has
        removed is recorded again, with the steward's reason.

        Args:
            run_id: The run that made the release.
            reason: The reason to record. It is published.
            keep: How many newer releases retention keeps; None for a steward's withdrawal, which a runner's login may not record.

        Raises:
            UsageError: If the run is unknown or has no release, or the release is one of the newest that retention keeps.
        """
        checks.checked_text(reason, what="a reason")
        if keep is not None:
            checks.checked_amount(keep)
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if run.state is not RunState.SETTLED or run.release is None:
                raise UsageError(f"run '{run_id}' has no published release; name one that `dpflow releases` lists")
            withdrawn = withdrawals_of(rows, run.account)
            earlier = withdrawn.get(run_id)
            if earlier is not None and (keep is not None or earlier.kind is EventKind.WITHDRAWN):
                return earlier
            newer = [later for later in rows.runs(run.account) if later.release and later.first > run.first]
            if keep is not None and sum(later.id not in withdrawn for later in newer) < keep:
                raise UsageError(
                    f"retention keeps release '{run.release}': it is among the newest {keep} of its account"
                )
            kind, limit = (EventKind.WITHDRAWN, {}) if keep is None else (EventKind.REMOVED, {"keep": keep})
            body = {"release": run.release, "reason": reason, **limit}
            event = rows.record(kind, account=run.account, run=run_id, body=body)
        self._remember()
        return event

    def _by_block(self, rows: WritingTransaction, name: str) -> Account:
        account = known_open_account(rows, name)
        if account.blocks_by is None:
            raise UsageError(f"account '{name}' is not kept by block; open an account with --blocks to have blocks")
        return account


def _changed(rows: WritingTransaction, account: Account, kind: EventKind, *, reason: str, **terms: Any) -> Account:
    """Write an account with other terms, and record them with the reason."""
    account = replace(account, **terms)
    rows.replace_account(account)
    rows.record(kind, account=account.name, body=terms | {"reason": reason})
    return account
