"""The form in the Prefect UI: what a person may fill in to start a run, with its limits.

Every field but the first may stay empty, which means: as the registered spec declares it. Such a field is described to the UI
as a plain number or text; the choice of "nothing or a number" that its type is would be drawn as two tabs. Limits are enforced
by Prefect's API, which then starts no run, and again by the flow; the form shows none of them, so they belong into the help
texts, which are in the docstring of the flow.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from dpcore.steward.registry import registered_names
from flows.prefect_compat import ParameterSchema, parameter_schema

MOST_EPSILON = 100.0
MOST_DELTA = 1e-3
MOST_ROWS = 10**9
MOST_COLUMNS = 8
MOST_NOTE = 500

AS_DECLARED = "as declared"


class _WithoutNull(dict[str, Any]):
    """A description that cannot be given the default null, which is what the flow's signature has.

    With it, the form would send null for a field that nobody has touched, and the API would refuse that as not being a number.
    Without it, the form leaves the field out, also when something was typed and deleted again.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "default" or value is not None:
            super().__setitem__(key, value)


@dataclass(frozen=True)
class _Drawn:
    """How a field that may stay empty is described to the form and the API."""

    description: dict[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return _WithoutNull(self.description)


class _RegisteredNames:
    """Lists the registered specs, as they are when the flow is deployed, as the choices of a field."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        names = registered_names()
        return schema | {"enum": list(names)} if names else schema


def _chosen(value: Any) -> Any:
    """Return nothing for the choice that stands for nothing: a list that was opened can't be emptied again."""
    return None if value == AS_DECLARED else value


ReleaseName = Annotated[str, _RegisteredNames()]
Epsilon = Annotated[
    Annotated[float, Field(gt=0, le=MOST_EPSILON)] | None,
    _Drawn({"type": "number", "exclusiveMinimum": 0, "maximum": MOST_EPSILON}),
]
Delta = Annotated[
    Annotated[float, Field(ge=0, le=MOST_DELTA)] | None,
    _Drawn({"type": "number", "minimum": 0, "maximum": MOST_DELTA}),
]
Rows = Annotated[
    Annotated[int, Field(ge=1, le=MOST_ROWS)] | None,
    _Drawn({"type": "integer", "minimum": 1, "maximum": MOST_ROWS}),
]
WorkloadSize = Annotated[
    Annotated[int, Field(ge=1, le=MOST_COLUMNS)] | None,
    _Drawn({"type": "integer", "minimum": 1, "maximum": MOST_COLUMNS}),
]
StrategyName = Annotated[
    Literal["adaptive", "mwem", "pmw"] | None,
    BeforeValidator(_chosen),
    _Drawn({"type": "string", "enum": [AS_DECLARED, "adaptive", "mwem", "pmw"], "default": AS_DECLARED}),
]
Note = Annotated[str, Field(max_length=MOST_NOTE)]


class _Closed(ParameterSchema):
    """A form's schema, with which the server refuses a field that is not in it; else such a run would start, and fail."""

    additionalProperties: bool  # noqa: N815  JSON Schema's name


def form_fields(flow: Callable[..., Any]) -> set[str]:
    """Return the parameters of a flow that are fields of its form: those that its signature shows."""
    return set(signature(flow).parameters)


def form_schema(flow: Callable[..., Any]) -> ParameterSchema:
    """Return the form of a flow as it is deployed."""
    return _Closed(**parameter_schema(flow).model_dump(exclude_unset=True), additionalProperties=False)
