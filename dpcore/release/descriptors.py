"""Describe a release for programs that know nothing of dpflow: `datapackage.json` (Frictionless) and `croissant.json` (MLCommons).

`deployment.yaml`, for people, is in `registry_entry.py`. What the spec says about its columns in words is also in the footer of the rows and on
the card. Both descriptors say the same in other words: the files with their hashes, and the columns with their types, values, limits and descriptions. Everything here
follows from the spec, which is public, and from the files. What the spec does not say, such as a licence, is left out.
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dpcore.release.draft import Draft
from dpcore.release.registry_entry import DEPLOYMENT, registry_entry
from dpcore.spec.release import ReleaseSpec
from dpcore.universe import Attribute
from dpcore.universe.spread import category_values, null_codes
from dpcore.universe.spreading import spread_of

DATAPACKAGE, CROISSANT = "datapackage.json", "croissant.json"
ROWS = "data/part-00000.parquet"
MOST_CATEGORIES = 1000
"""A column with more values has no list of them here. The manifest has it."""

DESCRIPTION, UNIT = "description", "unit"
"""The names that other programs have for these words. In a spec, the unit of a column is `measured_in`: `unit` is the protected one."""

_TYPES = {"integer": "sc:Integer", "number": "sc:Float", "boolean": "sc:Boolean", "date": "sc:Date"}
_TYPES |= {"datetime": "sc:DateTime", "string": "sc:Text"}
_TERMS = """
citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset jsonPath key md5 parentField
path recordSet references regex repeated replace samplingRate separator source subField transform
"""
_CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _TERMS.split()},
}
"""What the names in a Croissant file mean. The format requires it in every file."""


def descriptors(draft: Draft, *, created: str, files: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each descriptor. Only a spec with `about` has an entry for the registry, and a sum of releases has none.

    Args:
        draft: The content of the release.
        created: When it was written, as in its manifest.
        files: The files that it has so far, as its manifest lists them.
    """
    for name, content in (
        (DATAPACKAGE, _datapackage(draft, created, files)),
        (CROISSANT, _croissant(draft, created, files)),
    ):
        yield name, json.dumps(content, indent=2) + "\n"
    if draft.declaration.spec.about is not None and not draft.parts:
        yield DEPLOYMENT, registry_entry(draft, draft.declaration.spec.about, created=created)


def _about(draft: Draft) -> str:
    about = draft.declaration.spec.about
    first = "" if about is None else f"{about.title}: {about.description} "
    return f"{first}Synthetic rows of the dataset {draft.declaration.spec.dataset}. {draft.statement.sentence}"


def _ids(draft: Draft) -> list[str]:
    """Return the column of synthetic ids, if the release keeps the rows of a person together."""
    return [] if draft.rows.persons is None else [draft.rows.persons.column]


def _datapackage(draft: Draft, created: str, files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    attributes, about = draft.declaration.universe.attributes, words_about(draft.declaration.spec)
    fields: list[dict[str, Any]] = [
        {"name": name, "type": "integer", "constraints": {"required": True}} for name in _ids(draft)
    ]
    fields += [field_of(name, attribute) | about[name] for name, attribute in attributes.items()]
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": draft.declaration.spec.dataset.lower(),
        "id": draft.name,
        "description": _about(draft),
        "created": created,
        "resources": [_resource(file, fields if file["path"] == ROWS else None) for file in files],
    }


