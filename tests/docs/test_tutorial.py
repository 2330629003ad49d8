"""The tutorial works as it stands, block by block; and what the guides show of using a release works on the one that it makes."""

from pathlib import Path

import pytest

from tests.docs.pages import Shown, blocks, python, run_page, tutorial

DOWNSTREAM = "docs/how-to/downstream.md"
ANSWERS = "docs/how-to/answers.md"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Shown]:
    return tutorial(tmp_path_factory).shown


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tutorial(tmp_path_factory).folder


def test_every_command_works_and_prints_what_the_tutorial_shows(shown: list[Shown]) -> None:
    assert len(shown) >= 7
    assert [line for one in shown for line in one.missing] == []


def test_a_line_that_is_not_printed_is_noticed_and_another_figure_is_not(shown: list[Shown]) -> None:
    printed = "rows       13,329\nrelease    releases/x/20261116T0653Z-451e78069b63\n"
    assert Shown("rows       9,998\nrelease    releases/x/20250101T0000Z-000000000000\n", printed).missing == []
    assert Shown("lines      13,329\n", printed).missing == ["lines      13,329"]


def test_the_guide_to_using_a_release_works_on_the_one_that_the_tutorial_made(folder: Path, capfd) -> None:
    names: dict[str, object] = {}
    printed = "".join(python(block, folder, names) for block in blocks(DOWNSTREAM, "python"))
    assert "epsilon 1\n" in printed
    assert "emergency" in printed + capfd.readouterr().out
    assert len(names["visits"]) > 8_000
    departments = names["departments"]
    assert len(departments) == names["visits"].department.nunique() == 10
    assert (departments.low <= departments["count"]).all()
    assert (departments["count"] <= departments.high).all()


def test_the_guide_to_asking_a_release_works_on_the_one_that_the_tutorial_made(folder: Path) -> None:
    (asked,) = run_page(ANSWERS, folder)
    said, printed = ([line.split() for line in text.splitlines()] for text in (asked.said, asked.printed))
    numbers = [f"{name}{part}" for name in ("visits", "cost") for part in ("", "_low", "_high", "_basis")]
    assert printed[0] == said[0] == ["department", *numbers]
    assert len(printed) == len(said) == 7
    assert printed[-1] == said[-1]
    (code,) = blocks(ANSWERS, "python")
    assert "cost" in python(code, folder, {})
