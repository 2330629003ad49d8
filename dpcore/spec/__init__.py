"""The release spec that a steward writes: parse it and check it without reading any data."""

from typing import Any

from dpcore.spec.changes import Changes, changed
from dpcore.spec.declaration import DENSE_CELLS, Declaration
from dpcore.spec.load import load_spec
from dpcore.spec.release import ReleaseSpec

__all__ = ["DENSE_CELLS", "Changes", "Declaration", "ReleaseSpec", "changed", "json_schema", "load_spec"]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a release spec, for editors."""
    schema = ReleaseSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "dpflow release spec"}
