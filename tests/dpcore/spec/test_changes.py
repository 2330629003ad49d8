"""Changes to a spec for one run: the same as if they stood in its file, and refused by the name of the form's field."""

import pytest

from dpcore.errors import SpecError
from dpcore.marginals.workload import Workload
from dpcore.spec import Changes, Declaration, changed, load_spec
from tests.conftest import Workspace


@pytest.fixture
def spec(workspace: Workspace) -> Declaration:
    """Return the declaration that is changed."""
    return load_spec(workspace.spec)


@pytest.mark.parametrize(
    "changes",
    [
        Changes(),
        Changes(epsilon=1),
        Changes(delta=1e-9),
        Changes(workload=2),
        Changes(strategy="mwem"),
        Changes(epsilon=1.0, delta=1e-9, workload=2, strategy="mwem"),
    ],
)
def test_nothing_changed_is_the_same_declaration(spec: Declaration, changes: Changes) -> None:
    assert changed(spec, changes) == spec


@pytest.mark.parametrize(
    ("changes", "edits"),
    [
        (Changes(epsilon=0.25), [("epsilon: 1.0", "epsilon: 0.25")]),
        (Changes(delta=1e-6), [("delta: 1e-9", "delta: 1e-6")]),
        (Changes(delta=0), [("delta: 1e-9", "delta: 0")]),
        (Changes(rows=1000), [("workload:", "output: {rows: 1000}\nworkload:")]),
        (Changes(workload=4), [("marginals: 2", "marginals: 4")]),
        (Changes(strategy="pmw"), [("name: mwem, rounds: 4", "name: pmw")]),
        (
            Changes(epsilon=2, delta=0.0, workload=1, strategy="pmw"),
            [
                ("epsilon: 1.0", "epsilon: 2"),
                ("delta: 1e-9", "delta: 0.0"),
                ("marginals: 2", "marginals: 1"),
                ("name: mwem, rounds: 4", "name: pmw"),
            ],
        ),
    ],
)
def test_a_change_is_what_an_edit_of_the_file_would_be(
    workspace: Workspace, spec: Declaration, changes: Changes, edits: list[tuple[str, str]]
) -> None:
    edited = load_spec(workspace.write_spec(*edits))
    assert changed(spec, changes) == edited
    assert edited.digest != spec.digest


def test_the_declaration_that_is_changed_stays_as_it_was(workspace: Workspace, spec: Declaration) -> None:
    changed(spec, Changes(epsilon=5, delta=0, rows=7, workload=1, strategy="pmw"))
    assert spec == load_spec(workspace.spec)


def test_listed_marginals_are_replaced_by_a_number_and_kept_without(workspace: Workspace) -> None:
    spec = load_spec(workspace.write_spec(("marginals: 2", "marginals: [[sex, age], [city]]")))
    assert changed(spec, Changes(epsilon=2)).workload == spec.workload
    assert len(changed(spec, Changes(workload=1)).workload.marginals) == 4


TARGET_AND_RANGES = [
    ("marginals: 2", "marginals: 2, target: smoker, ranges: [age]"),
    ("name: mwem, rounds: 4", "name: adaptive, rounds: 4"),
]


def test_a_number_replaces_the_marginals_and_leaves_target_and_ranges(workspace: Workspace) -> None:
    spec = load_spec(workspace.write_spec(*TARGET_AND_RANGES))
    assert changed(spec, Changes()) == spec
    after = changed(spec, Changes(workload=3))
    assert after.workload == Workload(((0, 1, 2), (0, 2, 3), (1, 2, 3)), (1, 1, 1), target=2, ranges=(1,))
    first, second = TARGET_AND_RANGES
    edited = load_spec(workspace.write_spec((first[0], first[1].replace("marginals: 2", "marginals: 3")), second))
    assert after == edited


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (Changes(workload=1), ["workload"]),
        (Changes(strategy="mwem"), ["strategy"]),
        (Changes(strategy="pmw"), ["strategy"]),
        (Changes(workload=1, strategy="pmw"), ["workload", "strategy"]),
        (Changes(workload=9, strategy="mwem"), ["workload", "strategy"]),
    ],
)
def test_a_change_that_target_or_ranges_rule_out_is_refused_by_the_name_of_its_field(
    workspace: Workspace, changes: Changes, fields: list[str]
) -> None:
    spec = load_spec(workspace.write_spec(*TARGET_AND_RANGES))
    with pytest.raises(SpecError) as refused:
        changed(spec, changes)
    assert [line.split("`")[1] for line in str(refused.value).splitlines()] == fields


def test_weights_rule_pmw_out_until_a_number_replaces_them(workspace: Workspace) -> None:
    weighted = "marginals: [[sex, age], {columns: [city, age], weight: 4}]"
    spec = load_spec(workspace.write_spec(("marginals: 2", weighted)))
    assert spec.workload.weights == (1, 4)
    with pytest.raises(SpecError, match=r"^`strategy` must be adaptive or mwem"):
        changed(spec, Changes(strategy="pmw"))
    assert changed(spec, Changes(strategy="pmw", workload=2)).workload.weights == (1,) * 6


def test_the_options_of_another_strategy_are_dropped_and_those_of_the_same_kept(workspace: Workspace) -> None:
    spec = load_spec(workspace.write_spec(("name: mwem, rounds: 4", "name: pmw, rounds: 70, alpha: 0.02")))
    kept = changed(spec, Changes(strategy="pmw")).spec.strategy
    assert kept.model_dump() == {"name": "pmw", "rounds": 70, "alpha": 0.02}
    assert changed(spec, Changes(strategy="mwem")).spec.strategy.model_dump() == {"name": "mwem", "rounds": None}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (Changes(epsilon=0), "epsilon"),
        (Changes(epsilon=-1.0), "epsilon"),
        (Changes(epsilon=float("nan")), "epsilon"),
        (Changes(epsilon=float("inf")), "epsilon"),
        (Changes(epsilon=True), "epsilon"),
        (Changes(epsilon="1"), "epsilon"),  # type: ignore[arg-type]
        (Changes(delta=-1e-9), "delta"),
        (Changes(delta=1), "delta"),
        (Changes(delta=float("nan")), "delta"),
        (Changes(rows=0), "rows"),
        (Changes(rows=-3), "rows"),
        (Changes(rows=10**9 + 1), "rows"),
        (Changes(rows=True), "rows"),
        (Changes(rows=1.5), "rows"),  # type: ignore[arg-type]
        (Changes(workload=0), "workload"),
        (Changes(workload=5), "workload"),
        (Changes(workload=9), "workload"),
        (Changes(workload=True), "workload"),
        (Changes(workload=[["nowhere"]]), "workload"),  # type: ignore[arg-type]
        (Changes(strategy="adaptve"), "strategy"),
        (Changes(strategy=""), "strategy"),
    ],
)
def test_a_wrong_change_is_refused_by_the_name_of_its_field(spec: Declaration, changes: Changes, field: str) -> None:
    with pytest.raises(SpecError, match=f"^`{field}` "):
        changed(spec, changes)


def test_all_mistakes_are_named_at_once(spec: Declaration) -> None:
    with pytest.raises(SpecError) as refused:
        changed(spec, Changes(epsilon=0, delta=2, rows=0, workload=5, strategy="x"))
    fields = [line.split("`")[1] for line in str(refused.value).splitlines()]
    assert fields == ["epsilon", "delta", "rows", "workload", "strategy"]
