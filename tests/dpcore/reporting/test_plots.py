"""Plots: right in every case that a run can have, the same text each time, and readable for everybody, dark and light."""

import math
import random
import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.reporting.outcome import Round
from dpcore.reporting.plots import (
    Bar,
    Count,
    Tile,
    budget_plot,
    budget_words,
    counts_plot,
    counts_words,
    rounds_plot,
    rounds_words,
    tiles_plot,
)
from dpcore.reporting.plots.counts import SMALL
from dpcore.reporting.plots.drawing import SPAN, WIDTH
from tests.dpcore.reporting.contrast import colours_of, contrast, difference_without, painted

BARS = [Bar("before", 240, 0, 100, 1000), Bar("after", 240, 130, 100, 1000)]
DECORATION = {"panel", "grid", "shade-0"}  # a tile without dependence says so by its number


def rounds(count: int, *, scale: float = 1.0) -> list[Round]:
    draw = random.Random(1).random  # noqa: S311  not for privacy
    distances = [scale * (0.05 + 0.3 / number**0.5 + 0.05 * draw()) for number in range(1, count + 1)]
    return [
        Round(number, ("age", "sex"), 12, 4.0, before, before * (0.3 + 0.2 * draw()), scale * 0.04, number / count)
        for number, before in enumerate(distances, 1)
    ]


COUNTS = [
    Count("20 to 39", 300.0, 250.0, 360.0),
    Count("40 to 59", 100.0, 80.0, 120.0),
    Count("missing", 5.0, 0.0, 30.0, apart=True),
]
TILES = {
    (1, 0): Tile("shade-4", "70"),
    (0, 1): Tile("good", "✓"),
    (2, 0): Tile("shade-0", "0"),
    (0, 2): Tile("poor", "✗"),
}
LEGEND = [(Tile("good", "✓"), "good"), (Tile("fair", "~"), "fair")]
PLOTS = {
    "upright counts": counts_plot(COUNTS, title="age", upright=True),
    "lying counts": counts_plot(COUNTS, title="age", upright=False),
    "tiles": tiles_plot(["age", "sex", "city"], TILES, LEGEND, title="Pairs", words="Three pairs."),
    "budget": budget_plot(BARS),
    "one budget": budget_plot(BARS[:1]),
    "dots": rounds_plot(rounds(40)),
    "lines": rounds_plot(rounds(1000)),
    "one round": rounds_plot(rounds(1)),
    "no rounds": rounds_plot([]),
}


def elements(svg: str, kind: str, of_class: str | None = None) -> list[ET.Element]:
    found = [element for element in ET.fromstring(svg).iter() if element.tag.endswith(f"}}{kind}")]  # noqa: S314  our own text
    return [element for element in found if of_class is None or of_class in element.get("class", "").split()]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in elements(svg, "text")]


def bar_parts(svg: str) -> list[tuple[str, float, float]]:
    """Return each part of a bar with its left and right edge; those of the legend are drawn around 0."""
    parts = [element for element in elements(svg, "rect") if float(element.get("x", "")) > 0]
    return [
        (
            element.get("class", ""),
            float(element.get("x", "")),
            float(element.get("x", "")) + float(element.get("width", "")),
        )
        for element in parts
        if element.get("class") != "panel"
    ]


@pytest.mark.parametrize("svg", PLOTS.values(), ids=PLOTS)
def test_a_plot_says_what_it_shows_and_needs_nothing_else(svg: str) -> None:
    root = ET.fromstring(svg)  # noqa: S314  our own text
    assert [child.tag.rpartition("}")[2] for child in root][:2] == ["title", "desc"]
    assert all(child.text for child in root[:2])
    assert root.get("role") == "img"
    assert "script" not in svg
    assert "href" not in svg
    assert re.findall(r"url\((.*?)\)|(https?:[^\"]*)", svg.replace("http://www.w3.org/2000/svg", "")) == [
        ("#hatched", "")
    ]


def test_the_bars_show_each_part_in_its_place_and_the_mark_at_eighty_percent() -> None:
    before, after = (bar_parts(budget_plot([bar])) for bar in BARS)
    assert [kind for kind, *_ in before] == ["spent", "reserved", "left"]
    assert [kind for kind, *_ in after] == ["spent", "this-run", "reserved", "left"]
    for (_, left, right), share in zip(after, (0.24, 0.13, 0.1, 0.53), strict=True):
        assert right - left == pytest.approx(share * SPAN, abs=2.1)
    (mark,) = elements(PLOTS["budget"], "line", "mark")
    assert float(mark.get("x1", "")) == pytest.approx(after[0][1] + 0.8 * SPAN, abs=1)
    assert "80 % of the budget" in texts(PLOTS["budget"])
    assert "spent 24.0 %, this run 13.0 %, reserved 10.0 %, left 53.0 %" in texts(PLOTS["budget"])


