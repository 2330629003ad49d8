"""Bought discovery in a whole run: charged level by level, found by noisy counts alone, and never bought twice."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore import load_spec, synthesize
from dpcore.errors import SourceError, UsageError
from dpcore.ledger import open_ledger
from dpcore.mechanisms import from_description
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Protection, Sensitivity
from dpcore.runs.planning.plan import plan_run
from dpcore.runs.synthesis import Synthesis
from dpcore.spec.discover import DiscoverBins, DiscoverValues
from dpcore.tables.histogram import LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, ingest
from dpcore.universe import Categorical, Number, Outside, Universe
from tests.conftest import Workspace
from tests.contracts.mechanism import recorded_words
from tests.dpcore.runs.releases import (
    dpflow,
    gone_on,
    interrupted,
    interrupted_at,
    manifest_of,
    nothing_was_bought,
    rows_of,
    steps_of,
    transcript_of,
)

pytestmark = pytest.mark.usefixtures("rough_models")

CODES = {"250": 0.4, "250.13": 0.2, "401.9": 0.2, "V27": 0.1, "E812": 0.09, "9": 0.01}
SPEC = """\
dataset: visits
source: {path: codes.parquet}
privacy: {unit: person, max_rows_per_unit: 2, neighbours: add-remove, epsilon: 2.0, delta: 1e-9}
universe:
  dx: {type: categorical, discover: {most: 20, length: 6, alphabet: 0123456789.EV, share: 0.1}, outside: other}
  cost: {type: number, min: 0, max: 10000, discover: {bins: 6, share: 0.05}}
  sex: {type: categorical, values: [F, M], missing: ["?"]}
