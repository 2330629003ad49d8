"""Which strategy a spec gets that names none, and that `dpflow check` says so, with the reason."""

import json
import re
from pathlib import Path

import pytest

from dpcore import Outcome, cli, load_spec, synthesize
from dpcore.spec import DENSE_CELLS
from dpcore.spec.release import AdaptiveSpec
from dpcore.strategies import Adaptive, Mwem, strategy_for
from tests.conftest import Workspace

UNNAMED = ("strategy: {name: mwem, rounds: 4}\n", "")
LARGE = ("age: {type: integer, min: 0, max: 99, width: 25}", "age: {type: integer, min: 0, max: 99999, width: 1}")
RANGES = ("marginals: 2", "marginals: 2, ranges: [age]")
RANGES_REASON = "(chosen: the workload has ranges)"
SMALL_REASON = f"(chosen: the universe has at most {DENSE_CELLS:,} cells)"
LARGE_REASON = f"(chosen: the universe has more than {DENSE_CELLS:,} cells)"


def runner(spec: Path, resume: str | None, *, approved: bool) -> Outcome:
    return synthesize(spec, run_id=resume, resume=resume is not None)


def dpflow(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments], runner=runner)


@pytest.mark.parametrize(
    ("changes", "strategy", "reason"),
    [
        ([UNNAMED], "mwem", SMALL_REASON),
        ([UNNAMED, LARGE], "adaptive", LARGE_REASON),
        ([UNNAMED, RANGES], "adaptive", RANGES_REASON),
        ([UNNAMED, RANGES, LARGE], "adaptive", RANGES_REASON),
        ([], "mwem", None),
        ([("name: mwem, rounds: 4", "name: adaptive, rounds: 4")], "adaptive", None),
        ([("name: mwem, rounds: 4", "name: adaptive, rounds: 4"), LARGE], "adaptive", None),
    ],
    ids=[
        "small",
        "large",
        "ranges",
        "ranges of a large one",
        "mwem named",
        "adaptive named",
        "adaptive named for a large one",
    ],
)
def test_check_names_the_strategy_and_why_it_was_chosen(
    workspace: Workspace,
    capsys: pytest.CaptureFixture[str],
    changes: list[tuple[str, str]],
    strategy: str,
    reason: str | None,
) -> None:
    workspace.write_spec(*changes)
    rounds = strategy_for(load_spec(workspace.spec)).rounds
    assert dpflow("check", workspace.spec) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("strategy"))
    said = f"{strategy}, at most {rounds} rounds"
    assert line.removeprefix("strategy").strip() == (f"{said} {reason}" if reason else said)
    assert dpflow("check", workspace.spec, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["valid"], data["strategy"], data["rounds"]) == (True, strategy, rounds)
    assert data["strategy_reason"] == (reason and reason.removeprefix("(chosen: ").removesuffix(")"))
    assert (data["cells"] > DENSE_CELLS) == (LARGE in changes)


@pytest.mark.parametrize(
    ("workload", "line", "data"),
    [
        ("marginals: 2", "6 marginals", (6, 1, None, [])),
        ("marginals: 3, target: city", "3 marginals; pairs with city first", (3, 1, "city", [])),
        ("marginals: 1, ranges: [age]", "4 marginals; ranges of age", (4, 1, None, ["age"])),
        (
            "marginals: [[sex, age], {columns: [age, city], weight: 5}], target: age, ranges: [age]",
            "2 marginals; weights from 1 to 5; pairs with age first; ranges of age",
            (2, 5, "age", ["age"]),
        ),
    ],
)
def test_check_says_what_matters(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], workload: str, line: str, data: tuple[object, ...]
) -> None:
    workspace.write_spec(UNNAMED, ("marginals: 2", workload))
    assert dpflow("check", workspace.spec) == 0
    assert f"\nworkload   {line}\n" in capsys.readouterr().out
    assert dpflow("check", workspace.spec, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert tuple(answer[key] for key in ("marginals", "largest_weight", "target", "ranges")) == data


@pytest.mark.parametrize(("last", "expected"), [(999, Mwem), (1000, Adaptive)])
def test_the_largest_small_universe_and_the_smallest_large_one(workspace: Workspace, last: int, expected: type) -> None:
    one = f"sex: {{type: integer, min: 0, max: {DENSE_CELLS // 1000 - 1}, width: 1}}"
    columns = {
        "sex: {type: categorical, values: [F, M], missing: true}": one,
        "age: {type: integer, min: 0, max: 99, width: 25}": f"age: {{type: integer, min: 0, max: {last}, width: 1}}",
        "  smoker: {type: boolean}\n": "",
        "  city: {type: categorical, values: [north, south, west], outside: other}\n": "",
    }
    workspace.write_spec(UNNAMED, *columns.items())
    declaration = load_spec(workspace.spec)
    assert (declaration.universe.size <= DENSE_CELLS) == (expected is Mwem)
    assert type(strategy_for(declaration)) is expected


@pytest.mark.parametrize(("last", "expected"), [(99, Mwem), (100, Adaptive)])
def test_columns_of_many_cells_get_the_strategy_that_merges_cells(
    workspace: Workspace, last: int, expected: type
) -> None:
    small = "sex: {type: categorical, values: [F, M], missing: true}", "sex: {type: integer, min: 0, max: 3, width: 1}"
    large = "min: 0, max: 99, width: 25", f"min: 0, max: {last}, width: 1"
    workspace.write_spec(UNNAMED, small, large, ("marginals: 2", "marginals: [[sex, age], [age, smoker], [age, city]]"))
    declaration = load_spec(workspace.spec)
    assert declaration.universe.size <= DENSE_CELLS
    assert type(strategy_for(declaration)) is expected
    assert ("most pairs" in (declaration.strategy_reason or "")) == (expected is Adaptive)


def test_a_chosen_strategy_has_its_defaults_and_is_not_written_into_the_spec(workspace: Workspace) -> None:
    workspace.write_spec(UNNAMED, LARGE)
    declaration = load_spec(workspace.spec)
    assert declaration.strategy == AdaptiveSpec(name="adaptive")
    assert declaration.spec.strategy is None


def test_a_column_too_large_for_the_model_is_refused_by_check_and_what_it_says_helps(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    column = ("min: 0, max: 99, width: 25", "min: 0, max: 1999999, width: 1")
    workspace.write_spec(UNNAMED, column)
    assert dpflow("check", workspace.spec) == 2
    advice = re.search(r"write `(max_model_mb: \d+)` in `strategy`", capsys.readouterr().err)
    assert advice is not None
    workspace.write_spec(("name: mwem, rounds: 4", f"name: adaptive, {advice[1]}"), column)
    assert dpflow("check", workspace.spec) == 0


@pytest.mark.parametrize("wrong", ["max_model_mb: 0", "max_model_mb: -1", "max_model_mb: 10001", "max_model_mb: .inf"])
def test_a_model_of_no_size_or_any_size_is_refused(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    workspace.write_spec(("name: mwem, rounds: 4", f"name: adaptive, {wrong}"))
    assert dpflow("check", workspace.spec) == 2
    assert "`max_model_mb`" in capsys.readouterr().err
