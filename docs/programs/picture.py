"""Draw a release of the sample beside its source table: `python -m docs.programs.picture`.

The sample contains no real person. The true shares of a real table are private, so only the steward may see a picture of them.
"""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pandas as pd

import dpcore
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from dpcore.reporting.plots.colours import DARK, GRID, INK, LIGHT, PANEL, QUIET, SPENT, THIS_RUN

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data" / "clinic-visits.csv"
IMAGES = ROOT / "docs" / "images"
BANDS = ["0-19", "20-39", "40-59", "60-79", "80-99"]
WIDTH, TOP, STEP, ROWS = 860, 74, 22, 10
BAR, LABELS, BARS = 8, 104, 150
HEAT, CELL, AGE = 296, 29, 646


@dataclass(frozen=True)
class Shares:
    """The shares of a table's rows by department, by age, and by both."""

    department: pd.Series
    age: pd.Series
    both: pd.DataFrame

    @classmethod
    def of(cls, table: pd.DataFrame) -> "Shares":
        """Count a table in the cells of the sample's spec."""
        known = table.dropna(subset=["age"])
        bands = pd.cut(known["age"].clip(0, 99), [0, 20, 40, 60, 80, 100], right=False, labels=BANDS)
        both = pd.crosstab(known["department"].astype(str), bands, normalize="all").reindex(
            columns=BANDS, fill_value=0.0
        )
        return cls(both.sum(axis=1), both.sum(axis=0), both)


def release_of_the_sample(folder: Path) -> pd.DataFrame:
    """Make a release of the sample in a folder, with its own spec, and return the synthetic rows."""
    spec = (ROOT / "data" / "clinic-visits.yaml").read_text(encoding="utf-8")
    (folder / "clinic-visits.yaml").write_text(spec.replace("../releases", "releases"), encoding="utf-8")
    (folder / "clinic-visits.csv").write_bytes(SAMPLE.read_bytes())
    currency, cap = budget_of(1.0, delta=1e-9)
    terms = {"unit": "patient_id", "neighbours": Neighbours.ADD_REMOVE, "epsilon": 1.0, "delta": 1e-9}
    with contextlib.chdir(folder):
        with open_ledger(create=True) as ledger:
            ledger.open_account("clinic-visits", currency=currency, cap=cap, **terms)
        made = dpcore.synthesize("clinic-visits.yaml")
        return pd.read_parquet(Path(made.release) / "data")


def drawing(true: Shares, synthetic: Shares, *, colours: Mapping[str, str]) -> str:
    """Return the picture in one set of colours."""
    height = TOP + ROWS * STEP + 40
    parts = [*_legend(colours), *_departments(true, synthetic, colours), *_ages(true, synthetic, colours)]
    most = max(true.both.max().max(), synthetic.both.max().max())
    for start, shares, colour, name in ((HEAT, true, SPENT, "true"), (HEAT + 168, synthetic, THIS_RUN, "synthetic")):
        parts += _heat(start, shares.both.loc[_order(true)], most=most, colour=colours[colour])
        parts.append(_text(start + 2.5 * CELL, TOP - 14, f"by age, {name}", colours[INK], "middle"))
    words = "Shares of rows by department, by age, and by both: in the sample table, and in its synthetic release at epsilon 1."
    head = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head} font-family="system-ui,sans-serif" font-size="12">',
            f"<title>A release of the sample</title>\n<desc>{words}</desc>",
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="{colours[PANEL]}" stroke="{colours[GRID]}"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _order(true: Shares) -> list[str]:
    return list(true.department.sort_values(ascending=False).index)


def _legend(colours: Mapping[str, str]) -> Iterator[str]:
    for x, name, colour in ((20, "true", SPENT), (84, "synthetic, epsilon 1", THIS_RUN)):
        yield f'<rect x="{x}" y="16" width="14" height="14" rx="2" fill="{colours[colour]}"/>'
        yield _text(x + 20, 27, name, colours[INK])
    note = "shares of rows; the sample is made up and holds no real person"
    yield _text(WIDTH - 20, 27, note, colours[QUIET], "end")


def _departments(true: Shares, synthetic: Shares, colours: Mapping[str, str]) -> Iterator[str]:
    yield _text(LABELS, TOP - 14, "department", colours[INK])
    scale = BARS / max(true.department.max(), synthetic.department.max())
    for row, name in enumerate(_order(true)):
        y = TOP + row * STEP
        yield _text(LABELS - 8, y + 13, name, colours[INK], "end")
        yield from _pair(LABELS, y, (true.department[name] * scale, synthetic.department.get(name, 0) * scale), colours)


def _ages(true: Shares, synthetic: Shares, colours: Mapping[str, str]) -> Iterator[str]:
    yield _text(AGE + 44, TOP - 14, "age", colours[INK])
    scale = BARS / max(true.age.max(), synthetic.age.max())
    for row, band in enumerate(BANDS):
        y = TOP + row * 2 * STEP + STEP / 2
        yield _text(AGE + 36, y + 13, band, colours[INK], "end")
        yield from _pair(AGE + 44, y, (true.age[band] * scale, synthetic.age[band] * scale), colours)


def _pair(x: float, y: float, widths: tuple[float, float], colours: Mapping[str, str]) -> Iterator[str]:
    for number, (width, colour) in enumerate(zip(widths, (SPENT, THIS_RUN), strict=True)):
        top = y + 1 + number * (BAR + 1)
        yield f'<rect x="{x}" y="{top:g}" width="{width:.1f}" height="{BAR}" fill="{colours[colour]}"/>'


def _heat(start: float, shares: pd.DataFrame, *, most: float, colour: str) -> Iterator[str]:
    for row, (_, line) in enumerate(shares.iterrows()):
        for column, share in enumerate(line):
            x, y = start + column * CELL, TOP + row * STEP
            seen = max(0.04, float(share) / most)
            yield f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{STEP - 2}" rx="2" fill="{colour}" fill-opacity="{seen:.2f}"/>'
    for column, band in enumerate(BANDS):
        yield _text(start + (column + 0.5) * CELL, TOP + ROWS * STEP + 14, band, colour, "middle", size=9)


def _text(x: float, y: float, words: str, colour: str, anchor: str = "start", *, size: int = 12) -> str:  # noqa: PLR0913  one mark of a drawing
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'


def main() -> None:
    """Make a release, and draw it for light and for dark pages."""
    with tempfile.TemporaryDirectory() as folder:
        synthetic = Shares.of(release_of_the_sample(Path(folder)))
    true = Shares.of(pd.read_csv(SAMPLE))
    for name, colours in (("light", LIGHT), ("dark", DARK)):
        path = IMAGES / f"release-{name}.svg"
        path.write_text(drawing(true, synthetic, colours=colours), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
