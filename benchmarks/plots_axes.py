"""A chart with two axes: series of points labelled with their names, and references as horizontal lines."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dpcore.reporting.plots.drawing import LEFT, WIDTH, Points, at, line, panel, path, text, tick_below

TOP, HEIGHT, RIGHT = 56, 300, 28
BOTTOM = TOP + HEIGHT
INSET = 18
LETTER, LINE = 7.2, 16.0
"""The approximate width of a letter, and the height of a line of text."""
BESIDE = 11.0
"""The distance of a name from its mark."""
ROOM = 118.0
"""The space kept free on the right for the names of series that end there."""
SHAPES = (
    "M-4,-4H4V4H-4Z",
    "M0,-5.5L5,4H-5Z",
    "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
    "M0,5.5L5,-4H-5Z",
    "M-5,0A5,5,0,1,0,5,0A5,5,0,1,0,-5,0Z",
    "M-3,-5H3L5.5,0L3,5H-3L-5.5,0Z",
)
"""The marks of the peers, in order: distinguished by shape, not by colour."""

Name = tuple[float, float, str]
"""The preferred position of a name, and the name."""


@dataclass(frozen=True)
class Axis:
    """An axis: its range, its ticks and its label."""

    low: float
    high: float
    ticks: tuple[float, ...]
    label: str
    is_logarithmic: bool

    @classmethod
    def logarithmic(cls, values: Iterable[float], *, ticks: Iterable[float], label: str) -> "Axis":
        """Make a logarithmic axis that covers the values and ticks."""
        marked = tuple(ticks)
        places = [math.log10(value) for value in (*values, *marked)]
        low, high = min(places), max(places)
        if low == high:
            low, high = low - 0.5, high + 0.5
        return cls(low, high, marked, label, is_logarithmic=True)

    @classmethod
    def from_zero(cls, values: Iterable[float], *, label: str) -> "Axis":
        """Make a linear axis from 0 to the next round number."""
        most = max(values, default=0.0) or 1.0
        step = _round_up(most / 6)
        count = math.ceil(most / step - 1e-9)
        return cls(0.0, step * count, tuple(step * number for number in range(count + 1)), label, is_logarithmic=False)

    def share(self, value: float) -> float:
        """Return the position of a value: 0 at the low end, 1 at the high end."""
        place = math.log10(value) if self.is_logarithmic else value
        return (place - self.low) / (self.high - self.low)


def powers(values: Sequence[float]) -> list[float]:
    """Return the powers of ten around some values.

    >>> powers([3, 250])
    [1.0, 10.0, 100.0, 1000.0]
    """
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [float(f"1e{power}") for power in range(low, max(high, low + 1) + 1)]


@dataclass
class Chart:
    """A chart that is being drawn."""

    across: Axis
    up: Axis
    _drawn: list[str] = field(default_factory=list)
    _names: list[Name] = field(default_factory=list)

    def series(self, name: str, points: Points, *, shape: int | None) -> None:
        """Draw a series of points, with a line through them if there are several, and its name beside the last point.

        Args:
            name: The name of the series.
            points: The points, in the axes' units.
            shape: The shape of the marks, counted from 0; None for the series that the chart is about.
        """
        places = [self._place(x, y) for x, y in points]
        kind = "after" if shape is None else "before"
        if len(places) > 1:
            self._drawn.append(path(f"{kind}-line", places))
        if shape is None:
            self._drawn += [f'<circle class="after" cx="{at(x)}" cy="{at(y)}" r="5.5"/>' for x, y in places]
        else:
            outline = SHAPES[shape % len(SHAPES)]
            self._drawn += [
                f'<path class="before" transform="translate({at(x)} {at(y)})" d="{outline}"/>' for x, y in places
            ]
        x, y = places[-1]
        self._names.append((x + BESIDE, y, name))

    def reference(self, name: str, value: float) -> None:
        """Draw a horizontal line at a value, with its name at the left."""
        _, y = self._place(None, value)
        self._drawn.append(line("mark", (LEFT, y), (WIDTH - RIGHT, y)))
        self._drawn.append(text(LEFT + 6, y - 6, name, "quiet"))

    def draw(self, *, title: str, words: str) -> str:
        """Return the whole chart as SVG."""
        named: list[str] = []
        for (x, y, name), lower in _apart(self._names):
            if lower > y + LINE / 4:
                named.append(line("fall", (x - BESIDE, y), (x - 2, lower)))
            # an outline in the panel's colour keeps grid lines from crossing the letters
            outlined = '<g style="paint-order:stroke;stroke:var(--panel);stroke-width:4px;stroke-linejoin:round">'
            named.append(f"{outlined}{text(x, lower + 4.5, name)}</g>")
        return panel(BOTTOM + 56, [*self._axes(), *named, *self._drawn], title=title, words=words)

    def _place(self, x: float | None, y: float) -> tuple[float, float]:
        width = WIDTH - LEFT - RIGHT - 2 * INSET - ROOM
        share = 0.0 if x is None else self.across.share(x)
        return LEFT + INSET + width * share, BOTTOM - HEIGHT * self.up.share(y)

    def _axes(self) -> list[str]:
        drawn = [text(24, TOP - 24, self.up.label, "quiet")]
        for value in self.up.ticks:
            _, y = self._place(None, value)
            drawn.append(line("grid", (LEFT, y), (WIDTH - RIGHT, y)))
            drawn.append(text(LEFT - 10, y + 4, f"{value:.3g}", "quiet end"))
        drawn.append(line("axis", (LEFT, BOTTOM), (WIDTH - RIGHT, BOTTOM)))
        drawn += [tick_below(self._place(value, 0)[0], BOTTOM, f"{value:,g}") for value in self.across.ticks]
        drawn.append(text((LEFT + WIDTH - RIGHT - ROOM) / 2, BOTTOM + 41, self.across.label, "quiet middle"))
        return drawn


def _apart(names: Sequence[Name]) -> list[tuple[Name, float]]:
    """Return each name with the height at which to write it, moved down if it would overlap another name."""
    placed: list[tuple[Name, float]] = []
    for x, y, name in sorted(names, key=lambda each: each[1]):
        lower = y
        while any(_overlap((x, lower, name), (left, height, other)) for (left, _, other), height in placed):
            lower += 2.0
        placed.append(((x, y, name), lower))
    return placed


def _overlap(one: Name, other: Name) -> bool:
    (x1, y1, name1), (x2, y2, name2) = one, other
    return abs(y1 - y2) < LINE and x1 < x2 + LETTER * len(name2) and x2 < x1 + LETTER * len(name1)


def _round_up(least: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten."""
    power = float(f"1e{math.floor(math.log10(least))}")
    return next((factor * power for factor in (1, 2, 5) if factor * power >= least * (1 - 1e-9)), 10 * power)
