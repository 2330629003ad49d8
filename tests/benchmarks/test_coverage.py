"""The coverage benchmark asks questions whose truth it knows, and counts what it says it counts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from benchmarks.coverage_questions import KINDS, Asked, Record, Truth, question_cells
from benchmarks.coverage_results import draw, in_words, summary
from dpcore.answers.evaluate import Prepared, of_groups
from dpcore.answers.query import Output, Query
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Boolean, Categorical, Integer, Universe


def record(covered: bool, **changed: Any) -> Record:
    told: dict[str, Any] = {
        "name": {"data": "adult7", "strategy": "mwem", "epsilon": 1.0, "seed": 1},
        "kind": "count",
        "columns": 2,
        "basis": "measured",
        "truth": 120.0,
        "value": 110.0,
        "half": 20.0,
        "direct": 80.0,
        "within": False,
        "covered": covered,
        "controls": {"standard deviation": not covered},
    }
    return Record(**(told | changed))


def test_a_summary_counts_each_stratum_each_control_and_the_widths_where_both_exist(tmp_path: Path) -> None:
    records = [
        record(True),
        record(False, columns=3, half=40.0),
        record(True, columns=3, direct=None, half=1000.0, controls={}),
        record(True, kind="mean", controls={}, direct=None),
        record(True, name={"data": "sample", "strategy": "adaptive", "epsilon": 0.1, "seed": 1}, truth=6000.0),
    ]
    asked = [Asked(records[0].name, records, {"release_cpu_seconds": 1.0}, {kind: [5.0] for kind in KINDS})]
    result = summary(asked)
    assert result["counts"] == {"coverage": 0.75, "numbers": 4}
    assert result["strata"]["columns 3"] == {"coverage": 0.5, "numbers": 2, "half_width_of_direct": 0.5}
    assert result["strata"]["size 500"]["coverage"] == pytest.approx(2 / 3)
    assert result["strata"]["epsilon 0.1"] == {"coverage": 1.0, "numbers": 1, "half_width_of_direct": 0.25}
    assert result["other_numbers"]["mean"] == {"coverage": 1.0, "numbers": 1}
    assert result["controls"]["standard deviation"] == {"coverage": pytest.approx(1 / 3), "numbers": 3}
    assert result["half_width_of_direct"] == pytest.approx((20 + 40 + 20) / (3 * 80))
    assert "1 releases" in in_words(result)
    draw(asked, tmp_path)
    assert all("dpflow" in (tmp_path / f"coverage-by-{kind}.svg").read_text() for kind in ("epsilon", "size"))


COLUMNS = Universe(
    {
        "age": Integer(minimum=0, maximum=9),
        "dose": Integer(minimum=0, maximum=99, width=20, missing=True),
        "city": Categorical(("north", "south", "west"), missing=True),
        "smoker": Boolean(),
    }
)


def test_questions_have_some_cells_and_never_all_of_them() -> None:
    rng = np.random.default_rng(1)
    for attribute in COLUMNS.attributes.values():
        chosen = np.array([question_cells(attribute, rng) for _ in range(300)])
        assert (chosen.sum(axis=1) >= 1).all()
        assert (chosen.sum(axis=1) < attribute.size).all()
        assert chosen.any(axis=0).all()


def test_the_truth_of_a_count_is_what_its_condition_gives_on_the_table() -> None:
    rng, rows = np.random.default_rng(2), 500
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 10, rows),
            "dose": pd.array(np.where(rng.random(rows) < 0.1, None, rng.integers(0, 100, rows)), dtype="Int64"),
            "city": rng.choice(np.array(["north", "south", "west", None], dtype=object), rows),
            "smoker": rng.random(rows) < 0.3,
        }
    )
    truth = Truth(SimpleNamespace(universe=COLUMNS), frame)  # type: ignore[arg-type]
    codes, _ = encode_rows(COLUMNS, pa.Table.from_pandas(frame, preserve_index=False))
    counts = np.zeros(COLUMNS.shape)
    np.add.at(counts, tuple(np.asarray(each) for each in codes), 1)
    for _ in range(150):
        condition, kept, _ = truth.condition(rng)
        wanted = truth.number("count", condition, kept, rng)
        assert wanted is not None
        asked, expected = wanted
        whole = of_groups(counts, (0, 1, 2, 3), [np.arange(size) for size in counts.shape])
        found = Prepared(Query((Output("x", asked),)), COLUMNS).evaluate(whole)
        assert found[asked].item() == pytest.approx(expected)
