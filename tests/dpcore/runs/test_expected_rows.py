"""A table that is read otherwise than its steward believes: the run stops after a small share, or the outcome warns. Never silence."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import stats

from dpcore import load_spec, synthesize
from dpcore.curator.curator import Curator
from dpcore.errors import RowsUnexpected, SpecError
from dpcore.ledger import Ledger, Run, open_ledger
from dpcore.marginals.measurements import Measurement
from dpcore.mechanisms import DiscreteLaplace
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.protection import Sensitivity
from dpcore.runs.early import TOTAL_STEP as STEP
from dpcore.runs.expected_rows import NoisyTotal, margin_of, small_total_warning, weak_check_warning
from dpcore.runs.planning.plan import plan_run
from tests.conftest import Workspace
from tests.contracts.mechanism import recorded_words
from tests.dpcore.runs.releases import dpflow, interrupted, manifest_of

pytestmark = pytest.mark.usefixtures("rough_models")

ROWS = 7_000
SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9, lose: 100 %EXPECT}
universe:
  day: {type: date, min: 2025-01-01, max: 2025-12-31, every: quarterFORMAT}
  sex: {type: categorical, values: [F, M]}
  age: {type: integer, min: 0, max: 99, width: 25}
workload: {marginals: 2}
strategy: {name: mwem, rounds: 3}
"""
EXPECT = ", expect_rows: [2000, 20000]"
FORMAT = ', format: "%m/%d/%Y"'


