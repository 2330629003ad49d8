"""The arguments of verbs, and how a verb is added to the command line."""

import argparse
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from dpcore.errors import UsageError
from dpcore.object_store import output_address

Subparsers = Any  # argparse publishes no name for what add_subparsers returns
AS_OF = "with `blocks`: read the blocks that were complete on this day, such as 2026-03-01; default: today (UTC)"


Argument = Callable[[argparse.ArgumentParser], object]


def argument(*names: str, **options: Any) -> Argument:
    """Return what adds an argument to a parser."""
    return lambda parser: parser.add_argument(*names, **options)


def one_of(*arguments: Argument, required: bool = True) -> Argument:
    """Return what adds arguments that exclude each other."""

    def add(parser: argparse.ArgumentParser) -> None:
        group: Any = parser.add_mutually_exclusive_group(required=required)
        for add_argument in arguments:
            add_argument(group)

    return add


JSON = argument("--json", action="store_true", help="print the result as one JSON object")


def add_verb(
    verbs: Subparsers,
    name: str,
    about: str,
    *arguments: Argument,
    run: Callable[[argparse.Namespace], Any],
    more: str = "",
) -> None:
    """Add a verb, what it takes, and what it runs. `about` is its line in the list of verbs, and with `more` the description in its own help."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=about, description=about + more)
    for add_argument in (JSON, *arguments):
        add_argument(parser)
    parser.set_defaults(verb=run)


def release_folder(text: str) -> str:
    """Return the folder of a release, which may be in an object store, checked. A Path would turn s3://bucket into s3:/bucket."""
    try:
        return output_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


SPEC = argument("spec", metavar="SPEC", type=Path, help="the spec's file")
RELEASE = argument(
    "release",
    metavar="RELEASE",
    type=release_folder,
    help="the release's folder, or its dataset's folder for the newest release",
)
ACCOUNT = argument("account", metavar="ACCOUNT", help="the account's name")
SCHEDULED = (
    argument("--name", metavar="N", help="the name to run it by; default: the file name without its suffix"),
    argument("--cron", metavar="TEXT", help="run it on this schedule: minute hour day month weekday"),
    argument("--timezone", metavar="ZONE", help="the time zone of --cron; default: UTC"),
)
"""What is registered to be run by its name, and maybe on a schedule."""


def day_of(as_of: str | None) -> date | None:
    """Return the day given with --as-of, if any. Raise if it is not a date."""
    if as_of is None:
        return None
    try:
        return date.fromisoformat(as_of)
    except ValueError:
        raise UsageError("--as-of must be a day such as 2026-03-01") from None
