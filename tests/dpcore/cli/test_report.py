"""`dpflow report` prints where the private comparison lies and nothing of it, and the figures that were bought."""

import json

import pytest

from dpcore.cli.main import main
from dpcore.comparison.compare import Written
from dpcore.comparison.figures import Bought, Figure


def dpflow(*arguments: str) -> int:
    return main(["report", *arguments], runner=None)  # type: ignore[arg-type]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path) -> list[tuple]:  # type: ignore[no-untyped-def,type-arg]
    """What the verb has called, in place of the work itself."""
    calls: list[tuple] = []  # type: ignore[type-arg]

    def compared(*arguments: object, **more: object) -> Written:
        calls.append(("compare", *arguments, more))
        return Written(tmp_path / "comparison.html", tmp_path / "comparison.json")

    def bought(*arguments: object, **more: object) -> Bought:
        calls.append(("buy", *arguments, more))
        figure = Figure("the mean error", rows=12, noise=3.5, share=0.012, total=1000.0, marginals=6)
        return Bought([figure], "These figures are private.", tmp_path / "figures.json", run="r", spent=0.1)

    monkeypatch.setattr("dpcore.comparison.compare.compare", compared)
    monkeypatch.setattr("dpcore.comparison.figures.buy_figures", bought)
    return calls


def test_without_epsilon_nothing_is_bought(called: list, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[type-arg]
    assert dpflow("releases/visits", "spec.yaml") == 0
    said = capsys.readouterr().out
    assert said.startswith("PRIVATE comparison with the true table")
    assert said.endswith("nothing was charged\n")
    assert [call[0] for call in called] == ["compare"]
    assert dpflow("releases/visits", "spec.yaml", "--changed", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"private_page", "private_data", "bought"}
    assert told["bought"] is None
    assert called[-1][-1] == {"allow_changed": True}


def test_with_epsilon_the_figures_are_printed(called: list, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[type-arg]
    assert dpflow("releases/visits", "spec.yaml", "--epsilon", "0.5", "--approve") == 0
    said = capsys.readouterr().out
    assert "the mean error: 12 rows (0.0120 of 1,000), noise 3.5" in said
    assert [call[0] for call in called] == ["compare", "buy"]
    assert called[-1][-1] == {"epsilon": 0.5, "approved": True}
    assert dpflow("releases/visits", "spec.yaml", "--epsilon", "0.5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["bought"]["figures"][0]["rows"] == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--changed", "--epsilon", "1"), "leave out --epsilon or --changed"),
        (("--approve",), "there is nothing to approve without --epsilon"),
    ],
)
def test_what_contradicts_itself_is_refused(
    called: list,  # type: ignore[type-arg]
    arguments: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert dpflow("releases/visits", "spec.yaml", *arguments) == 2
    assert message in capsys.readouterr().err
    assert called == []
