from pathlib import Path

import pytest

from dpcore.errors import SpecError
from dpcore.spec import load_spec

SPEC = """\
dataset: visits
source: {path: FILL_IN}
privacy:
  unit: FILL_IN
  neighbours: add-remove
  epsilon: 1.0
  delta: 0
universe:
  age: {type: integer, min: FILL_IN, max: FILL_IN}
  sex: {type: categorical, values: FILL_IN, missing: true}
  joined: {type: date, min: 2025-01-01, max: FILL_IN}
  note: FILL_IN
  fill: {type: categorical, values: [FILL_IN, other]}
"""


def mistakes(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "visits.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]


def test_every_mark_is_one_mistake_with_its_position_and_what_to_write(tmp_path: Path) -> None:
    found = mistakes(tmp_path, SPEC)
    assert [line.split(" ")[0] for line in found] == [
        *("2:10:", "4:3:", "9:24:", "9:38:", "10:28:", "11:41:", "12:3:"),
    ]
    assert "write whom to protect: row, or the column" in found[1]
    assert "such as 0" in found[2]
    assert "[F, M]" in found[4]
    assert "the last day that can occur, such as 2026-12-31" in found[5]
    assert "{type: integer, min: 0, max: 99}" in found[6]


def test_other_mistakes_are_reported_beside_the_marks(tmp_path: Path) -> None:
    found = mistakes(tmp_path, SPEC.replace("epsilon: 1.0", "epsilon: -1").replace("missing: true", "missing: maybe"))
    assert len(found) == 9
    assert any("`epsilon` must be > 0" in line for line in found)
    assert any("`missing` must be" in line for line in found)


def test_a_value_in_a_list_is_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "visits.yaml"
    kept = [line for line in SPEC.splitlines() if line.startswith("  fill") or "FILL_IN" not in line]
    path.write_text("\n".join(kept).replace("privacy:", "source: {path: v.csv}\nprivacy:\n  unit: row"))
    assert load_spec(path).universe.attributes["fill"].labels[:2] == ("FILL_IN", "other")
