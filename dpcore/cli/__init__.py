"""The command line over the same functions that the flows call."""

from dpcore.cli.main import Runner, main

__all__ = ["Runner", "main"]
