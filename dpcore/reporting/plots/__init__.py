"""Plots as hand-written SVG: budget bars, the rounds of a run, counts with error bars, and pairs of columns. The same numbers always give the same text."""

from dpcore.reporting.count import Count
from dpcore.reporting.plots.budget import MARK, Bar, budget_plot, budget_words
from dpcore.reporting.plots.counts import counts_plot, counts_words
from dpcore.reporting.plots.drawing import data_uri, percent
from dpcore.reporting.plots.rounds import rounds_plot, rounds_words
from dpcore.reporting.plots.tiles import Tile, tiles_plot

__all__ = [
    "MARK",
    "Bar",
    "Count",
    "Tile",
    "budget_plot",
    "budget_words",
    "counts_plot",
    "counts_words",
    "data_uri",
    "percent",
    "rounds_plot",
    "rounds_words",
    "tiles_plot",
]