workload: {marginals: 2}
strategy: {name: mwem, rounds: 2}
"""
CURRENCIES = [(Currency.PURE, 0.0), (Currency.GDP, 1e-9)]
LEVELS = ["discover/01-dx/1", "discover/01-dx/2", "discover/02-cost/1", "discover/02-cost/2", "discover/02-cost/3"]


def table(rows: int, *, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "person": rng.integers(0, rows // 2, rows),
            "dx": rng.choice(list(CODES), rows, p=list(CODES.values())),
            "cost": rng.lognormal(4, 1.5, rows),
            "sex": rng.choice(["F", "M", "?"], rows),
        }
    )


@pytest.fixture
def codes(workspace: Workspace) -> Callable[..., Path]:
    """A table of codes, and a spec that leaves them to be found."""
    table(6000, seed=1).to_parquet(workspace.folder / "codes.parquet", index=False)

    def write(*changes: tuple[str, str], currency: Currency | None = None, delta: float = 1e-9) -> Path:
        text = SPEC.replace("delta: 1e-9", f"delta: {delta:g}")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        workspace.spec.write_text(text, encoding="utf-8")
        if currency is not None:
            workspace.open_account(epsilon=1000, delta=delta, currency=currency)
        return workspace.spec

    return write


@pytest.mark.parametrize(("currency", "delta"), CURRENCIES)
def test_the_heavy_values_are_found_and_each_level_is_charged_its_part(
    codes: Callable[..., Path], currency: Currency, delta: float
) -> None:
    outcome = synthesize(codes(("epsilon: 2.0", "epsilon: 20"), currency=currency, delta=delta))
    manifest = manifest_of(outcome)
    dx, cost = manifest["discovered"]
    heavy = {text for text, share in CODES.items() if share > 0.05}
    assert heavy <= set(dx["cells"])
    false = set(dx["cells"]) - {*CODES, "other"}
    assert len(false) <= 4  # at most 0.1 a level are expected: more than four once in a million runs
    assert len(cost["cells"]) == 6
    done = {operation.step: operation for operation in transcript_of(outcome.run)}
    assert [step for step in done if step.startswith("discover/")] == sorted(LEVELS, key=lambda step: step[-1])
    with open_ledger() as ledger:
        reserved = ledger.run(outcome.run).reserved
    for step, share in zip(LEVELS, [0.05, 0.05, *[0.05 / 3] * 3], strict=True):
        assert from_description(done[step].mechanism).price(currency) <= done[step].amount
        assert done[step].amount == pytest.approx(share * reserved, rel=1e-3)
        assert from_description(done[step].mechanism).sensitivity == Sensitivity(l1=2, l2_squared=4, linf=2)  # type: ignore[union-attr]
    assert dx["spent"] == pytest.approx(0.1, rel=1e-3)
    assert {level["step"] for level in (*dx["levels"], *cost["levels"])} == set(LEVELS)
    assert 0.99 * 20 < outcome.epsilon <= 20
    assert 0.98 < outcome.spent / outcome.reserved <= 1.0
    card = Path(outcome.release, "card.html").read_text(encoding="utf-8")
    assert "except for dx, cost. These were discovered in the data with noisy counts" in card
    released = rows_of(outcome)
    assert set(released.dx.unique()) <= {*CODES, *false, "other"}
    assert released.sex.isna().mean() == pytest.approx(1 / 3, abs=0.1)


def test_a_spec_that_declares_everything_buys_and_says_nothing_of_it(workspace: Workspace) -> None:
    workspace.open_account()
    run = Synthesis(load_spec(workspace.spec), run_id="r1", resume=False)
    run.close()
    assert not run.discovers
    outcome = synthesize(workspace.spec)
    assert manifest_of(outcome)["discovered"] == []
    assert "not taken from the data.</p>" in Path(outcome.release, "card.html").read_text(encoding="utf-8")


def test_nothing_stands_out_of_much_noise_and_the_run_goes_on(codes: Callable[..., Path]) -> None:
    outcome = synthesize(codes(("epsilon: 2.0", "epsilon: 0.01"), currency=Currency.ZCDP))
    dx, _ = manifest_of(outcome)["discovered"]
    assert len(dx["cells"]) <= 5  # see above
    assert set(rows_of(outcome).dx.unique()) <= set(dx["cells"])
    if dx["levels"][0]["kept"] == 0:  # then the second level is not bought, and its part is left to the strategy
        assert "discover/01-dx/2" not in steps_of(outcome.run)
        assert dx["spent"] == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize("levels", [1, 4])
def test_a_run_interrupted_between_levels_draws_nothing_again(codes: Callable[..., Path], levels: int) -> None:
    spec = codes(currency=Currency.ZCDP)
    with interrupted_at(commit=1 + levels + 1):
        synthesize(spec, run_id="r")
    before = steps_of("r")
    assert before[0] == "rows-lost"
    assert [step.startswith("discover/") for step in before[1:]] == [True] * levels
    gone_on(spec, "r")


def test_levels_that_are_in_the_transcript_are_not_read_again(
    codes: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = codes(currency=Currency.ZCDP)
    read: list[tuple[str, ...]] = []

    def watched(source: Source, *, coding: Coding, draws: Draws, fingerprint: Fingerprint) -> object:
        read.append(coding.universe.names)
        return ingest(source, coding=coding, draws=draws, fingerprint=fingerprint)

    monkeypatch.setattr("dpcore.tables.engines.ingest", watched)
    with monkeypatch.context() as patch:
        patch.setattr(Synthesis, "begin", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesize(spec, run_id="r1")
    assert read == [("fate",), ("dx", "cost"), ("dx", "cost"), ("cost",), ("dx", "cost", "sex")]
    read.clear()
    synthesize(spec, run_id="r1", resume=True)
    assert read == [("dx", "cost", "sex")]


def test_a_table_without_a_declared_column_is_refused_before_anything_is_bought(
    codes: Callable[..., Path], workspace: Workspace
) -> None:
    spec = codes(currency=Currency.ZCDP)
    table(100, seed=1).drop(columns="sex").to_parquet(workspace.folder / "codes.parquet", index=False)
    with pytest.raises(SourceError, match="sex"):
        synthesize(spec)
    assert nothing_was_bought()


def test_plan_and_check_go_by_what_may_be_found(codes: Callable[..., Path]) -> None:
    declaration = load_spec(codes(currency=Currency.GDP))
    plan = plan_run(declaration, rows=6000)
    outcome = synthesize(declaration.path)
    dx, cost = manifest_of(outcome)["discovered"]
    assert [(each.name, each.cells, each.levels) for each in plan.discovers] == [("dx", 20, 2), ("cost", 6, 3)]
    assert [each.noise for each in plan.discovers] == pytest.approx(
        [found["levels"][0]["noise"] for found in (dx, cost)], rel=1e-3
    )
    assert plan.discovers[0].least == pytest.approx(dx["levels"][0]["threshold"], abs=1)
    without = plan_run(load_spec(codes(("discover: {bins: 6, share: 0.05}", "bins: 6"))), rows=6000)
    assert plan.first[2].noise > without.first[2].noise  # what discovery takes is not there for the strategy


def test_check_says_what_is_left_to_be_found(codes: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec = codes()
    assert dpflow("check", spec) == 0
    shown = capsys.readouterr().out
    assert "up to 20 + other" in shown  # as many as the spec says, and what a warning counts
    assert "up to 21" not in shown
    assert "finds      dx, cost: in the data, for 15 % of the budget" in shown
    assert dpflow("check", spec, "--json") == 0
    assert json.loads(capsys.readouterr().out)["discovers"] == {"dx": 0.1, "cost": 0.05}
    spec = codes(("workload:", "prior: {release: latest, unchanged: true}\nworkload:"))
    assert dpflow("check", spec) == 0
    assert "for 15 % of the budget; a later run takes over what the first one has found" in capsys.readouterr().out


def test_an_epsilon_too_small_for_a_level_is_refused_before_anything_is_spent(codes: Callable[..., Path]) -> None:
    spec = codes(("share: 0.1}", "share: 1e-6}"), ("epsilon: 2.0", "epsilon: 0.02"), currency=Currency.GDP)
    with pytest.raises(UsageError, match=r"too small .* a larger `share` to discover by"):
        synthesize(spec)
    assert nothing_was_bought()


def test_a_shuffled_table_of_the_same_counts_finds_the_same_by_the_same_noise(
    codes: Callable[..., Path], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but noisy counts decides: without chance, equal counts lead the same way, whatever else differs in the tables."""
    spec = codes(("unit: person, max_rows_per_unit: 2", "unit: row"))
    workspace.open_account(epsilon=1000, unit="row")
    monkeypatch.setattr("dpcore.mechanisms.noise.with_noise", lambda counts, **_: counts + 7)
    found = []
    for seed in (1, 2):
        rows = table(6000, seed=1)
        for column in ("dx", "cost"):
            rows[column] = np.random.default_rng(seed).permutation(rows[column])
        rows.to_parquet(workspace.folder / "codes.parquet", index=False)
        outcome = synthesize(spec)
        steps = [(done.step, done.amount) for done in transcript_of(outcome.run) if "discover" in done.step]
        found.append((manifest_of(outcome)["discovered"], steps))
    assert found[0] == found[1]


ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["a", "ab", "abba", "b", "", "c", "é"]), st.floats(-1, 11)),
    max_size=25,
)


