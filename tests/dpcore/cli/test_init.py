"""`dpflow init --from`: from metadata to a checked spec."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dpcore import cli, synthesize
from dpcore.spec import load_spec
from dpcore.starter import sources
from dpcore.tables.sources.part import Part

HEADER = "patient_id,age,sex\n"


def dpflow(*arguments: str) -> int:
    return cli.main([*arguments], runner=lambda *_, **__: pytest.fail("init runs nothing"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visits.csv").write_text(HEADER + "7,31337,CANARY\n")
    return tmp_path


def test_a_spec_with_marks_is_written_and_not_valid_until_they_are_filled(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dpflow("init", "visits", "--from", "visits.csv") == 0
    told = capsys.readouterr().out
    assert "wrote visits.yaml: 2 columns declared, 1 left out" in told
    assert "4 lines marked with FILL_IN must be completed: 8-9, 26-27" in told
    assert dpflow("check", "visits.yaml") == 2
    mistakes = capsys.readouterr().err
    assert "visits.yaml:8:3: `unit` is not filled in; write whom to protect" in mistakes
    assert "visits.yaml:26:3: `age` is not filled in; write what the column holds, such as {type: integer" in mistakes
    assert len(mistakes.splitlines()) == 4
    text = (folder / "visits.yaml").read_text()
    assert "CANARY" not in text
    assert "31337" not in text
    for marked, filled in (
        ("max_rows_per_unit: FILL_IN", "max_rows_per_unit: 2"),
        ("unit: FILL_IN", "unit: patient_id"),
        ("age: FILL_IN", "age: {type: integer, min: 0, max: 99, width: 10}"),
        ("sex: FILL_IN", "sex: {type: categorical, values: [F, M]}"),
    ):
        assert marked in text
        text = text.replace(marked, filled, 1)
    (folder / "visits.yaml").write_text(text)
    assert dpflow("check", "visits.yaml") == 0


def test_piped_answers_fill_the_marks(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("row\ninteger\n0 99\ncategorical\nF, M\n"))
    assert dpflow("init", "visits", "--from", "visits.csv", "--ask", "--json") == 0
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert answer["columns"] == ["age", "sex"]
    assert answer["marked_lines"] == []
    assert answer["left_out"] == {"patient_id": "it looks like an id: it has the name of one"}
    assert "whom to protect: row" in captured.err
    assert load_spec(folder / "visits.yaml").universe.shape[1] == 3
    assert dpflow("check", "visits.yaml") == 0


def test_a_second_source_fills_what_the_first_does_not_say(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "dictionary.json").write_text(
        '{"AGE": {"min": 0, "max": 99}, "sex": {"values": {"F": "female", "M": "male"}}}'
    )
    assert dpflow("init", "visits", "--from", "visits.csv", "--from", "dictionary.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["marked_lines"] == [8, 9]
    text = (folder / "visits.yaml").read_text()
    assert "  age: {type: integer, min: 0, max: 99, missing: true}\n" in text
    assert "  # F female; M male\n  sex: {type: categorical, values: [F, M], missing: true}\n" in text


def test_the_expected_rows_are_offered_as_in_the_plain_spec(folder: Path) -> None:
    assert dpflow("init", "visits", "--from", "visits.csv") == 0
    (line,) = [each for each in (folder / "visits.yaml").read_text().splitlines() if "expect_rows" in each]
    assert line.startswith("  # expect_rows: [20000, 200000]   # measure")
    (folder / "visits.yaml").rename("first.yaml")
    assert dpflow("init", "plain") == 0
    assert "  # expect_rows: [20000, 200000] " in (folder / "plain.yaml").read_text()
    text = (folder / "first.yaml").read_text().replace("  # expect_rows", "  expect_rows")
    for marked, filled in (
        ("  max_rows_per_unit: FILL_IN", "  max_rows_per_unit: 2"),
        ("  unit: FILL_IN", "  unit: patient_id"),
        ("  age: FILL_IN", "  age: {type: integer, min: 0, max: 99}"),
        ("  sex: FILL_IN", "  sex: {type: categorical, values: [F, M]}"),
    ):
        text = text.replace(marked, filled, 1)
    (folder / "first.yaml").write_text(text)
    assert load_spec(folder / "first.yaml").spec.privacy.expect_rows == (20000, 200000)


def test_what_a_dictionary_says_about_a_column_becomes_its_description(folder: Path) -> None:
    about = {"age": "in  completed\n years", "sex": "2025-01-01", "patient_id": "from the register"}
    described = {name: {"description": text} for name, text in about.items()}
    described["age"] |= {"min": 0, "max": 99}
    described["sex"] |= {"values": {"F": "female", "M": "male"}}
    (folder / "dictionary.json").write_text(json.dumps(described))
    assert dpflow("init", "visits", "--from", "visits.csv", "--from", "dictionary.json") == 0
    text = (folder / "visits.yaml").read_text()
    assert "age: {type: integer, min: 0, max: 99, missing: true, description: in completed years}\n" in text
    assert "# F female; M male\n" in text
    assert "is published with the release: remove what is private." in text
    assert "from the register" not in text
    (folder / "visits.yaml").write_text(text.replace("max_rows_per_unit: FILL_IN", "").replace("FILL_IN", "row"))
    universe = load_spec(folder / "visits.yaml").spec.universe
    assert {name: column.description for name, column in universe.items()} == {
        "age": "in completed years",
        "sex": "2025-01-01",
    }


def test_a_long_description_keeps_the_hint_of_a_line_to_complete(folder: Path) -> None:
    (folder / "dictionary.json").write_text(json.dumps({"age": {"description": "a" * 200, "type": "integer"}}))
    assert dpflow("init", "visits", "--from", "visits.csv", "--from", "dictionary.json") == 0
    text = (folder / "visits.yaml").read_text()
    assert "  age:   # the smallest and the largest whole number that can occur\n    type: integer\n" in text
    assert f"    description: {'a' * 200}\n" in text
    (folder / "visits.yaml").unlink()
    (folder / "dictionary.json").write_text(json.dumps({"age": {"description": "a" * 2000, "type": "integer"}}))
    assert dpflow("init", "visits", "--from", "visits.csv", "--from", "dictionary.json") == 0
    assert f"  # {'a' * 197}...\n  age: {{type: integer" in (folder / "visits.yaml").read_text()  # too long for the key


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ask"], "with --from"),
        (["--from", "visits.csv", "--from", "visits.csv", "--kind", "csv"], "--kind once for each --from"),
        (["--from", "nowhere"], "no such file"),
        (["--from", "visits.csv", "--kind", "parquet"], "no readable Parquet schema"),
        (["--from", "empty.json"], "empty.json:1:1: not valid JSON"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    (folder / "empty.json").write_text("")
    assert dpflow("init", "visits", *arguments) != 0
    captured = capsys.readouterr().err
    assert words in captured
    assert captured.count("\n") == 1
    assert not (folder / "visits.yaml").exists()


def test_nobody_answers_questions_for_a_spec_that_exists(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "visits.yaml").write_text("mine")
    answers = io.StringIO("row\n")
    monkeypatch.setattr("sys.stdin", answers)
    assert dpflow("init", "visits", "--from", "visits.csv", "--ask") == 1
    assert "already exists" in capsys.readouterr().err
    assert (folder / "visits.yaml").read_text() == "mine"
    assert answers.read() == "row\n"


def test_a_spec_from_an_earlier_release_needs_only_its_source(folder: Path) -> None:
    """The manifest of a real release holds everything else."""
    spec = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 0}
universe:
  age: {type: integer, min: 0, max: 99, width: 50}
  sex: {type: categorical, values: [F, M], outside: other}
workload: {marginals: 1}
"""
    (folder / "first.yaml").write_text(spec)
    account = ("--epsilon", "2", "--delta", "0", "--unit", "row", "--neighbours", "add-remove")
    assert dpflow("ledger", "open", "visits", *account) == 0
    synthesize(folder / "first.yaml")
    assert dpflow("init", "again", "--from", "releases/visits") == 0
    path = folder / "again.yaml"
    path.write_text(path.read_text().replace("path: FILL_IN", "path: visits.csv"))
    again, first = load_spec(path), load_spec(folder / "first.yaml")
    assert again.universe == first.universe
    assert again.spec.privacy == first.spec.privacy
    assert again.spec.workload == first.spec.workload


