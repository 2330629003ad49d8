"""The form that starts a run in the Prefect UI: its fields and their limits.

Every field but the first may stay empty, which means "as the registered spec declares". The schema describes an optional field as
a plain number or text, because the UI would draw its real type, "null or a number", as two tabs. The form marks a value outside its
limits, Prefect's API rejects it before a run starts, and the flow enforces the limits again. The form does not show limits, so the
help texts in the flow's docstring state them. `flows/pages/form.py` fills in what a spec declares.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from dpcore.session.questions import MOST_QUERIES
from dpcore.spec.advice import MOST_DELTA
from dpcore.spec.parts import NAME
from dpcore.spec.release import MOST_ROWS, STRATEGIES
from dpcore.spec.workload import MOST_COLUMNS
from dpcore.steward.registry import registered_names
from flows.prefect_compat import ParameterSchema, parameter_schema

MOST_EPSILON = 100.0
MOST_NOTE = 500

AS_DECLARED = "as declared"

Fill: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class _WithoutNull(dict[str, Any]):
    """A field schema that ignores the default null of the flow's signature.

    With that default, the form would send null for an untouched field, and the API would reject null because it is not a number.
    Without it, the form omits the field, even after something was typed and deleted.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "default" or value is not None:
            super().__setitem__(key, value)


@dataclass(frozen=True)
class _FieldSchema:
    """The schema of an optional field, as the form and the API see it."""

    description: dict[str, Any] = field(hash=False)

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return _WithoutNull(self.description)


def _limited(kind: str, **limits: float) -> dict[str, Any]:
    """Return a field's type and limits. The UI drops limits unless they are inside `allOf`, and then would mark no wrong value."""
    return {"type": kind, "allOf": [limits]}


class _RegisteredNames:
    """Offers the specs that are registered when the flow is deployed as the choices of a field, unless the form is for one of them."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core_schema)
        names = registered_names()
        return schema | {"enum": list(names)} if names else schema


def _none_if_as_declared(value: Any) -> Any:
    """Convert the choice "as declared" to None. The UI can't empty a list once something was chosen, so None needs a choice of its own."""
    return None if value == AS_DECLARED else value


ReleaseName = Annotated[str, _RegisteredNames()]
Epsilon = Annotated[
    Annotated[float, Field(gt=0, le=MOST_EPSILON)] | None,
    _FieldSchema(_limited("number", exclusiveMinimum=0, maximum=MOST_EPSILON)),
]
Delta = Annotated[
    Annotated[float, Field(ge=0, le=MOST_DELTA)] | None,
    _FieldSchema(_limited("number", minimum=0, maximum=MOST_DELTA)),
]
Rows = Annotated[
    Annotated[int, Field(ge=1, le=MOST_ROWS)] | None,
    _FieldSchema(_limited("integer", minimum=1, maximum=MOST_ROWS)),
]
WorkloadSize = Annotated[
    Annotated[int, Field(ge=1, le=MOST_COLUMNS)] | None,
    _FieldSchema(_limited("integer", minimum=1, maximum=MOST_COLUMNS)),
]
StrategyName = Annotated[
    Literal["adaptive", "mwem", "pmw"] | None,
    BeforeValidator(_none_if_as_declared),
    _FieldSchema({"type": "string", "enum": [AS_DECLARED, *STRATEGIES], "default": AS_DECLARED}),
]
Note = Annotated[str, Field(max_length=MOST_NOTE)]
Queries = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=10_000)]], Field(min_length=1, max_length=MOST_QUERIES)
]
WithinText = Annotated[str, Field(min_length=1, max_length=20)]
Level = Annotated[float, Field(gt=0, lt=1)]
SessionId = Annotated[str, Field(max_length=100)]
DashboardName = Annotated[str, Field(pattern=NAME)]


class _Closed(ParameterSchema):
    """A form schema that makes the server reject unknown fields. Otherwise a run with one would start, and then fail."""

    additionalProperties: bool  # noqa: N815  JSON Schema's name


def form_fields(flow: Callable[..., Any]) -> set[str]:
    """Return the parameters of a flow that are fields of its form: those in its public signature."""
    return set(signature(flow).parameters)


def form_schema(flow: Callable[..., Any], *, fill: Fill = dict) -> ParameterSchema:
    """Return the form schema with which a flow is deployed. `fill` adds what is known about the deployment, such as declared values."""
    schema = fill(parameter_schema(flow).model_dump(exclude_unset=True))
    return _Closed(**schema, additionalProperties=False)
