"""The verb `dpflow doctor`: find what would leak private data on this machine, and how to fix it."""

import argparse
from typing import Any

from dpcore.cli.output import Answer

Subparsers = Any  # argparse publishes no name for what add_subparsers returns


def add_verbs(verbs: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the verb to the parser."""
    about = "find settings and files on this machine that would leak private data, and print how to fix each; exit code 1 if there is a leak"
    doctor = verbs.add_parser("doctor", parents=[common], help="check this machine for leaks", description=about)
    doctor.set_defaults(verb=_doctor)


def _doctor(_arguments: argparse.Namespace) -> Answer:
    from flows.doctor.examination import answer, examine  # noqa: PLC0415  takes a while to load
    from flows.doctor.machine import look  # noqa: PLC0415

    return answer(examine(look()))