@given(ROWS, st.integers(1, 3), st.lists(st.text("ab", min_size=1, max_size=2), unique=True))
def test_removing_a_unit_moves_the_counts_of_a_level_by_at_most_k(
    rows: list[tuple[int, str, float]], k: int, kept: list[str]
) -> None:
    texts = DiscoverValues(most=4, length=4, alphabet="ab", share=0.1).descent(
        Categorical(("v1", "v2", "v3", "v4"), outside=Outside.DROP)
    )
    bins = DiscoverBins(bins=3, share=0.1).descent(Number((0, 3, 6, 10)))
    for descent in (texts, bins):  # down to some second level, which noise alone decides
        first = descent.candidates
        assert first is not None
        chosen = [100 if label in kept or label.startswith("[0,") else 0 for label in first.labels]
        descent.take(np.array(chosen, dtype=np.int64), least=50, noise=10.0)
    asked = {name: each.candidates for name, each in (("text", texts), ("number", bins))}
    assert asked["number"] is not None
    universe = Universe({name: candidates for name, candidates in asked.items() if candidates is not None})
    coding = Coding(
        universe=universe,
        protection=Protection(unit="person", rows_per_unit=k, neighbours=Neighbours.ADD_REMOVE),
        window=None,
    )

    def counts(some: list[tuple[int, str, float]]) -> list[np.ndarray[Any, Any]]:
        columns = [
            pa.array([row[place] for row in some], kind)
            for place, kind in enumerate((pa.int64(), pa.string(), pa.float64()))
        ]
        source = Source.of(pa.table(columns, names=["person", "text", "number"]))
        counted = LocalHistogram.count(ingest(source, coding=coding, draws=draws), universe)
        return [counted.marginal((axis,)) for axis in range(len(universe.names))]

    draws = Draws.fresh()  # the same for the rows of all others, whose places stay the same: whose rows leave is last
    rows = sorted(rows, key=lambda row: row[0] == 0)
    whole, rest = counts(rows), counts([row for row in rows if row[0] != 0])
    for one, other in zip(whole, rest, strict=True):
        assert np.abs(one - other).sum() <= k
        assert one.sum() == sum(
            min(k, sum(row[0] == person for row in rows)) for person in range(5)
        )  # nobody is dropped


def test_the_log_says_how_much_was_found_and_the_outcome_warns_where_it_was_nothing(
    codes: Callable[..., Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        entropy, "random_words", recorded_words(1)
    )  # with other noise a value might be found where none is
    found = codes(("epsilon: 2.0", "epsilon: 20"), currency=Currency.ZCDP)
    with caplog.at_level("INFO", logger="dpcore.progress"):
        dx, cost = manifest_of(synthesize(found))["discovered"]
    assert dx["found"] == len(set(dx["cells"]) - {"other"})
    assert f"found {dx['found']} values in dx, {cost['found']} bins in cost" in caplog.messages
    nothing = codes(("alphabet: 0123456789.EV", "alphabet: xyz"), ("outside: other", "outside: drop"))
    with caplog.at_level("INFO", logger="dpcore.progress"):
        outcome = synthesize(nothing)
    assert any(line.startswith("found 0 values in dx, ") for line in caplog.messages)
    assert [warning[:40] for warning in outcome.warnings] == ["no value of `dx` stood out of the noise,"]
