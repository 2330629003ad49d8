"""Draw a square of tiles, one for each pair of columns: a heat map below the diagonal, and marks above it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpcore.reporting.plots.counts import shortened
from dpcore.reporting.plots.drawing import at, panel, text

_SIDE, _TOP, _EDGE, _MOST_LETTERS = 30.0, 38.0, 10.0, 22
_LETTER, _LINE = 7.0, 34.0
_FEW = 3
"""More letters than these are written smaller, so that they stay on their tile."""


@dataclass(frozen=True)
class Tile:
    """A tile: its kind, which is its colour, and the few letters on it.

    The kinds are shade-0 to shade-4, from nothing to much, and good, fair and poor. No meaning may depend on the kind alone.
    """

    kind: str
    mark: str


def tiles_plot(
    names: Sequence[str],
    tiles: Mapping[tuple[int, int], Tile],
    legend: Sequence[tuple[Tile, str]],
    *,
    title: str,
    words: str,
) -> str:
    """Draw tiles by row and column.

    Args:
        names: The names of the rows and columns, which are numbered. The names stand beside the rows.
        tiles: The tiles, by the positions of their row and column.
        legend: What tiles mean, one line each.
        title: What is shown.
        words: The same for readers who cannot see it.
    """
    labels = [f"{shortened(name, _MOST_LETTERS)}  {number}" for number, name in enumerate(names, start=1)]
    left = _EDGE + _LETTER * max(map(len, labels), default=0) + 8
    bottom = _TOP + _SIDE * len(names)
    width = max(left + _SIDE * len(names) + _EDGE, left + max((_LETTER * len(said) for _, said in legend), default=0))
    drawn = []
    for number, label in enumerate(labels):
        drawn.append(text(left - 8, _TOP + _SIDE * number + _SIDE / 2 + 4, label, "end"))
        drawn.append(text(left + _SIDE * number + _SIDE / 2, _TOP - 9, f"{number + 1}", "quiet middle"))
    drawn += [_tile(tile, left + _SIDE * column, _TOP + _SIDE * row) for (row, column), tile in sorted(tiles.items())]
    for number, (tile, said) in enumerate(legend):
        y = bottom + 14 + _LINE * number
        drawn += [_tile(tile, left - _SIDE - 8, y), text(left, y + _SIDE / 2 + 4, said)]
    return panel(bottom + _LINE * len(legend) + 20, drawn, title=title, words=words, width=width)


def _tile(tile: Tile, x: float, y: float) -> str:
    side = at(_SIDE - 2)
    drawn = f'<rect class="{tile.kind}" x="{at(x + 1)}" y="{at(y + 1)}" width="{side}" height="{side}" rx="3"/>'
    kind = "small middle" if len(tile.mark) <= _FEW else "tiny middle"
    if tile.kind not in {"shade-0", "shade-1", "shade-2", "shade-3"}:
        kind += " on"
    return drawn + (text(x + _SIDE / 2, y + _SIDE / 2 + 4.5, tile.mark, kind) if tile.mark else "")
