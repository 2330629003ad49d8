"""`dpflow analyst` and `dpflow serve-answers`, as a steward calls them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpcore.cli.main import main
from tests.dpcore.session.conftest import copied, opened  # noqa: F401  fixtures


def dpflow(*arguments: str) -> int:
    return main(list(arguments), runner=None)  # type: ignore[arg-type]


def test_analysts_are_added_shown_and_removed(
    copied: Callable[[], Path],  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    copied()
    assert dpflow("analyst", "show", "spec.yaml") == 0
    assert "has no analysts; add one with" in capsys.readouterr().out
    assert dpflow("analyst", "add", "spec.yaml", "ada", "--share", "0.25", "--json") == 0
    issued = json.loads(capsys.readouterr().out)
    assert (issued["analyst"], len(issued["token"])) == ("ada", 43)
    assert dpflow("analyst", "add", "spec.yaml", "bob", "--epsilon", "0.1") == 0
    assert "It is shown only now" in capsys.readouterr().out
    assert dpflow("analyst", "remove", "spec.yaml", "bob") == 0
    assert "analyst bob was removed, with epsilon 0 spent" in capsys.readouterr().out
    assert dpflow("analyst", "show", "spec.yaml") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["ada", "bob"]
    assert lines[-1].endswith("removed")
    assert dpflow("ledger", "history") == 0
    told = capsys.readouterr().out
    assert "analyst ada of run s: at most" in told
    assert "analyst bob of run s: removed" in told
    assert issued["token"] not in told


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("analyst", "add", "spec.yaml", "a b", "--share", "0.5"), "an analyst's name has"),
        (("analyst", "add", "spec.yaml", "ada", "--share", "2"), "above 0 and at most 1"),
        (("analyst", "add", "spec.yaml", "ada", "--epsilon", "-1"), "epsilon"),
        (("analyst", "remove", "spec.yaml", "ada"), "has no analyst 'ada'"),
        (("serve-answers", "spec.yaml", "--host", "0.0.0.0"), "with --name, and put TLS in front"),  # noqa: S104
        (("serve-answers", "spec.yaml", "--host", "192.0.2.1", "--name", "x"), "cannot listen on 192.0.2.1"),
        (("serve-answers", "spec.yaml", "--port", "99999"), "cannot listen on 127.0.0.1, port 99999"),
        (("serve-answers", "spec.yaml", "--rate", "0"), "above 0"),
        (("serve-answers", "spec.yaml", "--session", "none"), "there is no session none"),
    ],
)
def test_mistakes_say_what_to_do(
    copied: Callable[[], Path],  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    part: str,
) -> None:
    copied()
    assert dpflow(*arguments) == 2
    assert part in capsys.readouterr().err
