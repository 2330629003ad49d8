"""The proof names code and tests that exist: a step whose module, function or test has gone proves nothing any more."""

import ast
import re
from pathlib import Path

import pytest

from dpcore.audit.cases import CASES
from dpcore.audit.whole_run import RELEASES
from dpcore.curator.charges import CHARGED_STEPS
from tests.catalogue import BY_NAME

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "proof.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`((?:dpcore|flows|tests)/[\w/]+\.py)(?:::([\w.]+))?`")


def missing(text: str) -> list[str]:
    """What a page names and is not there."""
    return [
        f"{path}::{name}" if name else path
        for path, name in NAMED.findall(text)
        if not (ROOT / path).is_file() or (name and not defines(ROOT / path, name))
    ]


def defines(path: Path, name: str) -> bool:
    """Tell whether a file defines a function, a class, or an attribute of a class; a test may be in any class of its file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    if "." not in name:
        inside = ast.walk(tree) if name.startswith("test_") else tree.body
        return any(isinstance(node, kinds) and node.name == name for node in inside)
    owner, part = name.split(".")
    owners = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    return any(isinstance(node, kinds) and node.name == part for one in owners for node in one.body)


def test_every_module_function_and_test_that_the_proof_names_exists() -> None:
    assert missing(PAGE) == []


def test_every_step_that_is_about_code_names_code_and_a_test() -> None:
    steps = re.split(r"^### Step ", PAGE, flags=re.MULTILINE)[1:]
    assert [step.partition(".")[0] for step in steps] == [str(number) for number in range(1, 13)]
    for step in steps:
        paths = [path for path, _ in NAMED.findall(step)]
        if step.startswith("9."):  # about distributions only
            continue
        assert any(path.startswith("dpcore/") for path in paths), step[:40]
        assert any(path.startswith("tests/") for path in paths), step[:40]


STEP = re.compile(r"^\| ([\w ]+) \| `([\w ]+)` \| ([^|`]+) \| ([^|]+) \|$", re.MULTILINE)


def unproved(text: str) -> list[str]:
    """What is wrong with the rows of the charged steps: a kind and its row in the proof belong together, one to one."""
    rows = STEP.findall(text)
    listed = [(kind.name, kind.statistic.value) for kind in CHARGED_STEPS]
    named = [(name, statistic) for name, statistic, _, _ in rows]
    problems = [f"{name}: no row, or no kind" for name, _ in set(named) ^ set(listed)]
    problems += [f"{name}: two rows" for name, _ in set(named) if named.count((name, _)) > 1]
    for name, _, settings, audits in rows:
        problems += [f"{name}: no setting {each}" for each in settings.split("; ") if each not in BY_NAME]
        audited = re.findall(r"`([\w-]+)`", audits)
        problems += [f"{name}: no audit {each}" for each in audited if each not in {*CASES, *RELEASES}]
        problems += [] if audited else [f"{name}: no audit"]
    return problems


def test_charged_steps_and_rows_of_the_proof_correspond_one_to_one() -> None:
    assert unproved(PAGE) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| gate of an online session |", "| gate of a session |"),
        ("| gate of an online session | `gate`", "| gate of an online session | `count`"),
        ("| `gate` | online |", "| `gate` | no such setting |"),
        ("`sparse-vector`, `gate-step`", "`no-such-audit`"),
    ],
)
def test_a_row_that_does_not_fit_is_noticed(old: str, new: str) -> None:
    assert PAGE.count(old) == 1
    assert unproved(PAGE.replace(old, new)) != []


@pytest.mark.parametrize(
    "gone",
    [
        "`dpcore/no_such_module.py`",
        "`dpcore/curator/curator.py::Curator.forgets`",
        "`dpcore/curator/curator.py::NoCurator`",
        "`tests/dpcore/curator/test_curator.py::test_that_is_not_there`",
    ],
)
def test_what_is_not_there_is_noticed(gone: str) -> None:
    assert missing(PAGE + gone) == [gone.strip("`")]


def test_every_page_that_the_proof_links_to_exists() -> None:
    links = re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", PAGE)
    assert len(links) >= 5
    assert [link for link in links if not (ROOT / "docs" / "explanation" / link).is_file()] == []