@given(st.lists(st.integers(0, 10**18), min_size=4, max_size=4))
def test_neither_a_little_that_is_used_nor_a_little_that_is_left_vanishes(amounts: list[int]) -> None:
    spent, this_run, reserved, left = amounts
    bar = Bar("now", spent, this_run, reserved, spent + this_run + reserved + left)
    parts = bar_parts(budget_plot([bar]))
    assert len(parts) == max(1, sum(amount > 0 for amount in amounts))
    assert all(right - left >= 1 for _, left, right in parts)
    assert all(one[2] < other[1] for one, other in pairwise(parts))
    assert parts[-1][2] <= WIDTH


def test_the_words_of_a_bar_do_not_round_a_rest_away() -> None:
    assert budget_words([Bar("now", 1, 0, 0, 10**9)]) == "Now: spent < 0.1 %, left > 99.9 %."
    assert budget_words([Bar("now", 10**9 - 1, 0, 0, 10**9)]) == "Now: spent > 99.9 %, left < 0.1 %."


@pytest.mark.parametrize(
    "shown",
    [
        rounds(1),
        rounds(2),
        rounds(81),
        rounds(5000),
        [Round(1, (), 1, 1.0, before=math.inf, after=0.0, noise_floor=0.1, spent=1.0), *rounds(7)[1:]],
        rounds(7, scale=1e9),
        rounds(7, scale=1e-9),
        rounds(7, scale=0.0),
        [*rounds(1, scale=1e12), *rounds(30)[1:]],
        [*rounds(1, scale=1e306), *rounds(30, scale=1e-306)[1:]],
    ],
    ids=["1", "2", "81", "5000", "not-finite", "huge", "tiny", "zero", "one-huge", "huge-and-tiny"],
)
def test_whatever_the_rounds_are_the_plot_is_whole_and_within_its_panel(shown: list[Round]) -> None:
    svg = rounds_plot(shown)
    height = float(ET.fromstring(svg).get("height", ""))  # noqa: S314  our own text
    points = [
        tuple(map(float, point.split(",")))
        for line in elements(svg, "polyline")
        for point in line.get("points", "").split()
    ]
    points += [
        (float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in elements(svg, "circle") if dot.get("cx") != "0"
    ]
    assert len(points) >= min(len(shown), 80)
    assert all(0 < x < WIDTH and 0 < y < height for x, y in points)
    labels = [text for text in texts(svg) if text.endswith("%")]
    assert 2 <= len(labels) == len(set(labels)) <= 12
    numbers = [int(text.replace(",", "")) for text in texts(svg) if re.fullmatch(r"[\d,]+", text)]
    assert {shown[0].number, shown[-1].number} <= set(numbers)
    assert len(numbers) <= 14
    assert len(svg) < 60_000
    assert not re.search(r"\b(nan|inf)\b", svg.partition("</desc>")[2])


def test_a_round_is_drawn_where_its_figures_are() -> None:
    first = Round(1, ("age",), 4, 1.0, before=0.4, after=0.2, noise_floor=0.1, spent=0.5)
    second = Round(2, ("sex",), 4, 1.0, before=0.2, after=0.1, noise_floor=0.1, spent=1.0)
    svg = rounds_plot([first, second])
    before, after = (
        [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in elements(svg, "circle", kind)][:2]
        for kind in ("before", "after")
    )
    assert before[0][0] < before[1][0]
    assert before[0][1] < after[0][1] == before[1][1] < after[1][1]
    assert {"before the correction", "after it", "noise alone", "round"} <= set(texts(svg))
    assert "by 40.0 % of the rows, and by 20.0 % after the correction" in rounds_words([first])


def test_one_huge_round_does_not_flatten_all_others() -> None:
    svg = rounds_plot([*rounds(1, scale=1e12), *rounds(30)[1:]])
    heights = [float(dot.get("cy", "")) for dot in elements(svg, "circle", "before")][1:-1]
    assert max(heights) - min(heights) > 5


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("svg", PLOTS.values(), ids=PLOTS)
def test_text_and_marks_stand_out_from_the_panel(svg: str, dark: bool) -> None:
    assert too_faint(svg, dark=dark) == []


def test_a_faint_colour_would_be_found() -> None:
    pale = PLOTS["budget"].replace("#0067a8", "#9cc9e8").replace("#51606f", "#8d99a5")
    assert {kind for kind, *_ in too_faint(pale, dark=False)} == {"text", "rect", "line"}
    assert too_faint(pale, dark=True) == []


@pytest.mark.parametrize("cone", ["red", "green", "blue"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_a_run_adds_and_ratings_are_told_apart_with_any_colour_vision(cone: str, dark: bool) -> None:
    colours = colours_of(PLOTS["tiles"], dark=dark)
    for one, other in (("spent", "this-run"), ("good", "fair"), ("fair", "poor"), ("good", "poor")):
        assert difference_without(cone, colours[one], colours[other]) > 30
    assert difference_without("green", "#a06a00", "#5f8500") < 15  # the control: red and green


def too_faint(svg: str, *, dark: bool) -> list[tuple[str, str, float]]:
    """Return what has less contrast than it needs: text 4.5, marks 3."""
    panel = colours_of(svg, dark=dark)["panel"]
    seen = {
        (kind, classes, contrast(colour, panel))
        for kind, classes, colour in painted(svg, dark=dark)
        if not DECORATION & set(classes.split()) and colour != panel
    }
    assert len(seen) > 0
    return sorted(each for each in seen if each[2] < (4.5 if each[0] == "text" else 3.0))


def test_a_lying_bar_is_as_long_as_its_count_and_its_whisker_as_its_interval() -> None:
    svg = PLOTS["lying counts"]
    bars = [float(each.get("width", "")) for each in elements(svg, "rect", "count")]
    assert bars[0] / bars[1] == pytest.approx(3, rel=0.02)
    whiskers = [float(each.get("x2", "")) - float(each.get("x1", "")) for each in elements(svg, "line", "whisker")]
    long = [each for each in whiskers if each]
    assert long[0] / long[1] == pytest.approx(110 / 40, rel=0.05)
    assert {"300 ± 60", "100 ± 20", "5 ± 25"} <= set(texts(svg))


@pytest.mark.parametrize(("bars", "width"), [(1, 1), (2, 1000), (5, 3), (20, 1), (20, 1000)])
def test_upright_bars_are_labelled_at_both_ends_and_labels_never_touch(bars: int, width: int) -> None:
    edges = range(0, (bars + 1) * width, width)
    shown = [Count(f"bar {low}", 9.0, 8.0, 10.0, first=f"{low:,}", last=f"{low + width - 1:,}") for low in edges[:-1]]
    svg = counts_plot(shown, title="x", upright=True)
    labels = [each for each in elements(svg, "text", "quiet") if each.get("y") == "170"]
    ends = [shown[0].label, shown[-1].label] if width == 1 else [shown[0].first, shown[-1].last]
    assert [labels[0].text, labels[-1].text] == ends
    free = 0.0
    for each in labels:
        x, room = float(each.get("x", "")), 7 * len(each.text or "")
        kinds = (each.get("class") or "").split()
        left = x - room / 2 if "middle" in kinds else x - room if "end" in kinds else x
        assert left >= free
        free = left + room


def test_an_upright_bar_is_as_high_as_its_count_and_the_missing_stand_apart() -> None:
    svg = PLOTS["upright counts"]
    heights = [float(each.get("height", "")) for each in elements(svg, "rect", "count")]
    assert heights[0] / heights[1] == pytest.approx(3, rel=0.02)
    assert len(elements(svg, "rect", "apart")) == 1
    assert [text for text in texts(svg) if " to " in text] == ["20 to 39", "40 to 59"]
    assert "missing" in texts(svg)


@given(
    st.lists(
        st.tuples(st.text(max_size=40), st.floats(0, 1e12), st.floats(0, 1e12), st.booleans()), min_size=1, max_size=30
    ),
    st.booleans(),
)
def test_whatever_the_counts_are_they_are_drawn_within_the_panel(
    figures: list[tuple[str, float, float, bool]], upright: bool
) -> None:
    # Control characters are no part of XML; labels of a universe are printable.
    shown = [
        Count("".join(filter(str.isprintable, label)), value, max(0.0, value - error), value + error, apart=apart)
        for label, value, error, apart in figures
    ]
    svg = counts_plot(shown, title="x", upright=upright)
    height = float(ET.fromstring(svg).get("height", ""))  # noqa: S314  our own text
    for bar in (*elements(svg, "rect", "count"), *elements(svg, "rect", "apart")):
        x, y, wide, high = (float(bar.get(name, "")) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= SMALL + 0.1
        assert 0 <= y <= y + high <= height
    assert not re.search(r'="[^"]*(nan|inf)', svg)


def test_counts_are_told_in_words_the_largest_first() -> None:
    assert counts_words(COUNTS, most=1) == "The largest of 3 counts, with 95 % intervals: 20 to 39: 300 (250 to 360)."
    assert counts_words([]) == "There are no counts."


def test_tiles_stand_in_their_row_and_column_with_their_mark() -> None:
    (good, legend) = elements(PLOTS["tiles"], "rect", "good")
    (strong,) = elements(PLOTS["tiles"], "rect", "shade-4")
    assert float(good.get("x", "")) > float(strong.get("x", ""))
    assert float(good.get("y", "")) < float(strong.get("y", "")) < float(legend.get("y", ""))
    assert {"age  1", "✓", "70", "good"} <= set(texts(PLOTS["tiles"]))
