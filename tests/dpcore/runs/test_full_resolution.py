"""Full resolution in a whole run: each level is charged its part, the counts are evidence, and nothing is bought or read twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import load_spec, synthesize
from dpcore.errors import UsageError
from dpcore.ledger import Ledger, open_ledger
from dpcore.mechanisms import from_description
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Sensitivity
from dpcore.runs.planning.plan import plan_run
from dpcore.runs.reading import Reading
from dpcore.runs.synthesis import Synthesis
from tests.conftest import Workspace
from tests.dpcore.runs.releases import interrupted, manifest_of, transcript_of

SPEC = """\
dataset: visits
source: {path: costs.parquet}
privacy: {unit: person, max_rows_per_unit: 2, neighbours: add-remove, epsilon: 20, lose: 0.5, delta: DELTA}
universe:
  sex: {type: categorical, values: [F, M]}
  cost: {type: number, min: 0, max: 1000, step: 0.01, missing: true, share: 0.1}
  hours: {type: integer, min: 0, max: 99}
  day: {type: date, min: 2025-01-01, max: 2025-12-31, share: 0.05}
  at: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-12-31T23:00:00, step: hour, share: 0.05}
workload: {marginals: 2}
strategy: {name: adaptive, rounds: 2}
"""
FINE = ("cost", "hours", "day", "at")


@pytest.fixture
def spec(workspace: Workspace) -> Callable[..., Path]:
    rng, rows = np.random.default_rng(1), 6000
    frame = pd.DataFrame(
        {
            "person": rng.integers(0, rows // 2, rows),
            "sex": rng.choice(["F", "M", "X"], rows, p=[0.5, 0.3, 0.2]),  # a fifth of the rows is dropped
            "cost": np.where(rng.random(rows) < 0.3, 12.34, np.round(rng.lognormal(3, 1, rows), 2)),
            "hours": np.where(rng.random(rows) < 0.5, 40, rng.integers(0, 100, rows)),
            "day": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, rows), "D"),
            "at": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, rows) * 24 + 9, "h"),
        }
    )
    frame.loc[frame.index % 10 == 0, "cost"] = None
    frame.to_parquet(workspace.folder / "costs.parquet", index=False)

    def write(currency: Currency = Currency.ZCDP, delta: float = 1e-9, **changes: str) -> Path:
        text = SPEC.replace("DELTA", f"{delta:g}")
        for old, new in changes.items():
            text = text.replace(old, new)
        workspace.spec.write_text(text, encoding="utf-8")
        workspace.open_account(epsilon=1000, delta=delta, currency=currency)
        return workspace.spec

    return write


@pytest.mark.usefixtures("rough")
def test_a_level_costs_what_its_share_buys_and_columns_are_not_bought_again(spec: Callable[..., Path]) -> None:
    path, currency = spec(Currency.GDP), Currency.GDP
    planned = plan_run(load_spec(path), rows=4800)
    outcome = synthesize(path)
    with open_ledger() as ledger:
        reserved = ledger.run(outcome.run).reserved
    done = {operation.step: operation for operation in transcript_of(outcome.run)}
    descents = load_spec(path).descents()
    for number, name in enumerate(FINE, start=2):
        levels = [step for step in done if step.startswith(f"discover/{number:02}-{name}/")]
        assert 1 <= len(levels) <= descents[name].levels
        for step in levels:
            mechanism = from_description(done[step].mechanism)
            assert mechanism.price(currency) == done[step].amount
            assert done[step].amount == pytest.approx(
                float(descents[name].share / descents[name].levels) * reserved, rel=2e-3
            )
            assert mechanism.sensitivity == Sensitivity(l1=2, l2_squared=4, linf=2)  # type: ignore[union-attr]
        first = next(each for each in planned.discovers if each.name == name)
        assert first.noise == pytest.approx(from_description(done[levels[0]].mechanism).standard_deviation, rel=2e-3)  # type: ignore[union-attr]
    assert [step for step in done if step.startswith("one-way/")] == ["one-way/01-sex"]
    assert 0.97 < outcome.spent / outcome.reserved <= 1.0


def test_values_are_on_their_steps_and_the_rows_of_the_release_are_those_that_were_counted(
    spec: Callable[..., Path],
) -> None:
    path = spec()
    outcome = synthesize(path)
    released = pq.read_table(Path(outcome.release) / "data")
    frame = released.to_pandas()
    assert all(len(repr(cost).split(".")[1]) <= 2 for cost in frame["cost"].dropna())
    assert (frame["cost"] == 12.34).mean() == pytest.approx(0.27, abs=0.05)
    assert frame["cost"].isna().mean() == pytest.approx(0.1, abs=0.03)
    assert (frame["hours"] == 40).mean() == pytest.approx(0.5, abs=0.05)
    assert (frame["at"].dt.hour == 9).mean() > 0.9
    assert frame["at"].dt.minute.eq(0).all()
    cost = next(each for each in manifest_of(outcome)["discovered"] if each["column"] == "cost")
    assert cost["kind"] == "interval"
    assert cost["found"] >= len(cost["cells"]) - 1
    source = pd.read_parquet(path.parent / "costs.parquet")
    kept = source[source["sex"] != "X"].groupby("person").size().clip(upper=2).sum()
    assert len(frame) == pytest.approx(kept, rel=0.03)


def test_a_run_that_is_resumed_reads_nothing_for_the_levels_it_has_and_publishes_the_same_rows(
    spec: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spec()
    run = Synthesis(load_spec(path), run_id="r1", resume=False)
    run.reserve()
    run.discover()
    before = run.stage.declaration.universe
    counted = dict(run.strategy._early_counts.counts)
    run.close()
    monkeypatch.setattr(Reading, "count", lambda *_: pytest.fail("a level was read again"))
    again = Synthesis(load_spec(path), run_id="r1", resume=True)
    again.reserve()
    again.discover()
    assert again.stage.declaration.universe == before
    for axis, counts in again.strategy._early_counts.counts.items():
        assert counts is not None
        assert counts.to_bytes() == counted[axis].to_bytes()
    again.close()


def test_a_run_is_resumed_if_what_it_may_count_is_as_it_was(
    spec: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spec()
    table = pd.read_parquet(path.parent / "costs.parquet").astype({"cost": object})
    chosen, dropped = (table.index[(table["sex"] == sex) & table["cost"].notna()][0] for sex in ("F", "X"))
    table.loc[chosen, ["cost", "at"]] = ["2000.00", pd.Timestamp("2025-03-03 10:15")]

    def goes_on(changed: pd.DataFrame, *, resume: bool = True) -> bool:
        """Tell whether the run accepts a table, and interrupt it at its first answer."""
        with pytest.raises((KeyboardInterrupt, UsageError)) as ended:
            synthesize(path, run_id="r1", resume=resume, table=changed)
        refused = "the source data changed since this run began" in str(ended.value)
        assert refused or ended.type is KeyboardInterrupt
        return not refused

    def change(row: int, **values: Any) -> pd.DataFrame:
        changed = table.copy()
        changed.loc[row, list(values)] = list(values.values())
        return changed

    monkeypatch.setattr(Ledger, "commit", interrupted)
    assert goes_on(table, resume=False)
    assert goes_on(change(chosen, cost=3000))  # both are clipped
    assert goes_on(change(chosen, cost="2e3", at=pd.Timestamp("2025-03-03 10:59")))
    assert goes_on(change(dropped, cost=1.0, hours=7))
    assert goes_on(table.drop(index=dropped))
    for row, name, value in (
        (chosen, "cost", 1.0),
        (chosen, "cost", None),
        (chosen, "at", pd.Timestamp("2025-03-03 11:00")),
        (chosen, "sex", "X"),
        (dropped, "sex", "F"),
    ):
        assert not goes_on(change(row, **{name: value}))


@pytest.mark.parametrize("strategy", ["{name: mwem, rounds: 2}", "{name: pmw, rounds: 30}"])
def test_other_strategies_learn_a_column_at_full_resolution_as_well(spec: Callable[..., Path], strategy: str) -> None:
    path = spec(
        **{
            "{name: adaptive, rounds: 2}": strategy,
            "  day: {type: date, min: 2025-01-01, max: 2025-12-31, share: 0.05}\n": "",
            "  at: {type: datetime, min: 2025-01-01T00:00:00, max: 2025-12-31T23:00:00, step: hour, share: 0.05}\n": "",
        }
    )
    with seeded(1):
        frame = pq.read_table(Path(synthesize(path).release) / "data").to_pandas()
    assert (frame["hours"] == 40).mean() > 0.1


def test_a_single_column_is_released_from_its_tree_alone(spec: Callable[..., Path]) -> None:
    text = {line + "\n": "" for line in SPEC.splitlines() if line.startswith("  ") and "hours" not in line}
    path = spec(**text, **{"marginals: 2": "marginals: 1", ", rounds: 2": ""})
    outcome = synthesize(path)
    frame = pq.read_table(Path(outcome.release) / "data").to_pandas()
    assert (frame["hours"] == 40).mean() == pytest.approx(0.5, abs=0.05)
    assert outcome.spent / outcome.reserved == pytest.approx(0.9, abs=0.01)
