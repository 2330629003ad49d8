"""The ledger's protocol: reserve, lease, charge, commit, settle.

A run reserves everything it may spend, in every block it may touch, before any data is read. A worker leases the run. Each
operation is charged before it draws: its price leaves the reservation and stays spent, whatever happens. Committing stores the
noisy output, so a retry reads it back and pays nothing. Settling refunds the part of the reservation that was never charged. No
decision in this module depends on private data.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

from dpcore.errors import UsageError
from dpcore.ledger import checks
from dpcore.ledger.chain import canonical
from dpcore.ledger.events import EVENTS
from dpcore.ledger.holder import this_worker
from dpcore.ledger.reader import LedgerReader, blocks_of
from dpcore.ledger.refusals import (
    across_refused,
    budget_refused,
    known_account,
    known_blocks,
    known_event,
    known_run,
    leased_run,
    leased_step,
    refuse_if_closed,
    refuse_if_worked_on,
    refuse_unless_open,
)
from dpcore.ledger.rows import (
    Account,
    Allowance,
    AllowanceKind,
    Event,
    EventKind,
    Lease,
    Operation,
    OperationState,
    Run,
    RunState,
)
from dpcore.ledger.series import refuse_if_covered
from dpcore.ledger.steward import Stewardship
from dpcore.ledger.writing import WritingTransaction

LEASE_SECONDS = 300
"""The default lease: another worker waits this long after the minute of the run's last event, unless the holder is known to have ended."""


