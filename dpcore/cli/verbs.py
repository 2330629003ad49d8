"""The verbs of the command line. The list of verbs is printed from here, so that a module is loaded for its own verbs only."""

from collections.abc import Mapping
from typing import NamedTuple


class Verb(NamedTuple):
    """A verb: the module whose `add_verbs` adds it, and its line in the list of verbs."""

    module: str
    about: str


VERBS: Mapping[str, Verb] = {
    "init": Verb("dpcore.cli.init", "write a commented spec to start from"),
    "check": Verb(
        "dpcore.cli.specs",
        "validate a spec, and the header of its table if that is a local file; reads no row",
    ),
    "schema": Verb("dpcore.cli.specs", "print the JSON Schema of specs, for editors"),
    "run": Verb("dpcore.cli.specs", "make a release; prints its path and the remaining budget"),
    "plan": Verb(
        "dpcore.cli.plan",
        "estimate what a run would measure, spend and need in time and memory; reads no data, spends nothing",
    ),
    "answer": Verb("dpcore.cli.answer", "answer a question in SQL from a release"),
    "ask": Verb("dpcore.cli.session", "answer a question in SQL from a session, as accurately as wanted"),
    "session": Verb("dpcore.cli.session", "open, show, publish and close sessions of questions"),
    "serve-answers": Verb("dpcore.cli.service", "serve a session's answers over HTTP, with a console page"),
    "analyst": Verb("dpcore.cli.service", "add, show and remove the analysts of a session"),
    "sample": Verb("dpcore.cli.sample", "draw more rows, or rows of a kind, from a release"),
    "report": Verb("dpcore.cli.report", "compare a release with the true table, for the steward alone"),
    "latest": Verb("dpcore.cli.releases", "print the path of the newest release"),
    "releases": Verb("dpcore.cli.releases", "list the releases of a dataset with their promises"),
    "withdraw": Verb("dpcore.cli.releases", "withdraw a release: remove its data, keep its manifest"),
    "merge": Verb("dpcore.cli.merge", "add the releases of several blocks, such as months, to one"),
    "verify-release": Verb(
        "dpcore.cli.verify_release",
        "check every byte of a release, and its signature; needs no ledger",
    ),
    "keys": Verb("dpcore.cli.verify_release", "make keys that sign releases"),
    "register": Verb(
        "dpcore.cli.registry",
        "allow a spec to be run by name, from the form in the Prefect UI or on a schedule",
    ),
    "registered": Verb("dpcore.cli.registry", "list the specs that may be run by name"),
    "approval": Verb(
        "dpcore.cli.registry", "make an account's runs above an epsilon wait until the steward approves them"
    ),
    "dashboard": Verb(
        "dpcore.cli.dashboards",
        "register questions that a session answers again and again, on a schedule; without FILE, list them",
    ),
    "ledger": Verb("dpcore.cli.ledger", "manage budgets: open, show, verify, export, ..."),
    "audit": Verb(
        "dpcore.cli.audit",
        "attack the installed mechanisms, compare the measured privacy loss with what they charge, and check that planted bugs are caught",
    ),
}
