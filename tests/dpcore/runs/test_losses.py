"""A run whose rows are lost is stopped by noisy counts, which name the columns."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpcore import synthesize
from dpcore.cli.main import main
from dpcore.curator.curator import Curator
from dpcore.errors import RowsUnexpected
from dpcore.ledger import open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.privacy.accounting import budget_of
from dpcore.runs.early import LOSSES_STEP as STEP
from dpcore.runs.losses import Losses
from dpcore.tables.ingest.fates import fate_universe
from dpcore.universe import Categorical, Date, Every, Outside, Universe
from tests.conftest import Workspace
from tests.dpcore.runs.releases import nothing_was_bought

pytestmark = pytest.mark.usefixtures("rough_models")

UNIVERSE = Universe(
    {
        "sale": Categorical(("WD", "New")),
        "sold": Date(minimum=date(2006, 1, 1), maximum=date(2010, 12, 31), every=Every.MONTH, outside=Outside.DROP),
        **{f"more{number}": Categorical(("a", "b"), outside=Outside.OTHER) for number in range(78)},
    }
)


def losses(*, noise: float = 55.0, seed: int = 1, **counts: int) -> Losses:
    """Return noisy counts of fates, by the names of columns or `kept`."""
    labels = fate_universe(UNIVERSE).attributes["fate"].labels
    kept = counts.pop("kept")
    true = {"kept": kept, **{name if " in " in name else f"dropped by {name}": rows for name, rows in counts.items()}}
    noisy = np.random.default_rng(seed).normal(0, noise, len(labels)) + [true.get(label, 0) for label in labels]
    return Losses.of(Measurement(STEP, (0,), None, np.rint(noisy).astype(np.int64), noise=noise), UNIVERSE)


def test_a_column_that_drops_most_rows_is_found_among_eighty() -> None:
    found = losses(kept=371, sale=2559)
    assert found.exceed(0.2)
    assert list(found.lost) == ["sale"]
    said = found.sentence(UNIVERSE, tolerated=0.2)
    for fact in (
        "% of the rows would be lost",
        "tolerates 20 %",
        "rows are dropped by `sale`",
        "otherwise than `values`",
    ):
        assert fact in said


def test_of_a_table_without_losses_no_noise_makes_any() -> None:
    assert not any(losses(kept=2930, seed=seed).exceed(0.2) for seed in range(50))


def test_losses_within_what_is_tolerated_and_few_rows_do_not_stop_a_run() -> None:
    assert not losses(kept=2400, sale=500).exceed(0.2)
    assert losses(kept=2000, sale=3000).exceed(0.2)
    assert not losses(kept=2000, sale=3000).exceed(0.7)
    assert not losses(kept=60, sale=60).exceed(0.2)  # nothing stands out


def test_dates_in_another_format_and_violated_constraints_have_reasons_of_their_own() -> None:
    said = losses(kept=1, sold=2900, **{"a constraint": 1000}).sentence(UNIVERSE, tolerated=0.2)
    assert said.index("by `sold`") < said.index("they contradict a constraint")
    assert "ISO dates" in said


def test_columns_without_declared_values_and_empty_tables_are_warned_of() -> None:
    assert list(losses(kept=3000).warnings(UNIVERSE, tolerated=0.2)) == []
    assert not any(
        warning for seed in range(25) for warning in losses(kept=3000, seed=seed).warnings(UNIVERSE, tolerated=0.2)
    )
    (other,) = losses(kept=500, **{"other in more7": 2500}).warnings(UNIVERSE, tolerated=0.2)
    assert other.startswith("about 8")
    assert "of the rows have `other` in `more7`" in other
    (nothing,) = losses(kept=1).warnings(UNIVERSE, tolerated=0.2)
    assert "hardly a row was read" in nothing


SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: UNIT, neighbours: add-remove, epsilon: 1.0, delta: 1e-9, max_rows_per_unit: LIMIT}
universe:
  sale: {type: categorical, values: [WD, New, COD], match: exact}
  sold: {type: date, min: 2006-01-01, max: 2010-12-31, every: year, missing: false}
  rooms: {type: integer, min: 0, max: 15}
workload: {marginals: 2}
"""
WRONG = {
    "blanks": {"sale": lambda sale: sale + " "},
    "case": {"sale": str.lower},
    "format": {"sold": lambda sold: f"{sold[5:7]}/{sold[8:]}/{sold[:4]}"},
}


def table(folder: Path, wrong: str | None, *, persons: int = 1500) -> None:
    """Write sales of houses, one column of which is written otherwise than the spec says."""
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(
        {
            "who": np.repeat(np.arange(persons), rng.integers(1, 4, persons)),
        }
    )
    rows["sale"] = rng.choice(["WD", "New", "COD"], len(rows), p=[0.87, 0.1, 0.03])
    rows["sold"] = rng.choice(pd.date_range("2006-01-01", "2010-12-31").strftime("%Y-%m-%d"), len(rows))
    rows["rooms"] = rng.integers(2, 12, len(rows))
    for name, change in WRONG.get(wrong or "", {}).items():
        rows[name] = rows[name].map(change)
    rows.to_csv(folder / "visits.csv", index=False)


