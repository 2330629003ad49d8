"""Rules of the events: who may record each kind, whether it names its run, and the form of its body.

One table states them, and everything else derives from it: the trigger that checks what is written to a PostgreSQL ledger
(`postgres/triggers.py`), the check of each event before any store gets it (`writing.py`), and `read_body`, by which `verify` and all other
readers check what they read. The form of a body is a regular expression over its canonical JSON, in the syntax that Python and PostgreSQL
share.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from dpcore.ledger.chain import canonical
from dpcore.ledger.findings import at_event, require
from dpcore.ledger.rows import AllowanceKind, Event, EventKind
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours


class Writer(StrEnum):
    """The role that an event needs. A steward may record all that a runner may."""

    STEWARD = "steward"
    RUNNER = "runner"


@dataclass(frozen=True)
class EventRule:
    """What an event of one kind must be.

    Attributes:
        writer: Who may record it.
        of_run: Whether it names its run.
        body: The form of each value in its body, by key: a regular expression over the value's canonical JSON.
    """

    writer: Writer
    of_run: bool
    body: Mapping[str, str]

    @property
    def pattern(self) -> str:
        """The form of the whole body, with its keys in the canonical order."""
        return r"\{" + ",".join(f'"{key}":(?:{self.body[key]})' for key in sorted(self.body)) + r"\}"

    @cached_property
    def form(self) -> re.Pattern[str]:
        """The same, compiled."""
        return re.compile(self.pattern)


# Backslashes and quotes are escaped, and so is everything but printable ASCII, exactly as Python's encoder does it. No text has two readings,
# so nothing is searched: a match takes time in proportion to the body.
_PLAIN = r"[ !#-\u005b\u005d-~]"
_CODE = "00(?:0[0-7bef]|1[0-9a-f]|7f|[89a-f][0-9a-f])|0[1-9a-f][0-9a-f]{2}|[1-9a-f][0-9a-f]{3}"
_ESCAPED = rf'\\(?:["\\bfnrt]|u(?:{_CODE}))'
_REST = f'{_PLAIN}*(?:{_ESCAPED}{_PLAIN}*)*"'
_TEXT = f'"(?:{_PLAIN}|{_ESCAPED}){_REST}'
_AMOUNT = "[1-9][0-9]{0,18}"
_COUNT = f"0|{_AMOUNT}"
_NUMBER = r"-?[0-9]+(?:\.[0-9]+(?:e[+-][0-9]+)?|e[+-][0-9]+)"
_SECONDS = "0|[1-9][0-9]{0,5}"  # the longest lease has six digits
_NAMES = rf"\[{_TEXT}(?:,{_TEXT})*\]"
_SHA256 = '"[0-9a-f]{64}"'
_PARAMETERS = rf'\{{"{_REST}(?:[!#-~]+"{_REST})*[!#-~]*\}}'

INTEGER = "0|-?[1-9][0-9]{0,254}"
"""The form of an integer in the parameters of a mechanism."""
FLOAT = (
    r"-?(?:0\.(?:0|(?!0000)[0-9]*[1-9])|[1-9][0-9]{0,15}\.(?:0|[0-9]*[1-9])"
    r"|[1-9](?:\.[0-9]*[1-9])?e(?:-0[5-9]|-[1-9][0-9]|\+1[6-9]|\+[2-9][0-9]|[+-][1-3][0-9]{2}))"
)
"""The form in which Python writes a float. That it has no more digits than the float needs, a form cannot tell."""
DEEPEST = 20
"""How many levels the parameters of a mechanism may have in PostgreSQL: far more than dpflow's have, and far fewer than Python can parse."""


def _or_null(form: str) -> str:
    return f"null|{form}"


def _one_of(kinds: type[StrEnum]) -> str:
    return f'"(?:{"|".join(kinds)})"'


def _by_steward(*, of_run: bool = False, **body: str) -> EventRule:
    return EventRule(Writer.STEWARD, of_run, body)


def _by_runner(*, of_run: bool = True, **body: str) -> EventRule:
    return EventRule(Writer.RUNNER, of_run, body)


