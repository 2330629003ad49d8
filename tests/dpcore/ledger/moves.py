"""What the machine may draw: who does something, to what, when by whose clock, and which mistakes can be made."""

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from itertools import product
from typing import Any

from hypothesis import strategies as st

from dpcore.ledger.holder import this_worker
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours
from tests.contracts.ledger_places import AFTER, BEFORE, LIVES, REOPENS, STUMBLES

Actor = tuple[int, str | int]
Call = tuple[str, dict[str, Any]]
Moment = tuple[str, timedelta]
Wish = tuple[int, tuple[str, ...], tuple[str | None, str | None]]


def any_of(*options: Sequence[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Draw one of each at once: for Hypothesis one more choice is as much work as a statement is for the ledger.

    It also writes down what there is to choose from at many a step, so that it is given numbers instead of long texts.
    """
    choices = list(product(*options))
    return st.sampled_from(range(len(choices))).map(lambda number: choices[number])


FATES = (LIVES,) * 30 + (1, 3, 5, 7, BEFORE, *(AFTER,) * 7, REOPENS, STUMBLES, STUMBLES)
"""A number: the worker dies before that statement."""
ACTORS = any_of(range(3), FATES)

CAP, ACROSS = 100, 70
TOO_LITTLE = {"epsilon": CAP / 4 * 1e-12}
"""An epsilon below the cap of an account in pure epsilon."""
TERMS = [
    {"currency": currency, "delta": delta, "neighbours": neighbours, "blocks_by": blocks_by}
    | {"cap": CAP, "epsilon": 1.0, "unit": "person", "across": across, "across_epsilon": across and 1.0}
    for currency, delta in ((Currency.PURE, 0.0), (Currency.ZCDP, 1e-9))
    for neighbours in Neighbours
    for blocks_by, across in (("month", None), ("month", ACROSS), (None, None))
]
ANN, BOB = {"kind": "analyst", "name": "ann"}, {"kind": "analyst", "name": "bob"}
AUDIT = {"kind": "purpose", "name": "audit"}
ALLOWED = ((), (), (ANN,), (AUDIT,), (ANN, AUDIT))
MORE = {"epsilon": 2.0, "reason": "because"}
CHANGES: list[Call] = [
    *(("allow", MORE | whom | {"cap": cap}) for whom in (ANN, BOB, AUDIT) for cap in (60, 30)),
    *(("raise_cap", MORE | {"cap": cap}) for cap in (CAP + 40, CAP + 80, CAP)),
    *(("raise_across", MORE | {"cap": cap}) for cap in (ACROSS + 40, ACROSS + 40, ACROSS + 80, ACROSS + 80, ACROSS)),
    ("raise_across", MORE | TOO_LITTLE | {"cap": ACROSS + 50}),
    *(("open_blocks", {"names": names}) for names in (("mar",), ("apr", "may"), ("jun",), ())),
    *(("seal_blocks", {"names": names}) for names in (("mar",), ("jan",), ("jan", "apr"), ("mar", "feb"), ())),
    *(("open_account", terms) for terms in TERMS[::3]),
    ("open_account", TERMS[0] | TOO_LITTLE),
    ("allow", MORE | ANN | TOO_LITTLE | {"cap": 60}),
    ("raise_cap", MORE | TOO_LITTLE | {"cap": CAP + 90}),
    *(("close_account", {"reason": "because"}),) * 3,
]
ACCOUNTS = ("clinic",) * 6 + ("survey",) * 2 + ("nowhere",)

RUNS = [f"run-{number}" for number in range(1, 9)]
PAYERS = ("clinic",) * 5 + ("survey",)
MONTHS = (("jan",), ("feb",), ("jan", "feb"), ("mar", "jan"))
NAMES = (("ann", "audit"), ("ann", None), ("bob", "audit"), (None, None))
WISHES = any_of((20, 45, 60), MONTHS, NAMES)
MISTAKES: list[dict[str, Any]] = [
    *({},) * 16,
    *({"claim": "b"}, {"amount": 5}, {"account": "nowhere"}, {"blocks": None}, {"blocks": ["jan"]}, {"blocks": []}),
    *(
        {"blocks": ["jan", "dec"]},
        {"blocks": ["mar"]},
        {"analyst": None},
        {"analyst": None},
        {"purpose": None},
        {"purpose": None},
    ),
    *({"analyst": "eve"}, {"purpose": "fun"}, {"purpose": "fun"}),
]

GONE = f"{socket.gethostname()} {os.getpid()} 1@{this_worker().partition('@')[2]}"
"""A worker of this machine whose number went to a process that began later: this one."""
HOLDERS = (this_worker(), "far-away 4711 99", "night-shift", GONE)
ZERO, INSTANT, HOUR = timedelta(), timedelta(microseconds=1), timedelta(hours=1)
NOW, LAPSED = ("now", ZERO), ("lapses", ZERO)
MOMENTS: list[Moment] = [
    *(NOW, NOW, ("now", HOUR), ("now", -HOUR)),
    *(LAPSED, ("lapses", -INSTANT), ("touched", ZERO), ("touched", -INSTANT)),
]
TASKS: list[Call] = [
    *(
        ("charge", {"step": step, "amount": amount})
        for step in ("select", "select", "measure")
        for amount in (7, 1, 30)
    ),
    *(("record_data_version", {"version": version}) for version in ("v1", "v1", "v2")),
]
THEN = ("", "commit", "commit", "commit and die", *("commit the one before",) * 2, "commit after all")
"""What follows a charge; after all: once another worker has taken the run over."""
ENDS: list[Call] = [
    *(("settle", {"release": release}) for release in ("r1", "r1", None, "r2")),
    *(("refund", {}),) * 4,
]
WHOSE = ("its own", "its own", "a steward's", "another's")
LATELY = (0, 0, 0, 0, 0, 1, 1, 2, 3)
"""Which of the runs, leases or operations, counted from the newest."""
