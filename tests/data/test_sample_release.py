"""What the plan of the sample says, what the card of its release shows, and what answers give: they agree."""

import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.coverage_releases import seeded
from dpcore import Outcome, answer, synthesize
from dpcore.answers import replicates
from dpcore.answers.judging import judge
from dpcore.answers.release import open_release
from dpcore.ledger import open_ledger
from dpcore.mechanisms.pricing import currency_for
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.reporting.ratings import Rating
from dpcore.runs.planning.plan import plan_run
from dpcore.spec import Declaration, load_spec
from dpcore.tables.ingest.draws import KEY_BYTES, Draws
from tests.campaign import CAMPAIGN

DATA = Path(__file__).parents[2] / "data"
READMITTED = (
    "select department, count(*) filter (where readmitted) / count(*) as share from release group by department"
)
Ratings = dict[frozenset[str], Rating]


def made(folder: Path, *changes: tuple[str, str], seed: int) -> tuple[Declaration, Outcome]:
    """Make a release of the sample, with the same noise in every run of the tests."""
    text = (DATA / "clinic-visits.yaml").read_text(encoding="utf-8")
    for old, new in (("../releases", "releases"), *changes):
        assert old in text
        text = text.replace(old, new)
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    shutil.copy(DATA / "clinic-visits.csv", folder)
    with pytest.MonkeyPatch.context() as patch, seeded(seed):
        patch.setattr(replicates, "REPLICATES", 5)
        patch.setattr(Draws, "fresh", lambda **key: Draws(bytes(KEY_BYTES), **key))  # which visit of a patient is kept
        patch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{folder}/ledger.sqlite")
        currency = currency_for(1.0, delta=1e-9, unit="patient_id", neighbours=Neighbours.ADD_REMOVE)
        _, cap = budget_of(10.0, delta=1e-9, currency=currency)
        with open_ledger(create=True) as ledger:
            ledger.open_account(
                "clinic-visits",
                currency=currency,
                cap=cap,
                epsilon=10.0,
                delta=1e-9,
                unit="patient_id",
                neighbours=Neighbours.ADD_REMOVE,
            )
        return load_spec(folder / "spec.yaml"), synthesize(folder / "spec.yaml")


_MADE: list[tuple[Declaration, Outcome]] = []


def sample_release(factory: pytest.TempPathFactory) -> tuple[Declaration, Outcome]:
    """Make the release of the sample, once for all tests."""
    if not _MADE:
        _MADE.append(made(factory.mktemp("sample"), seed=1))
    return _MADE[0]


def planned(declaration: Declaration, folder: Path) -> Ratings:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{folder}/ledger.sqlite")
        plan = plan_run(declaration, rows=20_000, units=9_000)
    return {frozenset(pair.columns): pair.rating for pair in plan.ratings.pairs}


def on_card(declaration: Declaration, release: Path) -> Ratings:
    tables = judge(open_release(release)).portrait.tables
    return {frozenset(table.columns): table.rating for table in tables if len(table.columns) == 2}


def disagreements(declaration: Declaration, outcome: Outcome) -> int:
    release = Path(outcome.release)
    expected, shown = planned(declaration, release.parents[2]), on_card(declaration, release)
    assert expected.keys() == shown.keys()
    assert len(expected) == 28
    return sum(expected[pair] != shown[pair] for pair in expected)


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Declaration, Outcome]:
    return sample_release(tmp_path_factory)


@pytest.mark.campaign
def test_plan_and_card_agree_and_no_pair_is_poor(sample: tuple[Declaration, Outcome], tmp_path: Path) -> None:
    assert disagreements(*sample) <= 7
    assert Counter(on_card(sample[0], Path(sample[1].release)).values())[Rating.POOR] == 0
    if CAMPAIGN:  # control: with four rounds the card shows what the plan did not say
        assert disagreements(*made(tmp_path, ("# rounds: 12", "rounds: 4"), seed=1)) > 8


def test_readmission_by_department_is_measured_and_right(sample: tuple[Declaration, Outcome]) -> None:
    found = answer(sample[1].release, READMITTED).set_index("department")
    table = pd.read_csv(DATA / "clinic-visits.csv")
    readmitted = table["readmitted"].astype(str).str.lower() == "true"
    true = readmitted.groupby(table["department"]).mean()[found.index]
    assert set(found["share_basis"]) == {"measured"}
    assert ((found["share_low"] <= true) & (true <= found["share_high"])).sum() >= 8
    assert (found["share"] - true).abs().mean() <= 0.05
