"""The elements of all plots: a panel with a legend, ticks and lines, in light or dark colours as the reader prefers."""

import base64
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from dpcore.reporting.plots import colours

WIDTH, LEFT, RIGHT = 720, 84, 28
SPAN = WIDTH - LEFT - RIGHT
LEGEND = 26
"""The legend's distance from the top."""

Points = list[tuple[float, float]]

_STYLE = """
.panel{fill:var(--panel);stroke:var(--grid)}
text{fill:var(--ink);font:13px system-ui,sans-serif}
.quiet{fill:var(--quiet);font-size:12px}
.small{font-size:12px}
.tiny{font-size:10px}
.end{text-anchor:end}
.middle{text-anchor:middle}
.grid{stroke:var(--grid)}
.axis,.fall{stroke:var(--outline)}
.spent,.after{fill:var(--spent)}
.this-run{fill:var(--this-run)}
.reserved,.apart{fill:url(#hatched);stroke:var(--spent)}
.hatch{stroke:var(--spent);stroke-width:3}
.left{fill:none;stroke:var(--outline)}
.mark{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:4 3}
.before{fill:var(--panel);stroke:var(--this-run);stroke-width:2}
.floor{fill:none;stroke-width:1.5;stroke:var(--ink);stroke-dasharray:2 3}
.count{fill:var(--spent)}
.whisker{stroke:var(--ink);stroke-width:1.5}
.good{fill:var(--good)}
.fair{fill:var(--fair)}
.poor{fill:var(--poor)}
.shade-0{fill:none;stroke:var(--grid)}
.shade-1,.shade-2,.shade-3,.shade-4{fill:var(--spent)}
.shade-1{fill-opacity:.12}
.shade-2{fill-opacity:.28}
.shade-3{fill-opacity:.45}
.on{fill:var(--panel);font-weight:700}
"""
_HATCHED = (
    '<pattern id="hatched" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<line class="hatch" x1="0" y1="0" x2="0" y2="7"/></pattern>'
)


def percent(share: float) -> str:
    """Format a share in percent. A share just above 0 or just below 1 is never rounded to 0 % or 100 %.

    >>> percent(0.1234), percent(0.0001), percent(0.99999), percent(0), percent(1), percent(123.4)
    ('12.3 %', '< 0.1 %', '> 99.9 %', '0 %', '100 %', '12,340 %')
    """
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    if share >= 1e6:
        return f"{100 * share:.3g} %"
    return f"{100 * share:,.0f} %" if share >= 1 or share == 0 else f"{100 * share:.1f} %"


def data_uri(svg: str) -> str:
    """Return a drawing as a data URI, for an image in Markdown or HTML."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def panel(height: float, parts: Iterable[str], *, title: str, words: str, width: float = WIDTH) -> str:
    """Put the parts of a drawing on a panel. `words` describe it for readers who cannot see it."""
    head = f'width="{at(width)}" height="{at(height)}" viewBox="0 0 {at(width)} {at(height)}" role="img"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head}>',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(words)}</desc>",
            f"<style>{colours.variables('svg')}{_STYLE}</style>",
            f"<defs>{_HATCHED}</defs>",
            f'<rect class="panel" x="0.5" y="0.5" width="{at(width - 1)}" height="{at(height - 1)}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def legend(entries: Sequence[tuple[str, str]]) -> list[str]:
    """Draw a row of marks with their names at the top. Each mark must be drawn around the origin."""
    x, drawn = 36.0, []
    for mark, name in entries:
        drawn.append(f'<g transform="translate({at(x)} {LEGEND})">{mark}</g>{text(x + 18, LEGEND + 4.5, name)}')
        x += 52 + 7 * len(name)
    return drawn


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Draw a text that starts at `x`, unless its class sets another anchor."""
    kinds = f' class="{kind}"' if kind else ""
    return f'<text{kinds} x="{at(x)}" y="{at(y)}">{escape(words)}</text>'


def line(kind: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    """Draw a straight line."""
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{at(x1)}" y1="{at(y1)}" x2="{at(x2)}" y2="{at(y2)}"/>'


def path(kind: str, points: Points) -> str:
    """Draw a line through all points."""
    return f'<polyline class="{kind}" points="{" ".join(f"{at(x)},{at(y)}" for x, y in points)}"/>'


def tick_below(x: float, y: float, label: str) -> str:
    """Draw a labelled tick below a horizontal axis."""
    return line("axis", (x, y), (x, y + 5)) + text(x, y + 20, label, "quiet middle")


def at(place: float) -> str:
    """Format a coordinate."""
    return f"{place:.1f}".removesuffix(".0")
