"""A release that keeps the rows of synthetic persons together: charged first, replayed from the transcript, constant where declared."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpcore import load_spec, synthesize
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.mechanisms import from_description
from dpcore.mechanisms.sampling import entropy
from dpcore.runs.early import SIZES_STEPS as STEPS
from dpcore.runs.planning.plan import plan_run
from dpcore.runs.reading import Reading
from tests.conftest import Workspace
from tests.contracts.mechanism import recorded_words
from tests.dpcore.runs.releases import dpflow, interrupted_at, manifest_of, transcript_of

pytestmark = pytest.mark.usefixtures("rough_models")

TOGETHER = (
    ("max_rows_per_unit: 2", "max_rows_per_unit: 5"),
    ("epsilon: 1.0", "epsilon: 8.0"),
    ("universe:", "persons: {rows_of: person, constant: [sex, age]}\nuniverse:"),
)
SIZES = np.resize([1, 1, 2, 3, 9], 500)
BOUGHT_FIRST = ("rows-lost", *STEPS)


@pytest.fixture
def persons(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A table whose persons have 1 to 9 rows and mostly one age, and the same noise in every test."""
    rng = np.random.default_rng(7)
    who = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
    age = rng.integers(0, 100, len(SIZES))[who]
    table = {
        "person": who,
        "sex": rng.choice(["F", "M"], len(SIZES))[who],
        "age": age,
        "smoker": age > 50,
        "city": "north",
    }
    pd.DataFrame(table).to_csv(workspace.folder / "visits.csv", index=False)
    workspace.write_spec(*TOGETHER)
    workspace.open_account()
    monkeypatch.setattr(entropy, "random_words", recorded_words(5))
    return workspace


def test_a_release_has_ids_whose_rows_agree_and_are_as_many_as_learned(persons: Workspace) -> None:
    outcome = synthesize(persons.spec, run_id="r")
    told, rows = manifest_of(outcome), pd.read_parquet(Path(outcome.release) / "data")
    assert list(rows.columns) == list(told["columns"]) == ["person", "sex", "age", "smoker", "city"]
    by_person = rows.groupby("person", sort=False)
    assert (by_person[["sex", "age"]].nunique(dropna=False) == 1).all(axis=None)
    assert (by_person["smoker"].nunique() > 1).any()
    assert rows["person"].is_monotonic_increasing
    sizes = np.bincount(by_person.size(), minlength=6)[1:]
    assert sizes.tolist() == told["persons"]["sizes"]
    true = np.bincount(np.minimum(SIZES, 5), minlength=6)[1:] / len(SIZES)
    assert np.abs(np.cumsum(sizes) / sizes.sum() - np.cumsum(true)).max() < 0.05
    losses, first, second, *others = transcript_of("r")
    assert (losses.step, first.step, second.step) == BOUGHT_FIRST
    with open_ledger() as ledger:
        reserved = ledger.run("r").reserved
    for each in (first, second):
        assert from_description(each.mechanism).sensitivity.l1 == 1  # type: ignore[attr-defined]
        assert each.amount == pytest.approx(reserved / 20, rel=0.01)
    assert {each.mechanism.get("l1") or each.mechanism["sensitivity"] for each in others} == {5}
    assert outcome.spent <= outcome.reserved
    card = (Path(outcome.release) / "card.html").read_text()
    assert "Rows with the same person belong to one synthetic person" in card


@pytest.mark.parametrize("after", [2, len(BOUGHT_FIRST)])
def test_a_run_that_dies_at_a_purchase_goes_on_with_what_it_has_paid_for(
    persons: Workspace, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    with interrupted_at(commit=after + 1):
        synthesize(persons.spec, run_id="r")
    paid = transcript_of("r")
    assert [each.step for each in paid] == list(BOUGHT_FIRST[:after])
    if after == len(BOUGHT_FIRST):
        monkeypatch.setattr(Reading, "tally", lambda *_, **__: pytest.fail("the answers are in the transcript"))
    synthesize(persons.spec, run_id="r", resume=True)
    assert transcript_of("r")[:after] == paid


def test_after_the_total_the_release_is_still_made_from_rows(persons: Workspace) -> None:
    persons.write_spec(*TOGETHER, ("epsilon: 8.0", "expect_rows: [500, 5000], epsilon: 8.0"))
    outcome = synthesize(persons.spec, run_id="r")
    assert [each.step for each in transcript_of("r")][:4] == ["rows-lost", "expected-total", *STEPS]
    assert outcome.rows == pytest.approx(np.minimum(SIZES, 5).sum(), rel=0.1)


def test_plan_and_check_say_what_is_learned_and_what_it_costs(
    persons: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_run(load_spec(persons.spec), rows=900)
    assert plan.persons is not None
    assert (plan.persons.share, plan.persons.constant) == (0.1, ("sex", "age"))
    for verb in ("plan", "check"):
        assert dpflow(verb, persons.spec) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "persons the rows of one synthetic person stay together" in said
        assert "10 % of the budget" in said


def test_an_epsilon_too_small_for_persons_is_refused_before_anything_is_read(persons: Workspace) -> None:
    persons.write_spec(*TOGETHER, ("epsilon: 8.0", "epsilon: 1e-5"))
    with pytest.raises(UsageError, match="too small"):
        synthesize(persons.spec, run_id="r")
    with open_ledger() as ledger:
        assert ledger.runs("visits") == ()
