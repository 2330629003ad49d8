"""The part of the ledger's contract that is about shares: what each of several analysts may spend of one run's reservation."""

import pytest

from dpcore.errors import BudgetRefused, LedgerDamaged, UsageError
from dpcore.ledger import EventKind, Lease, Ledger, transaction
from dpcore.ledger import ledger as protocol
from dpcore.ledger.verification import verify
from tests.dpcore.ledger.fixtures import MECHANISM, assert_sound
from tests.dpcore.ledger.store import LedgerStoreTests

TOKEN, OTHER = "ab" * 32, "cd" * 32


def shared(ledger: Ledger, **caps: int) -> Lease:
    """Reserve a run, and share it."""
    ledger.reserve("session", account="clinic", amount=300, claim="claim")
    for analyst, cap in caps.items():
        ledger.share("session", analyst=analyst, cap=cap, token=TOKEN)
    return ledger.lease("session")


def charge(ledger: Ledger, lease: Lease, analyst: str, amount: int, *, number: int = 1) -> None:
    ledger.charge(lease, step=f"ask/9f86/{number}", amount=amount, mechanism=MECHANISM, analyst=analyst)


class LedgerShares(LedgerStoreTests):
    def test_an_analyst_spends_at_most_the_share_and_all_at_most_the_reservation(
        self, ledger: Ledger, url: str
    ) -> None:
        lease = shared(ledger, ada=100, bob=280)
        charge(ledger, lease, "ada", 60)
        with self.refused(url, BudgetRefused, "the share of analyst 'ada' in run 'session' cannot pay") as told:
            charge(ledger, lease, "ada", 41, number=2)
        assert (told.value.requested, told.value.remaining) == (41, 40)
        charge(ledger, lease, "ada", 40, number=2)
        charge(ledger, lease, "bob", 200)
        with self.refused(url, BudgetRefused, "the rest of run 'session'"):
            charge(ledger, lease, "bob", 1, number=2)
        with self.refused(url, UsageError, "analyst 'bob' has already spent more than that"):
            ledger.share("session", analyst="bob", cap=199, token=TOKEN)
        assert {name: each.spent for name, each in ledger.shares("session").items()} == {"ada": 100, "bob": 200}
        assert_sound(ledger)

    def test_a_charge_whose_answer_was_lost_counts(self, ledger: Ledger, url: str) -> None:
        lease = shared(ledger, ada=100)
        charge(ledger, lease, "ada", 60)
        with self.refused(url, BudgetRefused, "the share of analyst 'ada'"):
            charge(ledger, lease, "ada", 60)  # the same step again
        assert ledger.shares("session")["ada"].remaining == 40

    def test_nobody_without_a_share_is_charged_and_a_removed_analyst_has_none(self, ledger: Ledger, url: str) -> None:
        lease = shared(ledger, ada=100)
        with self.refused(url, UsageError, "analyst 'eve' has no share of run 'session'"):
            charge(ledger, lease, "eve", 1)
        ledger.share("session", analyst="ada", cap=100, token=None)
        with self.refused(url, UsageError, "analyst 'ada' has no share"):
            charge(ledger, lease, "ada", 1)
        assert ledger.shares("session")["ada"].remaining == 0
        ledger.share("session", analyst="ada", cap=50, token=OTHER)
        charge(ledger, lease, "ada", 50)
        assert ledger.shares("session")["ada"].token == OTHER
        assert_sound(ledger)

    def test_a_share_is_of_an_open_run_for_a_plain_name(self, ledger: Ledger, url: str) -> None:
        lease = shared(ledger)
        for name in ("", "a b", "a@b", "a/b", "x" * 65, ".a"):
            with self.refused(url, UsageError, "an analyst's name has"):
                ledger.share("session", analyst=name, cap=1, token=TOKEN)
        with self.refused(url, UsageError, "an amount must be"):
            ledger.share("session", analyst="ada", cap=0, token=TOKEN)
        with self.refused(url, UsageError, "as its SHA-256"):
            ledger.share("session", analyst="ada", cap=1, token=TOKEN[:-1])
        with self.refused(url, UsageError, "there is no run 'other'"):
            ledger.share("other", analyst="ada", cap=1, token=TOKEN)
        ledger.settle("session", release=None, lease=lease)
        with self.refused(url, UsageError, "run 'session' is settled"):
            ledger.share("session", analyst="ada", cap=1, token=TOKEN)

    def test_a_token_is_revoked_even_after_its_run_has_ended(self, ledger: Ledger) -> None:
        lease = shared(ledger, ada=100)
        charge(ledger, lease, "ada", 40)
        ledger.settle("session", release=None, lease=lease)
        ledger.share("session", analyst="ada", cap=100, token=None)
        assert ledger.shares("session")["ada"].token is None
        assert_sound(ledger)

    def test_the_database_refuses_a_charge_beyond_a_share(
        self, ledger: Ledger, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = shared(ledger, ada=100)
        monkeypatch.setattr(protocol, "_require_share", lambda *_, **__: None)  # the planted bug: nobody checks
        with self.refused(url, LedgerDamaged, "contradicts itself; nothing was changed"):
            charge(ledger, lease, "ada", 101)

    def test_a_charge_that_a_share_does_not_count_is_found_by_verify(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = shared(ledger, ada=100)
        forgetful = transaction._SPEND.replace("spent + :price", "spent")  # the planted bug: the share pays nothing
        monkeypatch.setattr(transaction, "_SPEND", forgetful)
        try:
            charge(ledger, lease, "ada", 60)
        except LedgerDamaged:
            return  # PostgreSQL's own rules refuse it
        with pytest.raises(LedgerDamaged, match="share 'session', 'ada' differs from the events in: spent"):
            verify(ledger, price=lambda mechanism, currency: 1, heads={})

    def test_an_event_against_the_rule_of_its_kind_is_never_written(self, ledger: Ledger, url: str) -> None:
        shared(ledger)
        right = {"run": "session", "analyst": "ada", "cap": 1, "token": TOKEN}
        for run, body in (("session", right), (None, right | {"cap": "1"}), (None, right | {"note": "more"})):
            with self.refused(url, LedgerDamaged, "names a run|invalid cap|unknown keys"), ledger._writing() as rows:
                rows.record(EventKind.SHARED, account="clinic", run=run, body=body)
