"""The `dpflow` command line. It calls the same functions as the flows."""

from dpcore.cli.main import main

__all__ = ["main"]
