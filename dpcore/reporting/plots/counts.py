"""Draw counts as bars with error bars: upright for a column with an order, lying for categories. Small enough for a phone."""

import math
from collections.abc import Sequence

from dpcore.reporting.count import Count
from dpcore.reporting.plots.drawing import at, line, panel, text

SMALL = 340.0
"""The width of the plots, which stand side by side on a large screen."""

_EACH, _LABEL, _VALUE, _EDGE = 22.0, 124.0, 96.0, 10.0
_HEIGHT, _TOP, _CAP = 120.0, 30.0, 2.5
_MOST_LETTERS, _LETTER = 16, 7.0


def counts_words(counts: Sequence[Count], *, most: int = 5) -> str:
    """Describe counts in words: the largest ones, with their intervals."""
    if not counts:
        return "There are no counts."
    largest = sorted(counts, key=lambda each: -each.value)[:most]
    which = f"The largest of {len(counts):,} counts" if len(counts) > most else "The counts"
    return f"{which}, with 95 % intervals: {'; '.join(each.words for each in largest)}."


def counts_plot(counts: Sequence[Count], *, title: str, upright: bool, note: str = "") -> str:
    """Draw counts as bars from 0, each with its interval.

    Args:
        counts: The counts, in the order in which they are drawn.
        title: What is counted.
        upright: Bars beside each other on an axis, with as many labels as there is room for; otherwise one line for each, with its label
            and figures.
        note: A few words about the axis of upright bars.
    """
    words, top = counts_words(counts), max([1.0, *(max(each.high, each.value) for each in counts)])
    if upright:
        return panel(_TOP + _HEIGHT + 34, _upright(counts, top, note), title=title, words=words, width=SMALL)
    height = 2 * _EDGE + _EACH * len(counts)
    return panel(height, _lying(counts, top), title=title, words=words, width=SMALL)


def _lying(counts: Sequence[Count], top: float) -> list[str]:
    span = SMALL - _LABEL - _VALUE - _EDGE
    drawn = []
    for number, each in enumerate(counts):
        y = _EDGE + _EACH * number + _EACH / 2
        ends = [_LABEL + span * min(max(value, 0.0) / top, 1.0) for value in (each.value, each.low, each.high)]
        drawn.append(text(_LABEL - 8, y + 4, shortened(each.label, _MOST_LETTERS), "quiet end"))
        drawn.append(_bar(each, _LABEL, y - 7, ends[0] - _LABEL, 14))
        drawn.append(line("whisker", (ends[1], y), (ends[2], y)))
        drawn += [line("whisker", (end, y - _CAP), (end, y + _CAP)) for end in ends[1:]]
        drawn.append(text(SMALL - _EDGE, y + 4, f"{_figure(each.value)} ± {_figure(each.half)}", "quiet end"))
    return drawn


def _upright(counts: Sequence[Count], top: float, note: str) -> list[str]:
    bottom, span = _TOP + _HEIGHT, SMALL - 2 * _EDGE
    inside, aside = [each for each in counts if not each.apart], [each for each in counts if each.apart]
    # Counts that stand apart have room for their own label.
    room = min(66.0, span / 2 / len(aside)) if aside else 0.0
    each_width = (span - room * len(aside)) / max(len(inside), 1)
    drawn = [text(_EDGE, 19, f"{top:,.0f} rows", "quiet"), line("grid", (_EDGE, _TOP), (SMALL - _EDGE, _TOP))]
    if note:
        drawn.append(text(SMALL - _EDGE, 19, note, "quiet end"))
    places = [(each, _EDGE + each_width * number, each_width) for number, each in enumerate(inside)]
    places += [(each, SMALL - _EDGE - room * (len(aside) - number), room) for number, each in enumerate(aside)]
    for each, x, width in places:
        thick = max(1.0, min(width - 2, 30.0))
        middle = x + width / 2
        heights = [bottom - _HEIGHT * min(max(value, 0.0) / top, 1.0) for value in (each.value, each.low, each.high)]
        drawn.append(_bar(each, middle - thick / 2, heights[0], thick, bottom - heights[0]))
        drawn.append(line("whisker", (middle, heights[1]), (middle, heights[2])))
        cap = min(_CAP, thick / 2)
        drawn += [line("whisker", (middle - cap, y), (middle + cap, y)) for y in heights[1:]]
        if each.apart:
            drawn.append(text(middle, bottom + 20, shortened(each.label, 10), "quiet middle"))
    drawn.append(line("axis", (_EDGE, bottom), (SMALL - _EDGE, bottom)))
    return drawn + _axis(inside, each_width, bottom)


def _axis(counts: Sequence[Count], width: float, bottom: float) -> list[str]:
    """Label the bars: each below its middle if all have one value, otherwise at the edges between them. Labels never touch."""
    if not counts:
        return []
    end = _EDGE + width * len(counts)
    if all(each.first == each.last for each in counts):
        marks = [(_EDGE + width * (at + 0.5), each.label) for at, each in enumerate(counts)]
    else:
        marks = [(_EDGE + width * at, each.first) for at, each in enumerate(counts)]
        marks.append((end, counts[-1].last))
    labels = [(x, shortened(label, _MOST_LETTERS)) for x, label in marks]
    drawn = []
    for x, label in _chosen(labels, end):
        half = _LETTER * len(label) / 2
        kind = "quiet" if x - half < _EDGE else "quiet end" if x + half > end else "quiet middle"
        edge = _EDGE if kind == "quiet" else end if kind == "quiet end" else x
        drawn += [line("axis", (x, bottom), (x, bottom + 4)), text(edge, bottom + 20, label, kind)]
    return drawn


def _chosen(labels: Sequence[tuple[float, str]], end: float) -> Sequence[tuple[float, str]]:
    """Return the first and the last label, and others in equal steps as far as there is room."""
    for step in range(1, len(labels)):
        some = labels[:-1:step]
        # The last but one may be too near to the last.
        for chosen in ([*some, labels[-1]], [*some[:-1], labels[-1]]):
            if len(chosen) > 1 and _fit(chosen, end):
                return chosen
    return labels[:1]


def _fit(labels: Sequence[tuple[float, str]], end: float) -> bool:
    """Return whether labels have gaps between them. At the ends of the axis, they are moved into it."""
    free = -math.inf
    for x, label in labels:
        half = _LETTER * len(label) / 2
        middle = max(min(x, end - half), _EDGE + half)
        if middle - half < free:
            return False
        free = middle + half + _LETTER
    return True


def _bar(count: Count, x: float, y: float, width: float, height: float) -> str:
    kind = "apart" if count.apart else "count"
    size = f'width="{at(max(width, 0.5))}" height="{at(max(height, 0.5))}"'
    return f'<rect class="{kind}" x="{at(x)}" y="{at(y)}" {size}/>'


def _figure(count: float) -> str:
    """Format a count in at most six characters.

    >>> _figure(0.4), _figure(12345.6), _figure(1234567.8)
    ('0.4', '12,346', '1.23M')
    """
    if count >= 1e6:
        return f"{count / 1e6:.3g}M"
    return f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"


def shortened(label: str, most: int) -> str:
    """Return a label of at most so many letters.

    >>> shortened("Outlying-US", 8)
    'Outlyin…'
    """
    return label if len(label) <= most else f"{label[: most - 1]}…"
