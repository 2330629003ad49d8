"""The guide to budgets for any task runs as it stands: commands, Python and what it says that is printed."""

import shlex
from fractions import Fraction

import pytest

from dpcore import cli
from flows.cli.run import run
from flows.verbs import VERBS
from tests.conftest import Workspace
from tests.docs.pages import BLOCK, ROOT, commands
from tests.dpcore.budget.accounts import spent

PAGE = ROOT / "docs" / "how-to" / "budget-for-any-task.md"


@pytest.mark.prefect
def test_the_page_runs_as_it_stands(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"__name__": "page"}
    printed = ""
    for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "console":
            for command in commands(text):
                assert cli.main(shlex.split(command)[1:], runner=run, more=VERBS) == 0
            capsys.readouterr()
        elif language == "python":
            exec(text, names)  # noqa: S102  it is our own page
            printed = capsys.readouterr().out
        else:
            assert printed.endswith(text)
    assert (spent("clinic"), spent("visits")) == (1, Fraction(4, 10))
