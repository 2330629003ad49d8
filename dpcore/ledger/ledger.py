"""The ledger's protocol: reserve, lease, charge, commit, settle.

A run reserves everything it may spend, in every block it may touch, before any data is read. A worker leases the run; each
operation is charged before it draws: its price leaves the reservation and stays spent, whatever happens. Committing stores the
noisy output, so that a retry reads it back and pays nothing. Settling gives back what was never charged. No decision here looks
at data.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256

from dpcore.errors import UsageError
from dpcore.ledger import checks
from dpcore.ledger.chain import canonical
from dpcore.ledger.holder import this_worker
from dpcore.ledger.reader import blocks_of
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
"""How long after a run's last event another worker has to wait, unless the first is known to be gone."""


class Ledger(Stewardship):
    """Durable charges, shared by all tasks, runs and machines that open the same store.

    Every method is one transaction: it changes all that it says, durably, or nothing.
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
        """Hold `amount` for a run in all the blocks it may touch, or refuse and leave everything as it was.

        The same id with the same request returns the run that is there. One that was refunded takes its amount again and begins
        anew, without a data version.

        Args:
            run_id: The run's own name.
            account: Who pays.
            amount: All that the run's operations may take together.
            claim: What the run is for; a reused id must claim the same.
            blocks: Every block that the run may touch, in an account that is kept by block; else None.
            analyst: In whose name, if the account has allowances for analysts.
            purpose: What for, if the account has allowances for purposes.
            new_to: A series of releases; if one of its runs has covered one of the blocks, this run is refused.

        Raises:
            BlocksCovered: If a block is not new to the series.
            BudgetRefused: If what remains of the account, one of the blocks, the cap across blocks or an allowance does not
                suffice.
            UsageError: If the account or a block is unknown or not ready, or the id stands for something else.
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
            if earlier and not _same(rows, earlier, account=account, request=request):
                raise UsageError(f"run '{run_id}' was reserved for something else; start a new run under another id")
            if earlier and earlier.state is not RunState.REFUNDED:
                return earlier
            refuse_if_closed(payer)
            if new_to is not None:
                refuse_if_covered(rows, account, series=new_to, names=names or ())
            charged = _take(rows, payer, amount=amount, names=names)
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
        """Take an open run to work on it, for `holder`, which is this process unless told otherwise.

        Only the newest lease can change the run: a worker whose run was taken over finds out at its next step, before it draws
        and before it stores. Each change renews the lease.

        Raises:
            RunHeld: If another worker may be alive and has changed the run within its lease's time.
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
            _changed(rows, run, EventKind.LEASED, body)
        return Lease(run_id, run.fence)

    def record_data_version(self, lease: Lease, version: str) -> Run:
        """Bind the run to one version of the source data; the same version again is fine, another is refused."""
        checks.checked_text(version, what="a data version")
        with self._writing() as rows:
            run = leased_run(rows, lease)
            if run.data_version == version:
                return run
            if run.data_version is not None:
                raise UsageError(
                    "the source data changed since this run began, or DPFLOW_PRIVATE names another folder than then; "
                    "put it back, or start a new run"
                )
            run = replace(run, data_version=version)
            return _changed(rows, run, EventKind.DATA_VERSION, {"version": version})

    def charge(self, lease: Lease, *, step: str, amount: int, mechanism: Mapping[str, object]) -> Operation:
        """Take an operation's price from the run's reservation; when this returns it is spent for good.

        An earlier attempt of the step that was never committed stays paid, and can no longer be committed.

        Raises:
            BudgetRefused: If the rest of the reservation does not suffice.
            UsageError: If the lease is not the newest, or the step is committed already: look with `operation` first.
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
                payer = f"what is left of run '{run.id}'"
                raise budget_refused(payer, currency=currency, requested=amount, remaining=run.remaining)
            operation = Operation(
                run=run.id,
                step=step,
                attempt=newest.attempt + 1 if newest else 1,
                state=OperationState.CHARGED,
                amount=amount,
                mechanism=json.loads(text),
                fence=lease.fence,
                sha256=None,
                output=None,
            )
            body = {key: getattr(operation, key) for key in ("step", "attempt", "amount", "mechanism", "fence")}
            event = rows.next_event(EventKind.CHARGED, account=run.account, run=run.id, body=body)
            rows.charge_operation(operation, mechanism=text, event=event)
        self._remember()  # before anything is drawn: a copy of the ledger that lacks this charge is then refused
        return operation

    def commit(self, operation: Operation, output: bytes) -> Operation:
        """Store what a charged operation gave; from now on `operation` and `transcript` return it.

        Raises:
            UsageError: If the run was taken over since, the attempt is not the newest of its step any more, is committed
                already, or its run has ended.
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
        """End a run: what was never charged goes back to the account, what was charged stays spent.

        Settling again changes no amount, and is refused only if it names another release. If the release was made again
        meanwhile from the run's transcript, the hash of its new manifest is recorded.

        Args:
            run_id: The run.
            release: The release it led to, if it did.
            lease: The worker's own; a steward who ends a run that lies idle has none.
            manifest: Where the release's manifest was written, so that `verify` finds it.
            manifest_sha256: The SHA-256 of the manifest as it was published, so that `verify` knows it.
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
            settled = _changed(rows, replace(run, state=RunState.SETTLED, release=release), EventKind.SETTLED, body)
            _give_back(rows, run)
        self._remember()
        return settled

    def refund(self, run_id: str, *, lease: Lease | None) -> Run:
        """Give all of a run's reservation back, which is possible only while none of its operations was ever charged."""
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if run.state is RunState.REFUNDED:
                return run
            run = _own_or_idle(rows, run, lease)
            if run.spent:
                raise UsageError(
                    f"run '{run_id}' was charged for operations, which stay paid; end it with: dpflow ledger settle {run_id}"
                )
            body = {"returned": run.reserved}
            refunded = _changed(rows, replace(run, state=RunState.REFUNDED), EventKind.REFUNDED, body)
            _give_back(rows, run)
        return refunded