def test_a_codebook_fills_the_columns_of_a_header_and_the_others_stay_marked(folder: Path) -> None:
    (folder / "visits.csv").write_text("age,sex,ward\n31337,CANARY,CANARY\n")
    (folder / "codebook.csv").write_text(
        "Variable,Type,Min,Max,Codes\nage,integer,0,110,\nsex,text,,,F=female; M=male\n"
    )
    assert dpflow("init", "visits", "--from", "visits.csv", "--from", "codebook.csv") == 0
    text = (folder / "visits.yaml").read_text()
    assert "  age: {type: integer, min: 0, max: 110, missing: true}\n" in text
    assert "  sex: {type: categorical, values: [F, M], missing: true}\n" in text
    assert "  ward: FILL_IN" in text


def test_a_public_file_with_the_same_columns_fills_them_and_no_private_row_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The public file is read piece by piece; the private one never is."""
    read: list[str] = []
    original = sources.read_piece

    def reading(piece: Part, *, columns: list[str]) -> Iterator[pa.RecordBatch]:
        read.append(piece.name)
        return original(piece, columns=columns)

    monkeypatch.setattr(sources, "read_piece", reading)
    (folder / "visits.csv").write_text("patient_id,age,sex,joined,note\n7,31337,CANARY,1911-01-01,CANARY\n")
    (folder / "public.csv").write_text("SEX,age,joined,else\nF,18,31.01.2024,1\nM,93,28.02.2025,2\n")
    assert dpflow("init", "visits", "--from", "visits.csv", "--like", "public.csv") == 0
    text = (folder / "visits.yaml").read_text()
    assert "from visits.csv and public.csv. No row was read." in text
    assert (
        "CAUTION: types, ranges and values that no other source gives are those of the public file public.csv" in text
    )
    assert "  age: {type: integer, min: 18, max: 93, missing: true}\n" in text
    assert "  sex: {type: categorical, values: [F, M], outside: other, missing: true}\n" in text
    assert '  joined: {type: date, min: 2024-01-01, max: 2025-12-31, format: "%d.%m.%Y", missing: true}\n' in text
    assert "  note: FILL_IN" in text
    assert not {"CANARY", "31337", "1911"} & set(re.findall(r"\w+", text))
    assert read
    assert all("public" in name for name in read)


def test_a_source_that_adds_nothing_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A codebook without such a name would be read as a table, whose header says nothing."""
    (folder / "labels.csv").write_text("name,min,max\nage,0,110\n")
    assert dpflow("init", "visits", "--from", "visits.csv", "--from", "labels.csv") != 0
    assert "labels.csv: says nothing about these columns that is not known yet" in capsys.readouterr().err
    assert not (folder / "visits.yaml").exists()


