"""The protocol, read back from its events: each of these histories could be written, and none could have happened."""

from typing import Any

import pytest

from dpcore.errors import LedgerDamaged
from dpcore.ledger import EventKind
from dpcore.ledger.chain import GENESIS, canonical, link
from dpcore.ledger.events import read_body
from dpcore.ledger.rows import Event
from dpcore.ledger.verification.replay import Replay
from dpcore.privacy.accounting import AMOUNT_OF_ONE

Told = tuple[str, str | None, dict[str, Any]]
"""A kind of event, its run, and what it says; all are of one account."""

OPENED: Told = (
    "account-opened",
    None,
    {
        "currency": "pure",
        "cap": 100,
        "epsilon": 1.0,
        "delta": 0.0,
        "unit": "row",
        "neighbours": "replace-one",
        "description": "",
        "blocks_by": None,
        "across": None,
        "across_epsilon": None,
        "salt": 32 * "0",
    },
)
BY_MONTH: Told = ("account-opened", None, OPENED[2] | {"blocks_by": "month"})
ACROSS: Told = (
    "account-opened",
    None,
    BY_MONTH[2] | {"unit": "person", "across": 60, "across_epsilon": 0.6},
)
RAISED: Told = ("across-raised", None, {"across": 61, "across_epsilon": 0.7, "reason": "more"})
MONTHS: Told = ("blocks-opened", None, {"blocks": ["feb", "jan"]})
SEALED: Told = ("blocks-sealed", None, {"blocks": ["jan"]})
CLOSED: Told = ("account-closed", None, {"reason": "over"})
REQUEST = {"amount": 60, "claim": "claim", "blocks": None, "analyst": None, "purpose": None}
RESERVED: Told = ("reserved", "run", REQUEST)
LEASED: Told = ("leased", "run", {"fence": 1, "holder": "worker", "seconds": 60})
VERSION: Told = ("data-version", "run", {"version": "one"})
CHARGED: Told = (
    "charged",
    "run",
    {"step": "one", "attempt": 1, "amount": 40, "mechanism": {"name": "noise"}, "fence": 1, "analyst": None},
)
COMMITTED: Told = ("committed", "run", {"step": "one", "attempt": 1, "sha256": "ab" * 32, "size": 3})
SETTLED: Told = (
    "settled",
    "run",
    {"spent": 40, "returned": 20, "release": "release", "manifest": None, "manifest_sha256": None},
)
REFUNDED: Told = ("refunded", "run", {"returned": 60})
REFUNDED_50: Told = ("refunded", "run", {"returned": 50})
WITHDRAWN: Told = ("withdrawn", "run", {"release": "release", "reason": "wrong codes"})
REMOVED: Told = ("removed", "run", WITHDRAWN[2] | {"keep": 1})
REPUBLISHED: Told = (
    "republished",
    None,
    {"run": "run", "release": "release", "manifest": "m", "manifest_sha256": "ab" * 32},
)
ALLOWED: Told = ("allowed", None, {"kind": "analyst", "name": "ada", "cap": 70, "epsilon": 0.5, "reason": "course"})
SHARED: Told = ("shared", None, {"run": "run", "analyst": "ada", "cap": 40, "token": "ab" * 32})
ASKED: Told = ("charged", "run", CHARGED[2] | {"analyst": "ada"})


def says(told: Told, **changes: Any) -> Told:
    kind, run, body = told
    return kind, changes.pop("run", run), body | changes


def follow(*told: Told) -> Replay:
    replay, previous = Replay([("clinic", "analyst", "ada")]), GENESIS
    for seq, (kind, run, body) in enumerate(told, start=1):
        event: Event = link(
            previous,
            seq=seq,
            at="2026-03-01T12:00:00+00:00",
            kind=EventKind(kind),
            account="clinic",
            run=run,
            body=canonical(body),
        )
        replay.follow(event, read_body(event))
        previous = event.hash
    return replay


@pytest.mark.parametrize(
    ("told", "used"),
    [
        ((OPENED, RESERVED, LEASED, VERSION, CHARGED, COMMITTED, SETTLED), 40),
        ((OPENED, RESERVED, LEASED, CHARGED, SETTLED, REPUBLISHED, CLOSED, REPUBLISHED), 40),
        ((OPENED, RESERVED, LEASED, CHARGED, SETTLED, CLOSED, REMOVED, WITHDRAWN), 40),
        ((OPENED, RESERVED, LEASED, CHARGED), 60),
        ((OPENED, RESERVED, LEASED, SHARED, ASKED, says(SHARED, token=None), SETTLED), 40),
        ((OPENED, RESERVED, LEASED, REFUNDED, RESERVED, says(LEASED, fence=2), says(CHARGED, fence=2)), 60),
        ((OPENED, RESERVED, LEASED, CLOSED, CHARGED, SETTLED), 40),
        ((OPENED, RESERVED, LEASED, CHARGED, says(LEASED, fence=2), says(CHARGED, fence=2, attempt=2, amount=20)), 60),
        ((OPENED, says(RESERVED, analyst="ada"), ALLOWED, LEASED, CHARGED, SETTLED), 40),
        ((OPENED, ALLOWED, says(RESERVED, analyst="ada"), REFUNDED), 0),
    ],
)
def test_what_the_protocol_allows_is_followed(told: tuple[Told, ...], used: int) -> None:
    (block,) = follow(*told).blocks.values()
    assert (block.used, block.cap) == (used, 100)