class Ledger(LedgerReader, Stewardship):
    """Durable charges, shared by all tasks, runs and machines that open the same store.

    Every method is one durable transaction: all of its changes happen, or none.
    """

    def reserve(  # noqa: PLR0913  who pays, how much, for what, in which blocks, in whose name
        self,
        run_id: str,
        *,
        account: str,
        amount: int,
        claim: str,
        blocks: Iterable[str] | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
        new_to: str | None = None,
    ) -> Run:
        """Reserve `amount` for a run in every block it may touch, or raise and change nothing.

        Repeating a request with the same id returns the existing run. If that run was refunded, it reserves its amount again and
        starts over, without a data version.

        Args:
            run_id: The run's id.
            account: The account that pays.
            amount: The most that all operations of the run may spend together.
            claim: What the run is for. A reused id must have the same claim.
            blocks: Every block that the run may touch, if the account is kept by block; otherwise None.
            analyst: The analyst to charge, if the account has allowances for analysts.
            purpose: The purpose to charge, if the account has allowances for purposes.
            new_to: A series of releases. The run is refused if a run of the series has already covered one of the blocks.

        Raises:
            BlocksCovered: If a block is not new to the series.
            BudgetRefused: If the account, a block, the cap across blocks or an allowance has too little left.
            UsageError: If the account or a block is unknown or not ready, or the id was used for a different request.
        """
        checks.checked_text(run_id, what="a run's id")
        checks.checked_amount(amount)
        checks.checked_text(claim, what="a run's claim")
        names = None if blocks is None else checks.checked_names(blocks, what="block")
        for who, kind in ((analyst, AllowanceKind.ANALYST), (purpose, AllowanceKind.PURPOSE)):
            if who is not None:
                checks.checked_text(who, what=f"the {kind}'s name")
        with self._writing() as rows:
            payer = known_account(rows, account)
            request = {"amount": amount, "claim": claim, "blocks": names, "analyst": analyst, "purpose": purpose}
            earlier = rows.run(run_id)
            if earlier and not _same_request(rows, earlier, account=account, request=request):
                raise UsageError(f"run '{run_id}' was reserved for something else; start a new run under another id")
            if earlier and earlier.state is not RunState.REFUNDED:
                return earlier
            refuse_if_closed(payer)
            if new_to is not None:
                refuse_if_covered(rows, account, series=new_to, names=names or ())
            charged = _payable_blocks(rows, payer, amount=amount, names=names)
            _require_across(payer, amount=amount)
            allowances = _allowances(rows, payer, amount=amount, analyst=analyst, purpose=purpose)
            event = rows.record(EventKind.RESERVED, account=account, run=run_id, body=request)
            rows.use(account, charged, amount=payer.weight * amount)
            if payer.across is not None:
                rows.use_across(account, amount=amount)
            for allowance in allowances:
                rows.use_allowance(allowance, amount=amount)
            run = Run(
                id=run_id,
                account=account,
                reserved=amount,
                spent=0,
                state=RunState.OPEN,
                claim=claim,
                analyst=analyst,
                purpose=purpose,
                data_version=None,
                opened_at=earlier.opened_at if earlier else rows.at,
                release=None,
                fence=earlier.fence if earlier else 0,
                holder=None,
                lease_seconds=0,
                first=event.seq,
                last=event.seq,
            )
            (rows.replace_run if earlier else rows.add_run)(run)
        self._remember()
        return run

    def lease(self, run_id: str, *, holder: str | None = None, seconds: int = LEASE_SECONDS) -> Lease:
        """Lease an open run to `holder`, by default this process.

        Only the newest lease can change the run. A worker whose run was taken over is refused at its next step, before it draws
        and before it stores. Each change renews the lease. A lease of 0 seconds gives the run back: others need not wait.

        Raises:
            RunHeld: If another worker may be alive and its lease has not expired since its last change of the run.
        """
        holder = checks.checked_text(this_worker() if holder is None else holder, what="a worker's name")
        checks.checked_seconds(seconds)
        with self._writing() as rows:
            run = known_run(rows, run_id)
            refuse_unless_open(run)
            if holder != run.holder:
                refuse_if_worked_on(run, touched=known_event(rows, run.last).time, now=rows.now)
            run = replace(run, fence=run.fence + 1, holder=holder, lease_seconds=seconds)
            body = {"fence": run.fence, "holder": holder, "seconds": seconds}
            _record_change(rows, run, EventKind.LEASED, body)
        return Lease(run_id, run.fence)

    def renew(self, lease: Lease) -> Lease:
        """Return a lease that lasts for at least two thirds of its length, during work that changes nothing in the ledger.

        Raises:
            RunHeld: If another worker has taken the run over.
        """
        with self._writing() as rows:
            run = leased_run(rows, lease)
            age = rows.now - known_event(rows, run.last).time
            if timedelta(0) <= age < timedelta(seconds=run.lease_seconds) / 3:
                return lease
            run = replace(run, fence=run.fence + 1)
            body = {"fence": run.fence, "holder": run.holder, "seconds": run.lease_seconds}
            _record_change(rows, run, EventKind.LEASED, body)
        return Lease(run.id, run.fence)

    def record_data_version(self, lease: Lease, version: str) -> Run:
        """Bind the run to one version of the source data. Raise if it is already bound to another version."""
        checks.checked_text(version, what="a data version")
        with self._writing() as rows:
            run = leased_run(rows, lease)
            if run.data_version == version:
                return run
            if run.data_version is not None:
                raise UsageError(
                    "the source data changed since this run began, or DPFLOW_PRIVATE now names another folder; "
                    "put it back, or start a new run"
                )
            run = replace(run, data_version=version)
            return _record_change(rows, run, EventKind.DATA_VERSION, {"version": version})

    def charge(
        self, lease: Lease, *, step: str, amount: int, mechanism: Mapping[str, object], analyst: str | None = None
    ) -> Operation:
        """Charge an operation's price to the run's reservation. Once this returns, the price is spent for good.

        An earlier attempt of the step that was never committed stays charged, and can no longer be committed. With an analyst, the price
        is also charged to the analyst's share.

        Raises:
            BudgetRefused: If the price exceeds the rest of the reservation, or of the analyst's share.
            RunHeld: If the lease is not the newest.
            UsageError: If the step is committed already; check with `operation` first.
        """
        checks.checked_text(step, what="a step's name")
        checks.checked_amount(amount)
        text = checks.checked_mechanism(mechanism)
        with self._writing() as rows:
            run, newest = leased_step(rows, lease, step)
            if newest and newest.state is OperationState.COMMITTED:
                raise UsageError(f"step '{step}' of run '{run.id}' is committed already; read its output instead")
            if amount > run.remaining:
                currency = known_account(rows, run.account).currency
                payer = f"the rest of run '{run.id}'"
                raise budget_refused(payer, currency=currency, requested=amount, remaining=run.remaining)
            if analyst is not None:
                _require_share(rows, run, analyst=analyst, amount=amount)
            operation = Operation(
                run=run.id,
                step=step,
                attempt=newest.attempt + 1 if newest else 1,
                state=OperationState.CHARGED,
                amount=amount,
                mechanism=json.loads(text),
                fence=lease.fence,
                analyst=analyst,
                sha256=None,
                output=None,
            )
            body = {key: getattr(operation, key) for key in EVENTS[EventKind.CHARGED].body}
            event = rows.next_event(EventKind.CHARGED, account=run.account, run=run.id, body=body)
            rows.charge_operation(operation, mechanism=text, event=event)
        self._remember()  # before anything is drawn, so that a copy of the ledger without this charge is refused
        return operation

    def commit(self, operation: Operation, output: bytes) -> Operation:
        """Store the output of a charged operation; from now on `operation` and `transcript` return it.

        Raises:
            RunHeld: If another worker has taken over the run.
            UsageError: If the attempt is no longer the newest of its step, is committed already, or its run has ended.
        """
        digest = sha256(checks.checked_output(output)).hexdigest()
        in_row = self._store.keep(output, sha256=digest)
        with self._writing() as rows:
            run, newest = leased_step(rows, Lease(operation.run, operation.fence), operation.step)
            newest = _committable(newest, operation)
            body = {"step": newest.step, "attempt": newest.attempt, "sha256": digest, "size": len(output)}
            event = rows.next_event(EventKind.COMMITTED, account=run.account, run=run.id, body=body)
            rows.commit_operation(newest, output=in_row, sha256=digest, event=event)
        return replace(newest, state=OperationState.COMMITTED, sha256=digest, output=output)

    def settle(
        self,
        run_id: str,
        *,
        release: str | None,
        lease: Lease | None,
        manifest: str | None = None,
        manifest_sha256: str | None = None,
    ) -> Run:
        """End a run: refund the part of its reservation that was never charged; the charges stay spent.

        Settling again changes no amount, and is refused only if it names another release. If the release was written again from
        the run's transcript, the hash of its new manifest is recorded.

        Args:
            run_id: The run.
            release: The release that the run produced, if any.
            lease: The worker's lease, or None for a steward who ends an idle run.
            manifest: The path of the release's manifest, for `verify`.
            manifest_sha256: The SHA-256 of the published manifest, for `verify`.
        """
        if release is not None:
            checks.checked_text(release, what="a release's name")
        if manifest is not None:
            checks.checked_text(manifest, what="a manifest's path", longest=4096)
        checks.require_manifest_hash(manifest, manifest_sha256)
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if run.state is RunState.SETTLED and release in {None, run.release}:
                if manifest_sha256 not in {None, known_event(rows, run.last).details.get("manifest_sha256")}:
                    _republish(rows, run, manifest=manifest, manifest_sha256=manifest_sha256)
                return run
            run = _own_or_idle(rows, run, lease)
            body = {"spent": run.spent, "returned": run.remaining, "release": release, "manifest": manifest}
            body["manifest_sha256"] = manifest_sha256
            settled = _record_change(
                rows, replace(run, state=RunState.SETTLED, release=release), EventKind.SETTLED, body
            )
            _refund_rest(rows, run)
        self._remember()
        return settled

    def refund(self, run_id: str, *, lease: Lease | None) -> Run:
        """Refund a run's whole reservation. Raise if any of its operations was ever charged."""
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if run.state is RunState.REFUNDED:
                return run
            run = _own_or_idle(rows, run, lease)
            if run.spent:
                raise UsageError(
                    f"run '{run_id}' has charged operations, which cannot be refunded; end it with: dpflow ledger settle {run_id}"
                )
            body = {"returned": run.reserved}
            refunded = _record_change(rows, replace(run, state=RunState.REFUNDED), EventKind.REFUNDED, body)
            _refund_rest(rows, run)
        return refunded