def written(workspace: Workspace, *changes: tuple[str, str], unit: str = "row", limit: str = "1") -> Path:
    text = SPEC.replace("UNIT", unit).replace("LIMIT", limit)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    workspace.spec.write_text(text, encoding="utf-8")
    return workspace.spec


@pytest.mark.parametrize(
    ("wrong", "unit", "limit"), [("blanks", "row", "1"), ("case", "who", "3"), ("format", "who", "auto")]
)
def test_a_run_that_would_lose_its_rows_stops_names_the_column_and_returns_its_budget(
    workspace: Workspace, wrong: str, unit: str, limit: str
) -> None:
    table(workspace.folder, wrong)
    workspace.open_account(unit=unit)
    (name,) = WRONG[wrong]
    for resume in (False, True):  # a retry says the same
        with pytest.raises(RowsUnexpected, match=f"rows are dropped by `{name}`") as stopped:
            synthesize(written(workspace, unit=unit, limit=limit), run_id="r", resume=resume)
    assert stopped.value.exit_code == 1
    with open_ledger() as ledger:
        run, balance = ledger.run("r"), ledger.balance("visits")
    assert (run.state, run.release, balance.reserved) == ("settled", None, 0)
    assert 0 < run.spent <= (0.06 if limit == "auto" else 0.0101) * run.reserved
    assert not list(workspace.folder.glob("releases/**/*.parquet"))


def test_a_table_without_losses_is_released_and_pays_a_hundredth(workspace: Workspace) -> None:
    table(workspace.folder, None)
    workspace.open_account(unit="who")
    synthesize(written(workspace, unit="who", limit="3"), run_id="r")
    with open_ledger() as ledger:
        paid = {each.step: each.amount for each in ledger.transcript("r")}
        assert 0 < paid[STEP] <= ledger.run("r").reserved / 100


def test_without_the_check_the_rows_vanish_silently(workspace: Workspace) -> None:
    table(workspace.folder, "blanks")
    workspace.open_account(unit="row")
    outcome = synthesize(written(workspace, ("delta: 1e-9", "delta: 1e-9, lose: 100 %")))
    assert outcome.rows < 750  # of 3,000


def test_columns_that_are_discovered_and_blocks_are_checked_as_well(workspace: Workspace) -> None:
    table(workspace.folder, "format")
    workspace.open_account(unit="row")
    found = ("values: [WD, New, COD], match: exact", "discover: {most: 4, length: 3, share: 0.1}")
    with pytest.raises(RowsUnexpected, match="rows are dropped by `sold`"):
        synthesize(written(workspace, found))


def test_the_check_is_bought_alone_before_a_run(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    table(workspace.folder, None)
    workspace.open_account(unit="row")
    spec = written(workspace)
    assert main(["check", str(spec), "--epsilon", "0.05", "--json"], runner=None) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["rows_kept"] == pytest.approx(3000, rel=0.1)
    assert checked["rows_lost"] == {}
    table(workspace.folder, "blanks")
    assert main(["check", str(spec), "--epsilon", "0.05"], runner=None) == 1
    assert "rows are dropped by `sale`" in capsys.readouterr().err
    with open_ledger() as ledger:
        for run in ledger.runs("visits"):
            assert (run.state, run.release, run.spent) == ("settled", None, run.reserved)
        assert ledger.balance("visits").reserved == 0
        _, price = budget_of(0.05, delta=1e-9, currency=ledger.account("visits").currency)
        assert ledger.balance("visits").spent == 2 * price


def test_a_check_that_cannot_be_paid_reads_and_spends_nothing(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    table(workspace.folder, "blanks")
    workspace.open_account(unit="row", epsilon=0.01)
    assert main(["check", str(written(workspace)), "--epsilon", "0.05"], runner=None) == 3
    assert "0.05 was requested" in capsys.readouterr().err
    assert nothing_was_bought()


def test_without_an_account_the_advice_is_to_open_one_that_can_pay_for_a_run(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    table(workspace.folder, None)
    with open_ledger(create=True):
        pass
    assert main(["check", str(written(workspace)), "--epsilon", "0.05"], runner=None) == 2
    assert "dpflow ledger open visits --epsilon 1.0 " in capsys.readouterr().err


def test_the_decision_follows_from_the_noisy_counts_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table without losses and one that loses all rows end alike with the same noisy counts; a look at exact counts, the planted bug, tells them apart."""
    workspace.open_account(epsilon=20.0, unit="row")
    measure, given = Curator.measure_marginal, {}

    def same(curator: Curator, step: str, axes: Axes, **named: Any) -> Measurement:
        measured = measure(curator, step, axes, **named)
        return given.setdefault(step, measured) if step == STEP else measured

    def exact(curator: Curator, step: str, axes: Axes, **named: Any) -> Measurement:
        measured = measure(curator, step, axes, **named)
        received = curator._received
        return replace(measured, values=received[0].marginal(axes)) if step == STEP and received else measured

    def endings() -> set[str]:
        found = set()
        for wrong in (None, "case"):
            table(workspace.folder, wrong)
            try:
                synthesize(written(workspace))
                found.add("released")
            except RowsUnexpected as stopped:
                found.add(str(stopped))
        return found

    for planted, different in ((same, 1), (exact, 2)):
        with monkeypatch.context() as patch:
            patch.setattr(Curator, "measure_marginal", planted)
            assert len(endings()) == different