def test_each_block_of_a_replaced_unit_pays_double() -> None:
    replay = follow(BY_MONTH, MONTHS, SEALED, says(RESERVED, amount=50, blocks=["jan"]))
    assert [(key[1], block.state, block.used) for key, block in replay.blocks.items()] == [
        ("feb", "open", 0),
        ("jan", "sealed", 100),
    ]


def test_a_run_counts_once_across_blocks_and_gives_its_rest_back() -> None:
    both = says(SEALED, blocks=["feb", "jan"])
    reserved = says(RESERVED, amount=50, blocks=["feb", "jan"])
    for more, used in (
        ((), 50),
        ((RAISED,), 50),
        ((REFUNDED_50,), 0),
        ((LEASED, CHARGED, says(SETTLED, returned=10)), 40),
    ):
        assert follow(ACROSS, MONTHS, both, reserved, *more).accounts["clinic"].across_used == used


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ((OPENED, OPENED), "opens it again"),
        ((says(ACROSS, across=None),), "declares a cap across blocks that does not match"),
        ((says(ACROSS, across_epsilon=None),), "declares a cap across blocks that does not match"),
        ((says(ACROSS, across=AMOUNT_OF_ONE),), "declares a cap across blocks that does not match"),
        ((says(ACROSS, blocks_by=None),), "declares a cap across blocks that does not match"),
        ((says(ACROSS, unit="row"),), "declares a cap across blocks that does not match"),
        ((ACROSS, says(RAISED, across=60)), "does not raise the cap across blocks"),
        ((ACROSS, says(RAISED, across_epsilon=0.5)), "does not raise the cap across blocks"),
        ((ACROSS, says(RAISED, across=AMOUNT_OF_ONE)), "declares a cap across blocks that does not match"),
        ((ACROSS, CLOSED, RAISED), "account that is closed"),
        ((BY_MONTH, RAISED), "does not raise the cap across blocks"),
        ((says(ACROSS, neighbours="add-remove"), MONTHS, SEALED, says(RESERVED, amount=61, blocks=["jan"])), "takes more than the cap across blocks has"),
        ((ACROSS, MONTHS, says(SEALED, blocks=["feb", "jan"]), says(RESERVED, amount=50, blocks=["jan"]), says(RESERVED, run="b", amount=11, blocks=["feb"])), "takes more than the cap across blocks has"),
        ((RESERVED,), "account that was never opened"),
        ((says(OPENED, run="run"),), "names a run although it concerns none"),
        ((OPENED, says(RESERVED, run=None)), "or lacks its run"),
        ((OPENED, says(RESERVED, run="")), "has an empty account or run"),
        ((says(OPENED, cap=2 * AMOUNT_OF_ONE),), "declares a cap that does not match"),
        ((says(OPENED, delta=0.1),), "declares a cap that does not match"),
        ((says(OPENED, colour="red"),), "with missing or unknown keys"),
        ((OPENED, ("account-closed", None, {})), "with missing or unknown keys"),
        ((OPENED, ("cap-raised", None, {"cap": 100, "epsilon": 1.0, "reason": "r"})), "does not raise the cap"),
        ((OPENED, ("cap-raised", None, {"cap": 200, "epsilon": 0.5, "reason": "r"})), "does not raise the cap"),
        ((OPENED, CLOSED, ("cap-raised", None, {"cap": 200, "epsilon": 1.0, "reason": "r"})), "account that is closed"),
        ((OPENED, CLOSED, CLOSED), "account that is closed"),
        ((OPENED, CLOSED, RESERVED), "account that is closed"),
        ((OPENED, CLOSED, ALLOWED), "account that is closed"),
        ((OPENED, MONTHS), "blocks of an account that has none"),
        ((OPENED, says(RESERVED, blocks=["all"])), "names blocks although its account has none"),
        ((BY_MONTH, MONTHS, SEALED, RESERVED), "or lacks them"),
        ((BY_MONTH, MONTHS, MONTHS), "opens a block that exists already"),
        ((BY_MONTH, SEALED), "seals a block that is not open"),
        ((BY_MONTH, MONTHS, SEALED, SEALED), "seals a block that is not open"),
        ((BY_MONTH, MONTHS, SEALED, says(RESERVED, blocks=["feb", "jan"])), "charges a block that is not sealed"),
        ((BY_MONTH, MONTHS, SEALED, says(RESERVED, blocks=["mar"])), "charges a block that is not sealed"),
        ((BY_MONTH, says(MONTHS, blocks=["jan", "feb"])), "with an invalid blocks"),
        ((BY_MONTH, says(MONTHS, blocks=["jan", "jan"])), "with an invalid blocks"),
        ((BY_MONTH, says(MONTHS, blocks=[])), "with an invalid blocks"),
        ((BY_MONTH, MONTHS, SEALED, says(RESERVED, amount=51, blocks=["jan"])), "takes more than one of its blocks has"),
        ((OPENED, says(RESERVED, amount=101)), "takes more than one of its blocks has"),
        ((OPENED, RESERVED, says(RESERVED, run="other")), "takes more than one of its blocks has"),
        ((OPENED, RESERVED, RESERVED), "reserves a run that is open"),
        ((OPENED, RESERVED, LEASED, CHARGED, SETTLED, RESERVED), "open or settled"),
        ((OPENED, RESERVED, REFUNDED, says(RESERVED, claim="other")), "for another request"),
        ((OPENED, RESERVED, REFUNDED, says(RESERVED, amount=61)), "for another request"),
        ((OPENED, ALLOWED, RESERVED), "lacks an allowance for its analyst"),
        ((OPENED, ALLOWED, says(RESERVED, analyst="bob")), "lacks an allowance for its analyst"),
        ((OPENED, ALLOWED, says(RESERVED, analyst="ada", amount=71)), "takes more than its analyst is allowed"),
        ((OPENED, says(RESERVED, analyst="ada"), says(ALLOWED, cap=59)), "allows less than was used"),
        ((OPENED, says(ALLOWED, name="bob")), "sets an allowance that has no row"),
        ((OPENED, RESERVED, WITHDRAWN), "withdraws the release of a run that was not settled"),
        ((OPENED, RESERVED, LEASED, ASKED), "is charged for an analyst who has no share"),
        ((OPENED, RESERVED, LEASED, says(SHARED, cap=39), ASKED), "takes more than its analyst's share has left"),
        ((OPENED, RESERVED, LEASED, SHARED, says(SHARED, token=None), ASKED), "is charged for an analyst who has no"),
        ((OPENED, RESERVED, REFUNDED, SHARED), "shares a run that has ended"),
        ((OPENED, RESERVED, REMOVED), "withdraws the release of a run that was not settled"),
        ((OPENED, RESERVED, LEASED, SHARED, ASKED, says(SHARED, cap=39)), "shares less than its analyst has spent"),
        ((OPENED, RESERVED, says(SHARED, run="run")), "names a run although it concerns none"),
        ((OPENED, LEASED), "is of a run that is not reserved"),
        ((OPENED, RESERVED, says(LEASED, fence=2)), "does not have the next fence"),
        ((OPENED, RESERVED, LEASED, LEASED), "does not have the next fence"),
        ((OPENED, RESERVED, LEASED, VERSION, VERSION), "a second version of the data"),
        ((OPENED, RESERVED, CHARGED), "a worker whose run was taken over"),
        ((OPENED, RESERVED, LEASED, says(LEASED, fence=2), CHARGED), "a worker whose run was taken over"),
        ((OPENED, RESERVED, LEASED, says(CHARGED, amount=61)), "takes more than its run has left"),
        ((OPENED, RESERVED, LEASED, CHARGED, says(CHARGED, amount=21)), "takes more than its run has left"),
        ((OPENED, RESERVED, LEASED, CHARGED, says(SETTLED, spent=39)), "does not state what its run has spent"),
        ((OPENED, RESERVED, LEASED, CHARGED, says(SETTLED, returned=21)), "does not return the uncharged amount"),
        ((OPENED, RESERVED, LEASED, CHARGED, says(SETTLED, manifest="m")), "names a manifest without its hash"),
        ((OPENED, RESERVED, LEASED, CHARGED, says(SETTLED, manifest_sha256="ab" * 32)), "a hash without its manifest"),
        ((OPENED, RESERVED, LEASED, CHARGED, SETTLED, SETTLED), "changes a run that has ended"),
        ((OPENED, RESERVED, LEASED, CHARGED, SETTLED, COMMITTED), "changes a run that has ended"),
        ((OPENED, RESERVED, LEASED, CHARGED, SETTLED, says(LEASED, fence=2)), "changes a run that has ended"),
        ((OPENED, RESERVED, REFUNDED, LEASED), "changes a run that has ended"),
        ((OPENED, RESERVED, says(REFUNDED, returned=59)), "does not return the reserved amount"),
        ((OPENED, RESERVED, LEASED, CHARGED, says(REFUNDED, returned=20)), "refunds a run that was charged"),
    ],
)  # fmt: skip
def test_what_it_does_not_allow_is_refused_at_its_event(told: tuple[Told, ...], problem: str) -> None:
    follow(*told[:-1])
    with pytest.raises(LedgerDamaged, match=problem) as damage:
        follow(*told)
    assert str(damage.value).startswith(f"event {len(told)} ({told[-1][0]}, ")


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "7", '{"reason": "over"}', '{"reason":NaN}', "[" * 100_000, "9" * 9_999]
)
def test_a_body_that_no_ledger_wrote_is_refused(body: str) -> None:
    event = Event(2, "", EventKind.ACCOUNT_CLOSED, "clinic", None, body, "", "")
    with pytest.raises(LedgerDamaged, match=r"event 2 \(account-closed, account 'clinic'\) has a body that"):
        read_body(event)
