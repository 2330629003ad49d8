"""Three workers who do anything in any order, die at any statement, and whose clocks jump: the ledger must answer as the model does."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dpcore.errors import DpflowError
from dpcore.ledger import Lease, Ledger, Operation, Run
from dpcore.ledger.transaction import Head
from tests.contracts.ledger_agreement import assert_agrees, assert_reads_back, assert_same_terms
from tests.contracts.ledger_places import AFTER, LIVES, Crash, Place
from tests.dpcore.ledger import moves
from tests.dpcore.ledger.model import PlainLedger
from tests.dpcore.ledger.moves import ACTORS, Actor, Call, Moment, Wish, any_of


class Afresh(HypothesisProvider):
    """Draws every example anew; Hypothesis itself varies each of them five times, which covers less ground in more time.

    And it draws the same ones whatever else was imported: Hypothesis itself picks constants from all modules that are loaded.
    """

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        """Leave the constants of programs alone."""


AVAILABLE_PROVIDERS["afresh"] = f"{__name__}.Afresh"


class LedgerMachine(RuleBasedStateMachine):
    """`tally` counts what each verb led to. All names of an example begin with a mark of its own."""

    def __init__(self, place: Place, tally: Counter[tuple[str, str]]) -> None:
        super().__init__()
        self.place, self.tally = place, tally
        self.mark, self.workers = place.begin()
        self.head = self.first = self._head()
        self.model = PlainLedger(gone=moves.GONE)
        self.leases: list[Lease] = []
        self.charged: list[Operation] = []
        self.drawn: Counter[tuple[str, str]] = Counter()
        self.spent: Counter[tuple[str, str]] = Counter()
        self.reader: Ledger | None = None
        self.agreed = False

    def do(self, actor: Actor, verb: str, *arguments: Any, **options: Any) -> Any:
        """Let a worker make a call, which may be its last; whatever comes of it must be what the model answers."""
        number, fate = actor
        worker, reader = self.workers[number], self.workers[number - 1].ledger
        answer = getattr(self.model, verb)(*arguments, **options, now=worker.now)
        self.agreed = False
        result, done, happened, refusal = None, True, answer.outcome, None
        try:
            result = worker.make(lambda ledger: getattr(ledger, verb)(*arguments, **options), fate)
        except Crash as crash:
            done, happened = crash.committed, crash.what
        except DpflowError as error:
            done, refusal = False, error
        if refusal:
            reasons = [reason.why for reason in answer.reasons if reason.explains(refusal)]
            assert reasons, f"{verb} was refused ({refusal}), against the model's {answer}"
            happened = reasons[0] if len(answer.reasons) == 1 else "several reasons"
        assert not (done and answer.reasons), f"{verb} was done, against the model's {answer}"
        assert not isinstance(result, Run) or result == reader.run(result.id)
        self.tally[verb, happened] += 1
        changed = done and answer.change is not None
        if changed:
            answer.change()
        head = self._head(number - 1)
        assert head.seq - self.head.seq == changed
        assert (head.hash != self.head.hash) == changed
        self.head = head
        if changed or happened in {"died before", "stumbled"}:
            self.reader = reader
        return result

    @invariant()
    def agrees(self) -> None:
        """Another worker reads what the model has; what is spent never falls, and never falls short of what was drawn."""
        reader, self.reader = self.reader, None
        for account in self.model.accounts if reader else ():
            for block, spent in assert_agrees(reader, self.model, account).items():
                assert spent >= max(self.drawn[account, block], self.spent[account, block])
                self.spent[account, block] = spent
        self.agreed = True

    @initialize(
        terms=any_of(moves.TERMS, (*moves.TERMS, *(None,) * 16)), more=any_of(moves.ALLOWED, (None, *moves.HOLDERS))
    )
    def begin(self, terms: tuple[Any, Any], more: tuple[Any, str | None]) -> None:
        """Open accounts with blocks and allowances, reserve for a run and lease it: before, nothing interesting happens."""
        for name, declared in zip(("clinic", "survey"), terms, strict=True):
            if declared:
                self._prepare("open_account", self.mark + name, **declared)
            if declared and declared["blocks_by"]:
                self._prepare("open_blocks", self.mark + name, names=("jan", "feb", "mar"))
                self._prepare("seal_blocks", self.mark + name, names=("jan", "feb"))
        allowed, holder = more
        for whom in allowed:
            self._prepare("allow", f"{self.mark}clinic", **moves.MORE, **whom, cap=60)
        run_id = f"{self.mark}run-1"
        self._prepare("reserve", run_id, **self._suitable(f"{self.mark}clinic", (45, ("jan",), ("ann", None))))
        if holder:
            self.leases.append(self._prepare("lease", run_id, holder=holder, seconds=60))
        self.reader, self.head = self.workers[0].ledger, self._head()

    def _head(self, number: int = 0) -> Head:
        with self.workers[number].ledger.reading() as rows:
            return rows.head()

    def _prepare(self, verb: str, *arguments: Any, **options: Any) -> Any:
        result = getattr(self.workers[0].ledger, verb)(*arguments, **options)
        getattr(self.model, verb)(*arguments, **options, now=self.workers[0].now).change()
        return result

    @rule(actor=ACTORS, call=any_of(moves.ACCOUNTS, moves.CHANGES))
    def change_account(self, actor: Actor, call: tuple[str, Call]) -> None:
        account, (verb, options) = call
        self.do(actor, verb, self.mark + account, **options)

    @rule(
        actor=ACTORS,
        wish=moves.WISHES,
        call=any_of(moves.RUNS, moves.PAYERS, moves.MISTAKES),
        goes_on=st.booleans(),
    )
    def reserve(self, actor: Actor, wish: Wish, call: tuple[str, str, dict[str, Any]], goes_on: bool) -> None:
        """Ask for what the run asked for before, or for something that suits the account; then make a mistake, or none."""
        run, account, mistake = call
        earlier = self.model.runs.get(self.mark + run)
        request = dict(earlier.request) if earlier else self._suitable(self.mark + account, wish)
        request |= mistake
        if request["blocks"] is not None:
            request["blocks"] = sorted(request["blocks"], reverse=True) * 2
        granted = self.do(actor, "reserve", self.mark + run, **request)
        if granted and goes_on:
            self._take((actor[0], LIVES), granted.id, moves.HOLDERS[actor[0]], 60, moves.NOW)

    def _suitable(self, account: str, wish: Wish) -> dict[str, Any]:
        amount, blocks, (analyst, purpose) = wish
        terms = self.model.accounts.get(account)
        kinds = {kind for kind, _ in terms.allowed} if terms else set()
        return {
            "account": account,
            "amount": amount,
            "claim": "a",
            "blocks": blocks if terms and terms.blocks_by else None,
            "analyst": analyst or ("ann" if "analyst" in kinds else None),
            "purpose": purpose or ("audit" if "purpose" in kinds else None),
        }

    @rule(actor=ACTORS, call=any_of((*moves.LATELY, -1), moves.HOLDERS, (60, 5), moves.MOMENTS))
    def lease(self, actor: Actor, call: tuple[int, str, int, Moment]) -> None:
        which, holder, seconds, moment = call
        self._take(actor, self._run(which), holder, seconds, moment)

    def _take(self, actor: Actor, run_id: str, holder: str, seconds: int, moment: Moment) -> None:
        self._set_clock(actor, run_id, moment)
        lease = self.do(actor, "lease", run_id, holder=holder, seconds=seconds)
        if lease:
            assert lease == Lease(run_id, self.model.runs[run_id].fence)
            self.leases.append(lease)

    @rule(actor=ACTORS, call=any_of(moves.LATELY, moves.TASKS), then=st.sampled_from(moves.THEN))
    def work(self, actor: Actor, call: tuple[int, Call], then: str) -> None:
        """Record a data version; or charge an operation, and perhaps commit at once."""
        which, (verb, options) = call
        if not self.leases:
            return
        held = [lease for lease in self.leases if not any(self.model.lease_reasons(lease))]
        lease = self._recent(self.leases, which, rather=held)
        if verb == "record_data_version":
            self.do(actor, verb, lease, **options)
            return
        before = self.model.changes
        operation = self.do(actor, verb, lease, **options, mechanism={"scale": 1})
        run = self.model.runs[lease.run]
        if self.model.changes > before:
            paid = options["amount"] * self.model.accounts[run.account].times
            self.drawn.update(dict.fromkeys(((run.account, block) for block in run.blocks), paid))
        if operation:
            assert operation.attempt == len(run.prices[operation.step])
            self.charged.append(operation)
        if operation and then == "commit after all":
            self._take((actor[0] - 1, LIVES), lease.run, moves.HOLDERS[1], 60, moves.LAPSED)
        if operation and then:
            fate = AFTER if then == "commit and die" else LIVES
            self.commit((actor[0], fate), (1 if then == "commit the one before" else 0, b"0", 0))

    @rule(actor=ACTORS, call=any_of(moves.LATELY, (b"", b"1", b"23"), (0, 0, 0, 0, 0, 1)))
    def commit(self, actor: Actor, call: tuple[int, bytes, int]) -> None:
        which, output, ahead = call
        if not self.charged:
            return
        operation = self._recent(self.charged, which)
        self.do(actor, "commit", replace(operation, attempt=operation.attempt + ahead), output)
        assert_reads_back(self.workers[actor[0]].ledger, operation.run, self.model.runs[operation.run])

    @rule(actor=ACTORS, call=any_of((*moves.LATELY, -1), moves.ENDS, moves.WHOSE, moves.MOMENTS), anew=st.booleans())
    def end_run(self, actor: Actor, call: tuple[int, Call, str, Moment], anew: bool) -> None:
        """A steward ends any run, a worker the one that it leased, or by mistake another; one that is refunded may begin anew."""
        which, (verb, options), whose, moment = call
        run_id = self._run(which)
        self._set_clock(actor, run_id, moment)
        leases = [lease for lease in self.leases if (lease.run == run_id) == (whose == "its own")]
        lease = self._recent(leases, which) if leases and whose != "a steward's" else None
        run = self.do(actor, verb, run_id, lease=lease, **options)
        if run and run.state == "refunded" and anew:
            self.do((actor[0], LIVES), "reserve", run_id, **self.model.runs[run_id].request)

    def _set_clock(self, actor: Actor, run_id: str, moment: Moment) -> None:
        """Let the worker's clock jump, from where it stands or to a time that matters for the run's lease."""
        since, offset = moment
        worker, run = self.workers[actor[0]], self.model.runs.get(run_id)
        times = {"touched": run.minute, "lapses": run.lapses} if run else {}
        worker.set_clock(times.get(since, worker.now) + offset)

    def _run(self, which: int) -> str:
        """Return a run that was reserved, preferably an open one, or one that never was."""
        still_open = [name for name, run in self.model.runs.items() if run.state == "open"]
        return f"{self.mark}run-0" if which < 0 else self._recent([*self.model.runs], which, rather=still_open)

    @staticmethod
    def _recent(known: list[Any], which: int, *, rather: list[Any] | None = None) -> Any:
        """Return one of the newest; for 0 the newest of those that promise more, if there are any."""
        return rather[-1] if rather and which == 0 else known[-1 - which % len(known)]

    def teardown(self) -> None:
        ledger = self.workers[0].ledger
        try:
            if self.agreed:
                for account in self.model.accounts:
                    assert_agrees(ledger, self.model, account)
                    assert_same_terms(ledger, self.model, account)
                for name, run in self.model.runs.items():
                    assert_reads_back(ledger, name, run)
                assert self._head().seq - self.first.seq == self.model.changes
        finally:
            self.place.end(agreed=self.agreed)
