"""docs/explanation/attacks.md tells the truth: its attacks do what it says, on exact data and on a release, and would do otherwise without noise."""

import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpcore.mechanisms import DiscreteLaplace, ExponentialMechanism

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "attacks.md"
POINTS = 4.0
"""How far a measured share may be from the page's: at 10,000 guesses or more, eight standard errors."""
ABOUT = re.compile(r"about (\d+)%")
ALLOWED = np.e / (1 + np.e)
"""How often anybody can be right about a fair coin that epsilon 1 protects."""


@dataclass(frozen=True)
class Block:
    """A piece of code, what the page says it prints, and where it stands."""

    code: str
    printed: str
    line: int


def blocks() -> list[Block]:
    text = PAGE.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", text, flags=re.DOTALL | re.MULTILINE)
    return [Block(one[1], one[2] or "", text[: one.start()].count("\n") + 2) for one in found]


def run_page(folder: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Run all blocks in order; return what they leave behind, and for each what the page says and what was printed."""
    names: dict[str, Any] = {"__name__": "attacks"}
    printed = []
    with contextlib.chdir(folder):
        for block in blocks():
            output = io.StringIO()
            # the empty lines make a traceback name the page's own line
            with contextlib.redirect_stdout(output):
                exec(compile("\n" * (block.line - 1) + block.code, str(PAGE), "exec"), names)  # noqa: S102
            printed.append((block.printed, output.getvalue()))
    return names, printed


def disagreements(printed: list[tuple[str, str]]) -> list[str]:
    """The lines that were printed and are not the page's: a share after "about" may be some points off."""
    wrong = []
    for said, got in printed:
        pairs = zip(said.splitlines(), got.splitlines(), strict=True)
        wrong += [line for page, line in pairs if not _agree(page, line)]
    return wrong


def _agree(page: str, line: str) -> bool:
    shares = zip(ABOUT.findall(page), ABOUT.findall(line), strict=False)
    return ABOUT.sub("S", page) == ABOUT.sub("S", line) and all(abs(int(a) - int(b)) <= POINTS for a, b in shares)


def most(share: float, guesses: int) -> float:
    """A share of right guesses so high that one in a million measurements exceeds it."""
    return share + 5 * np.sqrt(share * (1 - share) / guesses)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def noise_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiscreteLaplace, "draw", lambda _self, counts: counts.copy())
    monkeypatch.setattr(DiscreteLaplace, "standard_deviation", 0.01)  # a model does not follow what it takes for noise
    monkeypatch.setattr(ExponentialMechanism, "draw", lambda _self, scores: int(scores.argmax()))


def test_the_attacks_succeed_on_exact_data_and_fail_on_a_release_as_the_page_says(folder: Path) -> None:
    names, printed = run_page(folder)
    assert disagreements(printed) == []
    for attack in ("differencing", "knowing", "averaging"):
        assert 0.5 < names[attack] <= most(ALLOWED, 20_000)
    assert max(names["counted"], names["membership"]) <= most(ALLOWED, 20_000)
    assert abs(names["in_release"] - names["out_of_release"]) < 0.05
    assert min(names["few_off"], names["charged_once"]) > 0.95
    assert names["each_charged"] < 0.55


@pytest.mark.usefixtures("noise_left_out")
def test_without_noise_every_attack_succeeds_and_the_page_is_found_wrong(folder: Path) -> None:
    names, printed = run_page(folder)
    wrong = disagreements(printed)
    for attack in ("differencing", "knowing", "averaging", "each_charged"):
        assert names[attack] == pytest.approx(1.0)
    assert names["counted"] > 0.9 > most(ALLOWED, 20_000)
    assert names["membership"] > 0.6  # rows of a model that has seen true counts still are not the people's own
    for beginning in ("noisy counts, by", "noisy counts, knowing", "averaging", "who is a", "each"):
        assert any(line.startswith(beginning) for line in wrong)


@pytest.mark.parametrize(
    ("page", "line", "agree"),
    [
        ("about 51% of 100%", "about 54% of 100%", True),
        ("about 51% of 100%", "about 56% of 100%", False),
        ("about 51% of 100%", "about 51% of 99%", False),
        ("51% are right", "52% are right", False),
    ],
)
def test_only_a_share_that_was_measured_may_differ(page: str, line: str, agree: bool) -> None:
    assert _agree(page, line) is agree


def test_every_block_that_prints_is_followed_by_what_it_prints() -> None:
    silent: Callable[[Block], bool] = lambda block: "print(" not in block.code and not block.printed  # noqa: E731
    assert len(blocks()) >= 8
    assert all(block.printed or silent(block) for block in blocks())
