"""What a server submits can't choose what only a caller in the same process may."""

from typing import Any

import pytest

from dpcore.errors import UsageError
from flows.tasks import untrusted
from flows.tasks.untrusted import checked_trust

CHOSEN = [{"resume": "another-run"}, {"as_of": "2026-01-01"}, {"approved": True}]
NOTHING: dict[str, Any] = {"resume": None, "as_of": None, "approved": False}


@pytest.fixture(params=["the worker says so", "it comes from a deployment"])
def said(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """What the caller says; a deployed run is always untrusted."""
    by_worker = request.param == "the worker says so"
    monkeypatch.setattr(untrusted, "deployed_run", lambda: None if by_worker else object())
    return by_worker


@pytest.mark.parametrize("chosen", CHOSEN)
def test_an_untrusted_run_that_chooses_an_option_is_refused(said: bool, chosen: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"can't set `{next(iter(chosen))}`"):
        checked_trust(untrusted=said, **NOTHING | chosen)


def test_an_untrusted_run_that_chooses_nothing_is_known_as_such(said: bool) -> None:
    assert checked_trust(untrusted=said, **NOTHING)


@pytest.mark.parametrize("chosen", CHOSEN)
def test_a_caller_in_this_process_may_choose(monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any]) -> None:
    monkeypatch.setattr(untrusted, "deployed_run", lambda: None)
    assert not checked_trust(untrusted=False, **NOTHING | chosen)
