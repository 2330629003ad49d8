"""The steward's side of the command line: `dpflow ledger` and its verbs."""

import argparse
from pathlib import Path
from typing import Any

from dpcore.cli import ledger_change, ledger_show, ledger_theorems
from dpcore.cli.ledger_history import history
from dpcore.cli.ledger_verify import export, verify
from dpcore.ledger import AllowanceKind
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

Subparsers = Any  # argparse publishes no name for what add_subparsers returns

WHERE = "DPFLOW_LEDGER_URL names the ledger: sqlite:///PATH or postgresql://USER@HOST/DATABASE; default: .dpflow/ledger.sqlite of the nearest folder upwards that has one"


def add_verbs(verbs: Subparsers, common: argparse.ArgumentParser) -> None:
    """Add `ledger` and its verbs to the parser."""
    description = "The budget ledger: what may be spent on each dataset, and everything that was."
    ledger = verbs.add_parser("ledger", help="the budget: open, show, verify, export, ...", description=description)
    ledger.epilog = WHERE
    steward = ledger.add_subparsers(required=True, metavar="VERB")
    _add_open(steward, common)
    _add_reading(steward, common)
    ledger_theorems.add_verb(steward, common)
    _add_changes(steward, common)
    _add_blocks(steward, common)
    _add_endings(steward, common)


