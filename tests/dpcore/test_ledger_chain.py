"""The chain's format is fixed: a ledger written today must verify in ten years."""

from dataclasses import replace
from hashlib import sha256

import pytest

from dpcore.accounting import Currency
from dpcore.ledger.chain import GENESIS, canonical, seal
from dpcore.ledger.rows import Event, EventKind, in_currency

EVENT = Event(
    seq=1,
    at="2026-01-02T03:04:05.000006+00:00",
    kind=EventKind.RESERVED,
    account="clinic",
    run="run-é",
    body='{"amount":5}',
    previous=GENESIS,
    hash="",
)


def test_a_hash_covers_the_hash_before_and_the_canonical_content() -> None:
    content = '[1,"2026-01-02T03:04:05.000006+00:00","reserved","clinic","run-\\u00e9","{\\"amount\\":5}"]'
    assert seal(EVENT).hash == sha256(bytes(32) + content.encode()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 2},
        {"at": "2026-01-02T03:04:05.000007+00:00"},
        {"kind": EventKind.SETTLED},
        {"account": "clinics"},
        {"run": None},
        {"body": '{"amount": 5}'},
        {"previous": "1" + GENESIS[1:]},
    ],
    ids=str,
)
def test_any_change_of_an_event_changes_its_hash(change: dict[str, object]) -> None:
    assert seal(replace(EVENT, **change)).hash != seal(EVENT).hash  # type: ignore[arg-type]


def test_equal_values_have_one_text() -> None:
    assert canonical({"b": 0.1, "a": [1, "é"]}) == canonical({"a": [1, "é"], "b": 0.1}) == '{"a":[1,"\\u00e9"],"b":0.1}'


def test_what_is_not_a_number_has_no_text() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"scale": float("inf")})


@pytest.mark.parametrize(
    ("units", "text"),
    [(10**12, "1 epsilon"), (10 * 10**12, "10 epsilon"), (1, "0.000000000001 epsilon"), (0, "0 epsilon")],
)
def test_an_amount_is_written_with_all_its_digits(units: int, text: str) -> None:
    assert in_currency(units, Currency.PURE) == text
