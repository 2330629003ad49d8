"""Draw the rounds of a run: the model's distance from each measurement, before and after the correction."""

import math
from collections.abc import Sequence

from dpcore.reporting.outcome import Round
from dpcore.reporting.plots.drawing import LEFT, RIGHT, at, legend, line, panel, path, percent, text, tick_below

_WIDTH = 480
"""Narrower than other plots, so that a telephone still shows its words large enough to read."""
_TOP, _BOTTOM, _INSET = 78, 298, 14
_MOST_SHOWN = 80
"""Of more rounds, only so many are drawn, at equal distances."""
_MOST_ON_SCALE = 30.0
"""Distances above this multiple of the median are drawn at the edge, so that one of them does not flatten all others."""


def rounds_words(rounds: Sequence[Round]) -> str:
    """Describe the rounds in words."""
    if not rounds:
        return "There were no rounds: the model is fitted to its first measurements alone."
    named = [("the only round" if len(rounds) == 1 else f"the first of {len(rounds):,} rounds", rounds[0])]
    if len(rounds) > 1:
        named.append(("the last", rounds[-1]))
    return " ".join(
        f"In {which}, the model differed from the measurement by {percent(done.before)} of the rows, and by {percent(done.after)} "
        f"after the correction; noise alone accounts for {percent(done.noise_floor)}."
        for which, done in named
    )


def rounds_plot(rounds: Sequence[Round]) -> str:
    """Draw the distance between model and measurement in each round, before and after the correction, and from noise alone."""
    words = rounds_words(rounds)
    if not rounds:
        return panel(72, [text(24, 41, words)], title="The rounds", words=words)
    most = min(len(rounds), _MOST_SHOWN)
    shown = [rounds[number * (len(rounds) - 1) // max(most - 1, 1)] for number in range(most)]
    first, last = rounds[0].number, rounds[-1].number
    step, ticks = _ticks(rounds)

    def across(number: int) -> float:
        share = (number - first) / (last - first) if last > first else 0.5
        return LEFT + _INSET + (_WIDTH - RIGHT - LEFT - 2 * _INSET) * share

    def height(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * min(1.0, max(0.0, value / (step * ticks)))

    drawn = [text(24, _TOP - 20, "distance between model and measurement, in % of the rows", "quiet")]
    for value in (step * number for number in range(ticks + 1)):
        drawn.append(line("grid", (LEFT, height(value)), (_WIDTH - RIGHT, height(value))))
        drawn.append(text(LEFT - 10, height(value) + 4, f"{100 * value:.4g} %", "quiet end"))
    drawn.append(line("axis", (LEFT, _BOTTOM), (_WIDTH - RIGHT, _BOTTOM)))
    drawn += [tick_below(across(number), _BOTTOM, f"{number:,}") for number in _labelled(first, last)]
    drawn.append(text((LEFT + _WIDTH - RIGHT) / 2, _BOTTOM + 41, "round", "quiet middle"))
    for done in shown:
        x, before, after = across(done.number), height(done.before), height(done.after)
        drawn += [line("fall", (x, before), (x, after)), _dot(x, before, "before"), _dot(x, after, "after")]
    floor = [(across(done.number), height(done.noise_floor)) for done in shown]
    drawn.append(path("floor", floor if len(floor) > 1 else [(x + aside, y) for x, y in floor for aside in (-30, 30)]))
    marks = (_dot(0, 0, "before"), _dot(0, 0, "after"), line("floor", (-11, 0), (11, 0)))
    drawn += legend(list(zip(marks, ("before the correction", "after it", "noise alone"), strict=True)))
    return panel(_BOTTOM + 56, drawn, title="The rounds", words=words, width=_WIDTH)


def _ticks(rounds: Sequence[Round]) -> tuple[float, int]:
    """Return the step and the number of the ticks on the scale of the distances, which begins at 0."""
    distances = sorted(value for done in rounds for value in (done.before, done.after, done.noise_floor))
    positive = [value for value in distances if 0 < value < math.inf] or [1.0]
    top = min(positive[-1], _MOST_ON_SCALE * positive[len(positive) // 2])
    step = _round_step(top / 5)
    return step, math.ceil(top / step - 1e-9)


def _labelled(first: int, last: int) -> list[int]:
    """Return the first and last round, and multiples of a step between them that leave room for both labels."""
    step, room = max(1, round(_round_step(max(last - first, 1) / 10))), (last - first) / 25
    between = [number for number in range(step, last, step) if first + room < number < last - room]
    return sorted({first, last, *between})


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is at least `least`."""
    power = float(f"1e{math.floor(math.log10(least))}")
    return next((factor * power for factor in (1, 2, 5) if factor * power >= least * (1 - 1e-9)), 10 * power)


def _dot(x: float, y: float, kind: str) -> str:
    return f'<circle class="{kind}" cx="{at(x)}" cy="{at(y)}" r="{"4" if kind == "after" else "3.5"}"/>'
