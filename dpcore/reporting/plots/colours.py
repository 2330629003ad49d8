"""The colours of dpflow's pages and plots, for light and dark themes.

They can be distinguished with every common kind of colour vision. Contrast with the panel is at least 4.5 to 1 for text and 3 to 1
for marks. No meaning is carried by colour alone.
"""

from collections.abc import Mapping

PANEL, INK, QUIET, GRID = "panel", "ink", "quiet", "grid"
"""The background, its text, secondary text, and grid lines."""
SPENT, THIS_RUN, OUTLINE = "spent", "this-run", "outline"
"""In budget plots: spent before, spent by this run, and the edge of what is left. In round plots: after, before, and noise."""
GOOD, FAIR, POOR = "good", "fair", "poor"
"""The ratings. Blue, yellow and red: without red or green cones, green and red would look alike."""

LIGHT: Mapping[str, str] = {
    PANEL: "#ffffff",
    INK: "#1c2733",
    QUIET: "#51606f",
    GRID: "#dde3e9",
    SPENT: "#0067a8",
    THIS_RUN: "#c04f00",
    OUTLINE: "#74818e",
    GOOD: "#0067a8",
    FAIR: "#8a6d00",
    POOR: "#8a1030",
}
DARK: Mapping[str, str] = {
    PANEL: "#1e1f23",
    INK: "#e8edf2",
    QUIET: "#a3b0bd",
    GRID: "#3a3c42",
    SPENT: "#58b4f0",
    THIS_RUN: "#f2a03d",
    OUTLINE: "#8795a3",
    GOOD: "#58b4f0",
    FAIR: "#e3c04a",
    POOR: "#ff7a8a",
}


def variables(selector: str) -> str:
    """Return the colours as CSS variables of an element: light, or dark if the reader prefers it.

    >>> variables(":root").splitlines()[1]
    '@media (prefers-color-scheme:dark){:root{--panel:#1e1f23;--ink:#e8edf2;--quiet:#a3b0bd;--grid:#3a3c42;--spent:#58b4f0;--this-run:#f2a03d;--outline:#8795a3;--good:#58b4f0;--fair:#e3c04a;--poor:#ff7a8a}}'
    """
    return f"{selector}{{{_rules(LIGHT)}}}\n@media (prefers-color-scheme:dark){{{selector}{{{_rules(DARK)}}}}}"


def _rules(colours: Mapping[str, str]) -> str:
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())
