"""`dpflow ask` and `dpflow session`, as a user calls them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dpcore.cli.main import main
from dpcore.cli.session import _text
from tests.dpcore.session.conftest import GROUPED, copied, opened  # noqa: F401  fixtures
from tests.dpcore.session.test_purchase import MEAN


def dpflow(*arguments: str) -> int:
    return main(list(arguments), runner=None)  # type: ignore[arg-type]


@pytest.fixture
def told(copied: Callable[[], Path], capsys: pytest.CaptureFixture[str]) -> Callable[..., dict]:  # noqa: F811
    """Call dpflow with --json in a copy of the session's folder, and return what it printed."""
    copied()

    def call(*arguments: str, code: int = 0) -> dict:
        capsys.readouterr()
        assert dpflow(*arguments, "--json") == code
        return json.loads(capsys.readouterr().out)

    return call


def test_a_question_is_priced_paid_stored_shown_and_published(
    told: Callable[..., dict], capsys: pytest.CaptureFixture[str]
) -> None:
    free = told("ask", "spec.yaml", GROUPED, "--within", "1000")
    assert free["price"]["free"]
    within = str(0.6 * free["price"]["half_width"])
    price = told("ask", "spec.yaml", GROUPED, "--within", within, "--dry-run")["price"]
    assert price["cost"] > 0
    paid = told("ask", "spec.yaml", GROUPED, "--within", within)
    assert paid["price"] == price
    assert paid["remaining"] == pytest.approx(price["remaining_before"] - price["cost"])
    assert [row["city"] for row in paid["rows"]] == ["north", "south", "west", "other"]
    assert told("ask", "spec.yaml", GROUPED, "--within", within)["price"]["stored"]
    (shown,) = told("session", "show", "spec.yaml")["sessions"]
    assert [each["question"] for each in shown["bought"]] == [GROUPED]
    assert shown["spent"] == pytest.approx(price["cost"])
    release = told("session", "release", "spec.yaml")
    assert Path(release["release"], "manifest.json").exists()
    assert dpflow("ledger", "show", "visits") == 0
    assert "a run that goes on from others promises" in capsys.readouterr().out
    assert told("session", "close", "spec.yaml")["returned"] == pytest.approx(paid["remaining"])
    assert "no session of this spec is open" in told("ask", "spec.yaml", GROUPED, "--within", "9", code=2)["error"]


def test_people_read_what_was_paid(
    copied: Callable[[], Path],  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    copied()
    assert dpflow("ask", "spec.yaml", "select count(*) as n from release", "--within", "1000") == 0
    assert "free, within" in capsys.readouterr().out
    assert dpflow("ask", "spec.yaml", "select count(*) as n\nfrom release where agee > 3", "--within", "5") == 2
    assert "line 2, column 20: there is no column" in capsys.readouterr().err
    assert dpflow("ask", "spec.yaml", GROUPED, "--within", "2") == 3
    refused = capsys.readouterr().err
    assert re.search(
        r"costs epsilon [\d.]+ \([\d.]+ rho\), but session s has epsilon [\d.]+ \([\d.]+ rho\) left", refused
    )
    assert "for what is left, ask within" in refused
    assert dpflow("ask", "spec.yaml", MEAN, "--within", "3", "--dry-run") == 0
    assert re.search(
        r"costs epsilon [\d.]+ \(remaining afterwards: [\d.]+ of [\d.]+\), within 3\b", capsys.readouterr().out
    )
    assert dpflow("ask", "spec.yaml", GROUPED, "--within", "soon") == 2
    assert "say how accurate" in capsys.readouterr().err
    assert dpflow("session", "open", "spec.yaml", "--first-share", "1.5", "--session", "other") == 2
    assert "share of a first release" in capsys.readouterr().err


def test_an_open_session_of_an_earlier_version_of_the_spec_is_named_with_how_to_end_it(
    copied: Callable[[], Path],  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = copied() / "spec.yaml"
    assert dpflow("session", "show", "spec.yaml", "--json") == 0
    assert json.loads(capsys.readouterr().out)["others"] == []
    text = spec.read_text("utf-8")
    assert "max: 99" in text
    spec.write_text(text.replace("max: 99", "max: 199"), encoding="utf-8")
    assert dpflow("session", "show", "spec.yaml") == 0
    assert "an earlier version of this one: s; end one with: dpflow ledger settle ID" in capsys.readouterr().out
    assert dpflow("session", "close", "spec.yaml", "--session", "s") == 2
    assert "is ended with: dpflow ledger settle s" in capsys.readouterr().err
    assert dpflow("ledger", "settle", "s") == 0
    capsys.readouterr()
    assert dpflow("session", "show", "spec.yaml") == 0
    assert "settle" not in capsys.readouterr().out


def test_a_question_cannot_control_the_terminal() -> None:
    bought = {"question": "select 1 -- \x1b[2J", "epsilon": 0.1, "half_width": 2.0}
    told = {"session": "s", "state": "open", "spent": 0.1, "reserved": 1.0, "first": "s-first"}
    told["epsilon"] = {"spent": 0.1, "reserved": 1.0, "not_stored": 0.02}
    assert _text(told | {"not_stored": 0.0, "bought": [bought]}).replace("\n", "").isprintable()
    assert "epsilon 0.02 was charged for answers that were not stored" in _text(
        told | {"not_stored": 0.02, "bought": []}
    )
