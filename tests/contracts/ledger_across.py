"""The part of the ledger's contract that is about the cap across blocks: what one person with rows in many blocks can lose."""

from collections.abc import Callable
from typing import Any

import pytest

from dpcore.errors import BudgetRefused, LedgerDamaged, UsageError
from dpcore.ledger import Account, Balance, Ledger
from dpcore.ledger import ledger as protocol
from dpcore.privacy.protection import Neighbours
from tests.campaign import often
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened, opened_by_month
from tests.dpcore.ledger.store import LedgerStoreTests
from tests.dpcore.ledger.stress import race
from tests.dpcore.ledger.worker import ACROSS, BLOCKS

MONTHS = JANUARY, FEBRUARY, MARCH = "2026-01", "2026-02", "2026-03"


def capped(ledger: Ledger, *months: str, **changes: Any) -> Account:
    """Open an account for persons whose cap across blocks is half as much again as that of a block."""
    terms = {"unit": "person", "across": 1_500, "across_epsilon": 1.5}
    return opened_by_month(ledger, *(months or MONTHS), **(terms | changes))


def reserve(ledger: Ledger, run_id: str, amount: int, *blocks: str) -> None:
    ledger.reserve(run_id, account="visits", amount=amount, claim="claim", blocks=blocks)


class LedgerAcrossBlocks(LedgerStoreTests):
    def test_all_runs_together_stay_within_the_cap_across_blocks(self, ledger: Ledger, url: str) -> None:
        account = capped(ledger)
        assert (account.across, account.across_epsilon, account.across_used) == (1_500, 1.5, 0)
        assert next(iter(ledger.history("visits"))).details["across"] == 1_500
        reserve(ledger, "one", 900, JANUARY)
        reserve(ledger, "two", 500, FEBRUARY)
        with self.refused(url, BudgetRefused, "the cap across blocks of account 'visits' cannot pay") as told:
            reserve(ledger, "three", 101, MARCH)
        assert (told.value.requested, told.value.remaining, told.value.exit_code) == (101, 100, 3)
        assert "0.000000000001 epsilon too little" in str(told.value)
        reserve(ledger, "three", 100, MARCH)
        assert ledger.across("visits") == Balance(1_500, spent=0, reserved=1_500)
        assert ledger.account("visits").across_remaining == 0
        assert_sound(ledger)

    def test_a_run_counts_once_whatever_its_number_of_blocks(self, ledger: Ledger) -> None:
        capped(ledger)
        reserve(ledger, "run", 700, *MONTHS)
        assert ledger.account("visits").across_used == 700

    def test_a_run_counts_once_also_where_each_block_pays_double(self, ledger: Ledger, url: str) -> None:
        capped(ledger, neighbours=Neighbours.REPLACE_ONE, across=800, across_epsilon=0.8)
        reserve(ledger, "one", 400, JANUARY)
        assert ledger.balance("visits").used == 800
        assert ledger.account("visits").across_used == 400
        reserve(ledger, "two", 400, FEBRUARY, MARCH)
        with self.refused(url, BudgetRefused, "the cap across blocks") as told:
            reserve(ledger, "three", 1, JANUARY)
        assert (told.value.requested, told.value.remaining) == (1, 0)
        assert_sound(ledger)

    def test_what_was_never_charged_goes_back(self, ledger: Ledger) -> None:
        capped(ledger)
        reserve(ledger, "refunded", 100, JANUARY)
        reserve(ledger, "settled", 200, JANUARY, FEBRUARY)
        lease = ledger.lease("settled")
        ledger.charge(lease, step="measure", amount=30, mechanism=MECHANISM)
        assert ledger.across("visits") == Balance(1_500, spent=30, reserved=270)
        ledger.refund("refunded", lease=None)
        ledger.settle("settled", release=None, lease=lease)
        assert ledger.across("visits") == Balance(1_500, spent=30, reserved=0)
        reserve(ledger, "refunded", 100, JANUARY)
        assert ledger.account("visits").across_used == 130
        assert_sound(ledger)

    def test_the_cap_is_raised_for_a_reason_and_never_lowered(self, ledger: Ledger, url: str) -> None:
        capped(ledger)
        reserve(ledger, "run", 900, JANUARY)
        for cap, epsilon in ((1_500, 1.5), (1_400, 2.0), (1_600, 1.4)):
            with self.refused(url, UsageError, r"can only be raised; it is epsilon 1\.5 now"):
                ledger.raise_across("visits", cap=cap, epsilon=epsilon, reason="more")
        with self.refused(url, UsageError, "a reason must be"):
            ledger.raise_across("visits", cap=2_000, epsilon=2.0, reason="")
        raised = ledger.raise_across("visits", cap=2_000, epsilon=2.0, reason="a second year")
        assert raised == ledger.account("visits")
        assert (raised.across, raised.across_epsilon, raised.across_used, raised.cap) == (2_000, 2.0, 900, CAP)
        event = list(ledger.history("visits"))[-1]
        assert (event.kind, event.details) == (
            "across-raised",
            {"across": 2_000, "across_epsilon": 2.0, "reason": "a second year"},
        )
        ledger.raise_cap("visits", cap=CAP + 1, epsilon=1.0, reason="more")
        assert ledger.account("visits").across == 2_000
        ledger.close_account("visits", reason="over")
        with self.refused(url, UsageError, "is closed"):
            ledger.raise_across("visits", cap=3_000, epsilon=3.0, reason="more")
        assert_sound(ledger)

    def test_an_account_without_it_has_none_to_raise(self, ledger: Ledger, url: str) -> None:
        account = opened_by_month(ledger, JANUARY, unit="person")
        assert (account.across, account.across_epsilon, ledger.across("visits")) == (None, None, None)
        for name in ("visits", "clinic"):
            with self.refused(url, UsageError, "was opened without a cap across blocks"):
                ledger.raise_across(name, cap=5_000, epsilon=5.0, reason="more")
        reserve(ledger, "run", CAP, JANUARY)
        assert ledger.account("visits").across_used == 0

    @pytest.mark.parametrize(
        ("terms", "problem"),
        [
            ({"blocks_by": None}, "needs blocks; define them with --blocks"),
            ({"unit": "row"}, "a row lies in one block"),
            ({"across_epsilon": None}, "declared with its epsilon"),
            ({"across": None}, "whole number, in multiples of 1e-12"),
            ({"across": 0}, "at least 1 and at most"),
            ({"across": 2 * 10**12}, "must not exceed its epsilon converted"),
            ({"across_epsilon": float("nan")}, "finite number above 0"),
        ],
        ids=str,
    )
    def test_a_cap_that_bounds_nothing_is_refused(
        self, ledger: Ledger, url: str, terms: dict[str, Any], problem: str
    ) -> None:
        good = {"unit": "person", "blocks_by": "month", "across": 5, "across_epsilon": 1.0}
        with self.refused(url, UsageError, problem):
            opened(ledger, "births", **(good | terms))
        opened(ledger, "births", **good)

    @pytest.mark.parametrize("planted", [lambda payer, amount: None], ids=["the check was made elsewhere"])
    def test_the_database_itself_refuses_what_the_protocol_lets_through(
        self, ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch, planted: Callable[..., None]
    ) -> None:
        capped(ledger)
        reserve(ledger, "one", 900, JANUARY)
        monkeypatch.setattr(protocol, "_require_across", planted)
        with self.refused(url, LedgerDamaged, "contradicts itself; nothing was changed"):
            reserve(ledger, "two", 601, FEBRUARY)
        assert_sound(ledger)

    @pytest.mark.campaign
    def test_eight_processes_are_granted_exactly_the_cap_across_blocks(self, ledger: Ledger, url: str) -> None:
        capped(ledger, *BLOCKS, across=ACROSS)
        assert race("reserve_across", url, processes=8, charges=often(12, campaign=40))[0] == ACROSS
        assert ledger.across("visits") == Balance(ACROSS, spent=0, reserved=ACROSS)
        assert sum(balance.used for _, balance in ledger.blocks("visits")) == ACROSS
        assert_sound(ledger)

    @pytest.mark.campaign
    def test_a_check_outside_of_the_transaction_would_show_in_that_race(self, ledger: Ledger, url: str) -> None:
        capped(ledger, *BLOCKS, across=ACROSS)
        with pytest.raises(AssertionError, match="failed"):
            race("reserve_across_unlocked", url, processes=8, charges=often(12, campaign=40))
        assert_sound(ledger)
