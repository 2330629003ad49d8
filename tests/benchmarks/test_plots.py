"""The charts of the benchmarks: what is read from the kept results, and where it is drawn."""

import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest

from benchmarks.plots import by_cpu, by_epsilon
from benchmarks.plots_axes import BOTTOM, TOP, Axis, Chart, powers
from benchmarks.plots_results import Result, Table, read_results

KEPT = Path(__file__).parents[2] / "benchmarks" / "results"
SVG = "{http://www.w3.org/2000/svg}"


def _accuracy(epsilon: float, error: float) -> dict[str, object]:
    errors = {"1": error / 9, "2": error / 3, "3": error}
    references = {"independent_columns": {"1": 0, "2": 0.1, "3": 0.3}, "bootstrap": {"1": 0, "2": 0.02, "3": 0.05}}
    return {"data": "made", "rows": 9, "epsilon": epsilon, "error": errors, "cpu_seconds": 12.5, **references}


def _peers(**errors: float | None) -> dict[str, object]:
    compared = [
        {
            "name": name,
            "outcome": {"error": {"1": 0.1, "2": 0.2, "3": error} if error else {}, "cpu_seconds": 90.0, "reason": ""},
        }
        for name, error in errors.items()
    ]
    return {"epsilon": 1.0, "delta": 1e-9, "tables": [{"data": "made", "rows": 9, "compared": compared}]}


def _keep(folder: Path, *documents: dict[str, object]) -> list[Table]:
    for number, document in enumerate(documents):
        (folder / f"{number}.json").write_text(json.dumps(document), encoding="utf-8")
    return read_results(folder)


def _parsed(drawn: str) -> Element:
    return fromstring(drawn)  # noqa: S314  our own text


def test_results_of_accuracy_and_of_peers_come_together_by_table(tmp_path: Path) -> None:
    (table,) = _keep(tmp_path, _accuracy(0.1, 0.25), _accuracy(1, 0.15), _peers(dpflow=0.16, other=0.2, slow=None))
    assert table.data == "made"
    assert {(each.name, each.epsilon): each.error[3] for each in table.results} == {
        ("dpflow", 0.1): 0.25,
        ("dpflow", 1.0): 0.15,  # not the comparison's own run of it
        ("other", 1.0): 0.2,
    }
    assert {name: error[3] for name, error in table.references.items()} == {
        "independent columns": 0.3,
        "bootstrap": 0.05,
    }


def test_a_peer_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="other on made at epsilon 1 a second time"):
        _keep(tmp_path, _peers(other=0.2), _peers(other=0.3))


def test_a_chart_shows_everyone_and_says_so_in_words(tmp_path: Path) -> None:
    (table,) = _keep(tmp_path, _accuracy(0.1, 0.25), _accuracy(1, 0.15), _peers(other=0.2))
    for drawn in (by_epsilon(table), by_cpu(table)):
        root = _parsed(drawn or "")
        texts = {element.text for element in root.iter(f"{SVG}text")}
        assert {"dpflow", "other", "independent columns", "bootstrap"} <= texts
        assert "other at epsilon 1: 0.200 in 90.0 CPU seconds." in (root.findtext(f"{SVG}desc") or "")


def test_a_lower_error_is_drawn_lower_and_a_larger_epsilon_further_right(tmp_path: Path) -> None:
    (table,) = _keep(tmp_path, _accuracy(0.1, 0.25), _accuracy(1, 0.15))
    dots = [
        (float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in _parsed(by_epsilon(table)).iter(f"{SVG}circle")
    ]
    (left, high), (right, low) = dots
    assert left < right
    assert TOP <= high < low <= BOTTOM


def test_without_costs_at_epsilon_one_there_is_no_chart_of_costs() -> None:
    assert by_cpu(Table("made", (Result("dpflow", 10.0, {3: 0.1}, 5.0),), {})) is None


def test_names_are_not_written_over_one_another() -> None:
    chart = Chart(Axis.logarithmic([1, 10], ticks=[1, 10], label="seconds"), Axis.from_zero([0.2], label="error"))
    for number in range(5):
        chart.series(f"program {number}", [(3.0, 0.1 + number / 1000)], shape=number)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)">program', chart.draw(title="", words="")))
    assert len(heights) == 5
    assert min(after - before for before, after in pairwise(heights)) >= 14


def test_axes_end_at_round_numbers() -> None:
    assert Axis.from_zero([0.343, 0.1], label="").ticks == pytest.approx((0, 0.1, 0.2, 0.3, 0.4))
    assert powers([30.0]) == [10.0, 100.0]
    assert Axis.logarithmic([5.0], ticks=[5.0], label="").share(5.0) == pytest.approx(0.5)


def test_the_kept_results_can_be_drawn() -> None:
    tables = read_results(KEPT)
    assert tables
    for table in tables:
        _parsed(by_epsilon(table))
