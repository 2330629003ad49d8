"""The part of the ledger's contract that is about large outputs: whole or not there, wherever the store puts them."""

import pytest

from dpcore.ledger import Ledger, open_ledger
from dpcore.ledger.sqlite.outputs import LARGEST_IN_ROW
from tests.dpcore.ledger.fixtures import MECHANISM, assert_sound
from tests.dpcore.ledger.store import LedgerStoreTests
from tests.dpcore.ledger.stress import Workers, workers
from tests.dpcore.ledger.worker import LARGE, SHARED_RUN


def survived(mortal: Workers, *, statement: int) -> bool:
    """Let a worker commit a large output and die just before its statement of this number, if it has as many."""
    mortal.tell(f"fork {statement}", "wait")
    assert mortal.said() == "ready"
    lived = mortal.said() == "1"
    return lived and mortal.said() == "ended"


class LedgerOutputs(LedgerStoreTests):
    @pytest.mark.parametrize("excess", [-1, 0, 1, 5 << 20])
    def test_an_output_reads_back_whole_around_the_limit_of_a_row(self, ledger: Ledger, url: str, excess: int) -> None:
        ledger.reserve("run", account="clinic", amount=10, claim="claim")
        lease = ledger.lease("run")
        output = bytes(range(251)) * (1 + (LARGEST_IN_ROW + excess) // 251)
        output = output[: LARGEST_IN_ROW + excess]
        committed = ledger.commit(ledger.charge(lease, step="large", amount=1, mechanism=MECHANISM), output)
        ledger.commit(ledger.charge(lease, step="small", amount=1, mechanism=MECHANISM), b"small")
        assert committed.output == output
        with open_ledger(url) as other:
            assert other.operation("run", "large") == committed
            assert [operation.output for operation in other.transcript("run")] == [output, b"small"]
        told = [event.details for event in ledger.history("clinic") if event.kind == "committed"]
        assert told[0] == {"step": "large", "attempt": 1, "sha256": committed.sha256, "size": len(output)}
        assert_sound(ledger)

    def test_the_same_large_output_may_be_committed_twice(self, ledger: Ledger) -> None:
        ledger.reserve("run", account="clinic", amount=10, claim="claim")
        lease = ledger.lease("run")
        for step in ("one", "other"):
            ledger.commit(ledger.charge(lease, step=step, amount=1, mechanism=MECHANISM), LARGE)
        assert [operation.output for operation in ledger.transcript("run")] == [LARGE, LARGE]

    def test_whoever_dies_while_committing_a_large_output_leaves_all_of_it_or_nothing(
        self, ledger: Ledger, url: str
    ) -> None:
        ledger.reserve(SHARED_RUN, account="clinic", amount=100, claim="claim")
        died = 0
        with workers("die", url, charges=1) as mortal:
            mortal.tell("go")
            while not survived(mortal, statement=died):
                assert ledger.operation(SHARED_RUN, "large") is None
                assert_sound(ledger)
                died += 1
        assert died > 2, "a commit takes several statements"
        found = ledger.operation(SHARED_RUN, "large")
        assert found is not None
        assert (found.output, found.attempt) == (LARGE, died + 1)
        assert ledger.balance("clinic").spent == died + 1
        assert_sound(ledger)
