"""The verb for questions that are asked again and again: dashboard."""

import argparse
from pathlib import Path

from dpcore.cli.arguments import SCHEDULED, Subparsers, add_verb, argument
from dpcore.cli.output import Answer, table
from dpcore.cli.verbs import VERBS
from dpcore.errors import UsageError
from dpcore.places import registry_folder
from dpcore.steward.dashboards import (
    all_dashboards,
    register_dashboard,
    unregister_dashboard,
)
from dpcore.steward.schedule import EXAMPLE

MORE = f"; FILE is a YAML file with `release`, `within` and `queries`. Answers that the session knows or has bought are free; {EXAMPLE}"


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "dashboard",
        VERBS["dashboard"].about,
        argument("file", metavar="FILE", nargs="?", help="the dashboard's file; with --remove, its file or its name"),
        *SCHEDULED,
        argument("--remove", action="store_true", help="remove it from the registry; its answers stay"),
        run=_dashboard,
        more=MORE,
    )


def _dashboard(arguments: argparse.Namespace) -> Answer:
    if arguments.file is None:
        if arguments.remove or arguments.name or arguments.cron or arguments.timezone:
            raise UsageError("name the dashboard's file, such as: dpflow dashboard overview.yaml")
        return _listed()
    if arguments.remove:
        return _removed(arguments)
    entry = register_dashboard(arguments.file, name=arguments.name, cron=arguments.cron, timezone=arguments.timezone)
    text = (
        f"registered dashboard {entry.name}: {len(entry.questions.queries)} queries within {entry.questions.within}\n\n"
        f"release   {entry.release}\n"
        f"account   {entry.account}\n"
        f"schedule  {entry.when or 'none, it runs only when started'}\n"
        f"registry  {registry_folder()}\n\n"
        "next: open a session for it, if none is open: dpflow session open SPEC; then `dpflow serve`, or restart it if it runs"
    )
    return Answer(entry.to_json(), text)


def _removed(arguments: argparse.Namespace) -> Answer:
    if arguments.cron is not None or arguments.timezone is not None:
        raise UsageError("--remove takes neither --cron nor --timezone; to remove only the schedule, register it again")
    name = arguments.name or Path(arguments.file).stem
    unregister_dashboard(name)
    return Answer(
        {"removed": name}, f"removed dashboard {name}; its answers stay\nnext: `dpflow serve`, or restart it if it runs"
    )


def _listed() -> Answer:
    entries = all_dashboards()
    if not entries:
        return Answer({"dashboards": []}, "no dashboard is registered yet; register one with: dpflow dashboard FILE")
    rows = [("name", "release", "queries", "within", "schedule")]
    rows += [
        (entry.name, entry.release, str(len(entry.questions.queries)), entry.questions.within, entry.when or "-")
        for entry in entries
    ]
    return Answer({"dashboards": [entry.to_json() for entry in entries]}, table(rows, right=("queries",)))
