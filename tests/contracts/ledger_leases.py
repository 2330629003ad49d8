"""The part of the ledger's contract that is about workers: who may change a run, and who has to wait."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import LedgerDamaged, RunHeld, UsageError
from dpcore.ledger import LEASE_SECONDS, Balance, Lease, Ledger, open_ledger
from dpcore.ledger.writing import WritingTransaction
from tests.dpcore.ledger.fixtures import CAP, MECHANISM, assert_sound, opened
from tests.dpcore.ledger.store import LedgerStoreTests

ELSEWHERE = "elsewhere 4711 99"
ANOTHER = "elsewhere 4712 99"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VICTIM = """
import sys
from dpcore.ledger import open_ledger

ledger = open_ledger(sys.argv[1])
lease = ledger.lease("run")
ledger.charge(lease, step="measure", amount=100, mechanism={"scale": 1})
print("working", flush=True)
sys.stdin.read()
"""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@contextmanager
def another_process(url: str) -> Iterator[subprocess.Popen[str]]:
    """Let another process lease the run and charge a step; it lives until it is killed."""
    command = [sys.executable, "-c", VICTIM, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "working\n"
            yield process
        finally:
            process.kill()


class LedgerLeases(LedgerStoreTests):
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def timed(self, ledger: Ledger, url: str, clock: Clock) -> Iterator[Ledger]:
        """A ledger that goes by the test's clock, with a run."""
        with open_ledger(url, clock=clock) as timed:
            timed.reserve("run", account="clinic", amount=300, claim="claim")
            yield timed

    def test_the_clock_that_was_given_dates_every_event(self, timed: Ledger, clock: Clock) -> None:
        clock.now = NOON.astimezone(timezone(timedelta(hours=5)))
        timed.lease("run")
        assert timed.run("run").opened_at == "2026-03-01T12:00:00+00:00"
        assert list(timed.history(None))[-1].at == "2026-03-01T12:00:00+00:00"

    def test_events_state_the_minute_so_that_nobody_learns_how_long_a_step_took(
        self, timed: Ledger, clock: Clock
    ) -> None:
        lease = timed.lease("run")
        for seconds in (0.05, 0.5, 59.0):
            clock.now = NOON + timedelta(seconds=seconds)
            timed.commit(timed.charge(lease, step=str(seconds), amount=1, mechanism=MECHANISM), b"noisy")
        assert {event.at for event in timed.history(None) if event.run} == {"2026-03-01T12:00:00+00:00"}
        assert_sound(timed)

    def test_an_event_that_states_more_than_the_minute_is_found(
        self, timed: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(WritingTransaction, "at", property(lambda rows: rows.now.isoformat()))  # as it was before
        clock.advance(0.5)

        def lease_and_verify() -> None:
            timed.lease("run")  # PostgreSQL refuses the event
            assert_sound(timed)  # elsewhere it cannot be read

        with pytest.raises(LedgerDamaged):
            lease_and_verify()

    def test_a_ledger_is_told_from_another_of_the_same_terms_and_the_same_minute(
        self, clock: Clock, tmp_path: Path
    ) -> None:
        identities = set()
        for name in ("one", "two"):
            with open_ledger(f"sqlite:///{tmp_path}/{name}.sqlite", clock=clock, create=True) as other:
                opened(other)
                identities.add(other.identity())
        assert len(identities) == 2

    def test_without_a_clock_events_are_dated_now(self, ledger: Ledger) -> None:
        before = datetime.now(UTC)
        ledger.reserve("run", account="clinic", amount=1, claim="claim")
        (event,) = (event for event in ledger.history(None) if event.kind == "reserved")
        assert before - timedelta(minutes=1) < datetime.fromisoformat(event.at) <= datetime.now(UTC)

    def test_a_worker_elsewhere_has_to_be_waited_for(self, timed: Ledger, url: str, clock: Clock) -> None:
        clock.advance(20)  # the lease counts from the end of this minute
        timed.lease("run", holder=ELSEWHERE, seconds=60)
        clock.advance(100 - 1e-6)
        with self.refused(url, RunHeld, r"held by process 4711 on elsewhere; .* again in \d+ seconds"):
            timed.lease("run", holder=ANOTHER)
        clock.advance(1e-6)
        lease = timed.lease("run", holder=ANOTHER)
        assert lease == Lease("run", 2)
        assert (timed.run("run").holder, timed.run("run").lease_seconds) == (ANOTHER, LEASE_SECONDS)

    def test_a_run_that_was_given_back_keeps_nobody_waiting(self, timed: Ledger, url: str) -> None:
        timed.lease("run", holder=ELSEWHERE, seconds=60)
        with self.refused(url, RunHeld, "held by"):
            timed.lease("run", holder=ANOTHER)
        timed.lease("run", holder=ELSEWHERE, seconds=0)
        assert timed.lease("run", holder=ANOTHER).fence == 3
        assert_sound(timed)

    def test_every_change_renews_the_lease(self, timed: Ledger, url: str, clock: Clock) -> None:
        lease = timed.lease("run", holder=ELSEWHERE, seconds=60)
        changes: list[Callable[[], object]] = [
            lambda: timed.record_data_version(lease, "v1"),
            lambda: timed.charge(lease, step="select", amount=1, mechanism=MECHANISM),
            lambda: timed.commit(timed.charge(lease, step="measure", amount=1, mechanism=MECHANISM), b"noisy"),
        ]
        for change in changes:
            clock.advance(60)
            change()
            clock.advance(119)
            with self.refused(url, RunHeld, "held by"):
                timed.lease("run", holder=ANOTHER)
            clock.advance(1)
        timed.lease("run", holder=ANOTHER)

    def test_a_lease_is_renewed_once_a_third_of_it_is_over(self, timed: Ledger, url: str, clock: Clock) -> None:
        lease = timed.lease("run", holder=ELSEWHERE, seconds=60)
        clock.advance(19)
        assert timed.renew(lease) == lease
        clock.advance(1)
        renewed = timed.renew(lease)
        assert renewed == Lease("run", 2)
        clock.advance(99)
        with self.refused(url, RunHeld, "held by process 4711 on elsewhere"):
            timed.lease("run", holder=ANOTHER)
        with self.refused(url, RunHeld, "taken over"):
            timed.charge(lease, step="measure", amount=1, mechanism=MECHANISM)
        timed.settle("run", release="release-1", lease=renewed)
        assert_sound(timed)

    def test_a_lease_that_another_worker_has_taken_is_not_renewed(self, timed: Ledger, url: str, clock: Clock) -> None:
        lease = timed.lease("run", holder=ELSEWHERE, seconds=60)
        clock.advance(120)
        timed.lease("run", holder=ANOTHER)
        clock.advance(60)
        with self.refused(url, RunHeld, "taken over"):
            timed.renew(lease)

    def test_the_same_worker_takes_over_from_itself_at_once(self, timed: Ledger) -> None:
        assert timed.lease("run", holder=ELSEWHERE) == Lease("run", 1)
        assert timed.lease("run", holder=ELSEWHERE) == Lease("run", 2)

    def test_a_stale_worker_changes_nothing(self, timed: Ledger, url: str, clock: Clock) -> None:
        stale = timed.lease("run", holder=ELSEWHERE)
        operation = timed.charge(stale, step="measure", amount=100, mechanism=MECHANISM)
        clock.advance(60 + LEASE_SECONDS)
        with open_ledger(url, clock=clock) as other:
            fresh = other.lease("run", holder=ANOTHER)
            asks: list[Callable[[], object]] = [
                lambda: timed.record_data_version(stale, "v1"),
                lambda: timed.charge(stale, step="measure", amount=1, mechanism=MECHANISM),
                lambda: timed.charge(stale, step="other", amount=1, mechanism=MECHANISM),
                lambda: timed.commit(operation, b"stale"),
                lambda: timed.settle("run", release="release-1", lease=stale),
                lambda: timed.refund("run", lease=stale),
            ]
            for ask in asks:
                with self.refused(url, RunHeld, "run 'run' was taken over by another worker; stop here"):
                    ask()
            # Nor can it commit in the name of the new lease what it began under the old one: that attempt is overtaken.
            other.commit(other.charge(fresh, step="measure", amount=100, mechanism=MECHANISM), b"fresh")
            with self.refused(url, UsageError, "overtaken by attempt 2"):
                timed.commit(replace(operation, fence=fresh.fence), b"stale")
            found = timed.operation("run", "measure")
            assert found is not None
            assert (found.output, found.attempt, found.fence) == (b"fresh", 2, fresh.fence)
            other.settle("run", release="release-1", lease=fresh)
        assert timed.balance("clinic") == Balance(cap=CAP, spent=200, reserved=0)
        assert_sound(timed)

    def test_a_stale_worker_that_only_asks_again_is_told_so_too(self, timed: Ledger, url: str) -> None:
        stale = timed.lease("run", holder=ELSEWHERE)
        fresh = timed.lease("run", holder=ELSEWHERE)
        timed.record_data_version(fresh, "v1")
        with self.refused(url, RunHeld, "taken over"):
            timed.record_data_version(stale, "v1")

    @pytest.mark.parametrize("fence", [-1, 0, 2, 10**30])
    def test_an_invented_lease_is_worth_nothing(self, timed: Ledger, url: str, fence: int) -> None:
        with self.refused(url, RunHeld, "taken over"):
            timed.charge(Lease("run", fence), step="measure", amount=1, mechanism=MECHANISM)
        timed.lease("run", holder=ELSEWHERE)
        with self.refused(url, RunHeld, "taken over"):
            timed.charge(Lease("run", fence), step="measure", amount=1, mechanism=MECHANISM)

    def test_a_lease_from_before_a_release_is_worth_nothing_after_it(self, timed: Ledger, url: str) -> None:
        stale = timed.lease("run", holder=ELSEWHERE)
        timed.refund("run", lease=stale)
        timed.reserve("run", account="clinic", amount=300, claim="claim")
        with self.refused(url, RunHeld, "taken over"):
            timed.charge(stale, step="measure", amount=1, mechanism=MECHANISM)
        assert timed.lease("run", holder=ANOTHER).fence > stale.fence
        with self.refused(url, RunHeld, "taken over"):
            timed.charge(stale, step="measure", amount=1, mechanism=MECHANISM)

    def test_the_lease_of_one_run_does_not_end_another(self, timed: Ledger, url: str) -> None:
        timed.reserve("other", account="clinic", amount=300, claim="claim")
        lease = timed.lease("other")
        with self.refused(url, UsageError, "that lease is for run 'other', not for run 'run'"):
            timed.settle("run", release="release-1", lease=lease)
        with self.refused(url, UsageError, "that lease is for run 'other', not for run 'run'"):
            timed.refund("run", lease=lease)

    @pytest.mark.parametrize("seconds", [-1, 1.5, True, None, "60", float("nan"), 7 * 86_400 + 1, 2**62])
    def test_a_lease_lasts_a_sensible_time(self, timed: Ledger, url: str, seconds: Any) -> None:
        with self.refused(url, UsageError, "a lease lasts a whole number of seconds"):
            timed.lease("run", seconds=seconds)

    def test_a_dead_process_of_this_machine_is_not_waited_for(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        with another_process(url) as process:
            with self.refused(url, RunHeld, rf"held by process {process.pid} on "):
                ledger.lease("run")
            with self.refused(url, RunHeld, rf"held by process {process.pid} on "):
                ledger.settle("run", release=None, lease=None)
            process.kill()
            # Dead, though its parent has not taken note of it: its number is still in use.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            lease = ledger.lease("run")
        assert lease.fence == 2
        operation = ledger.charge(lease, step="measure", amount=100, mechanism=MECHANISM)
        assert operation.attempt == 2
        assert ledger.balance("clinic").spent == 200

    def test_a_steward_ends_what_a_dead_worker_started(self, ledger: Ledger, url: str) -> None:
        ledger.reserve("run", account="clinic", amount=300, claim="claim")
        with another_process(url) as process:
            process.kill()
            process.wait()
        with self.refused(url, UsageError, "cannot be refunded; end it with: dpflow ledger settle run"):
            ledger.refund("run", lease=None)
        run = ledger.settle("run", release=None, lease=None)
        assert (run.state, run.spent, run.release) == ("settled", 100, None)
        assert ledger.balance("clinic") == Balance(cap=CAP, spent=100, reserved=0)
        assert_sound(ledger)

    def test_a_steward_waits_for_a_worker_that_may_be_alive(self, timed: Ledger, url: str, clock: Clock) -> None:
        timed.lease("run", holder=ELSEWHERE, seconds=60)
        ends: list[Callable[[], object]] = [
            lambda: timed.settle("run", release=None, lease=None),
            lambda: timed.refund("run", lease=None),
        ]
        for end in ends:
            with self.refused(url, RunHeld, "if that worker is dead, try again in"):
                end()
        clock.advance(120)
        assert timed.refund("run", lease=None).state == "refunded"

    def test_a_run_that_nobody_leased_is_the_stewards_to_end(self, timed: Ledger) -> None:
        assert timed.refund("run", lease=None).state == "refunded"
        timed.reserve("other", account="clinic", amount=1, claim="claim")
        assert timed.settle("other", release=None, lease=None).state == "settled"

    def test_a_clock_that_was_set_back_keeps_nobody_waiting(self, timed: Ledger, url: str, clock: Clock) -> None:
        stale = timed.lease("run", holder=ELSEWHERE)
        clock.now = NOON - timedelta(days=1)
        fresh = timed.lease("run", holder=ANOTHER)
        with self.refused(url, RunHeld, "taken over"):
            timed.charge(stale, step="measure", amount=1, mechanism=MECHANISM)
        timed.charge(fresh, step="measure", amount=100, mechanism=MECHANISM)
        clock.now = NOON
        timed.settle("run", release=None, lease=fresh)
        assert timed.balance("clinic") == Balance(cap=CAP, spent=100, reserved=0)
        assert_sound(timed)

    def test_a_clock_that_was_set_forward_costs_a_living_worker_its_step_and_no_more(
        self, timed: Ledger, url: str, clock: Clock
    ) -> None:
        living = timed.lease("run", holder=ELSEWHERE)
        operation = timed.charge(living, step="measure", amount=100, mechanism=MECHANISM)
        clock.now = NOON + timedelta(days=365)
        hasty = timed.lease("run", holder=ANOTHER)
        clock.now = NOON + timedelta(seconds=1)
        with self.refused(url, RunHeld, "taken over"):
            timed.commit(operation, b"noisy")
        timed.commit(timed.charge(hasty, step="measure", amount=100, mechanism=MECHANISM), b"noisy")
        assert timed.balance("clinic") == Balance(cap=CAP, spent=200, reserved=100)
        assert_sound(timed)
