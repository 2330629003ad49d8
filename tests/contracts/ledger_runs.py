"""The part of the ledger's contract that is about one run: reserve, charge, commit, settle."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from dpcore.errors import BudgetRefused, LedgerError, UsageError
from dpcore.ledger import Balance, Lease, Ledger, open_ledger
from dpcore.privacy.accounting import spend_amount
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened
from tests.dpcore.ledger.store import LedgerStoreTests

RELEASED = {"manifest": "/releases/1/manifest.json", "manifest_sha256": "ab" * 32}


class LedgerRuns(LedgerStoreTests):
    @pytest.mark.parametrize(
        "told",
        [
            {"manifest": "m"},
            {"manifest_sha256": "ab" * 32},
            {"manifest": "m", "manifest_sha256": "AB" * 32},
            {"manifest": "m", "manifest_sha256": "ab"},
            {"manifest": "m", "manifest_sha256": 7},
        ],
        ids=str,
    )
    def test_a_manifest_is_recorded_with_its_hash(self, ledger: Ledger, url: str, told: dict[str, Any]) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        with self.refused(url, UsageError, "SHA-256"):
            ledger.settle("run", release="release-1", lease=None, **told)

    def test_a_reservation_is_held_until_it_is_settled(self, ledger: Ledger) -> None:
        run = ledger.reserve("run", account="clinic", amount=300, claim="claim")
        assert (run.account, run.reserved, run.spent, run.state, run.claim) == ("clinic", 300, 0, "open", "claim")
        assert (run.data_version, run.release, run.holder, run.fence) == (None, None, None, 0)
        assert ledger.runs("clinic") == (run,) == (ledger.run("run"),)
        assert ledger.balance("clinic") == Balance(cap=CAP, spent=0, reserved=300)
        assert ledger.blocks_of("run") == ("all",)

    def test_a_reservation_above_the_rest_is_refused_and_leaves_no_trace(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("first", account="clinic", amount=999, claim="claim")
        with self.refused(url, BudgetRefused, "account 'clinic' cannot pay 0.000000000003 epsilon: ") as refused:
            ledger.reserve("second", account="clinic", amount=3, claim="claim")
        assert (refused.value.requested, refused.value.remaining, refused.value.difference) == (3, 1, 2)
        assert ": 0.000000000001 epsilon remains, 0.000000000002 epsilon too little; ask for less" in str(refused.value)
        ledger.reserve("third", account="clinic", amount=1, claim="claim")

    def test_several_steps_are_one_transaction(self, ledger: Ledger, url: str) -> None:
        with ledger.together():
            ledger.reserve("run", account="clinic", amount=300, claim="claim")
            operation = ledger.charge(ledger.lease("run"), step="count", amount=300, mechanism=MECHANISM)
            assert ledger.run("run").spent == 300
            with open_ledger(url) as other:
                assert other.runs("clinic") == ()
        with open_ledger(url) as other:
            assert other.run("run").spent == 300
        with ledger.together(remember=False):
            ledger.commit(operation, b"noisy")
            ledger.settle("run", release=None, lease=Lease("run", operation.fence))
        assert [event.kind for event in ledger.history("clinic")][-5:] == [
            "reserved",
            "leased",
            "charged",
            "committed",
            "settled",
        ]
        assert_sound(ledger)

    def test_a_refused_step_takes_back_those_before_it(self, ledger: Ledger, url: str) -> None:
        with self.refused(url, BudgetRefused, "the rest of run 'run'"), ledger.together():
            ledger.reserve("run", account="clinic", amount=300, claim="claim")
            ledger.charge(ledger.lease("run"), step="count", amount=301, mechanism=MECHANISM)
        ledger.reserve("run", account="clinic", amount=CAP, claim="claim")

    def test_the_same_reservation_twice_is_one(self, ledger: Ledger, url: str) -> None:
        run = ledger.reserve("run", account="clinic", amount=600, claim="claim")
        with self.unchanged(url):
            assert ledger.reserve("run", account="clinic", amount=600, claim="claim") == run
        settled = ledger.settle("run", release="release-1", lease=None)
        with self.unchanged(url):
            assert ledger.reserve("run", account="clinic", amount=600, claim="claim") == settled

    @pytest.mark.parametrize(
        "change",
        [
            {"claim": "other"},
            {"amount": 601},
            {"account": "births"},
            {"analyst": "bob"},
            {"analyst": None},
            {"purpose": "teaching"},
            {"purpose": None},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("ended", ["open", "refunded", "settled"])
    def test_a_run_id_never_stands_for_something_else(
        self, ledger: Ledger, url: str, change: dict[str, Any], ended: str
    ) -> None:
        opened(ledger, "births")
        asked = {"account": "clinic", "amount": 600, "claim": "claim", "analyst": "ann", "purpose": "research"}
        ledger.reserve("run", **asked)
        if ended == "refunded":
            ledger.refund("run", lease=None)
        if ended == "settled":
            ledger.settle("run", release=None, lease=None)
        with self.refused(url, UsageError, "reserved for something else; start a new run under another id"):
            ledger.reserve("run", **(asked | change))

    @pytest.mark.parametrize("amount", [0, -1, 1.0, float("nan"), float("inf"), True, "1", None, 2**63])
    def test_an_amount_is_a_positive_whole_number(self, ledger: Ledger, url: str, amount: Any) -> None:
        ledger.reserve("run", account="clinic", amount=10, claim="claim")
        lease = ledger.lease("run")
        with self.refused(url, UsageError, "an amount must be"):
            ledger.reserve("other", account="clinic", amount=amount, claim="claim")
        with self.refused(url, UsageError, "an amount must be"):
            ledger.charge(lease, step="measure", amount=amount, mechanism=MECHANISM)

    @pytest.mark.parametrize("price", [0.0, -1e-12, float("nan"), float("inf"), 1e7])
    def test_a_price_that_is_none_never_reaches_the_ledger(self, ledger: Ledger, url: str, price: float) -> None:
        with self.refused(url, UsageError, "an amount must be"):
            ledger.reserve("run", account="clinic", amount=spend_amount(price), claim="claim")

    @pytest.mark.parametrize("price", [5e-324, 1e-30, 1e-12])
    def test_an_absurdly_small_price_costs_a_whole_unit(self, ledger: Ledger, price: float) -> None:
        ledger.reserve("run", account="clinic", amount=10, claim="claim")
        ledger.charge(ledger.lease("run"), step="measure", amount=spend_amount(price), mechanism=MECHANISM)
        assert ledger.balance("clinic").spent == 1

    @pytest.mark.parametrize("text", ["", " run", "a\nb", "a\0b", "x" * 501, 7, None, b"run", "\ud800"], ids=repr)
    def test_a_name_is_printable_text(self, ledger: Ledger, url: str, text: Any) -> None:
        ledger.reserve("run", account="clinic", amount=10, claim="claim")
        lease = ledger.lease("run")
        asks: list[Callable[[], object]] = [
            lambda: ledger.reserve(text, account="clinic", amount=1, claim="claim"),
            lambda: ledger.reserve("other", account="clinic", amount=1, claim=text),
            lambda: ledger.record_data_version(lease, text),
            lambda: ledger.charge(lease, step=text, amount=1, mechanism=MECHANISM),
        ]
        if text is not None:
            asks += [
                lambda: ledger.reserve("other", account="clinic", amount=1, claim="claim", analyst=text),
                lambda: ledger.reserve("other", account="clinic", amount=1, claim="claim", purpose=text),
                lambda: ledger.lease("run", holder=text),
                lambda: ledger.settle("run", release=text, lease=lease),
            ]
        for ask in asks:
            with self.refused(url, UsageError, "must be printable text"):
                ask()

    def test_a_name_may_hold_any_printable_sign(self, ledger: Ledger) -> None:
        name = """o'clock "%s" 100% :id $1 {x} \\ é 漢 😀; DROP TABLE run; --"""
        opened(ledger, name)
        ledger.reserve(name, account=name, amount=10, claim=name, analyst=name, purpose=name)
        lease = ledger.lease(name, holder=name)
        ledger.record_data_version(lease, name)
        operation = ledger.charge(lease, step=name, amount=1, mechanism={"of": "%s :id $1 {x}"})
        ledger.commit(operation, name.encode())
        run = ledger.settle(name, release=name, lease=lease)
        assert ledger.runs(name) == (run,)
        assert (run.claim, run.analyst, run.purpose, run.data_version, run.holder, run.release) == (name,) * 6
        assert ledger.transcript(name)[0].mechanism == {"of": "%s :id $1 {x}"}
        assert_sound(ledger)

    def test_a_run_is_bound_to_one_version_of_the_data(self, ledger: Ledger, url: str) -> None:
        opened_at = ledger.reserve("run", account="clinic", amount=10, claim="claim").opened_at
        lease = ledger.lease("run")
        assert ledger.record_data_version(lease, "v1").data_version == "v1"
        with self.unchanged(url):
            again = ledger.record_data_version(lease, "v1")
        with self.refused(url, UsageError, "the source data changed since this run began"):
            ledger.record_data_version(lease, "v2")
        assert again.opened_at == opened_at
        assert ledger.run("run") == again

    def test_a_charged_operation_is_spent_at_once(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        operation = ledger.charge(ledger.lease("run"), step="round-001/measure", amount=120, mechanism=MECHANISM)
        assert (operation.attempt, operation.state, operation.output) == (1, "charged", None)
        with open_ledger(url) as other:
            assert other.balance("clinic") == Balance(cap=CAP, spent=120, reserved=180)
            assert other.run("run").remaining == 180
            assert other.operation("run", "round-001/measure") is None

    def test_a_committed_output_reads_back_with_its_mechanism(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run")
        outputs = {"round-001/select": b"", "round-001/measure": bytes(range(256)) * 1000, "round-000/measure": b"\0"}
        for step, output in outputs.items():
            committed = ledger.commit(ledger.charge(lease, step=step, amount=1, mechanism=MECHANISM), output)
            assert (committed.state, committed.output) == ("committed", output)
        with open_ledger(url) as other:
            assert other.operation("run", "round-001/measure") == ledger.operation("run", "round-001/measure")
            transcript = other.transcript("run")
        assert {operation.step: operation.output for operation in transcript} == outputs
        assert [operation.step for operation in transcript] == list(outputs)
        assert all(operation.mechanism == MECHANISM for operation in transcript)

    def test_a_run_never_spends_more_than_it_reserved(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run")
        ledger.charge(lease, step="select", amount=299, mechanism=MECHANISM)
        with self.refused(url, BudgetRefused, "the rest of run 'run'") as refused:
            ledger.charge(lease, step="measure", amount=2, mechanism=MECHANISM)
        assert (refused.value.requested, refused.value.remaining) == (2, 1)

    def test_an_attempt_without_result_stays_paid_and_the_next_pays_again(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run")
        lost = ledger.charge(lease, step="measure", amount=100, mechanism=MECHANISM)
        second = ledger.charge(lease, step="measure", amount=50, mechanism=MECHANISM)
        assert second.attempt == 2
        with self.refused(url, UsageError, "overtaken by attempt 2; discard its output"):
            ledger.commit(lost, b"late")
        ledger.commit(second, b"noisy")
        assert ledger.balance("clinic").spent == 150
        assert [(done.attempt, done.amount) for done in ledger.transcript("run")] == [(2, 50)]

    def test_nothing_is_committed_or_charged_twice(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run")
        operation = ledger.charge(lease, step="measure", amount=100, mechanism=MECHANISM)
        ledger.commit(operation, b"noisy")
        with self.refused(url, UsageError, "committed already; read its output instead"):
            ledger.commit(operation, b"noisy")
        with self.refused(url, UsageError, "committed already; read its output instead"):
            ledger.charge(lease, step="measure", amount=100, mechanism=MECHANISM)

    def test_only_what_was_charged_is_committed(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        operation = ledger.charge(ledger.lease("run"), step="measure", amount=100, mechanism=MECHANISM)
        for invented in (replace(operation, attempt=2), replace(operation, step="select")):
            with self.refused(url, UsageError, "never charged; charge it first"):
                ledger.commit(invented, b"noisy")
        with self.refused(url, UsageError, "no run 'other'"):
            ledger.commit(replace(operation, run="other"), b"noisy")
        with self.refused(url, UsageError, "bytes; serialise it first"):
            ledger.commit(operation, "noisy")  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "mechanism", [{}, {"scale": float("nan")}, {"scale": 1j}, {"scale": b"1"}, {"of": "é"}], ids=str
    )
    def test_a_mechanism_is_recorded_so_that_anyone_can_read_it(
        self, ledger: Ledger, url: str, mechanism: dict[str, Any]
    ) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run")
        with self.refused(url, UsageError, "mechanism"):
            ledger.charge(lease, step="measure", amount=1, mechanism=mechanism)

    def test_settling_gives_back_only_what_was_never_charged(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run")
        lost = ledger.charge(lease, step="select", amount=70, mechanism=MECHANISM)
        ledger.commit(ledger.charge(lease, step="measure", amount=30, mechanism=MECHANISM), b"noisy")
        run = ledger.settle("run", release="clinic/release-1", lease=lease, **RELEASED)
        assert (run.state, run.spent, run.reserved, run.remaining) == ("settled", 100, 300, 0)
        assert run.release == "clinic/release-1"
        assert ledger.balance("clinic") == Balance(cap=CAP, spent=100, reserved=0)
        assert list(ledger.history("clinic"))[-1].details == {
            "spent": 100,
            "returned": 200,
            "release": "clinic/release-1",
            **RELEASED,
        }
        with self.unchanged(url):
            for holding in (lease, None):
                assert ledger.settle("run", release="clinic/release-1", lease=holding) == run
                assert ledger.settle("run", release=None, lease=holding) == run
        asks: list[Callable[[], object]] = [
            lambda: ledger.settle("run", release="clinic/release-2", lease=lease),
            lambda: ledger.settle("run", release="clinic/release-2", lease=None),
            lambda: ledger.lease("run"),
            lambda: ledger.record_data_version(lease, "v1"),
            lambda: ledger.charge(lease, step="again", amount=1, mechanism=MECHANISM),
            lambda: ledger.commit(lost, b"late"),
            lambda: ledger.refund("run", lease=lease),
            lambda: ledger.refund("run", lease=None),
        ]
        for ask in asks:
            with self.refused(url, UsageError, "run 'run' is settled and takes no more operations; start a new run"):
                ask()
        assert len(ledger.transcript("run")) == 1

    def test_a_run_that_was_never_charged_is_refunded_and_may_begin_anew(self, ledger: Ledger, url: str) -> None:
        first = ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run")
        ledger.record_data_version(lease, "v1")
        assert ledger.refund("run", lease=lease).state == "refunded"
        assert ledger.balance("clinic").remaining == CAP
        with self.unchanged(url):
            assert ledger.refund("run", lease=lease).state == "refunded"
        asks: list[Callable[[], object]] = [
            lambda: ledger.lease("run"),
            lambda: ledger.charge(lease, step="measure", amount=1, mechanism=MECHANISM),
            lambda: ledger.settle("run", release=None, lease=None),
        ]
        for ask in asks:
            with self.refused(url, UsageError, "run 'run' is refunded and takes no more operations"):
                ask()
        again = ledger.reserve("run", account="clinic", amount=300, claim="claim")
        assert again == replace(first, fence=again.fence, first=again.first, last=again.last)
        assert ledger.balance("clinic").remaining == CAP - 300
        assert_sound(ledger)

    def test_a_refunded_run_begins_anew_only_if_it_can_be_paid(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        ledger.refund("run", lease=None)
        ledger.reserve("other", account="clinic", amount=900, claim="claim")
        with self.refused(url, BudgetRefused, "cannot pay"):
            ledger.reserve("run", account="clinic", amount=300, claim="claim")

    def test_a_run_that_was_charged_is_never_refunded(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run", holder="elsewhere 4711 99", seconds=1)
        ledger.charge(lease, step="measure", amount=1, mechanism=MECHANISM)
        with self.refused(url, UsageError, "cannot be refunded; end it with: dpflow ledger settle run"):
            ledger.refund("run", lease=lease)
        with (
            open_ledger(url, clock=lambda: datetime.fromisoformat("2100-01-01T00:00:00Z")) as later,
            self.refused(url, UsageError, "cannot be refunded; end it with: dpflow ledger settle run"),
        ):
            later.refund("run", lease=None)

    def test_an_unknown_run_is_refused_everywhere(self, ledger: Ledger, url: str) -> None:
        asks: list[Callable[[], object]] = [
            lambda: ledger.run("run"),
            lambda: ledger.blocks_of("run"),
            lambda: ledger.lease("run"),
            lambda: ledger.record_data_version(Lease("run", 1), "v1"),
            lambda: ledger.operation("run", "measure"),
            lambda: ledger.charge(Lease("run", 1), step="measure", amount=1, mechanism=MECHANISM),
            lambda: ledger.settle("run", release=None, lease=None),
            lambda: ledger.refund("run", lease=None),
            lambda: ledger.transcript("run"),
        ]
        for ask in asks:
            with self.refused(url, UsageError, "no run 'run' in this ledger; reserve its budget first"):
                ask()

    def test_every_change_is_one_event_of_the_chain(self, ledger: Ledger) -> None:
        opened(ledger, "births")
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lease = ledger.lease("run", holder="worker")
        ledger.record_data_version(lease, "v1")
        operation = ledger.charge(lease, step="measure", amount=100, mechanism=MECHANISM)
        ledger.commit(operation, b"noisy")
        ledger.settle("run", release="release-1", lease=lease)
        ledger.reserve("unused", account="births", amount=1, claim="claim")
        ledger.refund("unused", lease=None)
        kinds = ["account-opened", "reserved", "leased", "data-version", "charged", "committed", "settled"]
        events = list(ledger.history("clinic"))
        assert [event.kind for event in events] == kinds
        assert [event.kind for event in ledger.history("births")] == ["account-opened", "reserved", "refunded"]
        assert [event.seq for event in ledger.history(None)] == list(range(1, 11))
        assert events[2].details == {"fence": 1, "holder": "worker", "seconds": 300}
        assert (events[4].run, events[4].details) == (
            "run",
            {"step": "measure", "attempt": 1, "amount": 100, "mechanism": MECHANISM, "fence": 1, "analyst": None},
        )
        run = ledger.run("run")
        assert (run.first, run.last) == (events[1].seq, events[-1].seq)
        assert_sound(ledger)

    def test_a_history_is_that_of_the_moment_it_was_asked_for(self, ledger: Ledger) -> None:
        history = ledger.history(None)
        ledger.reserve("run", account="clinic", amount=1, claim="claim")
        assert [event.kind for event in history] == ["account-opened"]

    def test_another_thread_is_told_to_open_its_own(self, ledger: Ledger) -> None:
        told: list[str] = []

        def look() -> None:
            try:
                ledger.head()
            except LedgerError as error:
                told.append(str(error))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert len(told) == 1
        assert "open it again where it is used" in told[0]
        assert_sound(ledger)

    def test_one_transaction_ends_before_the_next_begins(self, ledger: Ledger, url: str) -> None:
        with self.refused(url, LedgerError, "in the middle of another transaction"), ledger.reading():
            ledger.reserve("run", account="clinic", amount=1, claim="claim")
        ledger.reserve("run", account="clinic", amount=1, claim="claim")

    def test_a_closed_ledger_says_so(self, url: str) -> None:
        with open_ledger(url, create=True) as ledger:
            pass
        with pytest.raises(LedgerError, match="closed"):
            ledger.head()
        ledger.close()

    def test_a_release_is_withdrawn_once_and_nothing_is_refunded(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        with self.refused(url, UsageError, "run 'run' has no published release"):
            ledger.withdraw("run", reason="wrong codes")
        run = ledger.settle("run", release="release-1", lease=None, **RELEASED)
        with self.refused(url, UsageError, "retention keeps release 'release-1'"):
            ledger.withdraw("run", reason="retention", keep=1)
        ledger.reserve("newer", account="clinic", amount=300, claim="claim")
        ledger.settle("newer", release="release-2", lease=None, **RELEASED)
        balance = ledger.balance("clinic")
        with self.refused(url, UsageError, "retention keeps release 'release-1'"):
            ledger.withdraw("run", reason="retention", keep=2)
        by_retention = ledger.withdraw("run", reason="retention", keep=1)
        by_steward = ledger.withdraw("run", reason="wrong codes")
        assert [event.details for event in (by_retention, by_steward)] == [
            {"release": "release-1", "reason": "retention", "keep": 1},
            {"release": "release-1", "reason": "wrong codes"},
        ]
        for again in ({"reason": "another"}, {"reason": "retention", "keep": 3}):
            with self.unchanged(url):
                assert ledger.withdraw("run", **again) == by_steward  # type: ignore[arg-type]
        assert ledger.withdrawals("clinic") == {"run": by_steward}
        assert (ledger.run("run"), ledger.balance("clinic")) == (run, balance)
        assert_sound(ledger)

    def test_a_release_that_was_made_again_is_recorded_once(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        run = ledger.settle("run", release="release-1", lease=None, **RELEASED)
        anew = RELEASED | {"manifest_sha256": "cd" * 32}
        assert ledger.settle("run", release="release-1", lease=None, **anew) == run
        event = list(ledger.history("clinic"))[-1]
        assert (event.kind, event.run) == ("republished", None)
        assert event.details == {"run": "run", "release": "release-1", **anew}
        for told in (RELEASED, anew, {}):
            with self.unchanged(url):
                assert ledger.settle("run", release="release-1", lease=None, **told) == run
        assert_sound(ledger)
