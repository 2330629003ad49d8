"""The chain's format is fixed: a ledger written today must verify in ten years."""

from hashlib import sha256
from typing import Any

import pytest

from dpcore.ledger.chain import GENESIS, canonical, link
from dpcore.ledger.rows import Event, EventKind, in_currency
from dpcore.privacy.accounting import Currency

EVENT: dict[str, Any] = {
    "seq": 1,
    "at": "2026-01-02T03:04:05.000006+00:00",
    "kind": EventKind.RESERVED,
    "account": "clinic",
    "run": "run-é",
    "body": '{"amount":5}',
}


def test_a_hash_covers_the_hash_before_and_the_canonical_content() -> None:
    content = '[1,"2026-01-02T03:04:05.000006+00:00","reserved","clinic","run-\\u00e9","{\\"amount\\":5}"]'
    event = link(GENESIS, **EVENT)
    assert event == Event(**EVENT, previous=GENESIS, hash=sha256(bytes(32) + content.encode()).hexdigest())
    assert link(event.hash, **EVENT).hash == sha256(bytes.fromhex(event.hash) + content.encode()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 2},
        {"at": "2026-01-02T03:04:05.000007+00:00"},
        {"kind": EventKind.SETTLED},
        {"account": "clinics"},
        {"run": None},
        {"body": '{"amount": 5}'},
    ],
    ids=str,
)
def test_any_change_of_an_event_changes_its_hash(change: dict[str, object]) -> None:
    assert link(GENESIS, **(EVENT | change)).hash != link(GENESIS, **EVENT).hash


def test_an_event_after_another_one_has_another_hash() -> None:
    assert link("1" + GENESIS[1:], **EVENT).hash != link(GENESIS, **EVENT).hash


def test_equal_values_have_one_text() -> None:
    assert canonical({"b": 0.1, "a": [1, "é"]}) == canonical({"a": [1, "é"], "b": 0.1}) == '{"a":[1,"\\u00e9"],"b":0.1}'


def test_what_is_not_a_number_has_no_text() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"scale": float("inf")})


@pytest.mark.parametrize(
    ("amount", "text"),
    [(10**12, "1 epsilon"), (10 * 10**12, "10 epsilon"), (1, "0.000000000001 epsilon"), (0, "0 epsilon")],
)
def test_an_amount_is_written_with_all_its_digits(amount: int, text: str) -> None:
    assert in_currency(amount, Currency.PURE) == text
