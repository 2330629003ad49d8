"""Define `dpflow ledger` and its verbs: the steward's part of the command line."""

import argparse
from pathlib import Path

from dpcore.cli import ledger_change, ledger_show, ledger_theorems
from dpcore.cli.ledger_history import history
from dpcore.cli.ledger_verify import export, verify
from dpcore.cli.specs import Subparsers, add_verb
from dpcore.ledger import AllowanceKind
from dpcore.object_store import any_path
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

WHERE = "DPFLOW_LEDGER_URL names the ledger: sqlite:///PATH or postgresql://USER@HOST/DATABASE; default: .dpflow/ledger.sqlite in this folder or the nearest parent folder that has one"


def add_verbs(verbs: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add `ledger` and its verbs to the parser."""
    description = "The budget ledger: each dataset's budget and every charge against it."
    ledger = verbs.add_parser("ledger", help="manage budgets: open, show, verify, export, ...", description=description)
    ledger.epilog = WHERE
    steward = ledger.add_subparsers(required=True, metavar="VERB")
    _add_open(steward, common)
    _add_reading(steward, common)
    ledger_theorems.add_verbs(steward, common)
    _add_changes(steward, common)
    _add_blocks(steward, common)
    _add_endings(steward, common)


def _add_open(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "open an account; its terms are then fixed, except that its budget can be raised"
    verb = add_verb(steward, "open", common, about)
    verb.add_argument("account", metavar="ACCOUNT", help="the `dataset` name in the specs that this account pays for")
    verb.add_argument("--epsilon", type=float, required=True, help="the dataset's total budget, over all its releases")
    verb.add_argument(
        "--delta",
        type=float,
        required=True,
        help="0 for pure differential privacy; otherwise far below one over the number of people",
    )
    verb.add_argument(
        "--unit", required=True, help="the protected unit: row, or the name of the column that identifies a person"
    )
    verb.add_argument(
        "--neighbours",
        required=True,
        choices=[kind.value for kind in Neighbours],
        help="which tables are neighbours: those that differ by adding or removing one unit, or by replacing one unit",
    )
    verb.add_argument(
        "--currency",
        choices=[kind.value for kind in Currency],
        help="how the account composes its charges; default: pure at delta 0, otherwise the one with the least noise: gdp, or zcdp for a small budget",
    )
    verb.add_argument(
        "--about", metavar="TEXT", default="", help="one line that describes the dataset to readers of the ledger"
    )
    verb.add_argument(
        "--blocks",
        metavar="TEXT",
        help="keep a separate budget for each block of the data; TEXT defines the blocks, such as 'month of visit_date'",
    )
    verb.add_argument(
        "--across-blocks",
        metavar="E",
        type=float,
        help="with --blocks and a person as unit: the epsilon of all runs together, for a person with rows in many blocks",
    )
    verb.set_defaults(verb=ledger_change.open_account)


def _add_reading(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "show each account's budget: spent, reserved by open runs, remaining"
    verb = add_verb(steward, "show", common, about)
    verb.add_argument("account", metavar="ACCOUNT", nargs="?", help="one account; default: all")
    verb.add_argument(
        "--all", action="store_true", help="show every block and run, not only the most used blocks and latest runs"
    )
    verb.set_defaults(verb=ledger_show.show)

    about = "list every event, oldest first"
    verb = add_verb(steward, "history", common, about)
    verb.add_argument("account", metavar="ACCOUNT", nargs="?", help="one account; default: all")
    verb.set_defaults(verb=history)

    about = "check the whole ledger: every hash, price, sum and stored output, and every file of every release"
    verb = add_verb(steward, "verify", common, about)
    verb.add_argument(
        "--releases",
        metavar="FOLDER",
        type=any_path,
        action="append",
        help="a folder of releases, none of which may be missing (may be given more than once); ./releases is always checked",
    )
    verb.add_argument(
        "--head", metavar="HASH", help="a head hash noted earlier: fail unless the ledger still contains it"
    )
    verb.set_defaults(verb=verify)

    about = "write the history as Parquet, and a statement of its guarantees as JSON and Markdown"
    verb = add_verb(steward, "export", common, about)
    verb.add_argument("account", metavar="ACCOUNT", nargs="?", help="one account; default: all")
    verb.add_argument(
        "--to",
        metavar="FOLDER",
        type=Path,
        required=True,
        help="where to write history.parquet, statement.json and statement.md; replaces an earlier export",
    )
    verb.add_argument(
        "--group",
        metavar="K",
        type=int,
        action="append",
        help="also state the guarantee for groups of K units (may be given more than once); default: 2, 5 and 10",
    )
    verb.set_defaults(verb=export)


def _add_changes(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "raise an account's budget"
    verb = add_verb(steward, "raise", common, about)
    verb.add_argument("account", metavar="ACCOUNT", help="the account's name")
    which = verb.add_mutually_exclusive_group(required=True)
    which.add_argument("--epsilon", type=float, help="the new total budget, at the same delta")
    which.add_argument("--across-blocks", metavar="E", type=float, help="the new cap across blocks, at the same delta")
    verb.add_argument("--reason", required=True, metavar="TEXT", help="why; recorded in the ledger")
    verb.set_defaults(verb=ledger_change.raise_cap)

    about = "close an account to new runs; runs that hold a reservation may finish"
    verb = add_verb(steward, "close", common, about)
    verb.add_argument("account", metavar="ACCOUNT", help="the account's name")
    verb.add_argument("--reason", required=True, metavar="TEXT", help="why; recorded in the ledger")
    verb.set_defaults(verb=ledger_change.close)

    about = "continue with a restored older copy of the ledger, whose later events were lost"
    verb = add_verb(steward, "accept-restoration", common, about)
    verb.add_argument("--reason", required=True, metavar="TEXT", help="why; recorded in the ledger")
    verb.set_defaults(verb=ledger_change.accept_restoration)

    about = "limit how much of an account one analyst or one purpose may use"
    more = (
        "; once an analyst has an allowance, every run of the account must name its analyst, and likewise for purposes"
    )
    verb = add_verb(steward, "allow", common, about, more=more)
    verb.add_argument("account", metavar="ACCOUNT", help="the account's name")
    whose = verb.add_mutually_exclusive_group(required=True)
    for kind in AllowanceKind:
        whose.add_argument(f"--{kind}", metavar="NAME", help=f"limit the runs of specs with this `{kind}`")
    verb.add_argument(
        "--epsilon",
        type=float,
        required=True,
        help="the maximum that all runs under this name may use together, at the account's delta",
    )
    verb.add_argument("--reason", required=True, metavar="TEXT", help="why; recorded in the ledger")
    verb.set_defaults(verb=ledger_change.allow)


def _add_blocks(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "open blocks of an account, each with the account's full budget"
    verb = add_verb(steward, "block", common, about)
    verb.add_argument("account", metavar="ACCOUNT", help="the account's name")
    verb.add_argument("names", metavar="NAME", nargs="+", help="a block's name, such as 2026-03")
    verb.add_argument("--seal", action="store_true", help="also seal them: their data is complete")
    verb.set_defaults(verb=ledger_change.block)

    about = "declare that the data of blocks is complete, so that they can be charged"
    verb = add_verb(steward, "seal", common, about)
    verb.add_argument("account", metavar="ACCOUNT", help="the account's name")
    verb.add_argument("names", metavar="NAME", nargs="+", help="a block's name, such as 2026-03")
    verb.set_defaults(verb=ledger_change.seal)


def _add_endings(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "refund a run's whole reservation; only possible before its first charge"
    verb = add_verb(steward, "refund", common, about)
    verb.add_argument("run", metavar="RUN", help="the run's id; `dpflow ledger show` lists them")
    verb.set_defaults(verb=ledger_change.refund)

    about = "end a run that will not be resumed: its charges stay spent, the rest of its reservation is refunded"
    verb = add_verb(steward, "settle", common, about)
    verb.add_argument("run", metavar="RUN", help="the run's id; `dpflow ledger show` lists them")
    verb.set_defaults(verb=ledger_change.settle)
