"""A column whose values are written otherwise than its steward believes: the release would hold nothing of it, and the outcome warns."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpcore import Outcome, synthesize
from dpcore.marginals.measurements import Measurement
from dpcore.mechanisms.sampling import entropy
from dpcore.runs.empty_columns import empty_column_warnings
from dpcore.runs.expected_rows import NoisyTotal
from dpcore.universe import Boolean, Categorical, Date, Every, Integer, Outside, Universe
from tests.conftest import Workspace
from tests.contracts.mechanism import recorded_words
from tests.dpcore.runs.releases import manifest_of

pytestmark = pytest.mark.usefixtures("rough_models")

ROWS = 4_000
SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9, expect_rows: [2000, 8000]}
universe:
  day: {type: date, min: 2025-01-01, max: 2025-12-31, every: EVERY, missing: true, outside: clipFORMAT}
  kind: {type: categorical, values: [a, b, c], outside: other}
workload: {marginals: ORDER}
strategy: {name: STRATEGY}
"""
STRATEGIES = ["mwem", "adaptive", "pmw"]


@pytest.fixture
def place(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """An account, and the same noise in every test."""
    workspace.open_account(unit="row")
    monkeypatch.setattr(entropy, "random_words", recorded_words(3))
    return workspace


def release(
    place: Workspace, strategy: str = "mwem", *, written: str = "%Y-%m-%d", absent: float = 0.0, **changes: Any
) -> Outcome:
    """Release a table whose dates are written in some way, or absent; and whose kinds are in upper case if `upper`."""
    rng = np.random.default_rng(5)
    days = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 365, ROWS), unit="D")
    shown = pd.Series(days.strftime(written)).where(rng.random(ROWS) >= absent, "")
    kinds = pd.Series(rng.choice(["a", "b", "c"], ROWS))
    table = {"day": shown, "kind": kinds.str.upper() if changes.get("upper") else kinds}
    pd.DataFrame(table).to_csv(place.folder / "visits.csv", index=False)
    text = SPEC.replace("STRATEGY", strategy).replace("FORMAT", changes.get("format_", ""))
    text = text.replace("EVERY", changes.get("every", "month")).replace("ORDER", str(changes.get("order", 2)))
    place.spec.write_text(text, encoding="utf-8")
    return synthesize(place.spec)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_dates_in_another_form_that_all_count_as_missing_are_warned_of_everywhere(
    place: Workspace, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="dpcore.progress"):
        outcome = release(place, strategy, written="%m/%d/%Y")
    (warning,) = outcome.warnings
    for fact in ("practically all rows have `missing` in `day`", "read as ISO dates", "declare `format`"):
        assert fact in warning
    assert "`other`" not in warning
    assert f"warning: {warning}" in caplog.messages
    assert manifest_of(outcome)["warnings"] == [warning] == outcome.to_json()["warnings"]
    assert "practically all rows" in (Path(outcome.release) / "card.html").read_text()


@pytest.mark.parametrize("strategy", ["mwem"])
def test_categories_that_are_all_written_otherwise_are_warned_of(place: Workspace, strategy: str) -> None:
    (warning,) = release(place, strategy, upper=True).warnings
    assert "practically all rows have `other` in `kind`" in warning
    assert "otherwise than `values`" in warning


@pytest.mark.parametrize(("strategy", "absent"), [("mwem", 0.9), ("adaptive", 0.5), ("pmw", 0.0)])
def test_of_a_table_that_is_read_as_declared_nothing_is_said(place: Workspace, strategy: str, absent: float) -> None:
    assert release(place, strategy, absent=absent).warnings == ()


def test_a_declared_format_mends_it(place: Workspace) -> None:
    assert release(place, written="%m/%d/%Y", format_=', format: "%m/%d/%Y"').warnings == ()


@pytest.mark.parametrize("absent", [0.9, 1.0])
def test_many_noisy_cells_neither_hide_an_empty_column_nor_make_one(place: Workspace, absent: float) -> None:
    """The noise of 365 days adds up, so they are not added up."""
    outcome = release(place, absent=absent, every="day", order=1)
    assert len(outcome.warnings) == (absent == 1.0)


UNIVERSE = Universe(
    {
        "n": Integer(minimum=0, maximum=9, missing=True, outside=Outside.OTHER, nulls=("0",)),
        "yes": Boolean(outside=Outside.OTHER),
        "kind": Categorical(("a", "other"), outside=Outside.OTHER),
        "day": Date(minimum=date(2025, 1, 1), maximum=date(2025, 1, 3), every=Every.DAY),
    }
)


def warned(*measured: Measurement, rows: float = 1000.0) -> dict[str, str]:
    return empty_column_warnings(UNIVERSE, measured, total=NoisyTotal(rows, noise=1.0))


def marginal(axis: int, *values: int, noise: float = 2.0) -> Measurement:
    return Measurement("m", (axis,), None, np.array(values), noise=noise)


def test_a_warning_names_the_cells_that_have_the_rows_and_the_parts_of_the_spec() -> None:
    both = warned(marginal(0, *[0] * 10, 600, 398))["n"]
    assert "`other` or `missing` in `n`" in both
    for part in ("numbers", "`min` and `max`", "`nulls`"):
        assert part in both
    assert "have `missing` in" in warned(marginal(0, *[0] * 10, -3, 1003))["n"]
    assert "true and false" in warned(marginal(1, 3, -2, 999))["yes"]
    assert "`other` in `kind`" in warned(marginal(2, 0, 1001))["kind"]


def test_what_stands_out_of_the_noise_or_is_noise_itself_is_not_warned_of() -> None:
    assert warned(marginal(0, *[10] * 10, 0, 900)) == {}  # `missing` is declared
    assert warned(marginal(1, 0, 0, 15), rows=15.0) == {}  # of a small total the outcome warns anyway
    assert warned(marginal(3, 0, 0, 0)) == {}  # has neither cell


def test_many_rows_in_other_are_warned_of_with_their_share_and_what_to_do() -> None:
    some = warned(marginal(1, 340, 330, 330))["yes"]
    assert some.startswith(
        "about 33 % of the rows have `other` in `yes`: likely causes: the table writes true and false"
    )
    assert warned(marginal(1, 400, 395, 205)) == {}  # may be noise
    assert warned(marginal(2, 400, 600)) == {}  # a declared category of this name
    found = empty_column_warnings(
        UNIVERSE, [marginal(1, 340, 330, 330)], total=NoisyTotal(1000.0, noise=1.0), discovered=["yes"]
    )
    assert "give its `discover` a larger `share`" in found["yes"]


def test_a_column_measured_twice_is_judged_by_both() -> None:
    assert "practically all" in warned(marginal(1, 0, 0, 960), marginal(1, 0, 0, 1040))["yes"]
    assert "practically all" not in warned(marginal(1, 0, 0, 960))["yes"]


def test_single_cells_of_a_larger_marginal_are_added_up() -> None:
    def cell(index: int, value: int) -> Measurement:
        return Measurement("m", (1, 2), index, np.array([value]), noise=2.0)

    def all_other(*cells: Measurement) -> bool:
        return "practically all" in warned(*cells).get("yes", "")

    assert all_other(cell(4, 700), cell(5, 300))
    assert not all_other(cell(4, 700))
    assert not all_other(cell(4, 700), cell(4, 300))  # the same cell again, of which the mean counts
    assert all_other(cell(4, 680), cell(4, 720), cell(5, 300))
    assert not all_other(cell(4, 700), cell(2, 300))  # a declared one
    assert warned(cell(4, 70), cell(2, 300)) == {}
