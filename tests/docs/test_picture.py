"""The README's picture shows what it is given, and the committed one is whole."""

import re
import xml.etree.ElementTree as ET

import pandas as pd
import pytest

from docs.programs.picture import BANDS, IMAGES, Shares, drawing
from dpcore.reporting.plots.colours import DARK, LIGHT, SPENT, THIS_RUN


def table(young: int, old: int) -> pd.DataFrame:
    """So many rows of two departments, the first of the young and the second of the old."""
    return pd.DataFrame({"department": ["a"] * young + ["b"] * old, "age": [5] * young + [95.0] * old})


def bars(svg: str, colour: str) -> list[float]:
    return [float(width) for width in re.findall(rf'width="([\d.]+)" height="8" fill="{colour}"', svg)]


def test_shares_are_those_of_the_declared_cells_and_rows_without_an_age_are_left_out() -> None:
    shares = Shares.of(pd.concat([table(1, 3), pd.DataFrame({"department": ["a"], "age": [None]})]))
    assert shares.department.to_dict() == {"a": 0.25, "b": 0.75}
    assert shares.age.tolist() == [0.25, 0, 0, 0, 0.75]
    assert shares.both.loc["b"].tolist() == [0, 0, 0, 0, 0.75]


def test_bars_are_as_long_as_the_shares() -> None:
    same = drawing(Shares.of(table(1, 3)), Shares.of(table(1, 3)), colours=LIGHT)
    assert bars(same, LIGHT[SPENT]) == bars(same, LIGHT[THIS_RUN]) == [150, 50, 50, 0, 0, 0, 150]
    other = drawing(Shares.of(table(1, 3)), Shares.of(table(3, 1)), colours=LIGHT)
    assert bars(other, LIGHT[THIS_RUN]) == [50, 150, 150, 0, 0, 0, 50]


@pytest.mark.parametrize(("name", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_the_committed_picture_is_whole_and_in_its_colours(name: str, colours) -> None:
    text = (IMAGES / f"release-{name}.svg").read_text(encoding="utf-8")
    assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314  it is our own file
    assert len(bars(text, colours[SPENT])) == len(bars(text, colours[THIS_RUN])) == 10 + len(BANDS)
    assert bars(text, colours[SPENT]) != bars(text, colours[THIS_RUN])
