"""Draw the diagrams of the documentation: `python -m docs.programs.diagrams`. The output is deterministic."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from dpcore.reporting.plots.colours import variables

IMAGES = Path(__file__).parents[1] / "images"

_STYLE = """
.panel{fill:var(--panel);stroke:var(--grid)}
text{fill:var(--ink);font:13px system-ui,sans-serif;text-anchor:middle}
.quiet{fill:var(--quiet);font-size:12px}
.box{fill:var(--panel);stroke:var(--spent);stroke-width:1.5}
.person{fill:var(--panel);stroke:var(--outline)}
.line{fill:none;stroke:var(--outline);stroke-width:1.5}
.tip{fill:var(--outline)}
"""
_TIP = '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class="tip" d="M0 0L10 5L0 10z"/></marker>'


@dataclass(frozen=True)
class Box:
    """A named box, placed by its centre."""

    x: int
    y: int
    name: str
    kind: str = "box"

    def drawn(self) -> Iterator[str]:
        """Return the box and its name."""
        wide = 7.6 * len(self.name) + 26
        round_corners = 16 if self.kind == "person" else 5
        yield f'<rect class="{self.kind}" x="{self.x - wide / 2:g}" y="{self.y - 17}" width="{wide:g}" height="34" rx="{round_corners}"/>'
        yield f'<text x="{self.x}" y="{self.y + 5}">{escape(self.name)}</text>'


@dataclass(frozen=True)
class Arrow:
    """An arrow along a path, with a label."""

    path: str
    label: str
    x: int
    y: int
    both: bool = False

    def drawn(self) -> Iterator[str]:
        """Return the line and its label."""
        start = ' marker-start="url(#tip)"' if self.both else ""
        yield f'<path class="line" d="{self.path}" marker-end="url(#tip)"{start}/>'
        if self.label:
            yield f'<text class="quiet" x="{self.x}" y="{self.y}">{escape(self.label)}</text>'


@dataclass(frozen=True)
class Diagram:
    """Boxes and arrows on a panel, with `words` as the text alternative."""

    width: int
    height: int
    words: str
    parts: tuple[Box | Arrow, ...]

    def svg(self) -> str:
        """Return the drawing."""
        head = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}" role="img"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head}>',
            f"<desc>{escape(self.words)}</desc>",
            f"<style>{variables('svg')}{_STYLE}</style>",
            f"<defs>{_TIP}</defs>",
            f'<rect class="panel" x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8"/>',
            *(line for part in self.parts for line in part.drawn()),
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


DIAGRAMS = {
    "parts.svg": Diagram(
        720,
        300,
        "The worker reads the raw tables, keeps the private folder, charges the ledger and writes releases. It tells the Prefect server names and states.",
        (
            Box(80, 50, "UI users", "person"),
            Box(290, 50, "Prefect server"),
            Box(540, 50, "Prefect's database"),
            Arrow("M122 50H225", "password", 172, 42),
            Arrow("M356 50H456", "", 0, 0, both=True),
            Box(290, 150, "worker"),
            Arrow("M290 132V68", "names, states", 338, 105),
            Box(80, 150, "raw tables"),
            Arrow("M131 150H251", "read-only", 190, 142),
            Box(80, 250, "private folder"),
            Arrow("M262 168L150 236", "", 0, 0, both=True),
            Box(290, 250, "releases"),
            Arrow("M290 168V232", "", 0, 0),
            Box(540, 150, "ledger's database"),
            Arrow("M330 150H459", "as runner", 394, 142),
            Box(480, 250, "steward", "person"),
            Arrow("M490 232L522 168", "", 0, 0),
            Box(610, 250, "auditor", "person"),
            Arrow("M600 232L560 168", "", 0, 0),
        ),
    ),
    "run-states.svg": Diagram(
        720,
        190,
        "Reserve opens a run. Lease, charge and commit keep it open. Settle ends it and returns the rest. Refund returns everything if nothing was charged; the same request may reserve again.",
        (
            Arrow("M60 60H248", "reserve", 150, 52),
            Box(280, 60, "open"),
            Arrow("M266 42C250 8 310 8 294 42", "lease, charge, commit", 378, 24),
            Arrow("M311 60H570", "settle: the rest goes back", 440, 76),
            Box(612, 60, "settled"),
            Arrow("M268 78V132", "refund: only if nothing was charged", 152, 108),
            Box(280, 150, "refunded"),
            Arrow("M292 132V78", "reserve, for the same request", 390, 108),
        ),
    ),
    "operation-states.svg": Diagram(
        720,
        170,
        "A charge spends the price of an operation. Commit stores its noisy output. If the next attempt of the step is charged first, this one is overtaken.",
        (
            Arrow("M30 60H198", "charge: the price is spent", 108, 52),
            Box(240, 60, "charged"),
            Arrow("M285 60H510", "commit: the noisy output is stored", 396, 52),
            Box(564, 60, "committed"),
            Box(240, 130, "overtaken"),
            Arrow("M240 78V112", "the next attempt of the step is charged", 372, 100),
        ),
    ),
}


def main() -> None:
    """Write all diagrams."""
    for name, diagram in DIAGRAMS.items():
        (IMAGES / name).write_text(diagram.svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
