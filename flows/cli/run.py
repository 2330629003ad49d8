"""The verb `dpflow run`: make a release by the Prefect flow, in this process."""

import logging
import shlex
from datetime import date
from pathlib import Path

from dpcore import Outcome
from dpcore.places import places_of_spec, using
from dpcore.runs.paying import unfinished_run
from dpcore.runs.steps import check_run
from dpcore.spec import Declaration
from dpcore.steward.approvals import check_approved
from dpcore.steward.registry import declared

progress = logging.getLogger("dpcore.progress")


def run(spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
    """Run the flow in this process. Checks that could refuse the run come first, because Prefect takes seconds to start."""
    declaration = declared(str(spec), registered_only=False)
    with using(places_of_spec(declaration.path)):
        return _run_here(spec, declaration, resume, approved=approved, as_of=as_of)


def _run_here(
    spec: Path, declaration: Declaration, resume: str | None, *, approved: bool, as_of: date | None
) -> Outcome:
    if resume is None and (unfinished := unfinished_run(declaration)):
        progress.info(
            "run %s of this spec is not finished; if no worker is running it, resume it without a new reservation: dpflow run %s --resume %s",
            *(unfinished, shlex.quote(str(spec)), unfinished),
        )
    check_run(declaration, resume=resume, as_of=as_of)
    check_approved(declaration, approved=approved)
    progress.info("starting Prefect")
    from flows.cli.quiet import quiet  # noqa: PLC0415  see above

    with quiet():
        from flows.synthesize import synthesize  # noqa: PLC0415  after the settings that Prefect reads at import

        return Outcome(**synthesize(release=str(spec), resume=resume, as_of=as_of, approved=approved))
