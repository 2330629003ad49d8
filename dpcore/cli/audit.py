"""`dpflow audit`: attack the installed mechanisms, compare the measured loss with the charge, and catch planted bugs."""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from dpcore.cli.arguments import Subparsers, add_verb, argument
from dpcore.cli.output import Answer, table
from dpcore.cli.verbs import VERBS
from dpcore.errors import OutputError, UsageError


def add_verbs(verbs: Subparsers) -> None:
    """Add the verb to the parser."""
    add_verb(
        verbs,
        "audit",
        VERBS["audit"].about,
        argument(
            "--mechanism",
            metavar="NAME",
            action="append",
            default=[],
            help="audit only this mechanism (may be given more than once); default: all",
        ),
        argument(
            "--whole-run",
            action="store_true",
            help="audit complete releases instead, from input files with canary persons to published Parquet, with bugs planted in between",
        ),
        argument(
            "--markdown",
            metavar="FILE",
            type=Path,
            help="also write the guarantees and the measurements as a Markdown page",
        ),
        argument(
            "--draws",
            metavar="SHARE",
            type=float,
            default=1.0,
            help="make only this share of the draws, such as 0.1: faster, but bugs may go unnoticed; default: 1",
        ),
        run=_audit,
    )


def _audit(arguments: argparse.Namespace) -> Answer:
    from dpcore.audit import guarantees, run  # noqa: PLC0415  nothing else needs the planted bugs
    from dpcore.audit.checks import scaled  # noqa: PLC0415  likewise

    scaled(1, arguments.draws)  # rejects a bad share before the audit starts
    if arguments.whole_run and arguments.mechanism:
        raise UsageError("--whole-run audits complete releases, not single mechanisms; drop --mechanism or --whole-run")
    page: Path | None = arguments.markdown
    unwritable = OutputError(f"cannot write {page}; name a file in an existing folder")
    if page is not None and (not page.parent.is_dir() or page.is_dir()):  # known before minutes are spent
        raise unwritable
    began = time.monotonic()
    if arguments.whole_run:
        audited = run.audit_releases(effort=arguments.draws)
    else:
        audited = run.audit_mechanisms(arguments.mechanism, effort=arguments.draws)
    seconds = round(time.monotonic() - began, 1)
    if page is not None:
        try:
            page.write_text(guarantees.page(audited, day=datetime.now(UTC).date()), encoding="utf-8")
        except OSError:
            raise unwritable from None
    wrong = guarantees.faults(audited)
    bugs = sum(len(result.verdicts) for result in audited)
    verdict = (
        f"all {len(audited)} hold, and all {bugs} planted bugs are caught"
        if not wrong
        else f"{len(wrong)} findings against the installed code or against this audit itself:"
    )
    lines = [
        table(guarantees.table_rows(audited), right={"charged", "epsilon", "at least", "bugs caught"}),
        "",
        f"rho and mu^2 are converted to epsilon at delta {guarantees.DELTA:g}; each lower bound holds with confidence {guarantees.CONFIDENCE}",
        f"{verdict} ({seconds:.0f} s)",
        *wrong,
    ]
    data = guarantees.to_json(audited) | {"seconds": seconds, "faults": wrong}
    return Answer(data, "\n".join(lines), exit_code=1 if wrong else 0)
