"""The part of the ledger's contract that is about blocks: a run pays in every block that it may touch, or in none."""

import random
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from dpcore.errors import BlocksCovered, BudgetRefused, UsageError
from dpcore.ledger import Balance, Ledger, claim_in
from dpcore.privacy.protection import Neighbours
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened, opened_by_month
from tests.dpcore.ledger.store import LedgerStoreTests

JANUARY, FEBRUARY, MARCH = "2026-01", "2026-02", "2026-03"


def used(ledger: Ledger, account: str = "visits") -> dict[str, int]:
    return {block.name: block.used for block, _ in ledger.blocks(account)}


class LedgerBlocks(LedgerStoreTests):
    def test_a_block_is_opened_then_sealed_then_charged(self, ledger: Ledger, url: str) -> None:
        account = opened(ledger, "visits", blocks_by="month of visit_date")
        assert (account.blocks_by, account.weight) == ("month of visit_date", 1)
        assert ledger.blocks("visits") == ()
        assert ledger.balance("visits") == Balance(cap=CAP, spent=0, reserved=0)
        assert ledger.open_blocks("visits", [FEBRUARY, JANUARY]) == (JANUARY, FEBRUARY)
        with self.refused(url, UsageError, f"block '{JANUARY}' of account 'visits' may still grow; seal it before"):
            ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=[JANUARY])
        assert ledger.seal_blocks("visits", [JANUARY]) == (JANUARY,)
        assert [(block.name, block.state) for block, _ in ledger.blocks("visits")] == [
            (JANUARY, "sealed"),
            (FEBRUARY, "open"),
        ]
        ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=[JANUARY])
        with self.refused(url, UsageError, f"block '{FEBRUARY}' of account 'visits' may still grow"):
            ledger.reserve("other", account="visits", amount=1, claim="claim", blocks=[JANUARY, FEBRUARY])
        kinds = [event.kind for event in ledger.history("visits")]
        assert kinds == ["account-opened", "blocks-opened", "blocks-sealed", "reserved"]
        assert_sound(ledger)

    def test_an_account_that_is_not_kept_by_block_has_one(self, ledger: Ledger, url: str) -> None:
        ((block, balance),) = ledger.blocks("clinic")
        assert (block.name, block.state, balance) == ("all", "sealed", Balance(cap=CAP, spent=0, reserved=0))
        asks: list[Callable[[], object]] = [
            lambda: ledger.reserve("run", account="clinic", amount=1, claim="claim", blocks=["all"]),
            lambda: ledger.open_blocks("clinic", [JANUARY]),
            lambda: ledger.seal_blocks("clinic", ["all"]),
        ]
        for ask in asks:
            with self.refused(url, UsageError, "account 'clinic' is not kept by block"):
                ask()

    def test_a_charge_names_blocks_that_exist(self, ledger: Ledger, url: str) -> None:
        opened_by_month(ledger, JANUARY)
        with self.refused(url, UsageError, "kept by block .*; name every block that the run may touch"):
            ledger.reserve("run", account="visits", amount=1, claim="claim")
        with self.refused(url, UsageError, f"no block '{FEBRUARY}', '{MARCH}'; open it first"):
            ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=[MARCH, JANUARY, FEBRUARY])
        with self.refused(url, UsageError, "has no block 'all'"):
            ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=["all"])

    @pytest.mark.parametrize("blocks", [[], (), set(), JANUARY, 7, [""], [7], [None], [" x"], ["a\nb"]], ids=repr)
    def test_blocks_are_a_list_of_names(self, ledger: Ledger, url: str, blocks: Any) -> None:
        opened_by_month(ledger, JANUARY)
        asks: list[Callable[[], object]] = [
            lambda: ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=blocks),
            lambda: ledger.open_blocks("visits", blocks),
            lambda: ledger.seal_blocks("visits", blocks),
        ]
        for ask in asks:
            with self.refused(url, UsageError, "list of names|at least one block|a block's name must be"):
                ask()

    def test_data_that_comes_late_is_a_new_block_with_a_cap_of_its_own(self, ledger: Ledger, url: str) -> None:
        opened_by_month(ledger, JANUARY)
        ledger.reserve("run", account="visits", amount=CAP, claim="claim", blocks=[JANUARY])
        with self.refused(url, UsageError, f"has a block '{JANUARY}' already; data that comes late goes into a new"):
            ledger.open_blocks("visits", [f"{JANUARY} late", JANUARY])
        ledger.open_blocks("visits", [f"{JANUARY} late"])
        ledger.seal_blocks("visits", [f"{JANUARY} late"])
        ledger.reserve("late", account="visits", amount=CAP, claim="claim", blocks=[f"{JANUARY} late"])
        assert used(ledger) == {JANUARY: CAP, f"{JANUARY} late": CAP}

    def test_a_block_is_sealed_once(self, ledger: Ledger, url: str) -> None:
        opened_by_month(ledger, JANUARY)
        with self.unchanged(url):
            assert ledger.seal_blocks("visits", [JANUARY]) == (JANUARY,)
        ledger.open_blocks("visits", [FEBRUARY])
        with self.refused(url, UsageError, f"has no block '{MARCH}'; open it first"):
            ledger.seal_blocks("visits", [FEBRUARY, MARCH])
        assert ledger.seal_blocks("visits", [FEBRUARY, JANUARY]) == (JANUARY, FEBRUARY)
        assert list(ledger.history("visits"))[-1].details == {"blocks": [FEBRUARY]}

    def test_a_run_pays_in_each_of_its_blocks_and_in_no_other(self, ledger: Ledger) -> None:
        opened_by_month(ledger, JANUARY, FEBRUARY, MARCH)
        opened_by_month(ledger, JANUARY, FEBRUARY, name="births")
        ledger.reserve("run", account="visits", amount=300, claim="claim", blocks=[FEBRUARY, JANUARY, FEBRUARY])
        ledger.reserve("other", account="visits", amount=100, claim="claim", blocks=[FEBRUARY])
        assert ledger.blocks_of("run") == (JANUARY, FEBRUARY)
        assert used(ledger) == {JANUARY: 300, FEBRUARY: 400, MARCH: 0}
        assert used(ledger, "births") == {JANUARY: 0, FEBRUARY: 0}
        lease = ledger.lease("run")
        ledger.charge(lease, step="measure", amount=120, mechanism=MECHANISM)
        assert {block.name: balance for block, balance in ledger.blocks("visits")} == {
            JANUARY: Balance(cap=CAP, spent=120, reserved=180),
            FEBRUARY: Balance(cap=CAP, spent=120, reserved=280),
            MARCH: Balance(cap=CAP, spent=0, reserved=0),
        }
        assert ledger.balance("visits") == Balance(cap=CAP, spent=120, reserved=280)
        ledger.settle("run", release=None, lease=lease)
        ledger.refund("other", lease=None)
        assert used(ledger) == {JANUARY: 120, FEBRUARY: 120, MARCH: 0}
        assert_sound(ledger)

    def test_a_run_is_granted_all_of_its_blocks_or_none(self, ledger: Ledger, url: str) -> None:
        opened_by_month(ledger, JANUARY, FEBRUARY, MARCH)
        ledger.reserve("first", account="visits", amount=950, claim="claim", blocks=[FEBRUARY])
        with self.refused(url, BudgetRefused, f"block '{FEBRUARY}' of account 'visits' cannot pay") as refused:
            ledger.reserve("run", account="visits", amount=51, claim="claim", blocks=[JANUARY, FEBRUARY, MARCH])
        assert (refused.value.requested, refused.value.remaining) == (51, 50)
        ledger.reserve("run", account="visits", amount=51, claim="claim", blocks=[JANUARY, MARCH])
        assert used(ledger) == {JANUARY: 51, FEBRUARY: 950, MARCH: 51}

    def test_a_run_is_known_by_its_set_of_blocks(self, ledger: Ledger, url: str) -> None:
        opened_by_month(ledger, JANUARY, FEBRUARY)
        run = ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=[FEBRUARY, JANUARY])
        with self.unchanged(url):
            again = ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=(JANUARY, FEBRUARY))
        assert again == run
        for blocks in ([JANUARY], None, [JANUARY, FEBRUARY, MARCH]):
            with self.refused(url, UsageError, "reserved for something else"):
                ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=blocks)

    def test_a_refunded_run_takes_its_blocks_again(self, ledger: Ledger) -> None:
        opened_by_month(ledger, JANUARY, FEBRUARY)
        for _ in range(2):
            ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=[JANUARY, FEBRUARY])
            assert used(ledger) == {JANUARY: 1, FEBRUARY: 1}
            ledger.refund("run", lease=None)
            assert used(ledger) == {JANUARY: 0, FEBRUARY: 0}
        assert_sound(ledger)

    def test_many_blocks_are_charged_at_once(self, ledger: Ledger) -> None:
        days = [f"day-{number:05}" for number in range(3_000)]
        opened_by_month(ledger, *days)
        ledger.reserve("run", account="visits", amount=7, claim="claim", blocks=days[:-1])
        assert used(ledger) == dict.fromkeys(days[:-1], 7) | {days[-1]: 0}
        ledger.settle("run", release=None, lease=None)
        assert used(ledger) == dict.fromkeys(days, 0)

    def test_a_block_may_have_any_printable_name(self, ledger: Ledger) -> None:
        names = [
            "it's",
            '"x"',
            "a,b",
            "100%",
            ":names",
            "{}",
            "[1]",
            "é",
            "漢",
            "😀",
            "Zürich",
            "zurich",
            "ZÜRICH",
            "\\u00e9",
        ]
        opened_by_month(ledger, *names)
        ledger.reserve("run", account="visits", amount=1, claim="claim", blocks=names[:-1])
        assert used(ledger) == dict.fromkeys(names[:-1], 1) | {names[-1]: 0}
        assert [block.name for block, _ in ledger.blocks("visits")] == sorted(names)
        assert_sound(ledger)

    def test_under_replace_one_each_block_pays_double(self, ledger: Ledger, url: str) -> None:
        account = opened_by_month(ledger, JANUARY, FEBRUARY, neighbours=Neighbours.REPLACE_ONE)
        assert account.weight == 2
        ledger.reserve("run", account="visits", amount=400, claim="claim", blocks=[JANUARY])
        assert used(ledger) == {JANUARY: 800, FEBRUARY: 0}
        with self.refused(url, BudgetRefused, f"block '{JANUARY}'") as refused:
            ledger.reserve("other", account="visits", amount=101, claim="claim", blocks=[JANUARY, FEBRUARY])
        assert (refused.value.requested, refused.value.remaining) == (202, 200)
        lease = ledger.lease("run")
        ledger.charge(lease, step="measure", amount=150, mechanism=MECHANISM)
        assert ledger.balance("visits") == Balance(cap=CAP, spent=300, reserved=500)
        ledger.settle("run", release=None, lease=lease)
        assert used(ledger) == {JANUARY: 300, FEBRUARY: 0}
        assert_sound(ledger)

    def test_under_replace_one_the_whole_table_pays_once(self, ledger: Ledger) -> None:
        assert opened(ledger, "births", neighbours=Neighbours.REPLACE_ONE).weight == 1
        ledger.reserve("run", account="births", amount=CAP, claim="claim")

    def test_whoever_is_replaced_costs_the_cap_at_most_whichever_two_blocks_that_touches(self, ledger: Ledger) -> None:
        """To replace a unit is to take it from one block and put another into a second.

        A run that reads either of the two sees the step, and its price, which is for replacing, is paid once. So for any
        two blocks the prices of all the runs that touch either must stay within the cap together.
        """
        months = [f"2026-{month:02}" for month in range(1, 9)]
        opened_by_month(ledger, *months, neighbours=Neighbours.REPLACE_ONE)
        opened_by_month(ledger, *months, name="control", neighbours=Neighbours.ADD_REMOVE)
        dearest = {}
        for account in ("visits", "control"):
            chosen = random.Random(3)  # noqa: S311  which blocks a test charges is no secret
            granted = []
            for number in range(200):
                blocks, price = set(chosen.sample(months, chosen.randint(1, 3))), chosen.randint(1, 120)
                try:
                    ledger.reserve(f"{account}-{number}", account=account, amount=price, claim="claim", blocks=blocks)
                    granted.append((blocks, price))
                except BudgetRefused:
                    pass
            dearest[account] = max(
                sum(price for blocks, price in granted if blocks & {one, other})
                for one, other in combinations(months, 2)
            )
        assert 0.9 * CAP < dearest["visits"] <= CAP
        assert dearest["control"] > CAP, "were each block to pay once, two of them could pay more than the cap"
        assert_sound(ledger)

    def test_what_a_series_has_covered_is_not_new_to_it(self, ledger: Ledger, url: str) -> None:
        opened_by_month(ledger, JANUARY, FEBRUARY, MARCH)
        monthly, other = (
            {"account": "visits", "amount": 1, "claim": claim_in(series, "claim"), "new_to": series}
            for series in ("monthly", "monthly-2")
        )
        ledger.reserve("first", blocks=[JANUARY], **monthly)
        assert {block: run.id for block, run in ledger.covered("visits", series="monthly").items()} == {
            JANUARY: "first"
        }
        with self.refused(url, BlocksCovered, f"block '{JANUARY}' is covered already by run 'first' of series monthly"):
            ledger.reserve("second", blocks=[JANUARY, FEBRUARY], **monthly)
        ledger.reserve("second", blocks=[FEBRUARY], **monthly)
        assert ledger.reserve("first", blocks=[JANUARY], **monthly).id == "first"  # its own blocks are its own
        ledger.reserve("third", blocks=[JANUARY, FEBRUARY], **other)
        ledger.reserve("fourth", account="visits", amount=1, claim="claim", blocks=[MARCH])  # of no series
        assert set(ledger.covered("visits", series="monthly")) == {JANUARY, FEBRUARY}
        assert_sound(ledger)

    def test_a_series_has_covered_what_has_led_to_a_release_or_still_may(self, ledger: Ledger) -> None:
        opened_by_month(ledger, JANUARY, FEBRUARY, MARCH)
        for run, block in (("published", JANUARY), ("given-up", FEBRUARY), ("refunded", MARCH)):
            ledger.reserve(run, account="visits", amount=1, claim=claim_in("s", "claim"), blocks=[block], new_to="s")
        assert len(ledger.covered("visits", series="s")) == 3
        ledger.settle("published", release="20260201T0000Z-0123456789ab", lease=None)
        ledger.settle("given-up", release=None, lease=None)
        ledger.refund("refunded", lease=None)
        assert set(ledger.covered("visits", series="s")) == {JANUARY}
        ledger.reserve(
            "again", account="visits", amount=1, claim=claim_in("s", "claim"), blocks=[FEBRUARY, MARCH], new_to="s"
        )
        with pytest.raises(BlocksCovered):
            ledger.reserve(
                "refunded", account="visits", amount=1, claim=claim_in("s", "claim"), blocks=[MARCH], new_to="s"
            )
        assert_sound(ledger)

    def test_the_balance_of_some_blocks_is_that_of_the_most_used_of_them(self, ledger: Ledger) -> None:
        opened_by_month(ledger, JANUARY, FEBRUARY)
        ledger.reserve("run", account="visits", amount=300, claim="claim", blocks=[JANUARY])
        assert ledger.balance("visits", blocks=[JANUARY, FEBRUARY]) == Balance(cap=CAP, spent=0, reserved=300)
        assert ledger.balance("visits", blocks=[FEBRUARY]) == Balance(cap=CAP, spent=0, reserved=0)
