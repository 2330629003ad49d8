"""`dpflow answer` prints a table or a list of objects, from the folder of a release alone."""

import json
import shutil
from pathlib import Path

import pytest

from dpcore.cli.main import main
from tests.dpcore.answers.releases import DENSE, make_release, restate

QUESTION = "select city, count(*), median(income) from release where age >= 60 group by city order by 2 desc limit 2"
WITH_ENDS = [f"{name}{end}" for name in ("count", "median_income") for end in ("", "_low", "_high", "_basis")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in a folder of its own: its ledger, spec and table are elsewhere."""
    made = make_release(tmp_path_factory.mktemp("run"), DENSE.replace("STRATEGY", "{name: mwem, rounds: 2}"), rows=800)
    return shutil.copytree(made, tmp_path_factory.mktemp("alone") / "release")


def dpflow(*arguments: str) -> int:
    return main(["answer", *arguments], runner=None)  # type: ignore[arg-type]


def test_an_answer_is_a_table_for_people(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert dpflow(str(folder), QUESTION) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["city", *WITH_ENDS]
    assert [row.split()[0] for row in rows] == ["north", "south"]
    assert list(tmp_path.iterdir()) == []  # nothing is written, and no ledger is needed


def test_an_answer_is_a_list_of_objects_for_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow(str(folder), QUESTION, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [list(row) for row in rows] == [["city", *WITH_ENDS]] * 2
    assert rows[0]["count_low"] <= rows[0]["count"] <= rows[0]["count_high"]
    assert dpflow(str(folder), QUESTION, "--level", "0.5", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["count_high"] < rows[0]["count_high"]
    assert rows[0]["count"] > rows[1]["count"] > 0
    assert dpflow(str(folder), "select count(*), avg(age) a from release where false", "--json") == 0
    nothing = json.loads(capsys.readouterr().out)[-1]
    assert [nothing[name] for name in ("count", "count_low", "a", "a_low", "a_high")] == [0.0, 0.0, None, None, None]
    assert dpflow(str(folder), "select sex, count(*) from release where sex is null group by sex", "--json") == 0
    assert [row["sex"] for row in json.loads(capsys.readouterr().out)] == [None]


def test_an_answer_says_that_only_some_rows_of_each_unit_count(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(folder, tmp_path / "release")
    manifest = json.loads((copy / "manifest.json").read_text())
    assert manifest["privacy"]["unit"] == "row"  # the control: all rows count
    assert dpflow(str(copy), QUESTION) == 0
    plain = capsys.readouterr().out
    for most, words in ((1, "At most 1 row of each person counts"), (2, "At most 2 rows of each person count")):
        manifest["privacy"] |= {"unit": "person", "max_rows_per_unit": most}
        restate(copy, manifest)
        assert dpflow(str(copy), QUESTION) == 0
        assert capsys.readouterr().out == f"{plain}\n{words}, chosen at random.\n"


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            "select count(*) from release where agee > 3",
            "line 1, column 36: there is no column 'agee'; did you mean age",
        ),
        ("select avg(city)\nfrom release", "line 1, column 8: city is text"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(
    folder: Path, question: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dpflow(str(folder), question) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dpflow: {message}")
    assert said.count("\n") == 1
    assert dpflow(str(folder), question, "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith(message)


def test_a_folder_without_a_release_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow(str(tmp_path / "nothing"), QUESTION) == 2
    assert "name the folder of a release" in capsys.readouterr().err


def test_an_address_that_may_contain_a_password_is_refused_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dpflow("s3://somebody:SECRET@bucket/visits", QUESTION)
    said = "".join(capsys.readouterr())
    assert "argument RELEASE: must be an address of letters, digits" in said
    assert "SECRET" not in said
