"""The command line over the same functions that the flows call."""

from dpcore.cli.main import main
from dpcore.cli.specs import Runner

__all__ = ["Runner", "main"]
