"""The ledger's protocol: reserve, start, commit, settle.

A run reserves everything it may spend before any data is read. Each operation takes its price from that reservation when it
starts, and from there on it is spent, whatever happens. Committing stores the noisy output, so that a retry reads it back and
pays nothing. Settling gives back what was never started. No decision here looks at data.
"""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256

from dpcore.accounting import Currency
from dpcore.errors import UsageError
from dpcore.ledger import checks
from dpcore.ledger.chain import record
from dpcore.ledger.reader import LedgerReader
from dpcore.ledger.refusals import budget_refused, known_account, known_run, refuse_unless_open
from dpcore.ledger.rows import Account, EventKind, Operation, OperationState, Run, RunState
from dpcore.ledger.transaction import LedgerTransaction
from dpcore.privacy import Neighbours


class Ledger(LedgerReader):
    """Durable charges, shared by all tasks, runs and machines that open the same store.

    Every method is one transaction: it changes all that it says, durably, or nothing.
    """

    @abstractmethod
    def _writing(self) -> AbstractContextManager[LedgerTransaction]:
        """Begin a transaction that is the only writer; an exception undoes all of it."""

    def open_account(  # noqa: PLR0913  an account is declared in full, nothing of it has a default
        self,
        name: str,
        *,
        currency: Currency,
        cap: int,
        epsilon: float,
        delta: float,
        unit: str,
        neighbours: Neighbours,
    ) -> Account:
        """Open an account; what is declared here never changes."""
        currency = checks.checked_currency(currency)
        account = Account(
            name=checks.checked_text(name, what="an account's name"),
            currency=currency,
            cap=checks.checked_budget(currency=currency, cap=cap, epsilon=epsilon, delta=delta),
            epsilon=float(epsilon),
            delta=float(delta),
            unit=checks.checked_text(unit, what="the unit"),
            neighbours=checks.checked_neighbours(neighbours),
            spent=0,
            reserved=0,
            opened_at=_now(),
        )
        body = {key: getattr(account, key) for key in ("cap", "currency", "delta", "epsilon", "neighbours", "unit")}
        with self._writing() as rows:
            if rows.account(name) is not None:
                raise UsageError(f"account '{name}' is open already and stays as it was declared; choose another name")
            rows.add_account(account)
            record(rows, EventKind.ACCOUNT_OPENED, account=name, run=None, at=account.opened_at, body=body)
        return account

    def reserve(self, run_id: str, *, account: str, amount: int, claim: str) -> Run:
        """Hold `amount` for a run, or refuse and leave everything as it was.

        The same id with the same account, amount and claim returns the run that is there. One that was released takes its
        amount again and begins anew, without a data version.

        Raises:
            BudgetRefused: If the account's remaining units do not suffice.
            UsageError: If the account is unknown, or the id stands for another claim.
        """
        run = Run(
            id=checks.checked_text(run_id, what="a run's id"),
            account=account,
            reserved=checks.checked_amount(amount),
            spent=0,
            state=RunState.OPEN,
            claim=checks.checked_text(claim, what="a run's claim"),
            data_version=None,
            opened_at=_now(),
            release=None,
        )
        with self._writing() as rows:
            payer = known_account(rows, account)
            earlier = rows.run(run_id)
            if earlier and (earlier.account, earlier.reserved, earlier.claim) != (account, amount, claim):
                raise UsageError(f"run '{run_id}' was reserved for something else; start a new run under another id")
            if earlier and earlier.state is not RunState.RELEASED:
                return earlier
            if amount > payer.remaining:
                raise budget_refused(
                    f"account '{account}'", currency=payer.currency, requested=amount, remaining=payer.remaining
                )
            body = {"amount": amount, "claim": claim}
            record(rows, EventKind.RESERVED, account=account, run=run_id, at=run.opened_at, body=body)
            if earlier:
                run = replace(run, opened_at=earlier.opened_at)
                rows.replace_run(run)
            else:
                rows.add_run(run)
            rows.move(account, spent=0, reserved=amount)
        return run

    def record_data_version(self, run_id: str, version: str) -> Run:
        """Bind the run to one version of the source data; the same version again is fine, another is refused."""
        checks.checked_text(version, what="a data version")
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if run.data_version == version:
                return run
            if run.data_version is not None:
                raise UsageError(
                    "the source data changed since this run began, or DPFLOW_PRIVATE names another folder than then; "
                    "put it back, or start a new run"
                )
            refuse_unless_open(run)
            run = replace(run, data_version=version)
            rows.replace_run(run)
            body = {"version": version}
            record(rows, EventKind.DATA_VERSION, account=run.account, run=run_id, at=_now(), body=body)
        return run

    def start(self, run_id: str, *, step: str, amount: int, mechanism: Mapping[str, object]) -> Operation:
        """Take an operation's price from the run's reservation; when this returns it is spent for good.

        An earlier attempt of the step that was never committed stays paid, and can no longer be committed.

        Raises:
            BudgetRefused: If the rest of the reservation does not suffice.
            UsageError: If the run is not open, or the step is committed already: look with `operation` first.
        """
        operation = Operation(
            run=run_id,
            step=checks.checked_text(step, what="a step's name"),
            attempt=1,
            state=OperationState.STARTED,
            amount=checks.checked_amount(amount),
            mechanism=checks.checked_mechanism(mechanism),
            output=None,
        )
        with self._writing() as rows:
            run = known_run(rows, run_id)
            refuse_unless_open(run)
            newest = rows.newest(run_id, step)
            if newest and newest.state is OperationState.COMMITTED:
                raise UsageError(f"step '{step}' of run '{run_id}' is committed already; read its output instead")
            if amount > run.remaining:
                currency = known_account(rows, run.account).currency
                payer = f"what is left of run '{run_id}'"
                raise budget_refused(payer, currency=currency, requested=amount, remaining=run.remaining)
            if newest:
                operation = replace(operation, attempt=newest.attempt + 1)
            body = {key: getattr(operation, key) for key in ("step", "attempt", "amount", "mechanism")}
            event = record(rows, EventKind.STARTED, account=run.account, run=run_id, at=_now(), body=body)
            rows.add_operation(operation, event=event)
            rows.replace_run(replace(run, spent=run.spent + amount))
            rows.move(run.account, spent=amount, reserved=-amount)
        return operation

    def commit(self, operation: Operation, output: bytes) -> Operation:
        """Store what a started operation gave; from now on `operation` and `transcript` return it.

        Raises:
            UsageError: If the attempt is not the newest of its step any more, is committed already, or its run has ended.
        """
        digest = sha256(checks.checked_output(output)).hexdigest()
        where = f"attempt {operation.attempt} of step '{operation.step}' of run '{operation.run}'"
        with self._writing() as rows:
            run = known_run(rows, operation.run)
            refuse_unless_open(run)
            newest = rows.newest(operation.run, operation.step)
            if newest is None or newest.attempt < operation.attempt:
                raise UsageError(f"{where} was never started; start it first")
            if newest.attempt > operation.attempt:
                raise UsageError(f"{where} was overtaken by attempt {newest.attempt}; discard its output")
            if newest.state is OperationState.COMMITTED:
                raise UsageError(f"{where} is committed already; read its output instead")
            committed = replace(newest, state=OperationState.COMMITTED, output=output)
            body = {"step": newest.step, "attempt": newest.attempt, "sha256": digest, "size": len(output)}
            event = record(rows, EventKind.COMMITTED, account=run.account, run=run.id, at=_now(), body=body)
            rows.store_output(committed, sha256=digest, event=event)
        return committed

    def settle(self, run_id: str, *, release: str | None) -> Run:
        """End a run: what it never started goes back to the account, what it started stays spent.

        Settling again changes nothing, and is refused only if it names another release.
        """
        if release is not None:
            checks.checked_text(release, what="a release's name")
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if run.state is RunState.SETTLED and release in {None, run.release}:
                return run
            refuse_unless_open(run)
            body = {"spent": run.spent, "returned": run.remaining, "release": release}
            rows.move(run.account, spent=0, reserved=-run.remaining)
            run = replace(run, state=RunState.SETTLED, release=release)
            rows.replace_run(run)
            record(rows, EventKind.SETTLED, account=run.account, run=run_id, at=_now(), body=body)
        return run

    def release_run(self, run_id: str) -> Run:
        """Give all of a run's reservation back, which is possible only while no operation was ever started."""
        with self._writing() as rows:
            run = known_run(rows, run_id)
            if run.state is RunState.RELEASED:
                return run
            refuse_unless_open(run)
            if run.spent:
                raise UsageError(f"run '{run_id}' has started operations, which stay paid; settle it instead")
            body = {"returned": run.reserved}
            rows.move(run.account, spent=0, reserved=-run.reserved)
            run = replace(run, state=RunState.RELEASED)
            rows.replace_run(run)
            record(rows, EventKind.RELEASED, account=run.account, run=run_id, at=_now(), body=body)
        return run


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
