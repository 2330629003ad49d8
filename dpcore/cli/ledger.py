"""The steward's verbs: open an account, show what is left, list what happened."""

import argparse
import re
from typing import Any

from dpcore.accounting import UNIT, Currency, budget_of
from dpcore.cli.answer import Answer, table
from dpcore.errors import UsageError
from dpcore.ledger import Account, open_ledger
from dpcore.privacy import Neighbours
from dpcore.release import epsilon_of
from dpcore.spec.release import NAME

BAR = 40


def add_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add `ledger` and its verbs to the parser."""
    ledger = verbs.add_parser("ledger", help="the budget: open, show, history, release")
    steward = ledger.add_subparsers(required=True, metavar="VERB")

    opening = steward.add_parser("open", parents=[common], help="open an account; its terms are fixed from then on")
    opening.add_argument("account", metavar="ACCOUNT")
    opening.add_argument(
        "--epsilon", type=float, required=True, help="the whole budget of the dataset, over all its releases"
    )
    opening.add_argument("--delta", type=float, required=True, help="0: pure epsilon; otherwise zCDP at that delta")
    opening.add_argument("--unit", required=True, help="row, or the column that identifies a person")
    opening.add_argument("--neighbours", required=True, choices=[kind.value for kind in Neighbours])
    opening.set_defaults(verb=_open)

    show = steward.add_parser("show", parents=[common], help="what each account has spent and what is left")
    show.add_argument("account", metavar="ACCOUNT", nargs="?")
    show.set_defaults(verb=_show)

    release = steward.add_parser(
        "release", parents=[common], help="end a run that will not go on; what it never started goes back"
    )
    release.add_argument("run", metavar="RUN")
    release.set_defaults(verb=_release)

    history = steward.add_parser("history", parents=[common], help="every event, oldest first")
    history.add_argument("account", metavar="ACCOUNT", nargs="?")
    history.set_defaults(verb=_history)


def _open(arguments: argparse.Namespace) -> Answer:
    epsilon, delta = arguments.epsilon, arguments.delta
    if not 0 <= delta < 1:
        raise UsageError(
            "--delta must be at least 0 and below 1; a good choice is far below one over the number of people"
        )
    if not 0 < epsilon < float("inf"):
        raise UsageError("--epsilon must be a number above 0, such as 10")
    if not re.fullmatch(NAME, arguments.account):
        raise UsageError(
            "an account is named like the dataset of its specs: letters, digits, dots, dashes and underscores"
        )
    currency, cap = budget_of(epsilon, delta=delta)
    with open_ledger(create=True) as ledger:
        account = ledger.open_account(
            arguments.account,
            currency=currency,
            cap=cap,
            epsilon=epsilon,
            delta=delta,
            unit=arguments.unit,
            neighbours=Neighbours(arguments.neighbours),
        )
    return Answer(_account_data(account), f"opened account {account.name}\n{_account_text(account)}")


def _show(arguments: argparse.Namespace) -> Answer:
    with open_ledger() as ledger:
        accounts = [ledger.account(arguments.account)] if arguments.account else list(ledger.accounts())
        runs = {account.name: ledger.runs(account.name) for account in accounts}
        head = ledger.head()
    data = {
        "accounts": [
            {
                **_account_data(account),
                "runs": [
                    {
                        "run": run.id,
                        "state": run.state,
                        "reserved": run.reserved / UNIT,
                        "spent": run.spent / UNIT,
                        "release": run.release,
                    }
                    for run in runs[account.name]
                ],
            }
            for account in accounts
        ],
        "head": head,
    }
    texts = []
    for account in accounts:
        rows = [("run", "opened", "state", "spent", "release")] + [
            (run.id, run.opened_at, run.state, _amount(run.spent, account.currency), run.release or "-")
            for run in runs[account.name]
        ]
        texts.append(_account_text(account) + (f"\n\n{table(rows)}" if len(rows) > 1 else ""))
    return Answer(data, "\n\n".join([*texts, f"head {head}"]))


def _release(arguments: argparse.Namespace) -> Answer:
    with open_ledger() as ledger:
        run = ledger.run(arguments.run)
        ended = ledger.settle(run.id, release=None) if run.spent else ledger.release_run(run.id)
        account = ledger.account(run.account)
    data = {"run": ended.id, "state": ended.state.value, "spent": ended.spent / UNIT, "returned": run.remaining / UNIT}
    text = f"run {ended.id} is {ended.state.value}: {_amount(run.remaining, account.currency)} went back, {_amount(ended.spent, account.currency)} stay spent"
    return Answer(data, text)


def _history(arguments: argparse.Namespace) -> Answer:
    with open_ledger() as ledger:
        events = ledger.history(arguments.account)
    data = {
        "events": [
            {
                "seq": e.seq,
                "at": e.at,
                "kind": e.kind,
                "account": e.account,
                "run": e.run,
                "body": e.details,
                "hash": e.hash,
            }
            for e in events
        ]
    }
    rows = [("seq", "at", "kind", "account", "run", "what")]
    rows += [(str(e.seq), e.at, e.kind, e.account or "-", e.run or "-", _brief(e.details)) for e in events]
    return Answer(data, table(rows))


def _brief(body: dict[str, Any]) -> str:
    parts = [str(body["step"])] if "step" in body else []
    if "amount" in body:
        parts.append(f"{body['amount'] / UNIT:.6g}")
    return " ".join(parts) or "-"


def _account_data(account: Account) -> dict[str, Any]:
    return {
        "account": account.name,
        "currency": account.currency.value,
        "epsilon": account.epsilon,
        "delta": account.delta,
        "unit": account.unit,
        "neighbours": account.neighbours.value,
        "cap": account.cap / UNIT,
        "spent": account.spent / UNIT,
        "reserved": account.reserved / UNIT,
        "remaining": account.remaining / UNIT,
        "spent_epsilon": epsilon_of(account.spent, currency=account.currency, delta=account.delta),
        "remaining_epsilon": epsilon_of(account.remaining, currency=account.currency, delta=account.delta),
    }


def _account_text(account: Account) -> str:
    used = (account.spent + account.reserved) / account.cap
    filled = min(BAR, round(BAR * used))
    at = f" at delta {account.delta:g}" if account.delta else ""
    return (
        f"account    {account.name}, {account.currency.value}, unit {account.unit}, {account.neighbours.value}\n"
        f"budget     [{'#' * filled}{'.' * (BAR - filled)}] {100 * used:.1f} % used\n"
        f"cap        epsilon {account.epsilon:g}{at}, {_amount(account.cap, account.currency)}\n"
        f"spent      {_amount(account.spent, account.currency)}, reserved {_amount(account.reserved, account.currency)}\n"
        f"remaining  {_amount(account.remaining, account.currency)}, "
        f"epsilon {epsilon_of(account.remaining, currency=account.currency, delta=account.delta):.6g}{at} if spent at once"
    )


def _amount(units: int, currency: Currency) -> str:
    return f"{'rho' if currency is Currency.ZCDP else 'epsilon'} {units / UNIT:.6g}"
