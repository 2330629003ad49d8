"""The `dpflow` command: dpcore's command line, with runs made by the Prefect flow."""

import logging
import os
import sys
from pathlib import Path

from dpcore import Outcome, check_run, cli


def _run(spec: Path, resume: str | None) -> Outcome:
    """Run the flow in this process, unless it would be refused anyway; Prefect takes seconds to start, so it comes last."""
    check_run(spec, resume=resume)
    logging.getLogger("dpcore.progress").info("starting Prefect")
    from flows.quiet import quiet  # noqa: PLC0415  see above

    with quiet():
        from flows.synthesize import synthesize  # noqa: PLC0415  after the settings it reads at import

        return Outcome(**synthesize(str(spec), resume))


def main() -> None:
    """Run `dpflow` and end with its exit code, at once: Prefect's threads may still wait for a server that is gone."""
    code = cli.main(runner=_run)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