def _add_open(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "open an account; its terms are fixed from then on, only its budget can be raised"
    verb = steward.add_parser("open", parents=[common], help=about, description=about)
    verb.add_argument("account", metavar="ACCOUNT", help="the `dataset` of the specs that it will pay for")
    verb.add_argument(
        "--epsilon", type=float, required=True, help="the whole budget of the dataset, over all its releases"
    )
    verb.add_argument(
        "--delta", type=float, required=True, help="0: pure epsilon; otherwise far below one over the number of people"
    )
    verb.add_argument("--unit", required=True, help="whom to protect: row, or the column that identifies a person")
    verb.add_argument(
        "--neighbours",
        required=True,
        choices=[kind.value for kind in Neighbours],
        help="what one step of the guarantee changes: a unit more or less, or one exchanged for another",
    )
    verb.add_argument(
        "--currency",
        choices=[kind.value for kind in Currency],
        help="what the account counts in; default: pure at delta 0, zcdp above",
    )
    verb.add_argument(
        "--about", metavar="TEXT", default="", help="a line about the dataset, for whoever reads the ledger"
    )
    verb.add_argument(
        "--blocks",
        metavar="TEXT",
        help="keep a budget per block of the data, and say what the blocks are, such as 'month of visit_date'",
    )
    verb.add_argument(
        "--across-blocks",
        metavar="E",
        type=float,
        help="with --blocks and persons: the epsilon of all runs together, for a person with rows in many blocks",
    )
    verb.set_defaults(verb=ledger_change.open_account)


def _add_reading(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "what each account has spent, what runs hold, and what is left"
    verb = steward.add_parser("show", parents=[common], help=about, description=about)
    verb.add_argument("account", metavar="ACCOUNT", nargs="?", help="one account; default: all")
    verb.add_argument("--all", action="store_true", help="every block and run, not only the most used and the latest")
    verb.set_defaults(verb=ledger_show.show)

    about = "every event, oldest first"
    verb = steward.add_parser("history", parents=[common], help=about, description=about)
    verb.add_argument("account", metavar="ACCOUNT", nargs="?", help="one account; default: all")
    verb.set_defaults(verb=history)

    about = "check the whole ledger: every hash, price and sum, every stored output, and every file of every release"
    verb = steward.add_parser(
        "verify", parents=[common], help="check every hash, price, sum and output", description=about
    )
    verb.add_argument(
        "--releases",
        metavar="FOLDER",
        type=Path,
        action="append",
        help="a folder with releases, all of which must still be there (may be given more than once); ./releases is always checked",
    )
    verb.add_argument(
        "--head", metavar="HASH", help="a head that was noted earlier: the ledger must still hold that history"
    )
    verb.set_defaults(verb=verify)

    about = "write the history as Parquet, and what it guarantees as JSON and Markdown"
    verb = steward.add_parser("export", parents=[common], help=about, description=about)
    verb.add_argument("account", metavar="ACCOUNT", nargs="?", help="one account; default: all")
    verb.add_argument(
        "--to",
        metavar="FOLDER",
        type=Path,
        required=True,
        help="where to write history.parquet, statement.json and statement.md; an earlier export there is replaced",
    )
    verb.add_argument(
        "--group",
        metavar="K",
        type=int,
        action="append",
        help="also say what holds for groups of K units (may be given more than once); default: 2, 5 and 10",
    )
    verb.set_defaults(verb=export)


def _add_changes(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "raise an account's budget"
    verb = steward.add_parser("raise", parents=[common], help=about, description=about)
    verb.add_argument("account", metavar="ACCOUNT")
    which = verb.add_mutually_exclusive_group(required=True)
    which.add_argument("--epsilon", type=float, help="the whole budget from now on, at the same delta")
    which.add_argument(
        "--across-blocks", metavar="E", type=float, help="the cap across blocks from now on, at the same delta"
    )
    verb.add_argument("--reason", required=True, metavar="TEXT", help="stays on record")
    verb.set_defaults(verb=ledger_change.raise_cap)

    about = "take no more runs; those that hold a reservation may finish"
    verb = steward.add_parser("close", parents=[common], help=about, description=about)
    verb.add_argument("account", metavar="ACCOUNT")
    verb.add_argument("--reason", required=True, metavar="TEXT", help="stays on record")
    verb.set_defaults(verb=ledger_change.close)

    about = "go on with an older copy of the ledger, after later events of it were lost"
    verb = steward.add_parser("accept-restoration", parents=[common], help=about, description=about)
    verb.add_argument("--reason", required=True, metavar="TEXT", help="stays on record")
    verb.set_defaults(verb=ledger_change.accept_restoration)

    about = "say how much one analyst, or one purpose, may use of an account"
    more = f"{about}; from the first such allowance on, every run has to name one of its kind"
    verb = steward.add_parser("allow", parents=[common], help=about, description=more)
    verb.add_argument("account", metavar="ACCOUNT")
    whose = verb.add_mutually_exclusive_group(required=True)
    for kind in AllowanceKind:
        whose.add_argument(f"--{kind}", metavar="NAME", help=f"the `{kind}` of the specs that it will pay for")
    verb.add_argument(
        "--epsilon",
        type=float,
        required=True,
        help="all that runs in this name may use together, at the account's delta",
    )
    verb.add_argument("--reason", required=True, metavar="TEXT", help="stays on record")
    verb.set_defaults(verb=ledger_change.allow)


def _add_blocks(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "open blocks of an account, each with the account's whole budget"
    verb = steward.add_parser("block", parents=[common], help=about, description=about)
    verb.add_argument("account", metavar="ACCOUNT")
    verb.add_argument("names", metavar="NAME", nargs="+")
    verb.add_argument("--seal", action="store_true", help="seal them at once: their data is complete")
    verb.set_defaults(verb=ledger_change.block)

    about = "declare that the data of blocks is complete, after which they can be charged"
    verb = steward.add_parser("seal", parents=[common], help=about, description=about)
    verb.add_argument("account", metavar="ACCOUNT")
    verb.add_argument("names", metavar="NAME", nargs="+")
    verb.set_defaults(verb=ledger_change.seal)


def _add_endings(steward: Subparsers, common: argparse.ArgumentParser) -> None:
    about = "refund all that a run reserved, if none of its operations was ever charged"
    verb = steward.add_parser("refund", parents=[common], help=about, description=about)
    verb.add_argument("run", metavar="RUN")
    verb.set_defaults(verb=ledger_change.refund)

    about = "end a run that will not go on: what was charged stays spent, the rest goes back"
    verb = steward.add_parser("settle", parents=[common], help=about, description=about)
    verb.add_argument("run", metavar="RUN")
    verb.set_defaults(verb=ledger_change.settle)
