"""Dashboards are checked when they are registered, without data, and run as they were registered."""

import json
from pathlib import Path

import pytest

from dpcore import Outcome, cli
from dpcore.errors import SpecError, UsageError
from dpcore.steward.dashboards import all_dashboards, register_dashboard, unregister_dashboard
from dpcore.steward.registry import register
from tests.conftest import Workspace

GOOD = """\
release: visits
within: 50
queries:
  - select city, count(*) as n from release group by city
  - select count(*) as n from release where smoker
"""


@pytest.fixture
def file(workspace: Workspace) -> Path:
    """The file of a dashboard, of which the spec is registered."""
    register(workspace.spec, name="visits")
    path = workspace.folder / "board.yaml"
    path.write_text(GOOD, encoding="utf-8")
    return path


def changed(file: Path, old: str, new: str) -> Path:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    return file


def test_a_dashboard_has_the_parameters_of_the_flow_and_stays_as_it_was_registered(file: Path) -> None:
    entry = register_dashboard(file, cron="0 6 * * *", timezone="Europe/Zurich")
    changed(file, "within: 50", "within: 1")
    (stored,) = all_dashboards()
    assert stored == entry
    assert stored.account == "visits"
    assert stored.parameters == {
        "release": "visits",
        "queries": list(entry.questions.queries),
        "within": "50",
        "level": 0.95,
        "session": "",
        "name": "board",
        "accept_wider": False,
    }
    register_dashboard(file)
    assert [(each.questions.within, each.cron) for each in all_dashboards()] == [("1", None)]


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("within: 50", "within: [1]", SpecError, r"board.yaml:2:1: within: input should be a valid string"),
        ("within: 50", "within: 50\nlevel: 2", SpecError, r"board.yaml:3:1: level: input should be less than 1"),
        ("within: 50\n", "", SpecError, r"board.yaml:1:1: within: field required"),
        ("within: 50", "inside: 50", SpecError, r"inside: extra inputs are not permitted"),
        ("within: 50", "within: a lot", UsageError, "say how accurate"),
        ("release: visits", "release: other", UsageError, "no spec is registered as 'other'"),
        ("where smoker", "where smokes", UsageError, "query 2: line 1, column 41: there is no column 'smokes'"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_nothing_is_registered(
    file: Path, old: str, new: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        register_dashboard(changed(file, old, new))
    assert all_dashboards() == ()


def test_a_dashboard_that_was_removed_is_gone(file: Path) -> None:
    register_dashboard(file, name="other")
    unregister_dashboard("other")
    assert all_dashboards() == ()
    with pytest.raises(UsageError, match="no dashboard is registered as 'other'; registered dashboards: none"):
        unregister_dashboard("other")


def no_run(*_: object, **__: object) -> Outcome:
    message = "no run is made here"
    raise AssertionError(message)


def dpflow(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments], runner=no_run)


def test_the_verb_registers_lists_and_removes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("dashboard") == 0
    assert "no dashboard is registered yet" in capsys.readouterr().out
    assert dpflow("dashboard", file, "--cron", "0 6 * * *") == 0
    told = capsys.readouterr().out
    assert "registered dashboard board: 2 queries within 50" in told
    assert "0 6 * * * (UTC)" in told
    assert dpflow("dashboard", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)["dashboards"]
    assert listed["name"] == "board"
    assert dpflow("dashboard") == 0
    assert "board" in capsys.readouterr().out
    assert dpflow("dashboard", file, "--remove") == 0
    assert "removed dashboard board" in capsys.readouterr().out
    assert dpflow("dashboard", "--remove") == 2
    assert "name the dashboard's file" in capsys.readouterr().err
    assert dpflow("dashboard", file, "--remove", "--cron", "0 6 * * *") == 2
    assert "--remove takes neither" in capsys.readouterr().err
