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
    largest = sorted(counts, key=lambda count: -count.value)[:most]
    which = f"The largest of {len(counts):,} counts" if len(counts) > most else "The counts"
    return f"{which}, with 95 % intervals: {'; '.join(count.words for count in largest)}."


def counts_plot(counts: Sequence[Count], *, title: str, upright: bool, note: str = "") -> str:
    """Draw counts as bars from 0, each with its interval.

    Args:
        counts: The counts, in the order in which they are drawn.
        title: What is counted.
        upright: Bars beside each other on an axis, with as many labels as there is room for; otherwise one line for each, with its label
            and figures.
        note: A few words about the axis of upright bars.
    """
    words, top = counts_words(counts), max([1.0, *(max(count.high, count.value) for count in counts)])
    if upright:
        return panel(_TOP + _HEIGHT + 34, _upright(counts, top, note), title=title, words=words, width=SMALL)
    height = 2 * _EDGE + _EACH * len(counts)
    return panel(height, _lying(counts, top), title=title, words=words, width=SMALL)


def _lying(counts: Sequence[Count], top: float) -> list[str]:
    span = SMALL - _LABEL - _VALUE - _EDGE
    drawn = []
    for number, count in enumerate(counts):
        y = _EDGE + _EACH * number + _EACH / 2
        end, low, high = (_LABEL + span * share for share in _shares(count, top))
        drawn.append(text(_LABEL - 8, y + 4, shortened(count.label, _MOST_LETTERS), "quiet end"))
        drawn.append(_bar(count, _LABEL, y - 7, end - _LABEL, 14))
        drawn.append(line("whisker", (low, y), (high, y)))
        drawn += [line("whisker", (x, y - _CAP), (x, y + _CAP)) for x in (low, high)]
        drawn.append(text(SMALL - _EDGE, y + 4, f"{_figure(count.value)} ± {_figure(count.half)}", "quiet end"))
    return drawn


def _shares(count: Count, top: float) -> list[float]:
    """Return where a bar and the ends of its interval lie between 0 and the largest figure."""
    return [min(max(value, 0.0) / top, 1.0) for value in (count.value, count.low, count.high)]


def _upright(counts: Sequence[Count], top: float, note: str) -> list[str]:
    bottom, span = _TOP + _HEIGHT, SMALL - 2 * _EDGE
    inside, aside = [count for count in counts if not count.apart], [count for count in counts if count.apart]
    # Counts that stand apart have room for their own label.
    room = min(66.0, span / 2 / len(aside)) if aside else 0.0
    each_width = (span - room * len(aside)) / max(len(inside), 1)
    drawn = [text(_EDGE, 19, f"{top:,.0f} rows", "quiet"), line("grid", (_EDGE, _TOP), (SMALL - _EDGE, _TOP))]
    if note:
        drawn.append(text(SMALL - _EDGE, 19, note, "quiet end"))
    places = [(count, _EDGE + each_width * number, each_width) for number, count in enumerate(inside)]
    places += [(count, SMALL - _EDGE - room * (len(aside) - number), room) for number, count in enumerate(aside)]
    for count, x, width in places:
        thick, middle = max(1.0, min(width - 2, 30.0)), x + width / 2
        end, low, high = (bottom - _HEIGHT * share for share in _shares(count, top))
        drawn.append(_bar(count, middle - thick / 2, end, thick, bottom - end))
        drawn.append(line("whisker", (middle, low), (middle, high)))
        cap = min(_CAP, thick / 2)
        drawn += [line("whisker", (middle - cap, y), (middle + cap, y)) for y in (low, high)]
        if count.apart:
            drawn.append(text(middle, bottom + 20, shortened(count.label, 10), "quiet middle"))
    drawn.append(line("axis", (_EDGE, bottom), (SMALL - _EDGE, bottom)))
    return drawn + _axis(inside, each_width, bottom)


def _axis(counts: Sequence[Count], width: float, bottom: float) -> list[str]:
    """Label the bars: each below its middle if all have one value, otherwise at the edges between them.

    The first and the last label are written inwards from the ends of the axis. Others have room for the longest one, so labels never touch.
    """
    if not counts:
        return []
    end = _EDGE + width * len(counts)
    if all(count.first == count.last for count in counts):
        marks = [(_EDGE + width * (number + 0.5), count.label) for number, count in enumerate(counts)]
    else:
        marks = [(_EDGE + width * number, count.first) for number, count in enumerate(counts)]
        marks.append((end, counts[-1].last))
    labels = [(x, shortened(label, _MOST_LETTERS)) for x, label in marks]
    room = _LETTER * (max(len(label) for _, label in labels) + 1)
    between = [(x, label) for x, label in labels[1:-1] if _EDGE + 1.5 * room <= x <= end - 1.5 * room]
    shown = [(_EDGE, "quiet", *labels[0])]
    shown += [(x, "quiet middle", x, label) for x, label in between[:: math.ceil(room / width)]]
    if len(labels) > 1 and 2 * room <= end - _EDGE:
        shown.append((end, "quiet end", *labels[-1]))
    return [
        part
        for place, kind, x, label in shown
        for part in (line("axis", (x, bottom), (x, bottom + 4)), text(place, bottom + 20, label, kind))
    ]


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
