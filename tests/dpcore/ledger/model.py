"""A ledger as a few dictionaries: what every call should answer, worked out from what each run was granted.

Nothing is kept that can be summed up, and no row is stored: where this and a real ledger differ, one of them is wrong.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from dpcore.ledger import Lease, Operation
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from tests.dpcore.ledger.plain import Answer, PlainAccount, PlainRun, Reason


class PlainLedger:
    """Each method takes what the ledger's takes, and the time by the caller's clock, and says what should come of it."""

    def __init__(self, *, gone: str) -> None:
        self.gone = gone
        self.accounts: dict[str, PlainAccount] = {}
        self.runs: dict[str, PlainRun] = {}
        self.changes = 0

    def runs_of(self, account: str) -> dict[str, PlainRun]:
        return {name: run for name, run in self.runs.items() if run.account == account}

    def used(self, account: str, block: str) -> int:
        """Sum up what runs were granted of a block and did not give back."""
        runs = self.runs_of(account).values()
        return self.accounts[account].times * sum(run.granted for run in runs if block in run.blocks)

    def spent(self, account: str, block: str) -> int:
        """Sum up what operations took of a block."""
        runs = self.runs_of(account).values()
        return self.accounts[account].times * sum(run.charged for run in runs if block in run.blocks)

    def used_by(self, account: str, kind: str, name: str) -> int:
        """Sum up what runs in this name were granted and did not give back."""
        return sum(run.granted for run in self.runs_of(account).values() if run.request[kind] == name)

    def open_account(self, name: str, *, now: datetime, **terms: Any) -> Answer:
        kept = {key: terms[key] for key in ("currency", "cap", "epsilon", "neighbours", "blocks_by", "across")}
        account = PlainAccount(**kept, sealed={} if terms["blocks_by"] else {"all": True})
        reasons = [Reason("the name is taken")] if name in self.accounts else []
        reasons += _cap_reasons(account.cap, account.epsilon)
        return self._answer(reasons, "opened", lambda: self.accounts.update({name: account}))

    def used_across(self, account: str) -> int:
        """Sum up what all runs were granted and did not give back, each once."""
        return sum(run.granted for run in self.runs_of(account).values())

    def raise_across(self, name: str, *, cap: int, epsilon: float, reason: str, now: datetime) -> Answer:
        if not (account := self.accounts.get(name)):
            return Answer(tuple(self._account_reasons(name)))
        reasons = [*self._account_reasons(name), *_cap_reasons(cap, epsilon)]
        if account.across is None:
            reasons = [*self._account_reasons(name), Reason("no cap across blocks")]
        elif cap <= account.across:
            reasons.append(Reason("not more than before"))
        return self._answer(reasons, "raised", lambda: _put(account, across=cap))

    def raise_cap(self, name: str, *, cap: int, epsilon: float, reason: str, now: datetime) -> Answer:
        if not (account := self.accounts.get(name)):
            return Answer(tuple(self._account_reasons(name)))
        reasons = [*self._account_reasons(name), *_cap_reasons(cap, epsilon)]
        reasons += [Reason("not more than before")] if cap <= account.cap else []
        return self._answer(reasons, "raised", lambda: _put(account, cap=cap, epsilon=epsilon))

    def close_account(self, name: str, *, reason: str, now: datetime) -> Answer:
        account = self.accounts.get(name)
        if account and account.closed:
            return Answer((), "again")
        return self._answer(self._account_reasons(name), "closed", lambda: _put(account, closed=True))

    def allow(
        self, account: str, *, kind: str, name: str, cap: int, epsilon: float, reason: str, now: datetime
    ) -> Answer:
        if not (terms := self.accounts.get(account)):
            return Answer(tuple(self._account_reasons(account)))
        reasons = [*self._account_reasons(account), *_cap_reasons(cap, epsilon)]
        reasons += [Reason("less than was used")] if cap < self.used_by(account, kind, name) else []
        outcome = "changed" if (kind, name) in terms.allowed else "allowed"
        return self._answer(reasons, outcome, lambda: terms.allowed.update({(kind, name): cap}))

    def open_blocks(self, account: str, names: Collection[str], *, now: datetime) -> Answer:
        sealed = self.accounts[account].sealed if account in self.accounts else {}
        reasons = list(self._by_block_reasons(account, names))
        reasons += [Reason("the block is there")] if set(names) & set(sealed) else []
        return self._answer(reasons, "opened", lambda: sealed.update(dict.fromkeys(names, False)))

    def seal_blocks(self, account: str, names: Collection[str], *, now: datetime) -> Answer:
        sealed = self.accounts[account].sealed if account in self.accounts else {}
        reasons = list(self._by_block_reasons(account, names))
        reasons += [Reason("no such block")] if not reasons and set(names) - set(sealed) else []
        if not reasons and all(sealed[name] for name in names):
            return Answer((), "again")
        return self._answer(reasons, "sealed", lambda: sealed.update(dict.fromkeys(names, True)))

    def reserve(self, run_id: str, *, now: datetime, **request: Any) -> Answer:
        names = request["blocks"]
        request["blocks"] = names if names is None else frozenset(names)
        run = self.runs.get(run_id)
        if request["account"] not in self.accounts:
            return Answer((Reason("no such account"),))
        if run and run.request != request:
            return Answer((Reason("the id stands for something else"),))
        if run and run.state != "refunded":
            return Answer((), "again")
        new = PlainRun(request, run.began if run else now, now, run.fence if run else 0)
        reasons = [*self._account_reasons(new.account), *self._block_reasons(new), *self._allowance_reasons(new)]
        reasons += self._across_reasons(new)
        return self._answer(reasons, "anew" if run else "granted", lambda: self.runs.update({run_id: new}))

    def lease(self, run_id: str, *, holder: str, seconds: int, now: datetime) -> Answer:
        if reasons := tuple(self._open_reasons(run_id)):
            return Answer(reasons)
        run = self.runs[run_id]
        outcome = "its own" if holder == run.holder else self._standing(run, now)
        if outcome == "worked on":
            return Answer((Reason("worked on"),))
        terms = {"fence": run.fence + 1, "holder": holder, "seconds": seconds}
        return self._answer((), outcome, lambda: _put(run, touched=now, **terms))

    def record_data_version(self, lease: Lease, version: str, *, now: datetime) -> Answer:
        if reasons := tuple(self.lease_reasons(lease)):
            return Answer(reasons)
        run = self.runs[lease.run]
        if run.version is not None:
            return Answer((), "again") if run.version == version else Answer((Reason("another version"),))
        return self._answer((), "recorded", lambda: _put(run, touched=now, version=version))

    def charge(self, lease: Lease, *, step: str, amount: int, mechanism: object, now: datetime) -> Answer:
        if reasons := tuple(self.lease_reasons(lease)):
            return Answer(reasons)
        run = self.runs[lease.run]
        attempts, left = run.prices.get(step, []), run.granted - run.charged
        reasons += (Reason("committed already"),) if step in run.outputs else ()
        reasons += (Reason("the reservation", amount, left),) if amount > left else ()
        prices = run.prices | {step: [*attempts, amount]}
        return self._answer(reasons, "retried" if attempts else "first", lambda: _put(run, touched=now, prices=prices))

    def commit(self, operation: Operation, output: bytes, *, now: datetime) -> Answer:
        reasons = list(self.lease_reasons(Lease(operation.run, operation.fence)))
        run = self.runs[operation.run]
        attempts = len(run.prices[operation.step])
        reasons += [Reason("never charged")] if operation.attempt > attempts else []
        reasons += [Reason("overtaken")] if operation.attempt < attempts else []
        reasons += [Reason("committed already")] if operation.step in run.outputs else []
        outputs = run.outputs | {operation.step: output}
        return self._answer(reasons, "stored", lambda: _put(run, touched=now, outputs=outputs))

    def settle(self, run_id: str, *, release: str | None, lease: Lease | None, now: datetime) -> Answer:
        run = self.runs.get(run_id)
        if run and run.state == "settled" and release in {None, run.release}:
            return Answer((), "again")
        outcome = "by a steward" if lease is None else "by its worker"
        change = {"touched": now, "state": "settled", "release": release}
        return self._answer(self._end_reasons(run_id, lease, now), outcome, lambda: _put(run, **change))

    def refund(self, run_id: str, *, lease: Lease | None, now: datetime) -> Answer:
        run = self.runs.get(run_id)
        if run and run.state == "refunded":
            return Answer((), "again")
        reasons = list(self._end_reasons(run_id, lease, now))
        reasons += [Reason("operations were charged")] if run and run.state == "open" and run.charged else []
        outcome = "by a steward" if lease is None else "by its worker"
        return self._answer(reasons, outcome, lambda: _put(run, touched=now, state="refunded"))

    def _answer(self, reasons: Iterable[Reason], outcome: str, change: Callable[[], None]) -> Answer:
        def counted() -> None:
            change()
            self.changes += 1

        return Answer(tuple(reasons), outcome, counted)

    def _account_reasons(self, name: str) -> Iterator[Reason]:
        if name not in self.accounts:
            yield Reason("no such account")
        elif self.accounts[name].closed:
            yield Reason("the account is closed")

    def _by_block_reasons(self, name: str, blocks: Collection[str]) -> Iterator[Reason]:
        yield from self._account_reasons(name)
        if name in self.accounts and not self.accounts[name].blocks_by:
            yield Reason("not kept by block")
        if not blocks:
            yield Reason("no block is named")

    def _block_reasons(self, run: PlainRun) -> Iterator[Reason]:
        account = self.accounts[run.account]
        if bool(account.blocks_by) != (run.request["blocks"] is not None):
            yield Reason("blocks are not named" if account.blocks_by else "not kept by block")
            return
        left = {name: account.cap - self.used(run.account, name) for name in run.blocks if name in account.sealed}
        if not run.blocks:
            yield Reason("no block is named")
        if len(left) < len(run.blocks):
            yield Reason("no such block")
        if not all(account.sealed[name] for name in left):
            yield Reason("the block may grow")
        price = account.times * run.granted
        if price > min(left.values(), default=price):
            yield Reason("the budget", price, min(left.values()))

    def _across_reasons(self, run: PlainRun) -> list[Reason]:
        across = self.accounts[run.account].across
        left = run.granted if across is None else across - self.used_across(run.account)
        return [Reason("the cap across blocks", run.granted, left)] if run.granted > left else []

    def _allowance_reasons(self, run: PlainRun) -> Iterator[Reason]:
        allowed = self.accounts[run.account].allowed
        for kind in {kind for kind, _ in allowed}:
            who = run.request[kind]
            if (kind, who) not in allowed:
                yield Reason(f"no allowance for this {kind}" if who else f"no {kind} is named")
                continue
            left = allowed[kind, who] - self.used_by(run.account, kind, who)
            if run.granted > left:
                yield Reason(f"the allowance of the {kind}", run.granted, left)

    def _open_reasons(self, run_id: str) -> Iterator[Reason]:
        if run_id not in self.runs:
            yield Reason("no such run")
        elif self.runs[run_id].state != "open":
            yield Reason("the run has ended")

    def lease_reasons(self, lease: Lease) -> Iterator[Reason]:
        yield from self._open_reasons(lease.run)
        run = self.runs.get(lease.run)
        if run and (run.fence != lease.fence or run.holder is None):
            yield Reason("not its lease any more")

    def _end_reasons(self, run_id: str, lease: Lease | None, now: datetime) -> Iterator[Reason]:
        if lease and lease.run != run_id:
            yield Reason("the lease of another run")
        yield from self.lease_reasons(lease) if lease and lease.run == run_id else self._open_reasons(run_id)
        if not lease and run_id in self.runs and self._standing(self.runs[run_id], now) == "worked on":
            yield Reason("worked on")

    def _standing(self, run: PlainRun, now: datetime) -> str:
        """Say whether a run is worked on, or why somebody other than its holder may have it."""
        if run.holder is None:
            return "free"
        if now < run.minute:
            return "the clock was set back"
        if now >= run.lapses:
            return "lapsed"
        return "the holder is gone" if run.holder == self.gone else "worked on"


def _cap_reasons(cap: int, epsilon: float) -> list[Reason]:
    return [Reason("more than epsilon")] if cap > epsilon * AMOUNT_OF_ONE else []


def _put(record: PlainAccount | PlainRun | None, **values: object) -> None:
    for name, value in values.items():
        setattr(record, name, value)
