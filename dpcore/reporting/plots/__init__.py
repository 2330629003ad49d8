"""Plots as hand-written SVG: budget bars and the rounds of a run. The same numbers always give the same text."""

from dpcore.reporting.plots.budget import MARK, Bar, budget_plot, budget_words
from dpcore.reporting.plots.drawing import data_uri, percent
from dpcore.reporting.plots.rounds import rounds_plot, rounds_words

__all__ = ["MARK", "Bar", "budget_plot", "budget_words", "data_uri", "percent", "rounds_plot", "rounds_words"]
