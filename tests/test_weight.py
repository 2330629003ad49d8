"""The weight of small modules."""

import dataclasses
from pathlib import Path

import pytest

from tests.weight import main, weight_of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("x = f(1)\n", 6),
        ("x = (\n    f(  # why\n        1\n    )\n)\n\n", 8),
        ('"""What it is."""\n', 0),
        ('def f():\n    """Return it.\n\n    Twice.\n    """\n    return "it"\n', 7),
        ('x = """no docstring"""\n', 3),
        ('class A:\n    "What it is."\n\n    x = 1\n    "of x"\n', 7),
    ],
)
def test_tokens_are_those_of_the_language(text: str, tokens: int) -> None:
    assert weight_of(text).tokens == tokens


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("A = 1\nB: float = -2.5\n", 2),
        ("A, B = 1, 2\nC = [3, 'd']\nD = 1 << 20\nE = SECONDS * 60\n", 5),
        ("A = True\nB = 'b'\nC = f(1)\nD = {1: 2}\nE: int\n", 0),
        ("def f():\n    a = 1\nclass A:\n    b = 1\n", 0),
    ],
)
def test_constants_are_numbers_that_a_module_names(text: str, constants: int) -> None:
    assert weight_of(text).constants == constants


def test_each_binding_of_an_empty_name_counts() -> None:
    text = "def f(one, *, given=0):\n    for each in [other for other in one]:\n        found = each.kept\n"
    assert weight_of(text).empty_names == 5
    assert weight_of("match x:\n    case [one, *other]:\n        pass\n").empty_names == 2


def test_folders_are_printed_with_the_sum_of_their_modules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "# nothing\nA = 1\nkept = A\n"
    (tmp_path / "below").mkdir()
    for name in ("a.py", "below/b.py"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    main([str(tmp_path)])
    numbers = capsys.readouterr().out.splitlines()[1].split()[1:]
    assert numbers == ["2", "6", "0", "12", "2", "2"]
    assert dataclasses.astuple(weight_of(text)) == (1, 3, 25, 6, 1, 1)
