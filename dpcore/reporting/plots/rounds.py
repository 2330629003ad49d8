"""Draw the rounds of a run: the model's distance from each measurement, before and after the correction."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpcore.reporting.outcome import Round
from dpcore.reporting.plots.drawing import (
    LEFT,
    RIGHT,
    Points,
    at,
    legend,
    line,
    panel,
    path,
    percent,
    text,
    tick_below,
)

_WIDTH = 480
"""Narrower than other plots, so that a telephone still shows its words large enough to read."""
_SPAN = _WIDTH - LEFT - RIGHT
_TOP, _HEIGHT, _INSET = 78, 220, 14
_BOTTOM = _TOP + _HEIGHT
_MOST_DOTS, _MOST_POINTS = 80, 1000
"""Above `_MOST_DOTS` rounds, draw lines instead of dots. Above `_MOST_POINTS`, draw only that many rounds: the plot has fewer pixels."""
_MOST_ON_A_LINE = 30.0
"""The largest ratio of maximum to median for which the scale is linear from 0."""
_LEAST, _MOST = 1e-290, 1e290
"""Values outside this range do not stretch the scale. They are drawn at its end."""


def rounds_words(rounds: Sequence[Round]) -> str:
    """Describe the rounds in words."""
    if not rounds:
        return "There were no rounds: the model is fitted to its first measurements alone."
    told = [("the only round" if len(rounds) == 1 else f"the first of {len(rounds):,} rounds", rounds[0])]
    if len(rounds) > 1:
        told.append(("the last", rounds[-1]))
    return " ".join(
        f"In {which}, the model differed from the measurement by {percent(each.before)} of the rows, and by {percent(each.after)} "
        f"after the correction; noise alone accounts for {percent(each.noise_floor)}."
        for which, each in told
    )


def rounds_plot(rounds: Sequence[Round]) -> str:
    """Draw the distance between model and measurement in each round, before and after the correction, and from noise alone."""
    words = rounds_words(rounds)
    if not rounds:
        return panel(72, [text(24, 41, words)], title="The rounds", words=words)
    scale = _Scale.over(value for each in rounds for value in (each.before, each.after, each.noise_floor))
    shown = _thinned(rounds)
    across = _Across(rounds[0].number, rounds[-1].number)
    before, after, floor = (
        [(across.place(each.number), scale.height(value)) for each, value in zip(shown, values, strict=True)]
        for values in zip(*((each.before, each.after, each.noise_floor) for each in shown), strict=True)
    )
    few = len(shown) <= _MOST_DOTS
    drawn = [*_axes(scale, across), *(_dots(before, after) if few else _lines(before, after))]
    drawn.append(path("floor", floor if len(floor) > 1 else [(x + aside, y) for x, y in floor for aside in (-30, 30)]))
    marks = (_dot(0, 0, "before"), _dot(0, 0, "after")) if few else (_stroke("before-line"), _stroke("after-line"))
    names = ("before the correction", "after it", "noise alone")
    drawn += legend(list(zip((*marks, _stroke("floor")), names, strict=True)))
    return panel(_BOTTOM + 56, drawn, title="The rounds", words=words, width=_WIDTH)


@dataclass(frozen=True)
class _Across:
    """The horizontal axis: maps round numbers to coordinates."""

    first: int
    last: int

    def place(self, number: int) -> float:
        share = (number - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return LEFT + _INSET + (_SPAN - 2 * _INSET) * share

    @property
    def ticks(self) -> list[int]:
        """The first and last round, and multiples of a step between them that leave room for both labels."""
        step = max(1, round(_step((self.last - self.first) / 10))) if self.last > self.first else 1
        room = (self.last - self.first) / 25
        between = [number for number in range(step, self.last, step) if self.first + room < number < self.last - room]
        return sorted({self.first, self.last, *between})


@dataclass(frozen=True)
class _Scale:
    """The vertical axis: linear from 0, or logarithmic where a linear scale would flatten most values."""

    low: float
    high: float
    logarithmic: bool
    ticks: tuple[float, ...]

    @classmethod
    def over(cls, values: Iterable[float]) -> "_Scale":
        found = sorted(value for value in values if _LEAST < value < _MOST) or [1.0]
        middle, high = found[len(found) // 2], found[-1]
        if high / middle <= _MOST_ON_A_LINE:
            step = _step(high / 5)
            ticks = tuple(step * number for number in range(math.ceil(high / step - 1e-9) + 1))
            return cls(0.0, ticks[-1], logarithmic=False, ticks=ticks)
        low, top = math.floor(math.log10(found[0])), math.ceil(math.log10(high))
        every = max(1, math.ceil((top - low) / 6))
        powers = range(low, top + every, every)
        ticks = tuple(float(f"1e{power}") for power in powers)
        return cls(float(powers[0]), float(powers[-1]), logarithmic=True, ticks=ticks)

    def height(self, value: float) -> float:
        if self.logarithmic:
            value = math.log10(min(max(value, _LEAST), _MOST))
        share = (value - self.low) / (self.high - self.low)
        return _BOTTOM - _HEIGHT * min(1.0, max(0.0, share))


def _step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least `least`."""
    power = float(f"1e{math.floor(math.log10(least))}")
    return next((factor * power for factor in (1, 2, 5) if factor * power >= least * (1 - 1e-9)), 10 * power)


def _thinned(rounds: Sequence[Round]) -> list[Round]:
    if len(rounds) <= _MOST_POINTS:
        return list(rounds)
    return [rounds[number * (len(rounds) - 1) // (_MOST_POINTS - 1)] for number in range(_MOST_POINTS)]


def _axes(scale: _Scale, across: _Across) -> list[str]:
    drawn = [text(24, _TOP - 20, "distance between model and measurement, in % of the rows", "quiet")]
    for value in scale.ticks:
        y = scale.height(value)
        drawn.append(line("grid", (LEFT, y), (_WIDTH - RIGHT, y)))
        drawn.append(text(LEFT - 10, y + 4, f"{100 * value:.4g} %", "quiet end"))
    drawn.append(line("axis", (LEFT, _BOTTOM), (_WIDTH - RIGHT, _BOTTOM)))
    drawn += [tick_below(across.place(number), _BOTTOM, f"{number:,}") for number in across.ticks]
    drawn.append(text(LEFT + _SPAN / 2, _BOTTOM + 41, "round", "quiet middle"))
    return drawn


def _dots(before: Points, after: Points) -> list[str]:
    falls = [line("fall", high, low) for high, low in zip(before, after, strict=True)]
    return [*falls, *(_dot(x, y, "before") for x, y in before), *(_dot(x, y, "after") for x, y in after)]


def _lines(before: Points, after: Points) -> list[str]:
    return [path("before-line", before), path("after-line", after)]


def _dot(x: float, y: float, kind: str) -> str:
    return f'<circle class="{kind}" cx="{at(x)}" cy="{at(y)}" r="{"4" if kind == "after" else "3.5"}"/>'


def _stroke(kind: str) -> str:
    return line(kind, (-11, 0), (11, 0))
