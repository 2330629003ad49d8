"""Draw a budget as a bar: spent before, spent by this run, reserved by other runs, and left."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dpcore.reporting.plots.drawing import LEFT, SPAN, at, legend, line, panel, percent, text, tick_below

MARK = 0.8
"""The share of a budget at which its steward is notified."""

_TOP, _EACH, _THICK = 78, 64, 28
_LEAST_SHOWN = 3.0
_KINDS = {"spent": "spent", "this run": "this-run", "reserved": "reserved", "left": "left"}


@dataclass(frozen=True)
class Bar:
    """A budget at one moment. All amounts are in the same currency."""

    label: str
    spent: int
    this_run: int
    reserved: int
    whole: int

    @property
    def shares(self) -> dict[str, float]:
        """The share of each part, including empty parts."""
        used = self.spent + self.this_run + self.reserved
        whole = max(self.whole, used, 1)
        amounts = (self.spent, self.this_run, self.reserved, whole - used)
        return {name: amount / whole for name, amount in zip(_KINDS, amounts, strict=True)}

    @property
    def words(self) -> str:
        """The numbers of the bar as text."""
        shown = [(name, share) for name, share in self.shares.items() if share or name in {"spent", "left"}]
        return ", ".join(f"{name} {percent(share)}" for name, share in shown)


def budget_words(bars: Sequence[Bar]) -> str:
    """Describe the bars in words."""
    return " ".join(f"{bar.label.capitalize()}: {bar.words}." for bar in bars)


def budget_plot(bars: Sequence[Bar]) -> str:
    """Draw a budget at one or more moments, with a mark at 80 %."""
    bottom = _TOP + _EACH * len(bars)
    named = [name for name in _KINDS if any(bar.shares[name] for bar in bars)]
    swatch = '<rect class="{}" x="-9.5" y="-6.5" width="19" height="13" rx="2"/>'
    drawn = legend([(swatch.format(_KINDS[name]), name) for name in named])
    for number, bar in enumerate(bars):
        y = _TOP + _EACH * number
        drawn.append(text(LEFT - 12, y + 19, bar.label, "end"))
        drawn += _parts(bar, y)
        drawn.append(text(LEFT, y + 47, bar.words, "quiet"))
    drawn += [tick_below(LEFT + SPAN * fifth / 5, bottom, f"{20 * fifth} %") for fifth in range(6)]
    mark = LEFT + SPAN * MARK
    drawn.append(line("mark", (mark, _TOP - 8), (mark, bottom)))
    drawn.append(text(mark, _TOP - 14, f"{MARK:.0%}".replace("%", " % of the budget"), "quiet middle"))
    return panel(bottom + 38, drawn, title="The budget", words=budget_words(bars))


def _parts(bar: Bar, y: float) -> list[str]:
    """Draw the nonempty parts, each wide enough to be visible. The widest part shrinks to make room."""
    shown = [(_KINDS[name], share) for name, share in bar.shares.items() if share]
    widths = [max(_LEAST_SHOWN, SPAN * share) for _, share in shown]
    widths[widths.index(max(widths))] -= sum(widths) - SPAN
    edges = [float(LEFT)]
    for width in widths:
        edges.append(edges[-1] + width)
    return [
        f'<rect class="{kind}" x="{at(start + 0.5)}" y="{at(y + 0.5)}" width="{at(end - start - 2)}" height="{_THICK - 1}" rx="2"/>'
        for (kind, _), (start, end) in zip(shown, pairwise(edges), strict=True)
    ]
