"""Define `dpflow ledger` and its verbs: the steward's part of the command line."""

from pathlib import Path

from dpcore.cli import ledger_change, ledger_show, ledger_theorems
from dpcore.cli.arguments import ACCOUNT, Subparsers, add_verb, argument, one_of
from dpcore.cli.ledger_history import history
from dpcore.cli.ledger_verify import export, verify
from dpcore.cli.verbs import VERBS
from dpcore.ledger import AllowanceKind
from dpcore.object_store import any_path
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

WHERE = "DPFLOW_LEDGER_URL names the ledger: sqlite:///PATH or postgresql://USER@HOST/DATABASE; default: .dpflow/ledger.sqlite in this folder or the nearest parent folder that has one"
ANY_ACCOUNT = argument("account", metavar="ACCOUNT", nargs="?", help="one account; default: all")
REASON = argument("--reason", required=True, metavar="TEXT", help="why; recorded in the ledger")
RUN = argument("run", metavar="RUN", help="the run's id; `dpflow ledger show` lists them")
NAMES = argument("names", metavar="NAME", nargs="+", help="a block's name, such as 2026-03")


def add_verbs(verbs: Subparsers) -> None:
    """Add `ledger` and its verbs to the parser."""
    description = "The budget ledger: each dataset's budget and every charge against it."
    ledger = verbs.add_parser("ledger", help=VERBS["ledger"].about, description=description)
    ledger.epilog = WHERE
    steward = ledger.add_subparsers(required=True, metavar="VERB")
    _add_open(steward)
    _add_reading(steward)
    ledger_theorems.add_verbs(steward)
    _add_changes(steward)
    _add_blocks(steward)
    _add_endings(steward)


def _add_open(steward: Subparsers) -> None:
    add_verb(
        steward,
        "open",
        "open an account; its terms are then fixed, except that its budget can be raised",
        argument("account", metavar="ACCOUNT", help="the `dataset` name in the specs that this account pays for"),
        argument("--epsilon", type=float, required=True, help="the dataset's total budget, over all its releases"),
        argument(
            "--delta",
            type=float,
            required=True,
            help="0 for pure differential privacy; otherwise far below one over the number of people",
        ),
        argument(
            "--unit", required=True, help="the protected unit: row, or the name of the column that identifies a person"
        ),
        argument(
            "--neighbours",
            required=True,
            choices=[kind.value for kind in Neighbours],
            help="which tables are neighbours: those that differ by adding or removing one unit, or by replacing one unit",
        ),
        argument(
            "--currency",
            choices=[kind.value for kind in Currency],
            help="how the account composes its charges; default: pure at delta 0, otherwise the one with the least noise: gdp, or zcdp for a small budget",
        ),
        argument(
            "--about", metavar="TEXT", default="", help="one line that describes the dataset to readers of the ledger"
        ),
        argument(
            "--blocks",
            metavar="TEXT",
            help="keep a separate budget for each block of the data; TEXT defines the blocks, such as 'month of visit_date'",
        ),
        argument(
            "--across-blocks",
            metavar="E",
            type=float,
            help="with --blocks and a person as unit: the epsilon of all runs together, for a person with rows in many blocks",
        ),
        run=ledger_change.open_account,
    )


def _add_reading(steward: Subparsers) -> None:
    add_verb(
        steward,
        "show",
        "show each account's budget: spent, reserved by open runs, remaining",
        ANY_ACCOUNT,
        argument(
            "--all", action="store_true", help="show every block and run, not only the most used blocks and latest runs"
        ),
        run=ledger_show.show,
    )

    add_verb(
        steward,
        "history",
        "list every event, oldest first",
        ANY_ACCOUNT,
        run=history,
    )

    add_verb(
        steward,
        "verify",
        "check the whole ledger: every hash, price, sum and stored output, and every file of every release",
        argument(
            "--releases",
            metavar="FOLDER",
            type=any_path,
            action="append",
            help="a folder of releases, none of which may be missing (may be given more than once); ./releases is always checked",
        ),
        argument("--head", metavar="HASH", help="a head hash noted earlier: fail unless the ledger still contains it"),
        run=verify,
    )

    add_verb(
        steward,
        "export",
        "write the history as Parquet, and a statement of its guarantees as JSON and Markdown",
        ANY_ACCOUNT,
        argument(
            "--to",
            metavar="FOLDER",
            type=Path,
            required=True,
            help="where to write history.parquet, statement.json and statement.md; replaces an earlier export",
        ),
        argument(
            "--group",
            metavar="K",
            type=int,
            action="append",
            help="also state the guarantee for groups of K units (may be given more than once); default: 2, 5 and 10",
        ),
        run=export,
    )


def _add_changes(steward: Subparsers) -> None:
    add_verb(
        steward,
        "raise",
        "raise an account's budget",
        ACCOUNT,
        one_of(
            argument("--epsilon", type=float, help="the new total budget, at the same delta"),
            argument("--across-blocks", metavar="E", type=float, help="the new cap across blocks, at the same delta"),
        ),
        REASON,
        run=ledger_change.raise_cap,
    )

    add_verb(
        steward,
        "close",
        "close an account to new runs; runs that hold a reservation may finish",
        ACCOUNT,
        REASON,
        run=ledger_change.close,
    )

    add_verb(
        steward,
        "accept-restoration",
        "continue with a restored older copy of the ledger, whose later events were lost",
        REASON,
        run=ledger_change.accept_restoration,
    )

    add_verb(
        steward,
        "allow",
        "limit how much of an account one analyst or one purpose may use",
        ACCOUNT,
        one_of(
            *(
                argument(f"--{kind}", metavar="NAME", help=f"limit the runs of specs with this `{kind}`")
                for kind in AllowanceKind
            )
        ),
        argument(
            "--epsilon",
            type=float,
            required=True,
            help="the maximum that all runs under this name may use together, at the account's delta",
        ),
        REASON,
        run=ledger_change.allow,
        more="; once an analyst has an allowance, every run of the account must name its analyst, and likewise for purposes",
    )


def _add_blocks(steward: Subparsers) -> None:
    add_verb(
        steward,
        "block",
        "open blocks of an account, each with the account's full budget",
        ACCOUNT,
        NAMES,
        argument("--seal", action="store_true", help="also seal them: their data is complete"),
        run=ledger_change.block,
    )

    add_verb(
        steward,
        "seal",
        "declare that the data of blocks is complete, so that they can be charged",
        ACCOUNT,
        NAMES,
        run=ledger_change.seal,
    )


def _add_endings(steward: Subparsers) -> None:
    add_verb(
        steward,
        "refund",
        "refund a run's whole reservation; only possible before its first charge",
        RUN,
        run=ledger_change.refund,
    )

    add_verb(
        steward,
        "settle",
        "end a run that will not be resumed: its charges stay spent, the rest of its reservation is refunded",
        RUN,
        run=ledger_change.settle,
    )
