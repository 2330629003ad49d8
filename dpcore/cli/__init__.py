"""The `dpflow` command line. It calls the same functions as the flows."""

from dpcore.cli.main import main
from dpcore.cli.specs import Runner

__all__ = ["Runner", "main"]
