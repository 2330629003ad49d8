"""The verbs of the command line that need Prefect."""

from collections.abc import Mapping

from dpcore.cli.verbs import Verb

VERBS: Mapping[str, Verb] = {
    "serve": Verb(
        "flows.cli.serve",
        "deploy to the configured Prefect server, then execute its scheduled runs until Ctrl-C",
    ),
    "ui": Verb(
        "flows.cli.ui",
        "start the Prefect UI in the background with everything deployed, and print its address",
    ),
    "doctor": Verb("flows.doctor", "check this machine for leaks"),
}
