"""An online session on a real ledger: charged before it draws, resumed from its transcript, never paid twice for an answer."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from dpcore.curator.gate import CountQuery, Gate, Gatekeeper
from dpcore.errors import BudgetRefused, LedgerDamaged, LedgerError, RunHeld, UsageError
from dpcore.ledger import Ledger, OperationState, RunState, open_ledger
from dpcore.mechanisms.sampling import entropy
from dpcore.places import places_of_spec, using
from dpcore.privacy.accounting import Currency
from dpcore.steward.approvals import require_approval
from dpcore.steward.verify import verify_ledger
from dpcore.tables.ingest.fingerprint import KEY_NAME, fingerprint_key
from dpcore.textbook.online.opening import open_online
from tests.conftest import Workspace, visits

PROMISE: dict[str, Any] = {"alpha": 0.25, "beta": 1e-8, "queries": 50, "rows": 2000}
"""So sure that a test which asks for it is wrong once in ten million runs."""

HARD = "select count(*) from release where city in ('north', 'south')"
ALSO_HARD = "select count(*) from release where sex is not null"
EASY = "select count(*) from release where sex = 'F' and city = 'north'"


@pytest.fixture
def space(workspace: Workspace) -> Workspace:
    workspace.write_spec(("epsilon: 1.0", "epsilon: 900.0"))
    workspace.open_account(epsilon=1000.0)
    return workspace


def session(space: Workspace, **changed: Any) -> Any:
    return open_online(space.spec, **{**PROMISE, **changed})


def balance() -> Any:
    with open_ledger() as ledger:
        return ledger.balance("visits")


def test_a_key_that_others_may_read_is_refused_before_anything_is_reserved(space: Workspace) -> None:
    private = space.folder / ".dpflow" / "private"
    fingerprint_key(private)
    (private / KEY_NAME).chmod(0o644)
    with pytest.raises(LedgerError, match="chmod 600"), session(space):
        pass
    with open_ledger() as ledger:
        assert not ledger.runs("visits")


def test_hard_queries_are_paid_for_and_easy_ones_come_from_the_model(space: Workspace) -> None:
    truth = visits(3000, seed=1).groupby("person").head(2)
    with session(space) as online:
        hard, easy, again = online.ask(HARD), online.ask(EASY), online.ask(HARD)
        assert (online.queries, online.hard_rounds) == (2, 1)
        assert online.bounds.within == int(0.25 * online.bounds.rows)
    assert hard.hard
    assert not easy.hard
    assert again == hard
    # which rows of a person are kept is drawn, so the truth is known up to a few rows
    assert abs(hard.rows - truth.city.isin(["north", "south"]).sum()) <= hard.within + 150
    assert abs(easy.rows - ((truth.sex == "F") & (truth.city == "north")).sum()) <= easy.within + 150
    verify_ledger()


def test_what_it_charges_is_the_price_of_what_it_draws_and_the_rest_is_refunded(space: Workspace) -> None:
    with session(space) as online:
        online.ask(HARD)
        bounds, run = online.bounds, online.run_id
        with open_ledger() as ledger:
            done = {each.step: each for each in ledger.transcript(run)}
        online.end()
    assert list(done) == ["total", "hard-00001/gate", "hard-00001/count"]
    assert done["hard-00001/gate"].mechanism == bounds.gate.describe()
    assert done["hard-00001/count"].mechanism == bounds.noise.describe()
    assert balance().reserved == 0
    assert balance().spent == sum(each.amount for each in done.values())


def test_every_word_of_noise_is_drawn_while_its_charge_has_no_result(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[bool] = []
    system = entropy.random_words
    with session(space) as online, open_ledger() as ledger:

        def watched(count: int) -> Any:
            done = sum(each.amount for each in ledger.transcript(online.run_id))
            paid.append(ledger.run(online.run_id).spent > done)
            return system(count)

        monkeypatch.setattr(entropy, "random_words", watched)
        online.ask(HARD)
        online.ask(EASY)
    assert len(paid) >= 5  # two thresholds, two comparisons, one count
    assert all(paid)


def test_a_resumed_session_answers_as_before_and_goes_on(space: Workspace) -> None:
    with session(space) as online:
        before = [online.ask(HARD), online.ask(EASY)]
        model = online.model.marginal((0, 3))
        run = online.run_id
    spent = balance().spent
    with session(space, resume=run) as online:
        assert [online.ask(HARD), online.ask(EASY)] == before
        assert balance().spent == spent
        assert np.allclose(online.model.marginal((0, 3)), model)
        assert online.hard_rounds == 1
        online.ask("select count(*) from release where smoker")
        assert online.queries == 3
    verify_ledger()


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(space: Workspace, when: str) -> tuple[str, int]:
    """Ask in a process of its own, which is killed at some point, and return the session and its first answer."""
    told, tell = os.pipe()
    if (child := os.fork()) == 0:
        try:
            with session(space) as online:
                os.write(tell, f"{online.run_id} {online.ask(HARD).rows}".encode())
                online.ask(EASY)
                if when == "before the count":
                    Gatekeeper.measure = die  # type: ignore[method-assign]
                if when == "before the record":
                    Gatekeeper.close_gate = die  # type: ignore[method-assign]
                if when != "idle":
                    online.ask(ALSO_HARD)
                die()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    run, rows = os.read(told, 1000).decode().split()
    os.close(told)
    os.close(tell)
    return run, int(rows)


@pytest.mark.parametrize("when", ["idle", "before the count", "before the record"])
def test_a_session_survives_being_killed(space: Workspace, when: str) -> None:
    run, rows = killed(space, when)
    spent = balance().spent
    with session(space, resume=run) as online:
        assert online.ask(HARD).rows == rows  # committed, so it is neither drawn nor paid for again
        assert balance().spent == spent
        online.ask("select count(*) from release where sex = 'M' and city = 'north'")
        assert online.hard_rounds == (2 if when == "before the count" else 1)
        price = online.bounds.gate.price(Currency.ZCDP)
    others = sum(each.amount for each in _operations(run) if not each.step.endswith("/gate"))
    with open_ledger() as ledger:
        # the gate of the first hard query, the one that was open when the process was killed, and a new one
        assert ledger.run(run).spent - others == 3 * price
    verify_ledger()


def _operations(run: str) -> Any:
    with open_ledger() as ledger:
        return ledger.transcript(run)


def test_a_session_may_be_resumed_only_as_often_as_it_paid_for(space: Workspace) -> None:
    with session(space, restarts=1) as online:
        run = online.run_id
    with session(space, restarts=1, resume=run):
        pass
    with pytest.raises(UsageError, match="resumed 1 times"), session(space, restarts=1, resume=run):
        pass


def test_a_session_is_resumed_with_its_own_numbers_only(space: Workspace) -> None:
    with session(space) as online:
        run = online.run_id
    with pytest.raises(UsageError, match="reserved for something else"), session(space, queries=51, resume=run):
        pass
    with pytest.raises(UsageError, match="no session nobody"), session(space, resume="nobody"):
        pass


def test_parameters_that_cannot_hold_are_refused_before_anything_is_reserved_or_read(space: Workspace) -> None:
    (space.folder / "visits.csv").unlink()
    for changed, said in (
        ({"alpha": 0.05}, "choose alpha 0\\.[0-9]+ or more"),
        ({"rows": 0}, "rows must be"),
        ({"beta": 0}, "beta"),
    ):
        with pytest.raises(UsageError, match=said), session(space, **changed):
            pass
    assert balance().reserved == balance().spent == 0


def test_a_table_with_too_few_rows_ends_the_session_for_the_price_of_the_total(space: Workspace) -> None:
    with pytest.raises(UsageError, match="cannot be promised"), session(space, table=visits(20, seed=1)):
        pass
    with open_ledger() as ledger:
        (run,) = ledger.runs("visits")
        assert run.state is RunState.SETTLED
        assert [each.step for each in ledger.transcript(run.id)] == ["total"]
    assert balance().reserved == 0
    assert balance().spent <= balance().cap / 40


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("max_rows_per_unit: 2", "max_rows_per_unit: auto"), "fixed limit"),
        ((", width: 25", ""), "declared in full; give column age"),
    ],
)
def test_specs_that_leave_something_open_are_refused(space: Workspace, change: tuple[str, str], said: str) -> None:
    space.write_spec(("epsilon: 1.0", "epsilon: 900.0"), change)
    with pytest.raises(UsageError, match=said), session(space):
        pass
    assert balance().reserved == 0


def test_bad_queries_cost_nothing(space: Workspace) -> None:
    with session(space) as online:
        spent = balance().spent
        for query in ("select", "select count(*) from release where age > 3", CountQuery((9,), np.ones(2, dtype=bool))):
            with pytest.raises(UsageError):
                online.ask(query)
        assert balance().spent == spent
        assert online.queries == 0


def test_the_number_of_queries_is_limited_and_repeated_ones_are_not_counted(space: Workspace) -> None:
    with session(space, queries=2) as online:
        first = online.ask(EASY)
        online.ask("select count(*) from release where sex = 'M' and city = 'north'")
        assert online.ask(EASY) == first
        with pytest.raises(UsageError, match="answered its 2 queries"):
            online.ask("select count(*) from release where sex = 'M' and city = 'west'")


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, where: type, what: str) -> Iterator[None]:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(where, what, fails)
        yield


@pytest.mark.parametrize(("where", "what"), [(Ledger, "commit"), (Gate, "compare"), (Gatekeeper, "measure")])
def test_a_session_that_failed_answers_nothing_new_until_it_is_opened_again(
    space: Workspace, monkeypatch: pytest.MonkeyPatch, where: type, what: str
) -> None:
    with session(space) as online:
        run = online.run_id
        with failing(monkeypatch, where, what), pytest.raises(OSError, match="no space"):
            online.ask(HARD)
        with pytest.raises(UsageError, match="open it again"):
            online.ask(EASY)
    with session(space, resume=run) as online:
        assert online.ask(HARD).hard
        assert online.hard_rounds == 1
    verify_ledger()


def test_a_worker_that_lost_the_session_answers_nothing_new(space: Workspace) -> None:
    with session(space) as online:
        known = online.ask(EASY)
        with open_ledger() as ledger:
            ledger.lease(online.run_id)
        assert online.ask(EASY) == known
        with pytest.raises(RunHeld, match="taken over"):
            online.ask(HARD)


def test_an_account_that_cannot_pay_is_not_read(workspace: Workspace) -> None:
    workspace.write_spec(("epsilon: 1.0", "epsilon: 900.0"))
    workspace.open_account(epsilon=100.0)
    (workspace.folder / "visits.csv").write_text("unread")
    with pytest.raises(BudgetRefused), session(workspace):
        pass


def test_a_record_that_is_no_gate_is_reported_as_damage(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with session(space) as online:
        online.ask(HARD)
        run = online.run_id
    sound = Ledger.transcript

    def damaged(self: Ledger, run_id: str) -> Any:
        found = sound(self, run_id)
        return tuple(
            type(each)(**{**vars(each), "output": b"{}"}) if each.step.endswith("/gate") else each for each in found
        )

    assert all(each.state is OperationState.COMMITTED for each in _operations(run))
    monkeypatch.setattr(Ledger, "transcript", damaged)
    with pytest.raises(LedgerDamaged, match="hard-00001/gate"), session(space, resume=run):
        pass


def test_an_epsilon_above_the_threshold_needs_approval(space: Workspace) -> None:
    with using(places_of_spec(space.spec)):
        require_approval("visits", above=1.0, delta=1e-9, within_seconds=60)
    before = balance()
    with (
        pytest.raises(
            UsageError, match=r"needs the steward's approval above epsilon 1, .*approved=True, or ask for less"
        ),
        session(space),
    ):
        pytest.fail("the session was opened")
    assert balance() == before
    with session(space, approved=True) as online:
        run = online.run_id
    with session(space, resume=run) as online:  # it was approved when it was opened
        online.end()
    with pytest.raises(UsageError, match="has no session other to resume"), session(space, resume="other"):
        pytest.fail("a session was opened without approval")
