"""The verbs that control which specs others may run: register, registered, approval."""

import argparse
import re
from pathlib import Path
from typing import Any

from dpcore.cli.arguments import ACCOUNT, SCHEDULED, Subparsers, add_verb, argument, one_of
from dpcore.cli.output import Answer, table
from dpcore.cli.verbs import VERBS
from dpcore.errors import DpflowError, UsageError
from dpcore.ledger import open_ledger
from dpcore.places import fixed_registry_folder, places_of_spec, registry_folder, using
from dpcore.reporting.formatting import at_most
from dpcore.spec import load_spec
from dpcore.steward.approvals import approval_of, require_approval, require_none
from dpcore.steward.registry import declared, register, registered, registered_names, unregister
from dpcore.steward.schedule import EXAMPLE
from dpcore.strategies import strategy_for

DEFAULT_WITHIN = "24h"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SERVE = "`dpflow serve`, or restart it if it runs"


def add_verbs(verbs: Subparsers) -> None:
    """Add the verbs to the parser."""
    add_verb(
        verbs,
        "register",
        VERBS["register"].about,
        argument("spec", metavar="SPEC", type=Path, help="the spec's file; with --remove, its file or its name"),
        *SCHEDULED,
        argument("--remove", action="store_true", help="remove the spec from the registry; its releases stay"),
        run=_register,
        more=f"; {EXAMPLE}",
    )

    add_verb(verbs, "registered", VERBS["registered"].about, run=_registered)

    add_verb(
        verbs,
        "approval",
        VERBS["approval"].about,
        ACCOUNT,
        one_of(
            argument("--above", metavar="E", type=float, help="the epsilon above which a run waits; 0: every run"),
            argument("--none", action="store_true", help="let no run wait"),
        ),
        argument(
            "--within",
            metavar="TIME",
            help=f"how long a run waits before it is refused, such as 90s, 30m, 24h or 7d; default: {DEFAULT_WITHIN}",
        ),
        run=_approval,
    )


def _register(arguments: argparse.Namespace) -> Answer:
    if arguments.remove and not arguments.spec.is_file():
        return _remove(arguments)
    with using(places_of_spec(arguments.spec)):
        if arguments.remove:
            return _remove(arguments)
        fixed_registry_folder()  # before the spec is read
        return _add(arguments)


def _add(arguments: argparse.Namespace) -> Answer:
    strategy_for(load_spec(arguments.spec))  # reject an invalid spec now, as `dpflow check` does
    name = arguments.spec.stem if arguments.name is None else arguments.name
    before = registered(name) if name in registered_names() else None
    entry = register(arguments.spec, name=arguments.name, cron=arguments.cron, timezone=arguments.timezone)
    verb = "registered" if before is None else "registered again:"
    dropped = f"; it ran at {before.when} before" if before and before.cron and not entry.cron else ""
    when = entry.when if entry.cron else f"none, it runs only when started{dropped}"
    text = (
        f"{verb} {entry.name}\n\n"
        f"spec      {entry.spec}\n"
        f"account   {entry.account}\n"
        f"schedule  {when}\n"
        f"registry  {registry_folder()}\n\n"
        f"next: {_SERVE}, so that the form offers it; or make a release now: dpflow run {entry.name}\n"
        "after editing the spec, register it again: until then its runs are refused"
    )
    return Answer(entry.to_json(), text)


def _remove(arguments: argparse.Namespace) -> Answer:
    if arguments.cron is not None or arguments.timezone is not None:
        raise UsageError(
            "--remove takes neither --cron nor --timezone; to remove only the schedule, register again without --cron"
        )
    name = _name_to_remove(arguments)
    unregister(name)
    text = f"removed {name}; its spec and its releases stay\nnext: {_SERVE}, so that the form no longer offers it"
    return Answer({"removed": name}, text)