def _same_request(rows: WritingTransaction, run: Run, *, account: str, request: Mapping[str, object]) -> bool:
    """Return whether a run was reserved by exactly this request."""
    return run.account == account and canonical(known_event(rows, run.first).details) == canonical(request)


def _payable_blocks(
    rows: WritingTransaction, payer: Account, *, amount: int, names: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Return the names of the blocks to charge. Raise if one of them has too little left."""
    blocks = known_blocks(rows, payer, names)
    scarcest = min(blocks, key=lambda block: block.cap - block.used)
    requested, remaining = payer.weight * amount, scarcest.cap - scarcest.used
    if requested > remaining:
        who = f"account '{payer.name}'" if names is None else f"block '{scarcest.name}' of account '{payer.name}'"
        raise budget_refused(who, currency=payer.currency, requested=requested, remaining=remaining)
    return tuple(block.name for block in blocks)


def _require_across(payer: Account, *, amount: int) -> None:
    """Raise if a run exceeds the cap across blocks. Its amount counts once, since it bounds the loss over all blocks together."""
    remaining = payer.across_remaining
    if remaining is not None and amount > remaining:
        raise across_refused(payer, requested=amount, remaining=remaining)


def _allowances(
    rows: WritingTransaction, payer: Account, *, amount: int, analyst: str | None, purpose: str | None
) -> list[Allowance]:
    """Return the allowances that a run uses. Raise if a required allowance is missing or has too little left."""
    allowances = rows.allowances(payer.name)
    used = []
    for kind, name in ((AllowanceKind.ANALYST, analyst), (AllowanceKind.PURPOSE, purpose)):
        of_kind = {allowance.name: allowance for allowance in allowances if allowance.kind is kind}
        if not of_kind:
            continue
        if name is None or name not in of_kind:
            whom = f"{kind} '{name}' has none" if name else f"this run names no {kind}"
            raise UsageError(
                f"account '{payer.name}' requires an allowance for each {kind}, but {whom}; ask the steward"
            )
        allowance = of_kind[name]
        if amount > allowance.remaining:
            who = f"the allowance of {kind} '{name}' in account '{payer.name}'"
            raise budget_refused(who, currency=payer.currency, requested=amount, remaining=allowance.remaining)
        used.append(allowance)
    return used


def _require_share(rows: WritingTransaction, run: Run, *, analyst: str, amount: int) -> None:
    """Raise if an analyst who is charged has too little left. Called in the transaction that charges."""
    share = rows.share(run.id, analyst)
    if share is None or share.token is None:
        raise UsageError(f"analyst '{analyst}' has no share of run '{run.id}'; ask the steward")
    if amount > share.remaining:
        currency = known_account(rows, run.account).currency
        who = f"the share of analyst '{analyst}' in run '{run.id}'"
        raise budget_refused(who, currency=currency, requested=amount, remaining=share.remaining)


def _refund_rest(rows: WritingTransaction, run: Run) -> None:
    """Refund the uncharged rest of a run to its blocks, to the cap across blocks and to its allowances."""
    account = known_account(rows, run.account)
    rows.use(run.account, blocks_of(rows, run), amount=-account.weight * run.remaining)
    if account.across is not None:
        rows.use_across(run.account, amount=-run.remaining)
    used = {(AllowanceKind.ANALYST, run.analyst), (AllowanceKind.PURPOSE, run.purpose)}
    for allowance in rows.allowances(run.account):
        if (allowance.kind, allowance.name) in used:
            rows.use_allowance(allowance, amount=-run.remaining)


def _republish(rows: WritingTransaction, run: Run, **manifest: str | None) -> None:
    """Record the manifest of a release that was written again, unless it is recorded already."""
    body = {"run": run.id, "release": run.release, **manifest}
    if not rows.is_recorded(EventKind.REPUBLISHED, body=canonical(body)):
        rows.record(EventKind.REPUBLISHED, account=run.account, body=body)


def _own_or_idle(rows: WritingTransaction, run: Run, lease: Lease | None) -> Run:
    """Return the run. Raise unless this lease is its newest or, without a lease, no worker holds the run."""
    if lease is not None:
        if lease.run != run.id:
            raise UsageError(f"that lease is for run '{lease.run}', not for run '{run.id}'; lease the run to end it")
        return leased_run(rows, lease)
    refuse_unless_open(run)
    refuse_if_worked_on(run, touched=known_event(rows, run.last).time, now=rows.now)
    return run


def _committable(newest: Operation | None, operation: Operation) -> Operation:
    """Return the stored newest attempt of the step. Raise if it is not this attempt, or is committed already."""
    where = f"attempt {operation.attempt} of step '{operation.step}' of run '{operation.run}'"
    if newest is None or newest.attempt < operation.attempt:
        raise UsageError(f"{where} was never charged; charge it first")
    if newest.attempt > operation.attempt:
        raise UsageError(f"{where} was overtaken by attempt {newest.attempt}; discard its output")
    if newest.state is OperationState.COMMITTED:
        raise UsageError(f"{where} is committed already; read its output instead")
    return newest


def _record_change(rows: WritingTransaction, run: Run, kind: EventKind, body: Mapping[str, object]) -> Run:
    """Record a change of a run and write the changed run."""
    event: Event = rows.record(kind, account=run.account, run=run.id, body=body)
    run = replace(run, last=event.seq)
    rows.replace_run(run)
    return run