def _same(rows: WritingTransaction, run: Run, *, account: str, request: Mapping[str, object]) -> bool:
    """Say whether a run was reserved for this very request."""
    return run.account == account and canonical(known_event(rows, run.first).details) == canonical(request)


def _take(rows: WritingTransaction, payer: Account, *, amount: int, names: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names of the blocks to charge, or refuse if one of them cannot pay."""
    blocks = known_blocks(rows, payer, names)
    scarcest = min(blocks, key=lambda block: block.cap - block.used)
    requested, remaining = payer.weight * amount, scarcest.cap - scarcest.used
    if requested > remaining:
        who = f"account '{payer.name}'" if names is None else f"block '{scarcest.name}' of account '{payer.name}'"
        raise budget_refused(who, currency=payer.currency, requested=requested, remaining=remaining)
    return tuple(block.name for block in blocks)


def _require_across(payer: Account, *, amount: int) -> None:
    """Refuse a run that exceeds the cap across blocks. Its amount counts once: it keeps a person's rows over all blocks together."""
    remaining = payer.across_remaining
    if remaining is not None and amount > remaining:
        raise across_refused(payer, requested=amount, remaining=remaining)


def _allowances(
    rows: WritingTransaction, payer: Account, *, amount: int, analyst: str | None, purpose: str | None
) -> list[Allowance]:
    """Return the allowances that a run uses, or refuse if it names none where one is needed, or one that cannot pay."""
    known = rows.allowances(payer.name)
    used = []
    for kind, name in ((AllowanceKind.ANALYST, analyst), (AllowanceKind.PURPOSE, purpose)):
        of_kind = {allowance.name: allowance for allowance in known if allowance.kind is kind}
        if not of_kind:
            continue
        if name is None or name not in of_kind:
            whom = f"{kind} '{name}' has none" if name else f"this run names no {kind}"
            raise UsageError(f"account '{payer.name}' has an allowance for each {kind}, and {whom}; ask the steward")
        allowance = of_kind[name]
        if amount > allowance.remaining:
            who = f"the allowance of {kind} '{name}' in account '{payer.name}'"
            raise budget_refused(who, currency=payer.currency, requested=amount, remaining=allowance.remaining)
        used.append(allowance)
    return used


def _give_back(rows: WritingTransaction, run: Run) -> None:
    """Return what the run was never charged for to its blocks, to the cap across them and to the allowances that it used."""
    account = known_account(rows, run.account)
    rows.use(run.account, blocks_of(rows, run), amount=-account.weight * run.remaining)
    if account.across is not None:
        rows.use_across(run.account, amount=-run.remaining)
    used = {(AllowanceKind.ANALYST, run.analyst), (AllowanceKind.PURPOSE, run.purpose)}
    for allowance in rows.allowances(run.account):
        if (allowance.kind, allowance.name) in used:
            rows.use_allowance(allowance, amount=-run.remaining)


def _republish(rows: WritingTransaction, run: Run, **told: str | None) -> None:
    """Record the manifest of a release that was made again, once."""
    body = {"run": run.id, "release": run.release, **told}
    if not rows.is_recorded(EventKind.REPUBLISHED, body=canonical(body)):
        rows.record(EventKind.REPUBLISHED, account=run.account, run=None, body=body)


def _own_or_idle(rows: WritingTransaction, run: Run, lease: Lease | None) -> Run:
    """Return the run if this lease is its newest, or, without a lease, if nobody is at work on it; else refuse."""
    if lease is not None:
        if lease.run != run.id:
            raise UsageError(f"that lease is of run '{lease.run}', not of run '{run.id}'; lease the run to end it")
        return leased_run(rows, lease)
    refuse_unless_open(run)
    refuse_if_worked_on(run, touched=known_event(rows, run.last).time, now=rows.now)
    return run


def _committable(newest: Operation | None, operation: Operation) -> Operation:
    """Return the newest attempt as it is stored, or refuse if that is not the one, or can't be committed."""
    where = f"attempt {operation.attempt} of step '{operation.step}' of run '{operation.run}'"
    if newest is None or newest.attempt < operation.attempt:
        raise UsageError(f"{where} was never charged; charge it first")
    if newest.attempt > operation.attempt:
        raise UsageError(f"{where} was overtaken by attempt {newest.attempt}; discard its output")
    if newest.state is OperationState.COMMITTED:
        raise UsageError(f"{where} is committed already; read its output instead")
    return newest


def _changed(rows: WritingTransaction, run: Run, kind: EventKind, body: Mapping[str, object]) -> Run:
    """Record a change of a run and write the run as it is after it."""
    event: Event = rows.record(kind, account=run.account, run=run.id, body=body)
    run = replace(run, last=event.seq)
    rows.replace_run(run)
    return run