def test_a_declared_unit_is_written_and_left_out_of_the_release(folder: Path) -> None:
    assert dpflow("init", "visits", "--from", "visits.csv", "--unit", "sex") == 0
    text = (folder / "visits.yaml").read_text()
    assert "  unit: sex " in text
    assert "  # sex: FILL_IN   # it identifies the unit" in text


def test_only_the_name_of_an_id_is_proposed_as_the_unit(folder: Path) -> None:
    for name, header, proposed in (
        ("homes", "Order,PID,Street,phone,HouseNumber", "a person, perhaps PID"),
        ("streets", "Street,owner_name,HouseNumber", "a person"),
        ("sales", "customer,order_id,amount", "a person, perhaps customer or order_id"),
    ):
        (folder / f"{name}.csv").write_text(header + "\n")
        assert dpflow("init", name, "--from", f"{name}.csv") == 0
        (line,) = [each for each in (folder / f"{name}.yaml").read_text().splitlines() if each.startswith("  unit:")]
        assert line == f"  unit: FILL_IN   # the protected unit: row, or the column that identifies {proposed}"
    (folder / "dictionary.json").write_text('{"order_id": {"values": ["a", "b"]}}')
    assert dpflow("init", "few", "--from", "sales.csv", "--from", "dictionary.json") == 0
    assert "perhaps customer\n" in (folder / "few.yaml").read_text()  # two values contradict that order_id is an id
