"""The part of the ledger's contract that is about accounts: how they are opened, raised and closed."""

from collections.abc import Callable
from typing import Any

import pytest

from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import GENESIS, Balance, Ledger, open_ledger
from dpcore.privacy.accounting import Currency, cap_amount
from dpcore.privacy.protection import Neighbours
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened, opened_by_month
from tests.dpcore.ledger.store import LedgerStoreTests


class LedgerAccounts(LedgerStoreTests):
    def test_a_new_ledger_has_no_accounts_and_the_constant_head(self, url: str) -> None:
        with open_ledger(url, create=True) as ledger:
            assert ledger.accounts() == ()
            assert list(ledger.history(None)) == []
            assert ledger.head() == GENESIS

    def test_an_account_reads_back_as_it_was_declared(self, ledger: Ledger, url: str) -> None:
        declared = opened(
            ledger,
            "births",
            currency=Currency.ZCDP,
            cap=7,
            epsilon=0.1,
            delta=1e-9,
            unit="patient_id",
            neighbours=Neighbours.REPLACE_ONE,
            description="Births since 1990, é",
        )
        with open_ledger(url) as other:
            assert other.account("births") == declared
            assert other.balance("births") == Balance(cap=7, spent=0, reserved=0)
            assert [account.name for account in other.accounts()] == ["births", "clinic"]
        assert (declared.epsilon, declared.delta, declared.unit) == (0.1, 1e-9, "patient_id")
        assert (declared.description, declared.blocks_by, declared.state) == ("Births since 1990, é", None, "open")

    @pytest.mark.parametrize(("currency", "delta"), [(Currency.PURE, 0.0), (Currency.ZCDP, 1e-9), (Currency.GDP, 1e-9)])
    def test_an_account_counts_in_the_currency_of_its_declaration(
        self, ledger: Ledger, currency: Currency, delta: float
    ) -> None:
        opened(ledger, "births", currency=currency, delta=delta)
        assert ledger.account("births").currency is currency

    def test_an_account_is_opened_only_once(self, ledger: Ledger, url: str) -> None:
        with self.refused(url, UsageError, "exists already"):
            opened(ledger, cap=5)

    def test_an_unknown_account_is_answered_with_the_known_ones(self, ledger: Ledger, url: str) -> None:
        opened(ledger, "births")
        asks: list[Callable[[], object]] = [
            lambda: ledger.account("clinics"),
            lambda: ledger.balance("clinics"),
            lambda: ledger.blocks("clinics"),
            lambda: ledger.allowances("clinics"),
            lambda: ledger.runs("clinics"),
            lambda: ledger.history("clinics"),
            lambda: ledger.reserve("run", account="clinics", amount=1, claim="claim"),
            lambda: ledger.raise_cap("clinics", cap=2_000, epsilon=1.0, reason="more"),
            lambda: ledger.close_account("clinics", reason="done"),
            lambda: ledger.allow("clinics", kind="analyst", name="ann", cap=1, epsilon=1.0, reason="new"),
            lambda: ledger.open_blocks("clinics", ["2026-01"]),
            lambda: ledger.seal_blocks("clinics", ["2026-01"]),
        ]
        for ask in asks:
            with self.refused(url, UsageError, "no account 'clinics'; known accounts: births, clinic"):
                ask()

    @pytest.mark.parametrize(
        "change",
        [
            {"cap": 0},
            {"cap": -1},
            {"cap": 1.0},
            {"cap": float("nan")},
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
            {"name": "a\0b"},
            {"name": "\ud800"},
            {"description": "two\nlines"},
            {"blocks_by": ""},
        ],
        ids=str,
    )
    def test_an_absurd_account_is_refused(self, ledger: Ledger, url: str, change: dict[str, Any]) -> None:
        with self.refused(url, UsageError, "must|needs a delta|has delta 0"):
            opened(ledger, **({"name": "births"} | change))

    @pytest.mark.parametrize("budget", [0.0, -1.0, 1e-13, float("nan"), float("inf")])
    def test_a_budget_that_buys_nothing_opens_no_account(self, ledger: Ledger, url: str, budget: float) -> None:
        with self.refused(url, UsageError, "a budget must be"):
            opened(ledger, "births", cap=cap_amount(budget))

    def test_a_raised_cap_leaves_more_and_its_reason_on_record(self, ledger: Ledger) -> None:
        ledger.reserve("run", account="clinic", amount=CAP, claim="claim")
        raised = ledger.raise_cap("clinic", cap=CAP + 500, epsilon=1.5, reason="approved, decision 12")
        assert ledger.account("clinic") == raised
        assert (raised.cap, raised.epsilon) == (CAP + 500, 1.5)
        assert ledger.balance("clinic").remaining == 500
        ledger.reserve("more", account="clinic", amount=500, claim="claim")
        (told,) = (event for event in ledger.history("clinic") if event.kind == "cap-raised")
        assert told.details == {"cap": CAP + 500, "epsilon": 1.5, "reason": "approved, decision 12"}
        assert_sound(ledger)

    def test_the_first_cap_is_the_one_that_the_first_charge_met(self, ledger: Ledger) -> None:
        def first_cap(name: str) -> int | None:
            with ledger.reading() as rows:
                return rows.first_cap(name)

        def charge(run: str, account: str) -> None:
            ledger.reserve(run, account=account, amount=1, claim="claim")
            ledger.charge(ledger.lease(run), step="s", amount=1, mechanism=MECHANISM)

        opened(ledger, "births", cap=CAP)
        charge("other", "births")
        ledger.raise_cap("clinic", cap=CAP + 1, epsilon=1.0, reason="before")
        assert first_cap("clinic") is None
        charge("first", "clinic")
        ledger.raise_cap("clinic", cap=CAP + 2, epsilon=1.0, reason="after")
        charge("second", "clinic")
        ledger.raise_cap("clinic", cap=CAP + 3, epsilon=1.0, reason="after")
        assert (first_cap("clinic"), first_cap("births")) == (CAP + 1, CAP)

    def test_a_raised_cap_is_that_of_every_block(self, ledger: Ledger) -> None:
        opened_by_month(ledger, "2026-01", "2026-02")
        ledger.open_blocks("visits", ["2026-03"])
        ledger.raise_cap("visits", cap=CAP + 1, epsilon=1.0, reason="approved")
        assert [block.cap for block, _ in ledger.blocks("visits")] == [CAP + 1] * 3
        ledger.reserve("run", account="visits", amount=CAP + 1, claim="claim", blocks=["2026-02"])
        assert_sound(ledger)

    @pytest.mark.parametrize(
        "change",
        [
            {"cap": CAP},
            {"cap": CAP - 1},
            {"cap": 0},
            {"cap": -CAP},
            {"cap": True},
            {"cap": 2_000.0},
            {"cap": 2**63},
            {"cap": 10**12 + 1},
            {"epsilon": 0.0},
            {"epsilon": float("nan")},
            {"epsilon": float("inf")},
            {"reason": ""},
            {"reason": "two\nlines"},
        ],
        ids=str,
    )
    def test_a_cap_is_only_raised_to_what_makes_sense(self, ledger: Ledger, url: str, change: dict[str, Any]) -> None:
        with self.refused(url, UsageError, "must|only be raised"):
            ledger.raise_cap("clinic", **({"cap": 2_000, "epsilon": 1.0, "reason": "approved"} | change))

    def test_a_closed_account_takes_nothing_new(self, ledger: Ledger, url: str) -> None:
        opened_by_month(ledger, "2026-01")
        ledger.reserve("refunded", account="visits", amount=1, claim="claim", blocks=["2026-01"])
        ledger.refund("refunded", lease=None)
        assert ledger.close_account("visits", reason="the study has ended").state == "closed"
        asks: list[Callable[[], object]] = [
            lambda: ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=["2026-01"]),
            lambda: ledger.reserve("refunded", account="visits", amount=1, claim="claim", blocks=["2026-01"]),
            lambda: ledger.raise_cap("visits", cap=2_000, epsilon=1.0, reason="more"),
            lambda: ledger.allow("visits", kind="analyst", name="ann", cap=1, epsilon=1.0, reason="new"),
            lambda: ledger.open_blocks("visits", ["2026-02"]),
            lambda: ledger.seal_blocks("visits", ["2026-01"]),
        ]
        for ask in asks:
            with self.refused(url, UsageError, "account 'visits' is closed; open another one"):
                ask()
        with self.refused(url, UsageError, "exists already"):
            opened(ledger, "visits")
        with self.unchanged(url):
            assert ledger.close_account("visits", reason="again").state == "closed"

    def test_runs_that_hold_a_reservation_may_finish_in_a_closed_account(self, ledger: Ledger) -> None:
        run = ledger.reserve("run", account="clinic", amount=300, claim="claim")
        ledger.close_account("clinic", reason="the study has ended")
        assert ledger.reserve("run", account="clinic", amount=300, claim="claim") == run
        lease = ledger.lease("run")
        ledger.commit(ledger.charge(lease, step="measure", amount=100, mechanism=MECHANISM), b"noisy")
        ledger.settle("run", release="release-1", lease=lease)
        assert ledger.balance("clinic") == Balance(cap=CAP, spent=100, reserved=0)
        assert ledger.transcript("run")[0].output == b"noisy"
        assert_sound(ledger)

    def test_the_head_moves_with_every_change_and_with_nothing_else(self, ledger: Ledger) -> None:
        head = ledger.head()
        ledger.accounts()
        with pytest.raises(BudgetRefused):
            ledger.reserve("run", account="clinic", amount=CAP + 1, claim="claim")
        assert ledger.head() == head
        ledger.reserve("run", account="clinic", amount=1, claim="claim")
        assert ledger.head() != head
