"""The `dpflow` command: dpcore's command line, with runs made by the Prefect flow."""

import logging
import sys
from pathlib import Path

from dpcore import Outcome, cli


def _run(spec: Path, resume: str | None) -> Outcome:
    """Run the flow in this process; Prefect is imported only now, since most verbs do without it."""
    logging.getLogger("dpcore.progress").info("starting Prefect")
    from flows.quiet import quiet  # noqa: PLC0415  see above

    with quiet():
        from flows.synthesize import synthesize  # noqa: PLC0415  after the settings it reads at import

        return Outcome(**synthesize(str(spec), resume))


def main() -> None:
    """Run `dpflow` and end with its exit code."""
    sys.exit(cli.main(runner=_run))
