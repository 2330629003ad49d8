"""The rules of events: a body has the form of its kind exactly if the code can have written it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import LedgerDamaged
from dpcore.ledger import EventKind
from dpcore.ledger.chain import canonical
from dpcore.ledger.events import EVENTS, read_body
from dpcore.ledger.rows import Event
from tests.dpcore.ledger.fixtures import BODIES


def event(kind: EventKind, body: str, *, run: str | None) -> Event:
    return Event(1, "", kind, "clinic", run, body, "", "")


@pytest.mark.parametrize("kind", EventKind)
def test_each_kind_has_its_body_and_names_its_run_or_not(kind: EventKind) -> None:
    run, body = ("run" if EVENTS[kind].of_run else None), canonical(BODIES[kind])
    assert read_body(event(kind, body, run=run)) == BODIES[kind]
    with pytest.raises(LedgerDamaged, match="names a run although it concerns none, or lacks its run"):
        read_body(event(kind, body, run=None if run else "x"))


@given(text=st.text(min_size=1))
def test_any_text_has_the_form_of_a_text(text: str) -> None:
    assert EVENTS[EventKind.ACCOUNT_CLOSED].form.fullmatch(canonical({"reason": text}))


@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_any_float_has_the_form_of_a_number(number: float) -> None:
    assert EVENTS[EventKind.CAP_RAISED].form.fullmatch(canonical({"cap": 1, "epsilon": number, "reason": "r"}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    max_leaves=10,
)


@settings(max_examples=20)
@given(parameters=st.dictionaries(st.text(), JSON, min_size=1, max_size=3))
def test_any_parameters_have_the_form_of_a_mechanism(parameters: dict[str, Any]) -> None:
    assert EVENTS[EventKind.CHARGED].form.fullmatch(canonical(BODIES[EventKind.CHARGED] | {"mechanism": parameters}))


INVALID = {
    EventKind.ACCOUNT_OPENED: {"cap": [True, 0], "epsilon": [1], "currency": ["euro"], "across": [True], "salt": ["0"]},
    EventKind.ALLOWED: {"kind": ["friend"], "cap": [0]},
    EventKind.ADOPTED: {"owner": ["ab"]},
    EventKind.WITHDRAWN: {"reason": [""]},
    EventKind.REMOVED: {"keep": [0]},
    EventKind.REPUBLISHED: {"manifest_sha256": [None]},
    EventKind.SHARED: {"cap": [0], "token": ["../x"]},
    EventKind.LEASED: {"seconds": [10**6], "fence": [0]},
    EventKind.CHARGED: {"mechanism": [{}], "amount": [-1]},
    EventKind.COMMITTED: {"sha256": ["../" * 21 + "x", "AB" * 32], "size": [-1]},
    EventKind.SETTLED: {"manifest_sha256": ["AB"], "spent": [-1]},
}


@pytest.mark.parametrize("kind", INVALID)
def test_a_value_that_no_ledger_writes_is_named(kind: EventKind) -> None:
    for key, values in INVALID[kind].items():
        for value in values:
            with pytest.raises(LedgerDamaged, match=f"with an invalid {key}"):
                read_body(
                    event(kind, canonical(BODIES[kind] | {key: value}), run="run" if EVENTS[kind].of_run else None)
                )
    for body in ({"more": 1, **BODIES[kind]}, dict(list(BODIES[kind].items())[1:])):
        with pytest.raises(LedgerDamaged, match="with missing or unknown keys"):
            read_body(event(kind, canonical(body), run="run" if EVENTS[kind].of_run else None))


WRITTEN_OTHERWISE = {
    "spaces": lambda body: json.dumps(body, sort_keys=True),
    "order": lambda body: json.dumps(dict(sorted(body.items(), reverse=True)), separators=(",", ":")),
    "letters": lambda body: canonical(body).replace("\\u00fc", "\u00fc"),
    "escapes": lambda body: canonical(body).replace("x", "\\u0078"),
    "capitals": lambda body: canonical(body).replace("\\u00fc", "\\u00FC"),
    "slashes": lambda body: canonical(body).replace("/", "\\/"),
    "zeros": lambda body: canonical(body).replace(":12", ":012"),
    "text": lambda body: canonical(body).replace(":12", ':"12"'),
    "float": lambda body: canonical(body).replace(":12", ":12.0"),
}


@pytest.mark.parametrize("way", WRITTEN_OTHERWISE)
def test_what_is_written_otherwise_has_another_form(way: str) -> None:
    body = BODIES[EventKind.ALLOWED] | {"cap": 12, "reason": "x/\u00fc"}
    assert EVENTS[EventKind.ALLOWED].form.fullmatch(canonical(body))
    assert not EVENTS[EventKind.ALLOWED].form.fullmatch(WRITTEN_OTHERWISE[way](body))
