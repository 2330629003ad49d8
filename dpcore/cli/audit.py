"""`dpflow audit`: does the installed code keep the guarantees that it charges for, and would a fault show?"""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from dpcore.cli.output import Answer, table
from dpcore.cli.specs import Subparsers
from dpcore.errors import OutputError, UsageError


def add_verbs(verbs: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add the verb to the parser."""
    about = "measure what privacy the installed mechanisms lose, hold it against what they charge, and plant bugs that must be caught"
    audit = verbs.add_parser("audit", parents=[common], help=about, description=about)
    audit.add_argument(
        "--mechanism",
        metavar="NAME",
        action="append",
        default=[],
        help="audit only this one; or one --mechanism for each",
    )
    audit.add_argument(
        "--whole-run",
        action="store_true",
        help="audit complete releases instead: files with canary persons in, published Parquet out, and bugs planted on the way",
    )
    audit.add_argument(
        "--markdown", metavar="FILE", type=Path, help="write the guarantees and what was measured as a page"
    )
    audit.add_argument(
        "--draws",
        metavar="SHARE",
        type=float,
        default=1.0,
        help="make only this share of the draws, such as 0.1: quicker, but bugs may go unnoticed; default: 1",
    )
    audit.set_defaults(verb=_audit)


def _audit(arguments: argparse.Namespace) -> Answer:
    from dpcore.audit import guarantees, run  # noqa: PLC0415  nothing else needs the planted bugs
    from dpcore.audit.checks import scaled  # noqa: PLC0415  likewise

    scaled(1, arguments.draws)  # refused now, not in the middle
    if arguments.whole_run and arguments.mechanism:
        raise UsageError("--whole-run audits complete releases, not mechanisms; leave --mechanism or --whole-run out")
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
            raise OutputError(f"cannot write {arguments.markdown}; name a file in a folder that is there") from None
    wrong = guarantees.faults(audited)
    bugs = sum(len(one.verdicts) for one in audited)
    verdict = (
        f"all {len(audited)} hold, and all {bugs} planted bugs are caught"
        if not wrong
        else f"{len(wrong)} findings speak against the installed code or against this audit:"
    )
    lines = [
        table(guarantees.table_rows(audited), right={"charged", "epsilon", "at least", "bugs caught"}),
        "",
        f"epsilon of rho and mu^2 at delta {guarantees.DELTA:g}; each lower bound holds with confidence {guarantees.CONFIDENCE}",
        f"{verdict} ({seconds:.0f} s)",
        *wrong,
    ]
    data = guarantees.to_json(audited) | {"seconds": seconds, "faults": wrong}
    return Answer(data, "\n".join(lines), exit_code=1 if wrong else 0)


def _check_page(arguments: argparse.Namespace) -> None:
    """Refuse, before minutes of measuring, a page that could not be written."""
    page = arguments.markdown
    if page is not None and (not page.parent.is_dir() or page.is_dir()):
        raise OutputError(f"cannot write {arguments.markdown}; name a file in a folder that is there")
