"""No public file of a spec is a file of its private table, whatever key names it and by whatever name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpcore.errors import SpecError
from dpcore.spec import json_schema, load_spec, local_files

NAME = "Ada Lovelace"
UNIVERSE: dict[str, dict[str, Any]] = {"sex": {"type": "categorical", "values": ["F", "M"]}}


def with_values(file: str) -> dict[str, Any]:
    return {"universe": {**UNIVERSE, "name": {"type": "categorical", "values_from": file}}}


KEYS: dict[str, Callable[[str], dict[str, Any]]] = {
    "universe.name.values_from": with_values,
    "prior.path": lambda file: {"prior": {"path": file}},
}
COVERED = {
    "its path": ("private.csv", "private.csv"),
    "its path written otherwise": ("private.csv", "sub/../private.csv"),
    "an address of its path": ("file://{folder}/private.csv", "private.csv"),
    "an absolute path": ("private.csv", "{folder}/private.csv"),
    "a link to it": ("private.csv", "soft.csv"),
    "a hard link to it": ("private.csv", "hard.csv"),
    "what a link leads to": ("soft.csv", "private.csv"),
    "a file of its folder": ("table", "table/part.csv"),
    "a file of its partition": ("table", "table/year=2025/part.csv"),
    "a hard link to a file of its folder": ("table", "part.csv"),
    "a file in a folder that is a link": ("linked", "table/part.csv"),
    "a match of its pattern": ("*/part.*", "table/part.csv"),
    "a match of its pattern in any folder": ("**/*.csv", "private.csv"),
    "a folder that holds it": ("table/part.csv", "table"),
    "the folder that holds it and the spec": ("private.csv", "."),
    "a folder that holds its partition": ("table/year=2025/part.csv", "table"),
    "a folder that holds a match of its pattern": ("table/*/part.csv", "table"),
    "a table that does not exist yet": ("later.csv", "later.csv"),
}
APART = {
    "a file beside it": ("private.csv", "public.csv"),
    "a file beside its folder": ("table", "public.csv"),
    "no match of its pattern": ("*/part.*", "public.csv"),
    "a pattern that names one character": ("publi[[]c].csv", "public.csv"),
    "a remote table": ("s3://bucket/private.csv", "private.csv"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spec")
    for name in ("private.csv", "public.csv", "table/part.csv", "table/year=2025/part.csv"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"name\n{NAME}\n{NAME}\n", encoding="utf-8")
    (folder / "sub").mkdir()
    (folder / "soft.csv").symlink_to(folder / "private.csv")
    (folder / "hard.csv").hardlink_to(folder / "private.csv")
    (folder / "part.csv").hardlink_to(folder / "table" / "part.csv")
    (folder / "linked").symlink_to(folder / "table")
    return folder


def spec(folder: Path, key: str, source: str, file: str) -> Path:
    source, file = (text.replace("{folder}", str(folder)) for text in (source, file))
    data = {
        "dataset": "people",
        "source": {"path": source},
        "privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9},
        "universe": UNIVERSE,
        **KEYS[key](file),
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    try:
        load_spec(path)
    except SpecError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", COVERED)
@pytest.mark.parametrize("key", KEYS)
def test_a_file_that_the_source_covers_is_refused_and_none_of_it_is_quoted(folder: Path, key: str, name: str) -> None:
    said = refusal(spec(folder, key, *COVERED[name]))
    assert f"`{key}` names a file of the private table of `source`" in said
    assert "\n" not in said
    assert NAME not in said


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("key", KEYS)
def test_a_file_that_the_source_does_not_cover_is_read(folder: Path, key: str, name: str) -> None:
    assert "private table" not in refusal(spec(folder, key, *APART[name]))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "planted",
    [
        lambda table, file, *, base: base / table == base / file,
        lambda table, file, *, base: any(
            each.samefile(base / file) for each in local_files.local_files_at(table, base=base)
        ),
        lambda table, file, *, base: False,
    ],
    ids=["files compared by their path alone", "a public path taken for one file", "no check"],
)
def test_a_check_that_does_not_expand_both_paths_is_caught(
    folder: Path, key: str, planted: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "_overlap", planted)
    allowed = [name for name, paths in COVERED.items() if "private table" not in refusal(spec(folder, key, *paths))]
    assert "a folder that holds it" in allowed


def test_a_binary_table_is_no_list_of_values(folder: Path) -> None:
    (folder / "clinic.db").write_bytes(b"SQLite format 3\0" + NAME.encode())
    said = refusal(spec(folder, "universe.name.values_from", "private.csv", "clinic.db"))
    assert "cannot be read as UTF-8 text" in said
    assert NAME not in said


def keys_of_files(schema: Any, model: str = "") -> Iterator[str]:
    """Yield every key of a JSON schema whose value is a path, as its description says, after the name of its model."""
    model = schema.get("title", model) if isinstance(schema, dict) else model
    for name, part in schema.get("properties", {}).items() if isinstance(schema, dict) else ():
        if "relative to the spec" in part.get("description", ""):
            yield f"{model}.{name}"
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from keys_of_files(part, model)


def test_every_key_that_names_a_file_is_checked_or_no_public_file() -> None:
    checked = {"PriorSpec.path", "CategoricalSpec.values_from"}
    assert len(checked) == len(local_files.PUBLIC_KEYS) == len(KEYS)
    assert {*keys_of_files(json_schema())} == {*checked, "SourceSpec.path", "OutputSpec.path"}
