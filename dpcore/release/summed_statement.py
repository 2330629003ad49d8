"""The privacy statement of the sum of several releases, from what each of them states. Nothing new is drawn.

The sum is made from every run that one of the releases is made from. A run counts once, however many of the releases go back to it. What a unit
loses to these runs follows from the blocks that each of them reserved (`reporting/promises.py`): a row in one block loses what the runs of
that block reserved, and a person in all blocks the sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from dpcore.errors import UsageError
from dpcore.release.statement import Bookkeeping, StatedPart, Statement, currency_of, promised
from dpcore.version import installed_version

SAME = ("accounting", "unit", "neighbours", "ledger", "account", "weight", "max_row_weight")
"""What must be the same in all releases of a sum."""


def state_sum(privacy: Sequence[Mapping[str, Any]]) -> Statement:
    """Return the statement of the sum of releases.

    Args:
        privacy: The statement of each release, as its manifest has it, in the order of their runs.

    Raises:
        UsageError: If they do not protect the same.
    """
    last = privacy[-1]
    for name in SAME:
        if any(each.get(name) != last.get(name) for each in privacy):
            raise UsageError(
                f"the releases have different promises (`{name}`), so their sum has none; merge only releases of one spec"
            )
    parts = {part["run"]: StatedPart.read(part) for each in privacy for part in each["made_from"]}
    made_from = tuple(sorted(parts.values(), key=lambda part: part.fixed))
    currency = currency_of(last)
    follows = promised(made_from, currency=currency, unit=last["unit"], neighbours=last["neighbours"])
    kept = {field.name: last[field.name] for field in fields(Statement) if field.name in last}
    told: dict[str, Any] = {
        "bookkeeping": Bookkeeping(
            currency.symbol,
            reserved=sum(each["bookkeeping"]["reserved"] for each in privacy),
            spent=sum(each["bookkeeping"]["spent"] for each in privacy),
        ),
        "max_rows_per_unit": max(int(each["max_rows_per_unit"]) for each in privacy),
        "run": f"the sum of {len(privacy)} runs",
        "versions": {**last["versions"], "dpflow": installed_version()},
        "blocks": None,
        "chosen_limit": None,
        "made_from": made_from,
    }
    return Statement(**kept | follows | told)
