"""A whole run without Prefect: what it spends, what it leaves, and that no crash loses or repeats anything."""

import json
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpcore import Outcome, load_spec, synthesize
from dpcore.errors import SourceError, UsageError
from dpcore.ledger import LEASE_SECONDS, Ledger, open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.mechanisms import from_description
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import Currency
from dpcore.runs.synthesis import Synthesis
from tests.conftest import Workspace, visits
from tests.contracts.mechanism import recorded_words
from tests.processes import die_at, forked
from tests.rough_models import fit_roughly


def charged_events(ledger: Ledger) -> Counter[str]:
    return Counter(event.details["step"] for event in ledger.history("visits") if event.kind == "charged")


def check_the_books(run_id: str, *, crashes: int) -> None:
    """Check what holds for every finished run, however often it was killed."""
    with open_ledger() as ledger:
        run, balance = ledger.run(run_id), ledger.balance("visits")
        paid, committed = charged_events(ledger), [operation.step for operation in ledger.transcript(run_id)]
        amounts = [event.details["amount"] for event in ledger.history("visits") if event.kind == "charged"]
    assert len(set(committed)) == len(committed)
    assert set(committed) <= set(paid)
    assert sum(paid.values()) - len(committed) <= crashes
    assert sum(amounts) == run.spent <= run.reserved
    assert run.state == "settled"
    assert (balance.spent, balance.reserved) == (run.spent, 0)


def test_a_run_spends_nearly_all_it_asked_for_and_never_more(workspace: Workspace) -> None:
    workspace.open_account()
    outcome = synthesize(workspace.spec)
    assert 0.999 < outcome.epsilon <= 1.0
    assert 0.998 < outcome.spent / outcome.reserved <= 1.0
    check_the_books(outcome.run, crashes=0)