def _resource(file: Mapping[str, Any], fields: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    path = str(file["path"])
    resource = {
        "name": "rows" if fields is not None else path.partition(".")[0],
        "path": path,
        "format": path.rpartition(".")[2],
        "mediatype": "application/vnd.apache.parquet" if path.endswith(".parquet") else "text/html",
        "bytes": file["bytes"],
        "hash": f"sha256:{file['sha256']}",
    }
    if fields is not None:  # nulls of Parquet are nulls: no text counts as one
        resource |= {"type": "table", "schema": {"fields": list(fields), "missingValues": []}}
    return resource


def field_of(name: str, attribute: Attribute) -> dict[str, Any]:
    """Return a column in the terms of a Table Schema: its type, and its categories or its limits."""
    kind = _kind(attribute)
    field: dict[str, Any] = {"name": name, "type": kind}
    limits: dict[str, Any] = {} if null_codes(attribute) else {"required": True}
    values = category_values(attribute)
    if values is None:
        edges = spread_of(attribute).edges
        limits["minimum"] = _plain(edges[0], kind)
        included = kind == "number" or edges[-1] == dt.date.max  # the calendar has no day after that
        limits["maximum" if included else "exclusiveMaximum"] = _plain(edges[-1], kind)
    elif kind != "boolean" and len(values) <= MOST_CATEGORIES:
        listed = [value for value in values if value is not None]
        if kind == "number":  # a Table Schema has no categories of numbers
            limits["enum"] = listed
        else:
            field["categories"] = listed
    return field | ({"constraints": limits} if limits else {})


def _kind(attribute: Attribute) -> str:
    arrow = attribute.arrow_type
    kinds = {pa.int64(): "integer", pa.float64(): "number", pa.bool_(): "boolean", pa.date32(): "date"}
    return kinds.get(arrow, "datetime" if pa.types.is_timestamp(arrow) else "string")


def _plain(value: Any, kind: str) -> Any:
    """Return the limit of a column as JSON has it."""
    if isinstance(value, dt.date):
        return value.isoformat()
    return int(value) if kind == "integer" else float(value)


def _croissant(draft: Draft, created: str, files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    attributes = draft.declaration.universe.attributes
    kinds = dict.fromkeys(_ids(draft), "integer") | {name: _kind(attribute) for name, attribute in attributes.items()}
    about = {name: sentence(words) for name, words in words_about(draft.declaration.spec).items()}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": draft.declaration.spec.dataset,
        "description": _about(draft),
        "datePublished": created[:10],
        "isLiveDataset": False,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file["path"],
                "name": file["path"],
                "contentUrl": file["path"],
                "contentSize": f"{file['bytes']} B",
                "encodingFormat": "application/x-parquet" if str(file["path"]).endswith(".parquet") else "text/html",
                "sha256": file["sha256"],
            }
            for file in files
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "rows",
                "name": "rows",
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"rows/{name}",
                        "name": name,
                        **({"description": about[name]} if about.get(name) else {}),
                        "dataType": _TYPES[kind],
                        "source": {"fileObject": {"@id": ROWS}, "extract": {"column": name}},
                    }
                    for name, kind in kinds.items()
                ],
            }
        ],
    }


def words_about(spec: ReleaseSpec) -> dict[str, dict[str, str]]:
    """Return what is said about each column of the universe, without what is not said."""
    about = {}
    for name, column in spec.universe.items():
        words = {DESCRIPTION: column.description, UNIT: getattr(column, "measured_in", None)}
        about[name] = {key: text for key, text in words.items() if text is not None}
    return about


def with_words(schema: pa.Schema, about: Mapping[str, Mapping[str, str]]) -> pa.Schema:
    """Return the schema of the rows, with the words as the metadata of its fields."""
    return pa.schema(
        [field.with_metadata(about[field.name]) if about.get(field.name) else field for field in schema],
        metadata=schema.metadata,
    )


def sentence(words: Mapping[str, str]) -> str:
    """Return the words about a column as one text; empty if there are none.

    >>> sentence({"description": "Price of the visit", "unit": "EUR"}), sentence({"unit": "EUR"}), sentence({})
    ('Price of the visit. Measured in EUR.', 'Measured in EUR.', '')
    """
    said = [words.get(DESCRIPTION, ""), f"Measured in {words[UNIT]}" if UNIT in words else ""]
    return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in said if text)
