"""The `dpflow` command: dpcore's command line, with runs made by the Prefect flow."""

import os
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore import cli
from flows.verbs import VERBS

if TYPE_CHECKING:
    from dpcore import Outcome


def _run(spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> "Outcome":
    from flows.cli.run import run  # noqa: PLC0415  other verbs start faster without it

    return run(spec, resume, approved=approved, as_of=as_of)


def main() -> None:
    """Run `dpflow` and exit with its code at once, because Prefect's threads may still wait for a server that is gone."""
    code = cli.main(runner=_run, more=VERBS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
