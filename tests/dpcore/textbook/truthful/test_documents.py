"""The page on mechanism design says what its own code prints."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "explanation" / "mechanism-design.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def run(code: str) -> tuple[str, dict[str, object]]:
    names: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, PAGE.name, "exec"), names)  # noqa: S102  the page's code is ours
    return printed.getvalue(), names


def test_the_example_prints_what_the_page_says():
    one_line, example = blocks("python")
    (said,) = blocks("text")
    assert run(example)[0] == said
    assert len(said.splitlines()) >= 8
    left, right = run(one_line)[1]["stops"]
    assert 0 <= left < right < 5
