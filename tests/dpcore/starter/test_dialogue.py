"""The dialogue fills marks, and leaves open what nobody answers."""

from pathlib import Path

from dpcore.spec import load_spec
from dpcore.starter import Draft, draft_of, fill, spec_text
from dpcore.starter.description import Column, Description

COLUMNS = (
    Column("patient_id", stored="integer"),
    Column("age", stored="integer", nullable=False, about="in years"),
    Column("sex", stored="text"),
    Column("joined", stored="date", minimum="2025-01-01"),
    Column("note"),
    Column("paid", stored="boolean"),
)


def draft(*columns: Column) -> Draft:
    return draft_of(Description(columns or COLUMNS, source={"path": "v.csv"}), dataset="visits", origin="its schema")


def answered(drafted: Draft, *answers: str) -> tuple[Draft, list[str]]:
    prompts: list[str] = []
    rest = list(answers)

    def ask(prompt: str) -> str | None:
        prompts.append(prompt)
        return f"{rest.pop(0)}\n" if rest else None

    filled = fill(drafted, ask)
    assert not rest, rest
    return filled, prompts


def test_answers_make_a_valid_spec(tmp_path: Path) -> None:
    answers = ("patient_id", "2", "0 99", 'F, M, "a, b"', "2026-12-31", "integer", "0, 10")
    filled, prompts = answered(draft(), *answers)
    assert prompts[0].startswith("whom to protect: row, or the column that identifies a person, perhaps patient_id: ")
    assert "age (in years): smallest and largest value, such as 0 99: " in prompts
    path = tmp_path / "visits.yaml"
    path.write_text(spec_text(filled))
    spec = load_spec(path).spec
    assert (spec.privacy.unit, spec.privacy.max_rows_per_unit) == ("patient_id", 2)
    assert spec.universe["sex"].values == ("F", "M", "a, b")  # type: ignore[union-attr]
    assert list(spec.universe) == ["age", "sex", "joined", "note", "paid"]


def test_a_wrong_answer_is_explained_and_asked_again() -> None:
    answers = ("nobody", "row", "9 0", "a b", "0 9", "F, F", "F", "", "colour", "boolean")
    filled, prompts = answered(draft(), *answers)
    assert "there is no such column" in prompts[1]
    assert "`max` is below `min`; swap them\nage" in prompts[3]
    assert "must be a whole number" in prompts[4]
    assert "lists 'F' twice" in prompts[6]
    assert "one of categorical, boolean" in prompts[9]
    entries = {entry.name: entry for entry in filled.entries}
    assert entries["age"].declaration == {"type": "integer", "min": 0, "max": 9}
    assert entries["joined"].marked == ("max",)
    assert entries["note"].declaration == {"type": "boolean", "missing": True}
    assert "max_rows_per_unit" not in filled.privacy


def test_nothing_is_lost_when_the_input_ends() -> None:
    filled, _ = answered(draft(), "row", "0 99")
    assert [entry.marked for entry in filled.declared] == [(), ("values",), ("max",), ("",), ()]
    untouched, _ = answered(draft())
    assert untouched == draft()


def test_a_dash_leaves_a_column_out_and_enter_leaves_it_marked() -> None:
    filled, _ = answered(draft(), "", "-", "", "-", "-")
    left_out = {entry.name: entry.left_out for entry in filled.entries if entry.left_out}
    assert set(left_out) == {"patient_id", "age", "joined", "note"}
    assert filled.privacy["unit"] == "FILL_IN"


def test_the_unit_is_not_released() -> None:
    filled, _ = answered(draft(Column("who", stored="text"), Column("age", stored="integer")), "who", "auto", "0 9")
    assert [entry.name for entry in filled.declared] == ["age"]
    assert list(filled.privacy)[:2] == ["unit", "max_rows_per_unit"]
    assert filled.privacy["max_rows_per_unit"] == "auto"
