"""Draw two distributions side by side, and bars with their figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from dpcore.reporting.plots.counts import SMALL, shortened
from dpcore.reporting.plots.drawing import at, line, panel, percent, text

_EDGE, _LABEL, _VALUE, _EACH, _TOP, _HEIGHT = 10.0, 124.0, 96.0, 30.0, 40.0, 120.0
_MOST_LETTERS = 16
_LABELLED, _FIGURE = 42.0, 50.0


@dataclass(frozen=True)
class Pair:
    """The true and the released share of rows with a value."""

    label: str
    true: float
    released: float


def pairs_words(pairs: Sequence[Pair], *, most: int = 4) -> str:
    """Describe two distributions by the values at which they differ most."""
    farthest = sorted(pairs, key=lambda pair: -abs(pair.true - pair.released))[:most]
    listed = "; ".join(f"{pair.label} {percent(pair.true)} and {percent(pair.released)}" for pair in farthest)
    return f"True and released shares, where they differ most: {listed}."


def pairs_plot(pairs: Sequence[Pair], *, title: str, upright: bool) -> str:
    """Draw the true shares as full bars and the released ones as outlined bars beside them.

    Args:
        pairs: The shares, in the order in which they are drawn.
        title: What is shown.
        upright: Bars beside each other, with a label at both ends; otherwise a line for each, with its label and figures.
    """
    top = max([1e-9, *(max(pair.true, pair.released) for pair in pairs)])
    height = _TOP + _HEIGHT + 34 if upright else _TOP + _EACH * len(pairs) + _EDGE
    drawn = [*_legend(), *(_upright(pairs, top) if upright else _lying(pairs, top))]
    return panel(height, drawn, title=title, words=pairs_words(pairs), width=SMALL)


def _legend() -> list[str]:
    return [
        _rect("count", _EDGE, 14, 12, 12),
        text(_EDGE + 18, 24, "true", "quiet"),
        _rect("before", _EDGE + 67, 15, 10, 10),
        text(_EDGE + 84, 24, "released", "quiet"),
    ]


def _upright(pairs: Sequence[Pair], top: float) -> list[str]:
    bottom, span = _TOP + _HEIGHT, SMALL - 2 * _EDGE
    pair_width = span / max(len(pairs), 1)
    thick = max(1.0, min((pair_width - 2) / 2, 20.0))
    drawn = [text(SMALL - _EDGE, 24, f"top: {percent(top)}", "quiet end")]
    for number, pair in enumerate(pairs):
        middle = _EDGE + pair_width * (number + 0.5)
        for kind, x, share in (("count", middle - thick, pair.true), ("before", middle, pair.released)):
            high = _HEIGHT * share / top
            drawn.append(_rect(kind, x, bottom - high, thick, high))
    drawn.append(line("axis", (_EDGE, bottom), (SMALL - _EDGE, bottom)))
    if pairs:
        drawn.append(text(_EDGE, bottom + 20, shortened(pairs[0].label, _MOST_LETTERS), "quiet"))
    if len(pairs) > 1:
        drawn.append(text(SMALL - _EDGE, bottom + 20, shortened(pairs[-1].label, _MOST_LETTERS), "quiet end"))
    return drawn


def _lying(pairs: Sequence[Pair], top: float) -> list[str]:
    span = SMALL - _LABEL - _VALUE - _EDGE
    drawn = []
    for number, pair in enumerate(pairs):
        y = _TOP + _EACH * number
        drawn.append(text(_LABEL - 8, y + 17, shortened(pair.label, _MOST_LETTERS), "quiet end"))
        drawn.append(_rect("count", _LABEL, y + 3, span * pair.true / top, 9))
        drawn.append(_rect("before", _LABEL, y + 14, span * pair.released / top, 8))
        drawn.append(text(SMALL - _EDGE, y + 12, percent(pair.true), "quiet end"))
        drawn.append(text(SMALL - _EDGE, y + 25, percent(pair.released), "quiet end"))
    return drawn


def bars_plot(bars: Sequence[tuple[str, float]], *, title: str) -> str:
    """Draw bars from 0 with their figures, each below its label."""
    top = max([1e-9, *(value for _, value in bars)])
    span = SMALL - 2 * _EDGE - _FIGURE
    drawn = []
    for number, (label, value) in enumerate(bars):
        y, long = _EDGE + _LABELLED * number, span * max(value, 0.0) / top
        drawn.append(text(_EDGE, y + 14, label))
        drawn.append(_rect("count", _EDGE, y + 20, long, 14))
        drawn.append(text(_EDGE + long + 8, y + 32, f"{value:.3f}"))
    return panel(2 * _EDGE + _LABELLED * len(bars), drawn, title=title, words=bars_words(bars), width=SMALL)


def bars_words(bars: Sequence[tuple[str, float]]) -> str:
    """Describe bars in words."""
    return "; ".join(f"{label}: {value:.3f}" for label, value in bars)


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    size = f'width="{at(max(width, 0.5))}" height="{at(max(height, 0.5))}"'
    return f'<rect class="{kind}" x="{at(x)}" y="{at(y)}" {size}/>'
