"""Sessions of processes that are killed, and of several processes at once. What was bought is neither lost nor paid for again."""

import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dpcore.answers import replicates
from dpcore.ledger import OperationState, open_ledger
from dpcore.session.session import Session
from dpcore.steward.verify import verify_ledger
from tests.conftest import SPEC, Workspace, visits
from tests.dpcore.session.conftest import EPSILON, FIRST_SHARE, GROUPED, narrower
from tests.postgres import PostgresServer
from tests.processes import die_at, forked

OTHER = "select sex, count(*) as n from release group by sex"
ONE = "select count(*) as n from release where smoker"
REPLICATES = 2


def work_in(folder: str) -> None:
    os.chdir(folder)
    replicates.REPLICATES = REPLICATES  # as in the test's own process: what is known depends on it


def ask_and_die(folder: str, within: float, call: int) -> None:
    work_in(folder)
    with Session.join("spec.yaml") as session:
        die_at(call)
        session.ask(GROUPED, within=within)


def open_and_die(folder: str, call: int) -> None:
    work_in(folder)
    die_at(call)
    Session.open("spec.yaml", epsilon=EPSILON, first_share=FIRST_SHARE, session="s").leave()


def run_child(target: Callable[..., None], *arguments: Any) -> int | None:
    child = forked().Process(target=target, args=arguments)
    child.start()
    child.join()
    return child.exitcode


def bought(run: str = "s") -> list[tuple[str, bytes | None]]:
    with open_ledger() as ledger:
        return [(each.step, each.output) for each in ledger.transcript(run)]


def charges() -> list[tuple[str, int]]:
    """Return the step and attempt of every charge of the session."""
    with open_ledger() as ledger:
        events = [each.details for each in ledger.history("visits") if each.run == "s" and each.kind == "charged"]
    return [(each["step"], each["attempt"]) for each in events]


def test_a_session_killed_at_any_boundary_loses_no_answer_and_pays_for_none_twice(
    copied: Callable[[], Path],
) -> None:
    copied()
    with Session.join("spec.yaml") as session:
        within = narrower(session, GROUPED)
    call = all_lost = 0
    while True:
        call += 1
        folder = copied()
        code = run_child(ask_and_die, str(folder), within, call)
        before, paid = bought(), charges()
        with Session.join("spec.yaml") as session:
            reply = session.ask(GROUPED, within=within)
            told = session.described()
        assert reply.price.stored == bool(before)
        assert bought()[: len(before)] == before
        # A question is charged again only if the process died between its charge and its commit.
        lost = len(paid) - len(before)
        assert len(charges()) == 1 + lost
        assert told["not_stored"] == pytest.approx(lost * told["bought"][0]["cost"])
        all_lost += lost
        verify_ledger()
        shutil.rmtree(folder)
        if code == 0:  # this one lived to its end: every boundary was tried
            break
        assert code == -signal.SIGKILL
    assert call > 8
    assert all_lost == 2  # after the charge, and before the commit


@pytest.mark.parametrize("call", [1, 2, 4, 21])
def test_a_session_killed_while_it_is_opened_is_opened_again(workspace: Workspace, call: int) -> None:
    workspace.open_account(epsilon=100)
    run_child(open_and_die, str(workspace.folder), call)
    with Session.open("spec.yaml", epsilon=EPSILON, session="s") as session:
        assert session.ask("select count(*) as n from release", within=1e6).price.free
    with open_ledger() as ledger:
        runs = {run.id: run for run in ledger.runs("visits")}
        assert set(runs) == {"s", "s-first"}
        whole = ledger.balance("visits")
        assert whole.used == runs["s"].reserved + runs["s-first"].spent
        assert runs["s-first"].spent <= runs["s-first"].reserved
    verify_ledger()


def ask_at_once(
    folder: str, places: dict[str, str], barrier: Barrier, queries: list[tuple[str, float]], out: Any
) -> None:
    os.environ.update(places)
    work_in(folder)
    with Session.join("spec.yaml") as session:
        for query, within in queries:
            barrier.wait(timeout=60)
            reply = session.ask(query, within=within)
            out.put((os.getpid(), query, reply.price.amount, reply.table.to_json(double_precision=15)))
        barrier.wait(timeout=60)
        free = session.ask(OTHER, within=1e9)
        out.put((os.getpid(), "free", free.price.amount, free.table.to_json(double_precision=15)))


def race(
    folder: Path, places: dict[str, str], first: list[tuple[str, float]], second: list[tuple[str, float]]
) -> pd.DataFrame:
    """Let two processes ask at the same moments, and return all replies."""
    context = forked()
    barrier, out = context.Barrier(2), context.Queue()
    children = [
        context.Process(target=ask_at_once, args=(str(folder), places, barrier, queries, out))
        for queries in (first, second)
    ]
    for child in children:
        child.start()
    replies = [out.get(timeout=120) for _ in range(len(first) + len(second) + 2)]
    for child in children:
        child.join()
        assert child.exitcode == 0
    return pd.DataFrame(replies, columns=["process", "query", "amount", "table"])


def check_race(replies: pd.DataFrame) -> None:
    """Check that each question was paid for once, that both got the same answers, and that both know the same at the end."""
    with open_ledger() as ledger:
        run = ledger.run("s")
        committed = ledger.transcript("s")
    assert run.spent == sum(each.amount for each in committed)
    paid = replies[replies.amount > 0]
    assert len({each.step for each in committed}) == len(committed) == len(paid)
    assert paid["query"].is_unique
    assert GROUPED in set(paid["query"])
    assert all(each.state is OperationState.COMMITTED for each in committed)
    assert replies.amount.sum() == run.spent
    for _, same in replies.groupby("query"):
        assert same.table.nunique() == 1
    verify_ledger()


def wanted_by_both(spec: str = "spec.yaml") -> list[list[tuple[str, float]]]:
    with Session.join(spec) as session:
        half = {query: narrower(session, query) for query in (GROUPED, OTHER, ONE)}
    # First the same question, then different ones.
    return [[(query, half[query]) for query in order] for order in ([GROUPED, OTHER], [GROUPED, ONE])]


def test_two_processes_serve_one_session_and_pay_for_each_question_once(copied: Callable[[], Path]) -> None:
    folder = copied()
    check_race(race(folder, {}, *wanted_by_both()))


def test_two_processes_serve_one_session_on_postgresql(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {
        "DPFLOW_LEDGER_URL": postgres_server.new_database(),
        "DPFLOW_PRIVATE": str(tmp_path / "private"),
        "DPFLOW_REGISTRY": str(tmp_path / "registry"),
    }
    for name, value in places.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for name in ("private", "registry"):
        (tmp_path / name).mkdir(mode=0o700)
    visits(3000, seed=1).to_csv(tmp_path / "visits.csv", index=False)
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    Workspace(tmp_path, tmp_path / "spec.yaml").open_account(epsilon=100)
    Session.open("spec.yaml", epsilon=EPSILON, first_share=FIRST_SHARE, session="s").leave()
    check_race(race(tmp_path, places, *wanted_by_both()))
