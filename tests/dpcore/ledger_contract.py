"""What every store of a ledger must do: a store's test class inherits this and says where a new one lies."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpcore.accounting import Currency
from dpcore.errors import BudgetRefused, LedgerError, UsageError
from dpcore.ledger import GENESIS, Ledger, open_ledger
from dpcore.privacy import Neighbours
from tests.dpcore.ledger_model import assert_sound, opened
from tests.dpcore.ledger_stress import LedgerStress

MECHANISM = {"name": "discrete-gaussian", "sensitivity": {"l2_squared": 2}, "sigma": 12.5, "cells": ["age", "sex"]}
CAP = 1_000
"""What `opened` gives an account unless told otherwise."""


class LedgerContract(LedgerStress):
    """Inherit it, and give it `new_url` (a function to a place without a ledger) and `dump` (all rows as text)."""

    @pytest.fixture
    def new_url(self, tmp_path: Path) -> Callable[[], str]:
        raise NotImplementedError

    def dump(self, url: str) -> list[str]:
        raise NotImplementedError

    @pytest.fixture
    def url(self, new_url: Callable[[], str]) -> str:
        return new_url()

    @pytest.fixture
    def ledger(self, url: str) -> Iterator[Ledger]:
        with open_ledger(url, create=True) as ledger:
            opened(ledger)
            yield ledger

    @contextmanager
    def unchanged(self, url: str) -> Iterator[None]:
        before = self.dump(url)
        yield
        assert self.dump(url) == before

    def test_a_new_ledger_has_no_accounts_and_the_constant_head(self, url: str) -> None:
        with open_ledger(url, create=True) as ledger:
            assert ledger.accounts() == ()
            assert ledger.history(None) == ()
            assert ledger.head() == GENESIS

    def test_an_account_reads_back_as_it_was_declared(self, ledger: Ledger) -> None:
        declared = opened(
            ledger,
            "births",
            currency=Currency.ZCDP,
            cap=7,
            epsilon=0.1,
            delta=1e-9,
            unit="patient_id",
            neighbours=Neighbours.REPLACE_ONE,
        )
        assert ledger.account("births") == declared
        assert (declared.epsilon, declared.delta, declared.unit) == (0.1, 1e-9, "patient_id")
        assert (declared.spent, declared.reserved, declared.remaining) == (0, 0, 7)
        assert [account.name for account in ledger.accounts()] == ["births", "clinic"]

    def test_an_account_is_opened_only_once(self, ledger: Ledger, url: str) -> None:
        with self.unchanged(url), pytest.raises(UsageError, match="open already"):
            opened(ledger, cap=5)

    def test_an_unknown_account_is_answered_with_the_known_ones(self, ledger: Ledger) -> None:
        opened(ledger, "births")
        with pytest.raises(UsageError, match="no account 'clinics'; known accounts: births, clinic"):
            ledger.account("clinics")
        with pytest.raises(UsageError, match="known accounts"):
            ledger.reserve("run", account="clinics", amount=1, claim="claim")
        with pytest.raises(UsageError, match="known accounts"):
            ledger.runs("clinics")
        with pytest.raises(UsageError, match="known accounts"):
            ledger.history("clinics")

    @pytest.mark.parametrize(
        "change",
        [
            {"cap": 0},
            {"cap": -1},
            {"cap": 1.0},
            {"cap": True},
            {"cap": 2**63},
            {"cap": 10**12 + 1},
            {"epsilon": 0.0},
            {"epsilon": -1.0},
            {"epsilon": float("inf")},
            {"epsilon": float("nan")},
            {"delta": 1e-9},
            {"delta": float("nan")},
            {"currency": Currency.ZCDP},
            {"currency": Currency.ZCDP, "delta": 1.0},
            {"currency": Currency.ZCDP, "delta": -1e-9},
            {"currency": Currency.ZCDP, "delta": float("nan")},
            {"currency": "renyi"},
            {"neighbours": "none"},
            {"unit": ""},
            {"name": ""},
            {"name": " clinic"},
            {"name": "two\nlines"},
            {"name": "x" * 501},
            {"name": 7},
        ],
        ids=str,
    )
    def test_an_absurd_account_is_refused(self, ledger: Ledger, url: str, change: dict[str, Any]) -> None:
        with self.unchanged(url), pytest.raises(UsageError):
            opened(ledger, **({"name": "births"} | change))

    def test_a_reservation_is_held_until_it_is_settled(self, ledger: Ledger) -> None:
        run = ledger.reserve("run", account="clinic", amount=300, claim="claim")
        assert (run.account, run.reserved, run.spent, run.state, run.claim) == ("clinic", 300, 0, "open", "claim")
        assert (run.data_version, run.release) == (None, None)
        assert ledger.runs("clinic") == (run,) == (ledger.run("run"),)
        account = ledger.account("clinic")
        assert (account.spent, account.reserved, account.remaining) == (0, 300, 700)

    def test_a_reservation_above_the_rest_is_refused_and_leaves_no_trace(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("first", account="clinic", amount=999, claim="claim")
        with self.unchanged(url), pytest.raises(BudgetRefused) as refused:
            ledger.reserve("second", account="clinic", amount=3, claim="claim")
        assert (refused.value.requested, refused.value.remaining, refused.value.difference) == (3, 1, 2)
        assert "cannot pay 0.000000000003 epsilon: 0.000000000001 epsilon remains, 0.000000000002 epsilon" in str(
            refused.value
        )
        ledger.reserve("third", account="clinic", amount=1, claim="claim")

    def test_the_same_reservation_twice_is_one(self, ledger: Ledger, url: str) -> None:
        run = ledger.reserve("run", account="clinic", amount=600, claim="claim")
        with self.unchanged(url):
            assert ledger.reserve("run", account="clinic", amount=600, claim="claim") == run
        settled = ledger.settle("run", release="release-1")
        with self.unchanged(url):
            assert ledger.reserve("run", account="clinic", amount=600, claim="claim") == settled

    @pytest.mark.parametrize("change", [{"claim": "other"}, {"amount": 601}, {"account": "births"}], ids=str)
    def test_a_run_id_never_stands_for_something_else(self, ledger: Ledger, url: str, change: dict[str, Any]) -> None:
        opened(ledger, "births")
        asked: dict[str, Any] = {"account": "clinic", "amount": 600, "claim": "claim"}
        ledger.reserve("run", **asked)
        with self.unchanged(url), pytest.raises(UsageError, match="reserved for something else"):
            ledger.reserve("run", **(asked | change))

    @pytest.mark.parametrize("amount", [0, -1, 1.0, float("nan"), True, "1", None, 2**63])
    def test_an_amount_is_a_positive_whole_number(self, ledger: Ledger, url: str, amount: Any) -> None:
        ledger.reserve("run", account="clinic", amount=10, claim="claim")
        with self.unchanged(url):
            with pytest.raises(UsageError):
                ledger.reserve("other", account="clinic", amount=amount, claim="claim")
            with pytest.raises(UsageError):
                ledger.start("run", step="measure", amount=amount, mechanism=MECHANISM)

    def test_a_run_is_bound_to_one_version_of_the_data(self, ledger: Ledger, url: str) -> None:
        opened_at = ledger.reserve("run", account="clinic", amount=10, claim="claim").opened_at
        assert ledger.record_data_version("run", "v1").data_version == "v1"
        with self.unchanged(url):
            again = ledger.record_data_version("run", "v1")
            with pytest.raises(UsageError, match="the source data changed since this run began"):
                ledger.record_data_version("run", "v2")
        assert again.opened_at == opened_at
        assert ledger.run("run") == again

    def test_a_started_operation_is_spent_at_once(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        operation = ledger.start("run", step="round-001/measure", amount=120, mechanism=MECHANISM)
        assert (operation.attempt, operation.state, operation.output) == (1, "started", None)
        with open_ledger(url) as other:
            account = other.account("clinic")
            assert (account.spent, account.reserved, account.remaining) == (120, 180, 700)
            assert other.run("run").remaining == 180
            assert other.operation("run", "round-001/measure") is None

    def test_a_committed_output_reads_back_with_its_mechanism(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        outputs = {"round-001/select": b"", "round-001/measure": bytes(range(256)) * 1000, "round-000/measure": b"\0"}
        for step, output in outputs.items():
            committed = ledger.commit(ledger.start("run", step=step, amount=1, mechanism=MECHANISM), output)
            assert (committed.state, committed.output) == ("committed", output)
        with open_ledger(url) as other:
            assert other.operation("run", "round-001/measure") == ledger.operation("run", "round-001/measure")
            transcript = other.transcript("run")
        assert {operation.step: operation.output for operation in transcript} == outputs
        assert [operation.step for operation in transcript] == list(outputs)
        assert all(operation.mechanism == MECHANISM for operation in transcript)

    def test_a_run_never_spends_more_than_it_reserved(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        ledger.start("run", step="select", amount=299, mechanism=MECHANISM)
        with self.unchanged(url), pytest.raises(BudgetRefused, match="what is left of run 'run'") as refused:
            ledger.start("run", step="measure", amount=2, mechanism=MECHANISM)
        assert (refused.value.requested, refused.value.remaining) == (2, 1)

    def test_an_attempt_without_result_stays_paid_and_the_next_pays_again(self, ledger: Ledger) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        ledger.start("run", step="measure", amount=100, mechanism=MECHANISM)
        second = ledger.start("run", step="measure", amount=50, mechanism=MECHANISM)
        assert second.attempt == 2
        ledger.commit(second, b"noisy")
        assert ledger.account("clinic").spent == 150
        assert [(done.attempt, done.amount) for done in ledger.transcript("run")] == [(2, 50)]

    def test_a_stale_worker_cannot_commit(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        stale = ledger.start("run", step="measure", amount=100, mechanism=MECHANISM)
        with open_ledger(url) as other:
            fresh = other.start("run", step="measure", amount=100, mechanism=MECHANISM)
            with self.unchanged(url), pytest.raises(UsageError, match="overtaken by attempt 2"):
                ledger.commit(stale, b"stale")
            other.commit(fresh, b"fresh")
        with self.unchanged(url), pytest.raises(UsageError, match="overtaken"):
            ledger.commit(stale, b"stale")
        found = ledger.operation("run", "measure")
        assert found is not None
        assert found.output == b"fresh"

    def test_nothing_is_committed_or_started_twice(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        operation = ledger.start("run", step="measure", amount=100, mechanism=MECHANISM)
        ledger.commit(operation, b"noisy")
        with self.unchanged(url):
            with pytest.raises(UsageError, match="committed already"):
                ledger.commit(operation, b"noisy")
            with pytest.raises(UsageError, match="committed already"):
                ledger.start("run", step="measure", amount=100, mechanism=MECHANISM)

    def test_only_what_was_started_is_committed(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        operation = ledger.start("run", step="measure", amount=100, mechanism=MECHANISM)
        with self.unchanged(url):
            for invented in (replace(operation, attempt=2), replace(operation, step="select")):
                with pytest.raises(UsageError, match="never started"):
                    ledger.commit(invented, b"noisy")
            with pytest.raises(UsageError, match="no run"):
                ledger.commit(replace(operation, run="other"), b"noisy")
            with pytest.raises(UsageError, match="bytes"):
                ledger.commit(operation, "noisy")  # type: ignore[arg-type]

    @pytest.mark.parametrize("mechanism", [{}, {"scale": float("nan")}, {"scale": object()}, {"scale": b"1"}], ids=str)
    def test_a_mechanism_is_recorded_so_that_anyone_can_read_it(
        self, ledger: Ledger, url: str, mechanism: dict[str, Any]
    ) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        with self.unchanged(url), pytest.raises(UsageError, match="mechanism"):
            ledger.start("run", step="measure", amount=1, mechanism=mechanism)

    def test_settling_gives_back_only_what_was_never_started(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        lost = ledger.start("run", step="select", amount=70, mechanism=MECHANISM)
        ledger.commit(ledger.start("run", step="measure", amount=30, mechanism=MECHANISM), b"noisy")
        run = ledger.settle("run", release="clinic/release-1")
        assert (run.state, run.spent, run.reserved, run.remaining) == ("settled", 100, 300, 0)
        assert run.release == "clinic/release-1"
        account = ledger.account("clinic")
        assert (account.spent, account.reserved, account.remaining) == (100, 0, 900)
        with self.unchanged(url):
            assert ledger.settle("run", release="clinic/release-1") == run
            assert ledger.settle("run", release=None) == run
            with pytest.raises(UsageError, match="settled"):
                ledger.settle("run", release="clinic/release-2")
            with pytest.raises(UsageError, match="settled"):
                ledger.start("run", step="again", amount=1, mechanism=MECHANISM)
            with pytest.raises(UsageError, match="settled"):
                ledger.commit(lost, b"late")
            with pytest.raises(UsageError, match="settled"):
                ledger.release_run("run")
        assert len(ledger.transcript("run")) == 1

    def test_a_run_that_never_started_is_released_and_may_begin_anew(self, ledger: Ledger, url: str) -> None:
        first = ledger.reserve("run", account="clinic", amount=300, claim="claim")
        ledger.record_data_version("run", "v1")
        assert ledger.release_run("run").state == "released"
        assert ledger.account("clinic").remaining == CAP
        with self.unchanged(url):
            assert ledger.release_run("run").state == "released"
            with pytest.raises(UsageError, match="released"):
                ledger.start("run", step="measure", amount=1, mechanism=MECHANISM)
            with pytest.raises(UsageError, match="released"):
                ledger.settle("run", release=None)
        assert ledger.reserve("run", account="clinic", amount=300, claim="claim") == first
        assert ledger.account("clinic").remaining == CAP - 300

    def test_a_released_run_begins_anew_only_if_it_can_be_paid(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        ledger.release_run("run")
        ledger.reserve("other", account="clinic", amount=900, claim="claim")
        with self.unchanged(url), pytest.raises(BudgetRefused):
            ledger.reserve("run", account="clinic", amount=300, claim="claim")

    def test_a_run_that_started_is_never_released(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        ledger.start("run", step="measure", amount=1, mechanism=MECHANISM)
        with self.unchanged(url), pytest.raises(UsageError, match="stay paid; settle it instead"):
            ledger.release_run("run")

    def test_an_unknown_run_is_refused_everywhere(self, ledger: Ledger, url: str) -> None:
        asks: list[Callable[[], object]] = [
            lambda: ledger.run("run"),
            lambda: ledger.record_data_version("run", "v1"),
            lambda: ledger.operation("run", "measure"),
            lambda: ledger.start("run", step="measure", amount=1, mechanism=MECHANISM),
            lambda: ledger.settle("run", release=None),
            lambda: ledger.release_run("run"),
            lambda: ledger.transcript("run"),
        ]
        with self.unchanged(url):
            for ask in asks:
                with pytest.raises(UsageError, match="no run 'run'"):
                    ask()

    def test_every_change_is_one_event_of_the_chain(self, ledger: Ledger) -> None:
        opened(ledger, "births")
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        ledger.record_data_version("run", "v1")
        operation = ledger.start("run", step="measure", amount=100, mechanism=MECHANISM)
        ledger.commit(operation, b"noisy")
        ledger.settle("run", release="release-1")
        ledger.reserve("unused", account="births", amount=1, claim="claim")
        ledger.release_run("unused")
        kinds = ["account-opened", "reserved", "data-version", "started", "committed", "settled"]
        assert [event.kind for event in ledger.history("clinic")] == kinds
        assert [event.kind for event in ledger.history("births")] == ["account-opened", "reserved", "released"]
        assert [event.seq for event in ledger.history(None)] == list(range(1, 10))
        started = ledger.history("clinic")[3]
        assert (started.run, started.details) == (
            "run",
            {"step": "measure", "attempt": 1, "amount": 100, "mechanism": MECHANISM},
        )
        assert_sound(ledger)

    def test_the_head_moves_with_every_change_and_with_nothing_else(self, ledger: Ledger) -> None:
        head = ledger.head()
        ledger.accounts()
        with pytest.raises(BudgetRefused):
            ledger.reserve("run", account="clinic", amount=CAP + 1, claim="claim")
        assert ledger.head() == head
        ledger.reserve("run", account="clinic", amount=1, claim="claim")
        assert ledger.head() != head

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

    def test_a_closed_ledger_says_so(self, url: str) -> None:
        with open_ledger(url, create=True) as ledger:
            pass
        with pytest.raises(LedgerError, match="closed"):
            ledger.head()
