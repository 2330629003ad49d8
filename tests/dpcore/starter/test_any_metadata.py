"""Whatever metadata say: an error of one sentence, or a spec whose only mistakes are its marks."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import DpflowError, SpecError
from dpcore.spec import load_spec
from dpcore.spec.document import read_document
from dpcore.starter import describe, draft_of, spec_text
from dpcore.starter.description import Column, Description
from dpcore.starter.write import comment, scalar
from tests.dpcore.starter import test_documents as documents

SAMPLES: dict[str, Any] = {
    "dbt": yaml.safe_load(documents.DBT.partition("  - name: other")[0]),
    "frictionless": documents.PACKAGE,
    "csvw": documents.CSVW,
    "croissant": documents.CROISSANT,
    "pandera": yaml.safe_load(documents.PANDERA),
    "expectations": documents.SUITE,
    "dictionary": documents.DICTIONARY,
    "release": documents.manifest(),
}
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["FILL_IN", "null", "1", "a: b # c", "2025-01-01", "\x85\u2028\ufeff", "id", "%d"]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, 2**53 + 1, -1, 0.1])
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=5
)


def places(data: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, part in pairs:
        yield from places(part, (*place, key))


def only_marks_are_wrong(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    try:
        load_spec(path)
    except SpecError as error:
        lines = str(error).split("\n")
        assert all("is not filled in" in line for line in lines), (lines, text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("metadata")


@pytest.mark.parametrize("kind", SAMPLES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_damaged_part_is_an_error_or_a_mark(kind: str, folder: Path, data: st.DataObject) -> None:
    sample = copy.deepcopy(SAMPLES[kind])
    place = data.draw(st.sampled_from(list(places(sample))))
    part = data.draw(ANYTHING)
    if not place:
        sample = part
    else:
        inner = sample
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = part
    path = folder / "metadata.json"
    path.write_text(json.dumps(sample), encoding="utf-8")
    try:
        found = describe(str(path), kind=kind, table=None)
    except DpflowError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    only_marks_are_wrong(folder / "v.yaml", spec_text(draft_of(found, dataset="v", origin="metadata")))


COLUMNS = st.builds(
    Column,
    name=st.text(st.characters(exclude_characters="\n"), max_size=6),  # a newline in it would be one in the error
    stored=st.sampled_from([None, "text", "integer", "number", "boolean", "date", "datetime"]),
    values=st.none() | st.lists(st.text(max_size=5) | NUMBERS, max_size=4).map(tuple),
    labels=st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=2),
    minimum=st.none()
    | NUMBERS
    | st.sampled_from(["2025-01-01", "2025-01-01T10:30:00", "x", "2025-01-01T00:00:00+01:00"]),
    maximum=st.none() | NUMBERS | st.sampled_from(["2026-01-01", "2026-01-01T10:30:00", "x"]),
    step=st.none() | st.sampled_from([0.01, 1e-6, 1e-300]),
    format=st.none() | st.sampled_from(["%d.%m.%Y", "%Q", ""]),
    nullable=st.none() | st.booleans(),
    nulls=st.lists(st.text(max_size=3), max_size=2, unique=True).map(tuple),
    about=st.text(max_size=10),
)


@settings(max_examples=30, deadline=None)
@given(columns=st.lists(COLUMNS, min_size=1, max_size=4))
def test_any_description_becomes_a_spec_whose_only_mistakes_are_its_marks(folder: Path, columns: list[Column]) -> None:
    draft = draft_of(Description(tuple(columns), source={"path": "v.csv"}), dataset="v", origin="somewhere")
    only_marks_are_wrong(folder / "v.yaml", spec_text(draft))


@settings(max_examples=100, deadline=None)
@given(text=st.text())
def test_any_text_is_read_back_from_a_spec(folder: Path, text: str) -> None:
    path = folder / "text.yaml"
    path.write_text(f"# {comment(text)}\n{scalar(text)}: [{scalar(text)}]\n", encoding="utf-8")
    assert read_document(path).data == {text: [text]}
