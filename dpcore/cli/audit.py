"""`dpflow audit`: attack the installed mechanisms, compare the measured loss with the charge, and catch planted bugs."""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from dpcore.cli.output import Answer, table
from dpcore.cli.specs import Subparsers, add_verb
from dpcore.errors import OutputError, UsageError


def add_verbs(verbs: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the verb to the parser."""
    about = "attack the installed mechanisms, compare the measured privacy loss with what they charge, and check that planted bugs are caught"
    audit = add_verb(verbs, "audit", common, about)
    audit.add_argument(
        "--mechanism",
        metavar="NAME",
        action="append",
        default=[],
        help="audit only this mechanism (may be given more than once); default: all",
    )
    audit.add_argument(
        "--whole-run",
        action="store_true",
        help="audit complete releases instead, from input files with canary persons to published Parquet, with bugs planted in between",
    )
    audit.add_argument(
        "--markdown",
        metavar="FILE",
        type=Path,
        help="also write the guarantees and the measurements as a Markdown page",
    )
    audit.add_argument(
        "--draws",
        metavar="SHARE",
        type=float,
        default=1.0,
        help="make only this share of the draws, such as 0.1: faster, but bugs may go unnoticed; default: 1",
    )
    audit.set_defaults(verb=_audit)


def _audit(arguments: argparse.Namespace) -> Answer:
    from dpcore.audit import guarantees, run  # noqa: PLC0415  nothing else needs the planted bugs
    from dpcore.audit.checks import scaled  # noqa: PLC0415  likewise

    scaled(1, arguments.draws)  # rejects a bad share before the audit starts
    if arguments.whole_run and arguments.mechanism:
        raise UsageError("--whole-run audits complete releases, not single mechanisms; drop --mechanism or --whole-run")
    _check_page(arguments)
    began = time.monotonic()
    if arguments.whole_run:
        audited = run.audit_releases(effort=arguments.draws)
    else:
        audited = run.audit_mechanisms(arguments.mechanism, effort=arguments.draws)
    seconds = round(time.monotonic() - began, 1)
    if arguments.markdown is not None:
        try:
            arguments.markdown.write_text(guarantees.page(audited, day=datetime.now(UTC).date()), encoding="utf-8")
        except OSError:
            raise OutputError(f"cannot write {arguments.markdown}; name a file in an existing folder") from None
    wrong = guarantees.faults(audited)
    bugs = sum(len(one.verdicts) for one in audited)
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


def _check_page(arguments: argparse.Namespace) -> None:
    """Reject a page that cannot be written before spending minutes on the audit."""
    page = arguments.markdown
    if page is not None and (not page.parent.is_dir() or page.is_dir()):
        raise OutputError(f"cannot write {arguments.markdown}; name a file in an existing folder")
