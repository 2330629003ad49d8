"""A whole run without Prefect: what it spends, what it leaves, and that no crash loses or repeats anything."""

import random
import shutil
import time
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpcore import load_spec, synthesize
from dpcore.errors import SourceError, UsageError
from dpcore.ledger import LEASE_SECONDS, open_ledger
from dpcore.runs.synthesis import Synthesis
from dpcore.steward.verify import verify_ledger
from tests.campaign import often
from tests.catalogue import BY_NAME
from tests.conftest import Workspace, visits
from tests.dpcore.runs.releases import (
    Tree,
    check_the_books,
    check_the_release,
    gone_on,
    interrupted_at,
    killed,
    learned,
    nothing_was_bought,
    rows_of,
    transcript_of,
)
from tests.processes import forked
from tests.rough_models import fit_roughly


@pytest.mark.parametrize(
    "name",
    [
        "mwem in pure epsilon",
        "pmw",
        "adaptive",
        "a row is replaced",
        "persons with a chosen limit, replaced, expected rows",
        "discovery",
        "full resolution",
        "dropped and repaired combinations",
    ],
)
@pytest.mark.usefixtures("rough")
def test_a_release_is_paid_for_as_it_was_drawn_and_written_again_from_the_ledger_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree_of: Tree, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    setting = BY_NAME[name]
    with setting.prepared(setting.units[-1], monkeypatch):
        first = synthesize("spec.yaml", run_id="r")
        assert 0 < first.epsilon <= load_spec("spec.yaml").spec.privacy.epsilon
        assert name == "pmw" or 0.95 < first.spent / first.reserved <= 1.0
        check_the_books("r")
        check_the_release(first)
        assert verify_ledger().manifests == 1
        paid, files, release = transcript_of("r"), tree_of(Path("releases")), Path(first.release)
        Path("visits.csv").write_text("the table is gone\n", encoding="utf-8")
        assert synthesize("spec.yaml", run_id="r", resume=True) == first
        assert tree_of(Path("releases")) == files
        release.rename("elsewhere")
        assert synthesize("spec.yaml", run_id="r", resume=True) == first
        for part in ("data", "measurements.parquet"):
            pd.testing.assert_frame_equal(pd.read_parquet(release / part), pd.read_parquet(Path("elsewhere") / part))
        assert transcript_of("r") == paid
        check_the_books("r")


def test_the_synthetic_rows_resemble_the_table_and_a_shuffled_control_does_not(workspace: Workspace) -> None:
    workspace.open_account(epsilon=100)
    workspace.write_spec(("epsilon: 1.0", "epsilon: 20.0"))
    made, true = rows_of(synthesize(workspace.spec)), visits(3000, seed=1)
    share = true.assign(old=true.age > 49).groupby("old").smoker.mean()
    made_share = made.assign(old=made.age > 49).groupby("old").smoker.mean()
    assert abs(made_share - share).max() < 0.08
    shuffled = made.assign(old=made.age > 49, smoker=np.random.default_rng(0).permutation(made.smoker))
    assert abs(shuffled.groupby("old").smoker.mean() - share).max() > 0.08


AGE, SMOKER = "  age: {type: integer, min: 0, max: 99, width: 25}\n", "  smoker: {type: boolean}\n"


@pytest.mark.parametrize(
    "change", [("epsilon: 1.0", "epsilon: 0.5"), (AGE + SMOKER, SMOKER + AGE)], ids=["epsilon", "order of columns"]
)
def test_an_id_stands_for_one_spec(workspace: Workspace, change: tuple[str, str]) -> None:
    """Measurements know columns by their place: in another order, counts of one column would be published as another's."""
    workspace.open_account()
    run = Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)
    run.reserve()
    run.close()
    workspace.write_spec(change)
    with pytest.raises(UsageError, match="reserved for something else"):
        synthesize(workspace.spec, run_id="r1", resume=True)


@pytest.mark.usefixtures("rough")
def test_the_declared_number_of_rows_is_kept_and_the_noisy_one_is_not_the_true_one(workspace: Workspace) -> None:
    workspace.open_account()
    workspace.write_spec(("strategy:", "output: {rows: 77}\nstrategy:"))
    assert synthesize(workspace.spec).rows == 77
    workspace.write_spec()
    assert len({synthesize(workspace.spec).rows for _ in range(2)}) == 2  # the true number is nearly the same each time


