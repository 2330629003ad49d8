"""The form as Prefect's API describes it to the UI, and enforces it."""

from typing import Any

import pytest
from prefect.exceptions import ParameterTypeError
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import ValidationError, validate

import flows.form
from flows.form import AS_DECLARED, MOST_NOTE, form_schema
from flows.synthesize import synthesize

EMPTY = ("epsilon", "delta", "rows", "workload")
GOOD: dict[str, list[Any]] = {
    "epsilon": [0.001, 1, 100],
    "delta": [0, 1e-9, 1e-3],
    "rows": [1, 10**9],
    "workload": [1, 8],
    "strategy": ["adaptive", "mwem", "pmw", AS_DECLARED],
    "note": ["", "x" * MOST_NOTE],
}
BAD: dict[str, list[Any]] = {
    "epsilon": [0, -1, 100.1, "much"],
    "delta": [-1e-9, 0.0011],
    "rows": [0, -5, 1.5, 10**9 + 1],
    "workload": [0, 9],
    "strategy": ["guess", ""],
    "note": ["x" * (MOST_NOTE + 1)],
}


@pytest.fixture
def schema(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The form of a registry with two releases."""
    monkeypatch.setattr(flows.form, "registered_names", lambda: ("clinic", "visits"))
    return dict(form_schema(synthesize).model_dump_for_openapi())


def _accepts(schema: dict[str, Any], parameters: dict[str, Any]) -> bool:
    try:
        validate(parameters, schema, raise_on_error=True)  # as the server does when it is asked for a run
    except ValidationError:
        return False
    return True


def test_every_field_is_drawn_as_one_plain_field_with_a_help_text(schema: dict[str, Any]) -> None:
    assert schema["required"] == ["release"]
    for field in schema["properties"].values():
        assert field["type"] in {"string", "number", "integer"}  # a choice of types would be drawn as tabs
        assert len(field["description"].split()) > 3


@pytest.mark.parametrize("name", EMPTY)
def test_a_field_that_nobody_has_touched_is_left_out_by_the_form(name: str, schema: dict[str, Any]) -> None:
    assert "default" not in schema["properties"][name]
    assert _accepts(schema, {"release": "clinic", name: None})  # as older pages and `prefect deployment run` send it
    assert synthesize.validate_parameters({"release": "clinic"} | dict.fromkeys(EMPTY)) is not None


def test_a_null_default_would_make_the_api_refuse_an_untouched_field(schema: dict[str, Any]) -> None:
    schema["properties"]["epsilon"]["default"] = None
    assert not _accepts(schema, {"release": "clinic", "epsilon": None})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in GOOD.items() for value in values])
def test_a_value_within_its_limits_is_accepted_by_the_api_and_the_flow(
    name: str, value: Any, schema: dict[str, Any]
) -> None:
    parameters = {"release": "clinic", name: value}
    assert _accepts(schema, parameters)
    assert synthesize.validate_parameters(parameters)[name] == (None if value == AS_DECLARED else value)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_value_outside_its_limits_is_refused_by_the_api_and_the_flow(
    name: str, value: Any, schema: dict[str, Any]
) -> None:
    parameters = {"release": "clinic", name: value}
    assert not _accepts(schema, parameters)
    with pytest.raises(ParameterTypeError):
        synthesize.validate_parameters(parameters)


def test_only_registered_releases_can_be_chosen(schema: dict[str, Any]) -> None:
    assert schema["properties"]["release"]["enum"] == ["clinic", "visits"]
    assert _accepts(schema, {"release": "visits"})
    assert not _accepts(schema, {"release": "visits.yaml"})
    assert not _accepts(schema, {})


def test_options_for_callers_in_the_same_process_are_not_in_the_form_however_it_is_deployed(
    schema: dict[str, Any],
) -> None:
    options = {"resume", "as_of", "approved", "untrusted"}
    assert not options & schema["properties"].keys()
    assert not options & parameter_schema(synthesize).properties.keys()  # as Prefect's own command makes it
    assert options <= parameter_schema(synthesize.fn).properties.keys()
