"""The part of the ledger's contract that is about allowances: what one analyst, or one purpose, may use of an account."""

from collections.abc import Callable
from typing import Any

import pytest

from dpcore.errors import BudgetRefused, UsageError
from dpcore.ledger import Ledger
from dpcore.privacy.protection import Neighbours
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened_by_month
from tests.dpcore.ledger.store import LedgerStoreTests


def allow(ledger: Ledger, name: str, cap: int, **changes: Any) -> None:
    asked: dict[str, Any] = {"kind": "analyst", "name": name, "cap": cap, "epsilon": 1.0, "reason": "approved"}
    ledger.allow("clinic", **(asked | changes))


def reserve(ledger: Ledger, run_id: str, amount: int, **changes: Any) -> None:
    ledger.reserve(run_id, **({"account": "clinic", "amount": amount, "claim": "claim"} | changes))


def used(ledger: Ledger, account: str = "clinic") -> dict[str, int]:
    return {allowance.name: allowance.used for allowance in ledger.allowances(account)}


class LedgerAllowances(LedgerStoreTests):
    def test_without_allowances_a_run_may_name_anyone(self, ledger: Ledger) -> None:
        reserve(ledger, "run", 1, analyst="ann", purpose="research")
        reserve(ledger, "other", 1)
        run = ledger.run("run")
        assert (run.analyst, run.purpose) == ("ann", "research")
        assert ledger.allowances("clinic") == ()

    def test_an_allowance_reads_back_with_its_reason_on_record(self, ledger: Ledger) -> None:
        made = ledger.allow("clinic", kind="analyst", name="ann", cap=300, epsilon=0.3, reason="request 7")
        assert ledger.allowances("clinic") == (made,)
        assert (made.kind, made.name, made.cap, made.epsilon, made.used) == ("analyst", "ann", 300, 0.3, 0)
        event = list(ledger.history("clinic"))[-1]
        assert event.kind == "allowed"
        assert event.details == {"kind": "analyst", "name": "ann", "cap": 300, "epsilon": 0.3, "reason": "request 7"}
        assert_sound(ledger)

    def test_once_there_is_an_allowance_every_run_names_one(self, ledger: Ledger, url: str) -> None:
        allow(ledger, "ann", 300)
        with self.refused(url, UsageError, "an allowance for each analyst, but this run names no analyst; ask the"):
            reserve(ledger, "run", 1)
        with self.refused(url, UsageError, "an allowance for each analyst, but analyst 'bob' has none; ask the"):
            reserve(ledger, "run", 1, analyst="bob")
        reserve(ledger, "run", 1, analyst="ann")
        allow(ledger, "research", 300, kind="purpose")
        with self.refused(url, UsageError, "this run names no purpose"):
            reserve(ledger, "other", 1, analyst="ann")
        reserve(ledger, "other", 1, analyst="ann", purpose="research")
        assert used(ledger) == {"ann": 2, "research": 1}

    def test_an_allowance_is_never_exceeded(self, ledger: Ledger, url: str) -> None:
        allow(ledger, "ann", 300)
        allow(ledger, "bob", CAP)
        reserve(ledger, "run", 250, analyst="ann")
        with self.refused(url, BudgetRefused, "the allowance of analyst 'ann' in account 'clinic' cannot pay") as told:
            reserve(ledger, "more", 51, analyst="ann")
        assert (told.value.requested, told.value.remaining) == (51, 50)
        reserve(ledger, "more", 50, analyst="ann")
        with self.refused(url, BudgetRefused, "account 'clinic' cannot pay"):
            reserve(ledger, "bobs", 701, analyst="bob")
        reserve(ledger, "bobs", 700, analyst="bob")
        assert used(ledger) == {"ann": 300, "bob": 700}

    def test_a_run_is_granted_by_its_analyst_and_its_purpose_or_not_at_all(self, ledger: Ledger, url: str) -> None:
        allow(ledger, "ann", 300)
        allow(ledger, "research", 100, kind="purpose")
        with self.refused(url, BudgetRefused, "the allowance of purpose 'research'"):
            reserve(ledger, "run", 101, analyst="ann", purpose="research")
        reserve(ledger, "run", 100, analyst="ann", purpose="research")
        assert used(ledger) == {"ann": 100, "research": 100}

    def test_the_same_name_may_be_an_analyst_and_a_purpose(self, ledger: Ledger) -> None:
        allow(ledger, "north", 300)
        allow(ledger, "north", 100, kind="purpose")
        reserve(ledger, "run", 100, analyst="north", purpose="north")
        assert [(made.kind, made.used) for made in ledger.allowances("clinic")] == [("analyst", 100), ("purpose", 100)]

    def test_what_was_never_charged_goes_back_to_the_allowance(self, ledger: Ledger) -> None:
        allow(ledger, "ann", 300)
        reserve(ledger, "refunded", 100, analyst="ann")
        reserve(ledger, "settled", 200, analyst="ann")
        lease = ledger.lease("settled")
        ledger.charge(lease, step="measure", amount=30, mechanism=MECHANISM)
        assert used(ledger) == {"ann": 300}
        ledger.refund("refunded", lease=None)
        assert used(ledger) == {"ann": 200}
        ledger.settle("settled", release=None, lease=lease)
        assert used(ledger) == {"ann": 30}
        reserve(ledger, "refunded", 100, analyst="ann")
        assert used(ledger) == {"ann": 130}
        assert_sound(ledger)

    def test_earlier_runs_in_the_same_name_count(self, ledger: Ledger, url: str) -> None:
        for number, name in enumerate(["settled", "refunded", "open", "anns"]):
            reserve(ledger, name, 100 + number, analyst="ann" if name == "anns" else "bob", purpose="research")
        lease = ledger.lease("settled")
        ledger.charge(lease, step="measure", amount=30, mechanism=MECHANISM)
        ledger.settle("settled", release=None, lease=lease)
        ledger.refund("refunded", lease=None)
        with self.refused(url, UsageError, "analyst 'bob' has already used more than that of account 'clinic'"):
            allow(ledger, "bob", 131)
        allow(ledger, "bob", 132)
        allow(ledger, "research", CAP, kind="purpose")
        assert used(ledger) == {"bob": 132, "research": 235}
        ledger.refund("open", lease=None)
        assert used(ledger) == {"bob": 30, "research": 133}

    def test_an_allowance_is_changed_both_ways_but_not_below_what_was_used(self, ledger: Ledger, url: str) -> None:
        allow(ledger, "ann", 300)
        reserve(ledger, "run", 200, analyst="ann")
        with self.refused(url, UsageError, "allow at least as much"):
            allow(ledger, "ann", 199)
        allow(ledger, "ann", 200, epsilon=0.2)
        (lowered,) = ledger.allowances("clinic")
        assert (lowered.cap, lowered.epsilon, lowered.used, lowered.remaining) == (200, 0.2, 200, 0)
        with self.refused(url, BudgetRefused, "the allowance of analyst 'ann'"):
            reserve(ledger, "more", 1, analyst="ann")
        allow(ledger, "ann", 500)
        reserve(ledger, "more", 300, analyst="ann")
        assert_sound(ledger)

    def test_an_allowance_counts_a_runs_price_once_whatever_its_blocks(self, ledger: Ledger) -> None:
        months = "2026-01", "2026-02"
        opened_by_month(ledger, *months, neighbours=Neighbours.REPLACE_ONE)
        ledger.allow("visits", kind="analyst", name="ann", cap=300, epsilon=1.0, reason="approved")
        ledger.reserve("run", account="visits", amount=300, claim="claim", blocks=months, analyst="ann")
        assert used(ledger, "visits") == {"ann": 300}
        assert ledger.balance("visits").used == 600
        ledger.refund("run", lease=None)
        assert used(ledger, "visits") == {"ann": 0}

    def test_an_allowance_is_of_one_account(self, ledger: Ledger) -> None:
        opened_by_month(ledger, "2026-01")
        allow(ledger, "ann", 300)
        ledger.reserve("run", account="visits", amount=CAP, claim="claim", blocks=["2026-01"], analyst="ann")
        assert used(ledger) == {"ann": 0}
        assert ledger.allowances("visits") == ()

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
            {"epsilon": float("nan")},
            {"epsilon": float("inf")},
            {"kind": "team"},
            {"name": ""},
            {"name": "a\nb"},
            {"reason": ""},
        ],
        ids=str,
    )
    def test_an_absurd_allowance_is_refused(self, ledger: Ledger, url: str, change: dict[str, Any]) -> None:
        with self.refused(url, UsageError, "must|one of"):
            allow(ledger, **({"name": "ann", "cap": 300} | change))

    def test_an_allowance_that_is_refused_leaves_runs_free_to_name_nobody(self, ledger: Ledger) -> None:
        asks: list[Callable[[], object]] = [lambda: allow(ledger, "ann", 0), lambda: allow(ledger, "ann", 1, kind="x")]
        for ask in asks:
            with pytest.raises(UsageError):
                ask()
        reserve(ledger, "run", 1)