def _name_to_remove(arguments: argparse.Namespace) -> str:
    """Return the registered name to remove: the given name, or the name of the given spec, whose file may be gone."""
    name: str = str(arguments.spec) if arguments.name is None else arguments.name
    names = registered_names()
    if arguments.name is not None or name in names:
        return name
    path = arguments.spec.parent.resolve() / arguments.spec.name
    of_this_file = [entry for entry in names if _spec_of(entry) == path]
    if len(of_this_file) > 1:
        raise UsageError(f"{name} is registered as {', '.join(of_this_file)}; choose one with --name")
    return of_this_file[0] if of_this_file else name


def _spec_of(name: str) -> Path | None:
    try:
        return registered(name).spec
    except UsageError:  # a damaged entry belongs to no spec, but can be removed by its name
        return None


def _registered(_arguments: argparse.Namespace) -> Answer:
    items = [_state(name) for name in registered_names()]
    data = {"registered": items, "registry": str(registry_folder())}
    if not items:
        return Answer(data, "no spec is registered yet; register one with: dpflow register SPEC")
    rows = [("name", "account", "schedule", "approval", "state", "spec")]
    for item in items:
        when = f"{item['cron']} ({item['timezone']})" if item.get("cron") else "-"
        above = item["approval_above"]
        asked = "-" if above is None else f"above {at_most(above)}"
        state = "refused" if item["problem"] else "ready"
        rows.append((item["name"], item.get("account", "?"), when, asked, state, item.get("spec", "?")))
    problems = "".join(f"\n\n{item['name']}: {item['problem']}" for item in items if item["problem"])
    return Answer(data, table(rows) + problems)


def _state(name: str) -> dict[str, Any]:
    """Describe the spec registered under a name, and the reason if a run of it would be refused."""
    data: dict[str, Any] = {"name": name, "approval_above": None, "problem": None}
    try:
        entry = registered(name)
        data |= entry.to_json()
        approval = approval_of(entry.account)
        data["approval_above"] = approval.above if approval else None
        declared(name, registered_only=True)
    except DpflowError as error:
        data["problem"] = str(error)
    return data


def _approval(arguments: argparse.Namespace) -> Answer:
    account: str = arguments.account
    if arguments.none:
        if arguments.within is not None:
            raise UsageError("--within has no meaning with --none; leave it out, or name an epsilon with --above")
        needed = require_none(account)
        text = f"runs of account {account} {'no longer need' if needed else 'need no'} approval\nregistry  {registry_folder()}"
        data = {"account": account, "above": None, "delta": None, "within_seconds": None}
        return Answer(data | {"registry": str(registry_folder())}, text)
    seconds = _seconds(DEFAULT_WITHIN if arguments.within is None else arguments.within)
    with open_ledger() as ledger:
        delta = ledger.account(account).delta  # raises for an unknown account, where an approval would guard nothing
    approval = require_approval(account, above=arguments.above, delta=delta, within_seconds=seconds)
    which = f"above epsilon {at_most(approval.above)}" if approval.above else "of any epsilon"
    text = (
        f"runs of account {account} {which} now wait for approval; "
        f"without it they are refused after {_duration(seconds)}, and nothing is spent meanwhile\n"
        f"registry  {registry_folder()}\n"
        "next: to approve a run, resume it in the Prefect UI, or start it with dpflow run --approve"
    )
    return Answer(approval.to_json() | {"registry": str(registry_folder())}, text)


def _seconds(text: str) -> int:
    parts = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if parts is None:
        raise UsageError(f"--within {text[:100]!r} is not a duration; write a number and s, m, h or d, such as 24h")
    return int(parts[1]) * _SECONDS[parts[2]]


def _duration(seconds: int) -> str:
    """Format seconds in the form that `_seconds` reads, in the largest exact unit.

    >>> _duration(86400), _duration(90)
    ('1d', '90s')
    """
    unit = next(unit for unit in reversed(_SECONDS) if seconds % _SECONDS[unit] == 0)
    return f"{seconds // _SECONDS[unit]}{unit}"