@pytest.mark.usefixtures("rough")
def test_an_empty_table_is_no_error(workspace: Workspace) -> None:
    workspace.open_account()
    (workspace.folder / "visits.csv").write_text("person,sex,age,smoker,city\n", encoding="utf-8")
    outcome = synthesize(workspace.spec)
    assert outcome.rows < 1000
    check_the_books(outcome.run)


def damaged(*_arguments: object, **_more: object) -> None:
    raise SourceError("visits.csv is damaged")


def test_a_damaged_table_gives_the_reservation_back_only_if_nothing_was_charged(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.open_account()
    table = (workspace.folder / "visits.csv").read_bytes()
    (workspace.folder / "visits.csv").write_bytes(b"")
    with pytest.raises(SourceError):
        synthesize(workspace.spec, run_id="r1")
    assert nothing_was_bought()
    # the control: the same failure after one charged operation refunds nothing
    (workspace.folder / "visits.csv").write_bytes(table)
    with interrupted_at(commit=1):
        synthesize(workspace.spec, run_id="r2")
    monkeypatch.setattr("dpcore.tables.engines.ingest", damaged)
    with pytest.raises(SourceError):
        synthesize(workspace.spec, run_id="r2", resume=True)
    with open_ledger() as ledger:
        run = ledger.run("r2")
        assert (run.state, ledger.balance("visits").used) == ("open", run.reserved)
        assert run.spent > 0


def test_a_table_that_changed_is_not_mixed_into_a_run(workspace: Workspace) -> None:
    workspace.open_account()
    with interrupted_at(commit=1):
        synthesize(workspace.spec, run_id="r1")
    visits(3000, seed=2).to_csv(workspace.folder / "visits.csv", index=False)
    with pytest.raises(UsageError, match="changed"):
        synthesize(workspace.spec, run_id="r1", resume=True)


def small(workspace: Workspace) -> Path:
    """Write a table and a spec that are released in a third of a second."""
    visits(300, seed=1).to_csv(workspace.folder / "visits.csv", index=False)
    return workspace.write_spec(("rounds: 4", "rounds: 1"))


@pytest.mark.campaign
@pytest.mark.usefixtures("rough")
def test_a_run_killed_at_any_boundary_of_the_ledger_goes_on(workspace: Workspace) -> None:
    """Every fifth boundary, or each in a campaign: a charge and its commit have four, so all of them are tried."""
    spec = small(workspace)
    workspace.open_account(epsilon=100)
    for calls in count(1, often(5, campaign=1)):
        was_killed = killed(spec, f"r{calls}", calls=calls)
        gone_on(spec, f"r{calls}")
        if not was_killed:
            break
    assert calls > 20


@pytest.mark.campaign
@pytest.mark.usefixtures("rough")
def test_a_run_killed_at_random_moments_goes_on(workspace: Workspace) -> None:
    spec, moments = small(workspace), random.Random(7)  # noqa: S311  moments to kill at, not noise
    workspace.open_account(epsilon=100)
    begin = time.monotonic()
    killed(spec, "whole", calls=0)
    duration = time.monotonic() - begin
    for number in range(often(2, campaign=20)):
        for old in (".dpflow", "releases"):
            shutil.rmtree(workspace.folder / old)
        workspace.open_account()
        child = forked().Process(target=run_roughly, args=(str(spec), f"r{number}"))
        child.start()
        child.join(timeout=moments.uniform(0, duration))
        child.kill()
        child.join()
        gone_on(spec, f"r{number}")


def run_roughly(spec: str, run_id: str) -> None:
    fit_roughly(pytest.MonkeyPatch())
    synthesize(spec, run_id=run_id)


@pytest.mark.usefixtures("rough")
def test_a_worker_whose_run_was_ended_draws_and_publishes_nothing(workspace: Workspace) -> None:
    workspace.open_account()
    in_a_while = datetime.now(UTC) + timedelta(minutes=1, seconds=LEASE_SECONDS)
    for moment, take in (("round", lambda run: run.rounds.select(1)), ("publishing", Synthesis.publish)):
        run = learned(Synthesis(load_spec(workspace.spec), run_id=moment, resume=False))
        if moment == "publishing":
            run.sample()
        with open_ledger(clock=lambda: in_a_while) as steward:
            steward.settle(moment, release=None, lease=None)
        with pytest.raises(UsageError, match=f"run '{moment}' is settled and takes no more operations"):
            take(run)
        run.close()
    assert [path.name for path in run.declaration.output_folder.iterdir()] == ["ledger.json"]