EVENTS: Mapping[str, EventRule] = {
    EventKind.ACCOUNT_OPENED: _by_steward(
        currency=_one_of(Currency),
        cap=_AMOUNT,
        epsilon=_NUMBER,
        delta=_NUMBER,
        unit=_TEXT,
        neighbours=_one_of(Neighbours),
        description=f'""|{_TEXT}',
        blocks_by=_or_null(_TEXT),
        across=_or_null(_AMOUNT),
        across_epsilon=_or_null(_NUMBER),
        salt='"[0-9a-f]{32}"',
    ),
    EventKind.CAP_RAISED: _by_steward(cap=_AMOUNT, epsilon=_NUMBER, reason=_TEXT),
    EventKind.ACROSS_RAISED: _by_steward(across=_AMOUNT, across_epsilon=_NUMBER, reason=_TEXT),
    EventKind.ACCOUNT_CLOSED: _by_steward(reason=_TEXT),
    EventKind.ALLOWED: _by_steward(kind=_one_of(AllowanceKind), name=_TEXT, cap=_AMOUNT, epsilon=_NUMBER, reason=_TEXT),
    EventKind.SHARED: _by_steward(run=_TEXT, analyst=_TEXT, cap=_AMOUNT, token=_or_null(_SHA256)),
    EventKind.ADOPTED: _by_steward(folder=_TEXT, owner=_or_null(_SHA256), reason=_TEXT),
    EventKind.RESTORED: _by_steward(seq=_AMOUNT, hash=_SHA256, reason=_TEXT),
    EventKind.WITHDRAWN: _by_steward(of_run=True, release=_TEXT, reason=_TEXT),
    EventKind.REMOVED: _by_runner(release=_TEXT, reason=_TEXT, keep=_AMOUNT),
    EventKind.BLOCKS_OPENED: _by_runner(of_run=False, blocks=_NAMES),
    EventKind.BLOCKS_SEALED: _by_runner(of_run=False, blocks=_NAMES),
    EventKind.REPUBLISHED: _by_runner(of_run=False, run=_TEXT, release=_TEXT, manifest=_TEXT, manifest_sha256=_SHA256),
    EventKind.RESERVED: _by_runner(
        amount=_AMOUNT, claim=_TEXT, blocks=_or_null(_NAMES), analyst=_or_null(_TEXT), purpose=_or_null(_TEXT)
    ),
    EventKind.LEASED: _by_runner(fence=_AMOUNT, holder=_TEXT, seconds=_SECONDS),
    EventKind.DATA_VERSION: _by_runner(version=_TEXT),
    EventKind.CHARGED: _by_runner(
        step=_TEXT,
        attempt=_AMOUNT,
        amount=_AMOUNT,
        mechanism=_PARAMETERS,
        fence=_AMOUNT,
        analyst=_or_null(_TEXT),
    ),
    EventKind.COMMITTED: _by_runner(step=_TEXT, attempt=_AMOUNT, sha256=_SHA256, size=_COUNT),
    EventKind.SETTLED: _by_runner(
        spent=_COUNT,
        returned=_COUNT,
        release=_or_null(_TEXT),
        manifest=_or_null(_TEXT),
        manifest_sha256=_or_null(_SHA256),
    ),
    EventKind.REFUNDED: _by_runner(returned=_AMOUNT),
}
"""The rule of each kind of event."""


def read_body(event: Event) -> dict[str, Any]:
    """Parse an event's body. Raise if no ledger can have written the event."""
    rule = EVENTS.get(event.kind)
    if rule is None:
        raise at_event(event, "is of a kind that this version does not know")
    require(event, (event.run is not None) == rule.of_run, "names a run although it concerns none, or lacks its run")
    try:
        details: dict[str, Any] = json.loads(event.body)
        text = canonical(details)
    except (ValueError, TypeError, RecursionError):
        raise at_event(event, "has a body that cannot be parsed") from None
    require(event, text == event.body and isinstance(details, dict), "has a body that is not a canonical JSON object")
    require(event, details.keys() == rule.body.keys(), "has a body with missing or unknown keys")
    if not rule.form.fullmatch(event.body):
        invalid = (key for key, form in rule.body.items() if not re.fullmatch(form, canonical(details[key])))
        raise at_event(event, f"has a body with an invalid {next(invalid)}")
    blocks = details.get("blocks")
    require(event, not blocks or blocks == sorted(set(blocks)), "has a body with an invalid blocks")
    return details
