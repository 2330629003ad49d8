"""`dpflow ledger verify` checks the whole ledger; `dpflow ledger export` writes its history and guarantees for others."""

import argparse
from dataclasses import asdict
from pathlib import Path

from dpcore.cli.output import Answer, table
from dpcore.ledger import open_ledger
from dpcore.ledger.verification import Verified
from dpcore.release.ledger_export import Exported, group_sizes
from dpcore.release.ledger_export import export as write_export
from dpcore.reporting.formatting import at_most
from dpcore.steward.verify import verify_ledger


def export(arguments: argparse.Namespace) -> Answer:
    """Write the history and a statement of its guarantees into a folder."""
    sizes = group_sizes(arguments.group)
    with open_ledger() as ledger:
        exported = write_export(ledger, arguments.to, account=arguments.account, sizes=sizes)
    data = {
        "files": [str(path) for path in exported.files],
        "events": exported.events,
        "head": exported.head,
        "accounts": [
            {
                "account": statement.account,
                "releases": len(statement.releases),
                "epsilon": statement.promise[0].epsilon,
                "delta": statement.promise[0].delta,
            }
            for statement in exported.accounts
        ],
    }
    return Answer(data, _text(exported))


def verify(arguments: argparse.Namespace) -> Answer:
    """Check the ledger's contents against each other, and the releases' manifests and files against the ledger."""
    here = Path("releases")
    default = [here] if here.is_dir() else []
    verified = verify_ledger(releases=default, complete=arguments.releases or [], expected_head=arguments.head)
    rows = [(what, f"{number:,}", claim) for what, number, claim in verified.claims]
    if verified.absent:
        rows += _absent_rows(verified)
    if verified.others:
        rows.append(("", f"{verified.others:,}", "more manifests belong to another ledger and were not checked"))
    lines = "\n".join(f"{name:<10}  {count:>9}   {claim}" for name, count, claim in rows)
    return Answer(asdict(verified), f"the ledger is sound\n\n{lines}\n\nhead {verified.head}")


def _absent_rows(verified: Verified) -> list[tuple[str, str, str]]:
    """Say how many releases were not found, what to do, and which they are."""
    what = "release was not found; name its" if verified.absent == 1 else "releases were not found; name their"
    rows = [("", f"{verified.absent:,}", f"{what} folder with --releases")]
    rows += [("", "", f"{release}, of run {run}") for release, run in verified.first_absent]
    if more := verified.absent - len(verified.first_absent):
        rows.append(("", "", f"and {more:,} more"))
    rows.append(("", "", "what was deleted is written again for nothing: dpflow run SPEC --resume RUN"))
    return rows


def _text(exported: Exported) -> str:
    notes = (f"{exported.events:,} events", "the guarantees, for programs", "the guarantees, for people")
    files = table([(str(path), note) for path, note in zip(exported.files, notes, strict=True)])
    rows = [("account", "runs", "epsilon", "delta", "promised")] + [
        (
            statement.account,
            f"{len(statement.releases):,}",
            at_most(statement.promise[0].epsilon),
            at_most(statement.promise[0].delta),
            "for rows in one block" if statement.blocks_by else "for everything together",
        )
        for statement in exported.accounts
    ]
    return f"{files}\n\n{table(rows, right={'runs', 'epsilon', 'delta'})}\n\nhead {exported.head}"