@pytest.mark.parametrize("strategy", ["name: mwem, rounds: 3", "name: pmw, rounds: 12, alpha: 0.02"])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("neighbours", ["add-remove"])
def test_every_charge_prices_what_was_drawn(
    workspace: Workspace, strategy: str, delta: float, neighbours: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With noise of its own each time, one pmw run in a hundred would find its first query well answered, and end there.
    monkeypatch.setattr(entropy, "random_words", recorded_words(1))
    workspace.open_account(delta=delta)
    workspace.write_spec(("name: mwem, rounds: 4", strategy), ("delta: 1e-9", f"delta: {delta:g}"))
    outcome = synthesize(workspace.spec)
    currency = Currency.ZCDP if delta else Currency.PURE
    with open_ledger() as ledger:
        transcript = ledger.transcript(outcome.run)
    assert len(transcript) > 3
    for operation in transcript:
        assert from_description(operation.mechanism).price(currency) <= operation.amount
    check_the_books(outcome.run, crashes=0)


def test_the_synthetic_rows_resemble_the_table_and_a_shuffled_control_does_not(workspace: Workspace) -> None:
    workspace.open_account(epsilon=100)
    workspace.write_spec(("epsilon: 1.0", "epsilon: 20.0"))
    outcome = synthesize(workspace.spec)
    made = pq.read_table(Path(outcome.release) / "data").to_pandas()
    true = visits(3000, seed=1)
    share = true.assign(old=true.age > 49).groupby("old").smoker.mean()
    made_share = made.assign(old=made.age > 49).groupby("old").smoker.mean()
    assert abs(made_share - share).max() < 0.08
    shuffled = made.assign(old=made.age > 49, smoker=np.random.default_rng(0).permutation(made.smoker))
    assert abs(shuffled.groupby("old").smoker.mean() - share).max() > 0.08


def test_starting_a_finished_run_again_gives_the_same_release_and_draws_nothing(
    workspace: Workspace, tree_of: Callable[[Path], dict[str, bytes]]
) -> None:
    workspace.open_account()
    first = synthesize(workspace.spec, run_id="r1")
    before = tree_of(workspace.folder / "releases")
    (workspace.folder / "visits.csv").unlink()
    (workspace.folder / "visits.csv").write_text("the table is gone\n", encoding="utf-8")
    again = synthesize(workspace.spec, run_id="r1", resume=True)
    assert again == first
    assert tree_of(workspace.folder / "releases") == before
    check_the_books("r1", crashes=0)


def test_a_lost_release_is_rebuilt_from_the_transcript(workspace: Workspace) -> None:
    workspace.open_account()
    release = Path(synthesize(workspace.spec, run_id="r1").release)
    rows = pq.read_table(release / "data")
    release.rename(workspace.folder / "elsewhere")
    synthesize(workspace.spec, run_id="r1", resume=True)
    assert pq.read_table(release / "data").equals(rows)


def test_an_id_stands_for_one_spec(workspace: Workspace) -> None:
    workspace.open_account()
    synthesize(workspace.spec, run_id="r1")
    workspace.write_spec(("epsilon: 1.0", "epsilon: 0.5"))
    with pytest.raises(UsageError):
        synthesize(workspace.spec, run_id="r1", resume=True)


def test_the_declared_number_of_rows_is_kept_and_the_noisy_one_is_not_the_true_one(workspace: Workspace) -> None:
    workspace.open_account()
    workspace.write_spec(("strategy:", "output: {rows: 77}\nstrategy:"))
    assert synthesize(workspace.spec).rows == 77
    workspace.write_spec()
    rows = {synthesize(workspace.spec).rows for _ in range(4)}
    assert len(rows) > 1  # the true number would be the same each time, up to the choice of rows per person


def test_an_empty_table_is_no_error(workspace: Workspace) -> None:
    workspace.open_account()
    (workspace.folder / "visits.csv").write_text("person,sex,age,smoker,city\n", encoding="utf-8")
    outcome = synthesize(workspace.spec)
    assert outcome.rows < 1000
    check_the_books(outcome.run, crashes=0)


def test_a_damaged_table_gives_the_reservation_back_only_if_nothing_was_charged(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.open_account()
    table = (workspace.folder / "visits.csv").read_bytes()
    (workspace.folder / "visits.csv").write_bytes(b"")
    with pytest.raises(SourceError):
        synthesize(workspace.spec, run_id="r1")
    with open_ledger() as ledger:
        assert ledger.balance("visits").used == 0
    # the control: the same failure after one charged operation refunds nothing
    (workspace.folder / "visits.csv").write_bytes(table)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesize(workspace.spec, run_id="r2")
    with monkeypatch.context() as patch:
        patch.setattr("dpcore.tables.engines.ingest", damaged)
        with pytest.raises(SourceError):
            synthesize(workspace.spec, run_id="r2", resume=True)
    with open_ledger() as ledger:
        run = ledger.run("r2")
        assert (run.state, ledger.balance("visits").used) == ("open", run.reserved)
        assert run.spent > 0


def damaged(*_arguments: object, **_more: object) -> None:
    raise SourceError("visits.csv is damaged")


def interrupted(*_arguments: object, **_more: object) -> None:
    raise KeyboardInterrupt


def test_a_table_that_changed_is_not_mixed_into_a_run(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.open_account()
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesize(workspace.spec, run_id="r1")
    visits(3000, seed=2).to_csv(workspace.folder / "visits.csv", index=False)
    with pytest.raises(UsageError, match="changed"):
        synthesize(workspace.spec, run_id="r1", resume=True)


def run_roughly(spec: str, run_id: str | None = None) -> None:
    """Run as a test does that fits roughly, in a process of its own."""
    fit_roughly(pytest.MonkeyPatch())
    synthesize(spec, run_id=run_id)


def run_and_die(spec: str, run_id: str, calls: int) -> None:
    die_at(calls)
    synthesize(spec, run_id=run_id)


def run_roughly_and_die(spec: str, run_id: str, calls: int) -> None:
    die_at(calls)
    run_roughly(spec, run_id)


def resume(spec: Path, run_id: str) -> Outcome:
    """Go on with a run; one that was killed before it reserved anything is simply started."""
    with open_ledger() as ledger:
        known = run_id in {run.id for run in ledger.runs("visits")}
    return synthesize(spec, run_id=run_id, resume=known)


def transcript_of(run_id: str) -> list[tuple[str, bytes | None]]:
    with open_ledger() as ledger:
        known = run_id in {run.id for run in ledger.runs("visits")}
        return [(done.step, done.output) for done in ledger.transcript(run_id)] if known else []


def check_the_release(outcome: Outcome) -> None:
    release = Path(outcome.release)
    published = pd.read_parquet(release / "measurements.parquet").groupby("step", observed=True).noisy_count.apply(list)
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["privacy"]["run"] == outcome.run
    for step, output in transcript_of(outcome.run):
        if step != "rows-lost" and not step.endswith("/select"):
            assert published[step] == Measurement.from_bytes(output or b"", step=step).values.ravel().tolist()
    assert not list(release.parent.glob(".partial*"))


def test_a_run_killed_at_any_boundary_of_the_ledger_goes_on(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_roughly(monkeypatch)
    workspace.open_account(epsilon=100)
    workspace.write_spec(("rounds: 4", "rounds: 2"))
    calls = 0
    while True:
        calls += 1
        child = forked().Process(target=run_roughly_and_die, args=(str(workspace.spec), f"r{calls}", calls))
        child.start()
        child.join()
        before = transcript_of(f"r{calls}")
        outcome = resume(workspace.spec, f"r{calls}")
        assert transcript_of(f"r{calls}")[: len(before)] == before
        check_the_release(outcome)
        if child.exitcode == 0:  # this one lived to its end: every boundary was tried
            break
        assert child.exitcode == -signal.SIGKILL
    assert calls > 20


def test_a_run_killed_at_twenty_random_moments_goes_on(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fit_roughly(monkeypatch)
    moments = random.Random(7)  # noqa: S311  moments to kill at, not noise
    begin = time.monotonic()
    workspace.open_account(epsilon=100)
    warm = forked().Process(target=run_roughly, args=(str(workspace.spec),))
    warm.start()
    warm.join()
    duration = time.monotonic() - begin
    for number in range(20):
        for old in (".dpflow", "releases"):
            shutil.rmtree(workspace.folder / old)
        workspace.open_account()
        run_id = f"random-{number}"
        child = forked().Process(target=run_roughly, args=(str(workspace.spec), run_id))
        child.start()
        child.join(timeout=moments.uniform(0, duration))
        child.kill()
        child.join()
        before = transcript_of(run_id)
        outcome = resume(workspace.spec, run_id)
        assert transcript_of(run_id)[: len(before)] == before
        check_the_books(run_id, crashes=1)
        check_the_release(outcome)


@pytest.mark.parametrize("ended", ["before a round", "before publishing"])
def test_a_worker_whose_run_was_ended_draws_and_publishes_nothing(workspace: Workspace, ended: str) -> None:
    workspace.open_account()
    run = Synthesis(load_spec(workspace.spec), run_id="ended", resume=False)
    try:
        run.reserve()
        run.ingest()
        run.histogram()
        run.begin()
        if ended == "before publishing":
            run.sample()
        in_a_while = lambda: datetime.now(UTC) + timedelta(minutes=1, seconds=LEASE_SECONDS)  # noqa: E731  a clock
        with open_ledger(clock=in_a_while) as steward:
            steward.settle("ended", release=None, lease=None)
        with pytest.raises(UsageError, match="run 'ended' is settled and takes no more operations"):
            run.publish() if ended == "before publishing" else run.select(1)
    finally:
        run.close()
    assert [path.name for path in run.declaration.output_folder.iterdir()] == ["ledger.json"]