@pytest.fixture
def american(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A table whose dates are written MM/DD/YYYY, and the same noise in every test."""
    rng = np.random.default_rng(5)
    days = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, ROWS), unit="D")
    table = {"day": days.strftime("%m/%d/%Y"), "sex": rng.choice(["F", "M"], ROWS), "age": rng.integers(0, 100, ROWS)}
    pd.DataFrame(table).to_csv(workspace.folder / "visits.csv", index=False)
    workspace.open_account(unit="row")
    monkeypatch.setattr(entropy, "random_words", recorded_words(3))
    return workspace


def write(workspace: Workspace, *, expect: str = "", format_: str = "") -> Path:
    workspace.spec.write_text(SPEC.replace("EXPECT", expect).replace("FORMAT", format_), encoding="utf-8")
    return workspace.spec


def only_run() -> Run:
    with open_ledger() as ledger:
        (run,) = ledger.runs("visits")
        return run


def test_dates_in_another_form_leave_next_to_nothing_and_the_outcome_warns(american: Workspace) -> None:
    outcome = synthesize(write(american))
    assert outcome.rows < 200  # of 7,000, and the budget is gone
    assert outcome.spent / outcome.reserved > 0.999
    (warning,) = outcome.warnings
    for fact in (
        "small compared with its noise",
        "`day`: the values are read as ISO dates",
        "declare `format`",
        "expect_rows",
        "`sex`",
    ):
        assert fact in warning
    assert manifest_of(outcome)["warnings"] == [warning] == outcome.to_json()["warnings"]
    assert "declare `format`" in (Path(outcome.release) / "card.html").read_text()


def test_with_expected_rows_the_run_stops_after_a_fiftieth_and_publishes_nothing(american: Workspace) -> None:
    with pytest.raises(RowsUnexpected) as stopped:
        synthesize(write(american, expect=EXPECT), run_id="r")
    assert stopped.value.exit_code == 1
    run = only_run()
    assert (run.state, run.release) == ("settled", None)
    assert 0 < run.spent <= run.reserved / 50
    with open_ledger() as ledger:
        balance, (operation,) = ledger.balance("visits"), ledger.transcript("r")
    assert (balance.spent, balance.reserved) == (run.spent, 0)
    assert operation.step == STEP
    assert not list(american.folder.glob("releases/**/*.parquet"))
    total = int(Measurement.from_bytes(operation.output or b"", step=STEP).values.sum())
    for fact in (
        f"the noisy total is {total:,} rows",
        "expects 2,000 to 20,000",
        "declare `format`",
        "nothing is published",
    ):
        assert fact in str(stopped.value)


def test_a_stopped_run_that_dies_or_is_tried_again_says_the_same_and_spends_nothing(
    american: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, said = write(american, expect=EXPECT), []
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "settle", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesize(spec, run_id="r")
    spent = only_run().spent
    for _ in range(2):
        with pytest.raises(RowsUnexpected) as stopped:
            synthesize(spec, run_id="r", resume=True)
        said.append(str(stopped.value))
        assert (only_run().spent, only_run().state) == (spent, "settled")
    assert len(set(said)) == 1


def test_with_the_format_declared_the_same_table_is_released(american: Workspace) -> None:
    outcome = synthesize(write(american, expect=EXPECT, format_=FORMAT))
    assert outcome.warnings == ()
    assert abs(outcome.rows - ROWS) < 500
    assert 0.999 < outcome.spent / outcome.reserved <= 1.0
    steps = pq.read_table(Path(outcome.release) / "measurements.parquet")["step"].to_pylist()
    assert steps[0] == STEP
    assert only_run().spent <= only_run().reserved


def test_more_rows_than_expected_stop_the_run_as_well(american: Workspace) -> None:
    with pytest.raises(RowsUnexpected, match=r"expects 10 to 1,000; .* may hold more rows"):
        synthesize(write(american, expect=", expect_rows: [10, 1000]", format_=FORMAT))


def test_the_total_comes_before_what_is_found_in_the_data(american: Workspace) -> None:
    finding = "{type: categorical, discover: {most: 4, length: 1, alphabet: FM, share: 0.2}, outside: drop}"
    spec = write(american, expect=EXPECT, format_=FORMAT)
    spec.write_text(spec.read_text().replace("{type: categorical, values: [F, M]}", finding))
    outcome = synthesize(spec, run_id="r")
    with open_ledger() as ledger:
        steps = [operation.step for operation in ledger.transcript("r")]
        amounts = {operation.step: operation.amount for operation in ledger.transcript("r")}
    assert steps[:2] == [STEP, "discover/02-sex/1"]
    assert amounts[STEP] <= only_run().reserved / 50
    assert amounts[steps[1]] == pytest.approx(0.2 * only_run().reserved, rel=0.01)  # of the whole, as declared
    assert abs(outcome.rows - ROWS) < 500
    spec.write_text(spec.read_text().replace(FORMAT, ""))
    with pytest.raises(RowsUnexpected):
        synthesize(spec, run_id="s")


def test_a_total_is_outside_only_if_its_whole_interval_is() -> None:
    margin = margin_of(10.0)
    for rows, outside in ((100 - margin - 1, True), (100 - margin + 1, False), (150, False), (200 + margin + 1, True)):
        assert NoisyTotal(rows, noise=10.0).is_outside((100, 200)) is outside


def test_the_margin_holds_with_a_probability_of_999_in_1000_for_all_noise() -> None:
    for scale in np.geomspace(0.05, 20_000, 200).tolist():
        mechanism = DiscreteLaplace(scale=scale, sensitivity=Sensitivity(1, 1, 1))
        beyond = math.floor(margin_of(mechanism.standard_deviation)) + 1
        ratio = math.exp(-1 / scale)
        assert 2 * ratio**beyond / (1 + ratio) <= 0.001  # exact: the noise is discrete Laplace
    assert 2 * stats.norm.sf(margin_of(1.0) - 1) < 0.001
    ratio = math.exp(-1)  # a margin of three standard deviations, as for Gaussian noise, would not hold
    assert (
        2 * ratio ** math.ceil(3 * DiscreteLaplace(scale=1.0, sensitivity=Sensitivity(1, 1, 1)).standard_deviation)
        > 0.001
    )


def test_the_total_of_several_marginals_is_averaged_by_precision() -> None:
    measured = [
        Measurement("a", (0,), None, np.array([40, 60]), noise=1.0),
        Measurement("b", (1,), None, np.array([50, 30, 24, 0]), noise=1.0),
        Measurement("c", (1,), 2, np.array([9]), noise=1.0),
    ]
    total = NoisyTotal.of(measured)
    assert total.rows == pytest.approx((100 / 2 + 104 / 4) / (1 / 2 + 1 / 4))
    assert total.noise == pytest.approx(math.sqrt(4 / 3))
    assert not total.is_faint


def test_whatever_is_below_ten_times_its_noise_is_warned_of(american: Workspace) -> None:
    declaration = load_spec(write(american))
    warned = [small_total_warning(declaration, NoisyTotal(rows, noise=10.0)) for rows in (-300.0, 99.0, 101.0)]
    assert [warning is not None for warning in warned] == [True, True, False]


def test_a_check_that_could_not_notice_an_empty_table_is_told_before_anything_is_paid(
    american: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    assert weak_check_warning((10_000, 20_000), noise=64.0) is None
    spec = write(american, expect=", expect_rows: [100, 20000]", format_=FORMAT)
    plan = plan_run(load_spec(spec), rows=None)
    (warning,) = plan.warnings
    assert "an empty table may pass the check" in warning
    assert plan.to_json()["expects"]["share"] == 0.02
    with caplog.at_level("INFO", logger="dpcore.progress"):
        synthesize(spec)
    assert caplog.messages[0] == f"warning: {warning}"
    assert "reserved" in caplog.messages[1]


def test_the_command_line_ends_with_exit_code_1_and_one_json_object(
    american: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = write(american, expect=EXPECT)
    assert dpflow("plan", spec) == 0
    assert "expects    2,000 to 20,000 rows: the run first measures the total, for 2" in capsys.readouterr().out
    assert dpflow("run", spec, "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit_code"] == 1
    assert "the noisy total is" in answer["error"]
    assert dpflow("run", write(american), "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["warnings"]) == 1


@pytest.mark.parametrize("value", ["5", "[5, 4]", "[0, 4]", "[1, 2, 3]", "[1.5, 2]"])
def test_what_is_no_range_of_rows_is_a_mistake(american: Workspace, value: str) -> None:
    with pytest.raises(SpecError, match=r":3:\d+: `expect_rows` must be the minimum and maximum number of rows"):
        load_spec(write(american, expect=f", expect_rows: {value}"))


def test_the_decision_follows_from_the_noisy_total_alone(american: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two very different tables with the same noisy total end alike; a check of the exact count, the planted bug, does not."""
    given = Measurement(STEP, (), None, np.array(5), noise=64.0)

    def endings() -> list[str]:
        said = []
        for format_ in ("", FORMAT):  # nothing counted, and everything
            declared = write(american, expect=EXPECT, format_=format_)
            try:
                synthesize(declared)
                said.append("released")
            except RowsUnexpected as stopped:
                said.append(str(stopped).split("; likely causes")[0])
        return said

    with monkeypatch.context() as patch:
        patch.setattr(Curator, "measure_cell", lambda *_args, **_named: given)
        assert len(set(endings())) == 1

    def exact(self: Curator, step: str, *_args: object, **_named: object) -> Measurement:
        assert self._received is not None
        return Measurement(step, (), None, self._received[0].marginal(()), noise=64.0)

    with monkeypatch.context() as patch:
        patch.setattr(Curator, "measure_cell", exact)
        assert len(set(endings())) == 2


def test_the_price_of_the_total_is_part_of_the_plan(workspace: Workspace) -> None:
    spec = write(workspace, expect=EXPECT)
    with_check = plan_run(load_spec(spec), rows=10_000)
    assert with_check.expects is not None
    assert with_check.expects.margin == margin_of(with_check.expects.noise)
    spec.write_text(spec.read_text().replace(EXPECT, ""))
    without = plan_run(load_spec(spec), rows=10_000)
    assert without.expects is None
    assert all(one.noise > other.noise for one, other in zip(with_check.first, without.first, strict=True))
