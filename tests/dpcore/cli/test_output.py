"""What a verb writes: whole answers, listings of any length, and what a narrow terminal can show."""

import io
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from dpcore.cli.main import _write
from dpcore.cli.output import Answer, Listing, bar, legend, mark, rule, wrapped
from dpcore.reporting.ratings import Rating


def listing(items: Iterator[Any]) -> Listing:
    return Listing(
        "numbers",
        items,
        data=lambda item: {"number": item},
        heading=("number", "word"),
        row=lambda item: (str(item), f"word {item}"),
        right={"number"},
    )


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_a_listing_is_one_json_object_however_long(count: int) -> None:
    written = "".join(listing(iter(range(count))).pieces(as_json=True))
    assert json.loads(written) == {"numbers": [{"number": number} for number in range(count)]}


def test_a_listing_lines_up_and_widens_where_it_has_to() -> None:
    lines = "".join(listing(iter([*range(300), 10**12])).pieces(as_json=False)).splitlines()
    assert lines[0] == "number  word"
    assert lines[8] == "     7  word 7"
    assert lines[-1] == "1000000000000  word 1000000000000"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_listing_is_never_held_as_a_whole(as_json: bool) -> None:
    def peak() -> int:
        tracemalloc.start()
        try:
            for _ in listing(iter(range(10_000))).pieces(as_json=as_json):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # The least of several: other threads of this process may take some memory meanwhile.
    assert min(peak() for _ in range(5)) < 200_000  # the same items in a list take more than ten times as much


def test_an_answer_is_one_object_or_one_text() -> None:
    answer = Answer({"a": 1}, "one a")
    assert list(answer.pieces(as_json=True)) == ['{"a": 1}\n']
    assert list(answer.pieces(as_json=False)) == ["one a\n"]


@pytest.mark.parametrize(
    ("spent", "reserved", "drawn"),
    [
        (0, 0, "··········"),
        (1, 0, "█·········"),
        (999, 0, "█████████·"),
        (1000, 0, "██████████"),
        (500, 500, "█████▒▒▒▒▒"),
        (0, 1, "▒·········"),
        (999, 1, "█████████▒"),
        (300, 1, "██▒·······"),
    ],
)
def test_neither_a_little_used_nor_a_little_left_vanishes_from_a_bar(spent: int, reserved: int, drawn: str) -> None:
    assert bar(spent=spent, reserved=reserved, whole=1000, width=10) == drawn


def test_the_dust_of_rounding_is_no_rest() -> None:
    assert bar(spent=10**12 - 3, reserved=0, whole=10**12, width=4) == "████"


def test_a_terminal_without_such_letters_gets_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(screen, encoding="ascii", write_through=True))
    assert bar(spent=2, reserved=1, whole=4, width=4) == "##=."
    assert legend() == "# spent   = reserved   . left"
    assert rule(3) == "---"
    assert [mark(each) for each in Rating] == ["+ good", "~ fair", "x poor"]
    _write("Zürich\n")
    assert screen.getvalue() == b"Z\\xfcrich\n"


def test_a_line_is_wrapped_for_a_terminal_only_and_keeps_numbers_with_their_percent_signs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = f"noise      {'about 7 % ' * 12}".rstrip()
    monkeypatch.setenv("COLUMNS", "60")
    lines = wrapped(line, indent=11).splitlines()
    assert max(map(len, lines)) <= 60
    assert all(each.startswith(" " * 11 + "about") for each in lines[1:])
    assert " ".join(" ".join(lines).split()) == " ".join(line.split())
    assert not any(each.endswith("7") for each in lines)
    monkeypatch.delenv("COLUMNS")
    assert wrapped(line, indent=11) == line  # the output of a test goes to no terminal
