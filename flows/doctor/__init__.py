"""The verb `dpflow doctor`: find what would leak private data on this machine, and how to fix it."""

import argparse

from dpcore.cli.arguments import Subparsers, add_verb
from dpcore.cli.output import Answer
from flows.verbs import VERBS

MORE = (
    ": find settings and files that would leak private data, and print how to fix each; exit code 1 if there is a leak"
)


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(verbs, "doctor", VERBS["doctor"].about, run=_doctor, more=MORE)


def _doctor(_arguments: argparse.Namespace) -> Answer:
    from flows.doctor.examination import answer, examine  # noqa: PLC0415  takes a while to load
    from flows.doctor.machine import look  # noqa: PLC0415

    return answer(examine(look()))
