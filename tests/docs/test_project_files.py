"""What starts the checks elsewhere starts the project's own."""

import re
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def test_the_workflow_runs_what_must_pass_before_a_change_lands_and_may_change_nothing() -> None:
    workflow = read(".github/workflows/ci.yml")
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert workflow["permissions"] == {"contents": "read"}
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_commits_are_checked_by_programs_of_make_lint_and_nothing_is_downloaded() -> None:
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nlint:")[1].split("\nfast:")[0]
    programs = set(re.findall(r"\$\(BIN\)/([\w-]+(?: check| format --check)?)", lint)) - {"python"}
    (local,) = read(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    hooks = [hook["entry"] for hook in local["hooks"]]
    assert all(hook["language"] == "system" for hook in local["hooks"])
    assert len(programs) == len(hooks) == 4
    assert [it for it in programs if not any(hook.startswith(f".venv/bin/{it}") for hook in hooks)] == []


@pytest.mark.parametrize("name", ["mkdocs.yml", "pyproject.toml", "SECURITY.md", "README.md"])
def test_no_address_is_made_up(name: str) -> None:
    """An address of ours would be one of a repository, a site or a mailbox, and there is none yet."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.findall(r"https?://\S+|[\w.]+@[\w-]+\.\w+", text) == []
