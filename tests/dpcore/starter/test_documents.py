"""Descriptions of tables as sources: each kind is recognised, and becomes declarations."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import DpflowError, SpecError, UsageError
from dpcore.spec import load_spec
from dpcore.starter import Draft, describe, draft_of, spec_text

DBT = """\
version: 2
models:
  - name: visits
    columns:
      - name: patient
        data_tests: [unique, not_null]
      - name: status
        description: state of the visit
        tests:
          - not_null
          - accepted_values: {values: [open, closed]}
      - name: rating
        data_type: integer
        data_tests:
          - dbt_utils.accepted_range: {arguments: {min_value: 1, max_value: 5}}
      - name: ward
        data_tests: [{dbt_expectations.expect_column_values_to_be_in_set: {value_set: [a, b]}}]
  - name: other
sources:
  - name: clinic
    tables: [{name: raw, columns: [{name: paid, data_type: boolean}]}]
"""
PACKAGE = {
    "name": "clinic",
    "resources": [
        {
            "name": "visits",
            "path": "data/visits.csv",
            "encoding": "cp1252",
            "dialect": {"delimiter": ";"},
            "schema": {
                "fields": [
                    {"name": "age", "type": "integer", "title": "Age", "constraints": {"minimum": 0, "maximum": 120}},
                    {"name": "sex", "type": "string", "constraints": {"enum": ["F", "M"], "required": True}},
                    {"name": "day", "type": "date", "format": "%d.%m.%Y", "constraints": {"minimum": "2025-01-01"}},
                    {"name": "token", "type": "string", "format": "uuid"},
                    {"name": "smoker", "type": "boolean", "trueValues": ["ja"], "falseValues": ["nein"]},
                    {"name": "place", "type": "geopoint"},
                    {"name": "visit", "type": "string"},
                ],
                "missingValues": ["", "-"],
                "primaryKey": "visit",
            },
        }
    ],
}
CSVW = {
    "@context": "http://www.w3.org/ns/csvw",
    "url": "visits.csv",
    "dialect": {"delimiter": ";"},
    "tableSchema": {
        "columns": [
            {
                "titles": "Age",
                "name": "age",
                "datatype": {"base": "integer", "minimum": 0, "maximum": "120"},
                "required": True,
            },
            {"titles": {"en": "Sex"}, "datatype": {"base": "string", "format": "^(F|M)$"}, "null": ["", "?"]},
            {"titles": ["Day"], "datatype": {"base": "date", "format": "dd/MM/yyyy"}, "dc:description": "of the visit"},
            {"titles": "row", "name": "row", "datatype": "string"},
            {"name": "about", "virtual": True},
        ],
        "primaryKey": "row",
    },
}
CROISSANT = {
    "@context": {"@vocab": "https://schema.org/"},
    "@type": "sc:Dataset",
    "conformsTo": "http://mlcommons.org/croissant/1.0",
    "distribution": [{"@type": "cr:FileObject", "@id": "visits.csv", "contentUrl": "data/visits.csv"}],
    "recordSet": [
        {
            "@id": "sexes",
            "name": "sexes",
            "dataType": "sc:Enumeration",
            "data": [{"sexes/label": "F"}, {"sexes/label": "M"}],
        },
        {
            "@id": "visits",
            "name": "visits",
            "key": {"@id": "visits/number_of_case"},
            "data": [{"visits/age": 31337}],
            "examples": [{"visits/age": 31337}],
            "field": [
                {
                    "@id": "visits/age",
                    "name": "visits/age",
                    "description": "in years",
                    "dataType": "sc:Integer",
                    "source": {"fileObject": {"@id": "visits.csv"}, "extract": {"column": "AGE"}},
                },
                {
                    "@id": "visits/sex",
                    "name": "sex",
                    "dataType": "sc:Text",
                    "references": {"field": {"@id": "sexes/label"}},
                },
                {"@id": "visits/tags", "name": "tags", "dataType": "sc:Text", "repeated": True},
                {"@id": "visits/number_of_case", "name": "number_of_case", "dataType": ["sc:Text", "wd:Q1"]},
            ],
        },
    ],
}
PANDERA = """\
schema_type: dataframe
version: 0.20.4
columns:
  age:
    dtype: int64
    nullable: false
    checks: {greater_than_or_equal_to: 0, less_than_or_equal_to: {value: 120, options: {raise_warning: false}}}
  sex:
    dtype: str
    nullable: true
    description: as registered
    checks:
      - value: [F, M]
        options: {check_name: isin}
  height: {dtype: float64, checks: {in_range: {min_value: 0.5, max_value: 2.5}}}
  code: {dtype: object, unique: true}
"""
SUITE: dict[str, Any] = {
    "expectation_suite_name": "visits",
    "expectations": [
        {
            "expectation_type": "expect_column_values_to_be_between",
            "kwargs": {"column": "age", "min_value": 0, "max_value": 120},
        },
        {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "sex", "value_set": ["F", "M", None]}},
        {"type": "expect_column_values_to_be_of_type", "kwargs": {"column": "score", "type_": "FLOAT64"}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "age"}},
        {"type": "expect_table_columns_to_match_ordered_list", "kwargs": {"column_list": ["sex", "age", "score"]}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 31337}},
    ],
    "meta": {"great_expectations_version": "1.3.0"},
}
INTEGER = {"type": "integer", "min": 0, "max": 120}


def drafted(path: Path, *, kind: str | None = None, table: str | None = None) -> Draft:
    return draft_of(describe(str(path), kind=kind, table=table), dataset="visits", origin=path.name)


def declared(draft: Draft) -> dict[str, Any]:
    return {entry.name: entry.declaration for entry in draft.declared}


def left_out(draft: Draft) -> dict[str, str]:
    return {entry.name: entry.left_out for entry in draft.entries if entry.left_out}


def saved(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_dbt_schema(tmp_path: Path) -> None:
    path = saved(tmp_path / "schema.yml", DBT)
    with pytest.raises(UsageError, match=r"has 3 tables; choose one with --table: clinic\.raw, other, visits"):
        drafted(path)
    draft = drafted(path, table="visits")
    assert declared(draft) == {
        "status": {"type": "categorical", "values": ["open", "closed"]},
        "rating": {"type": "integer", "min": 1, "max": 5, "missing": True},
        "ward": {"type": "categorical", "values": ["a", "b"], "missing": True},
    }
    assert left_out(draft) == {"patient": "it looks like an id: its values are unique"}
    assert draft.entries[1].about == ("state of the visit",)
    assert draft.source == {"sql": "select * from visits", "url_env": "FILL_IN"}
    assert declared(drafted(path, table="clinic.raw")) == {"paid": {"type": "boolean", "missing": True}}
    with pytest.raises(SpecError, match=r"schema.yml:18:5: `columns` is missing; describe those of 'other'"):
        drafted(path, table="other")


def test_a_frictionless_package(tmp_path: Path) -> None:
    draft = drafted(saved(tmp_path / "datapackage.json", PACKAGE))
    missing = {"missing": ["-"]}
    assert declared(draft) == {
        "age": {**INTEGER, **missing},
        "sex": {"type": "categorical", "values": ["F", "M"], **missing},
        "day": {"type": "date", "min": "2025-01-01", "max": "FILL_IN", "format": "%d.%m.%Y", **missing},
        "smoker": {"type": "categorical", "values": ["ja", "nein"], **missing},
    }
    assert set(left_out(draft)) == {"token", "place", "visit"}
    assert draft.source == {"path": str(tmp_path / "data/visits.csv"), "delimiter": ";", "encoding": "cp1252"}


def test_a_table_schema_alone(tmp_path: Path) -> None:
    draft = drafted(saved(tmp_path / "tableschema.json", PACKAGE["resources"][0]["schema"]))  # type: ignore[index]
    assert len(draft.entries) == 7
    assert draft.source == {"path": "FILL_IN"}


def test_csvw_metadata(tmp_path: Path) -> None:
    draft = drafted(saved(tmp_path / "visits.csv-metadata.json", CSVW))
    assert declared(draft) == {
        "Age": INTEGER,
        "Sex": {"type": "categorical", "values": ["F", "M"], "missing": ["?"]},
        "Day": {"type": "date", "min": "FILL_IN", "max": "FILL_IN", "format": "%d/%m/%Y", "missing": True},
    }
    assert left_out(draft) == {"row": "it looks like an id: it is the primary key"}
    assert draft.source == {"path": str(tmp_path / "visits.csv"), "delimiter": ";"}


def test_croissant_metadata_without_its_rows_and_examples(tmp_path: Path) -> None:
    draft = drafted(saved(tmp_path / "croissant.json", CROISSANT))
    assert declared(draft) == {
        "AGE": {"type": "integer", "min": "FILL_IN", "max": "FILL_IN", "missing": True},
        "sex": {"type": "categorical", "values": ["F", "M"], "missing": True},
    }
    assert set(left_out(draft)) == {"tags", "number_of_case"}
    assert draft.source == {"path": str(tmp_path / "data/visits.csv")}
    assert "31337" not in spec_text(draft)


def test_a_pandera_schema(tmp_path: Path) -> None:
    draft = drafted(saved(tmp_path / "schema.yaml", PANDERA))
    assert declared(draft) == {
        "age": INTEGER,
        "sex": {"type": "categorical", "values": ["F", "M"], "missing": True},
        "height": {"type": "number", "min": 0.5, "max": 2.5, "step": 0.0001, "missing": True},
    }
    assert left_out(draft) == {"code": "it looks like an id: its values are unique"}
    assert "infer_schema" in draft.description.caution


def test_a_suite_of_expectations(tmp_path: Path) -> None:
    draft = drafted(saved(tmp_path / "suite.json", SUITE))
    assert list(declared(draft).items()) == [
        ("sex", {"type": "categorical", "values": ["F", "M"], "missing": True}),
        ("age", INTEGER),
        ("score", {"type": "number", "min": "FILL_IN", "max": "FILL_IN", "step": 0.01, "missing": True}),
    ]
    assert "31337" not in spec_text(draft)
    assert "Profilers" in draft.description.caution


def test_what_a_profiler_found_in_the_data_is_not_copied(tmp_path: Path) -> None:
    profiled = SUITE | {"meta": {"citations": [{"comment": "Created by OnboardingDataAssistant"}]}}
    draft = drafted(saved(tmp_path / "suite.json", profiled))
    assert declared(draft)["age"] == {}
    assert declared(draft)["sex"] == {}
    assert "120" not in spec_text(draft)
    assert "CAUTION: A profiler made suite.json from the data" in spec_text(draft)


DICTIONARY = {
    "SEX": {"description": "gender", "values": {"1": "Male", "2": "Female"}},
    "AGEP": {"description": "age", "values": {"min": 0, "max": 99}},
    "NOC": {"description": "children", "values": {"N": "not asked", "0": "none", "min": 1, "max": 19}},
    "INDP": {"description": "industry", "details": "see a code list"},
    "TYPE_ID": {"values": ["a", "b"]},
}


def test_a_data_dictionary_in_json(tmp_path: Path) -> None:
    draft = drafted(saved(tmp_path / "dictionary.json", DICTIONARY))
    assert declared(draft) == {
        "SEX": {"type": "categorical", "values": ["1", "2"], "missing": True},
        "AGEP": {"type": "integer", "min": 0, "max": 99, "missing": True},
        "NOC": {"type": "integer", "min": 0, "max": 19, "missing": ["N"]},
        "INDP": {},
        "TYPE_ID": {"type": "categorical", "values": ["a", "b"], "missing": True},  # too few values for an id
    }
    assert draft.entries[0].about == ("gender", "1 Male; 2 Female")


def test_a_data_dictionary_with_dates_and_steps(tmp_path: Path) -> None:
    told = {
        "day": {"type": "date", "min": "2025-01-01", "max": "2025-03-01"},
        "seen": {"type": "datetime", "min": "2025-01-01T00:00:00", "max": "2025-03-01T12:00:30"},
        "dose": {"type": "number", "min": "-12.5", "max": 10, "step": 0.5},
    }
    assert {entry.name: entry.declaration for entry in drafted(saved(tmp_path / "dictionary.json", told)).declared} == {
        "day": {"type": "date", "min": "2025-01-01", "max": "2025-03-01", "missing": True},
        "seen": {
            "type": "datetime",
            "min": "2025-01-01T00:00:00",
            "max": "2025-03-01T12:00:30",
            "step": "second",
            "missing": True,
        },
        "dose": {"type": "number", "min": -12.5, "max": 10, "step": 0.5, "missing": True},
    }


def test_a_dictionary_that_gives_numbers_of_codes(tmp_path: Path) -> None:
    draft = drafted(saved(tmp_path / "domain.json", {"age": 85, "sex": 2}), kind="dictionary")
    assert declared(draft)["age"] == {"type": "integer", "min": 0, "max": 84, "missing": True}


def test_a_data_dictionary_in_csv(tmp_path: Path) -> None:
    rows = (
        "Variable Name;Type;Description;Values;Min;Max;Unit\n"
        'sex;text;as registered;"F=female, M=male";;;\n'
        "age;integer;at the visit;;0;99;years\nscore;;;0-10;;;\nnote;text;;;;;\n"
    )
    draft = drafted(saved(tmp_path / "data_dictionary.csv", rows))
    assert declared(draft) == {
        "sex": {"type": "categorical", "values": ["F", "M"], "missing": True},
        "age": {"type": "integer", "min": 0, "max": 99, "missing": True},
        "score": {"type": "integer", "min": 0, "max": 10, "missing": True},
        "note": {"type": "categorical", "values": "FILL_IN", "missing": True},
    }
    assert draft.entries[1].about == ("at the visit (in years)",)


def test_a_dictionary_with_a_row_for_each_code(tmp_path: Path) -> None:
    draft = drafted(
        saved(tmp_path / "codebook.csv", "variable,code,label\nsex,F,female\nsex,M,male\nsmoker,0,no\nsmoker,1,yes\n")
    )
    assert declared(draft) == {
        "sex": {"type": "categorical", "values": ["F", "M"], "missing": True},
        "smoker": {"type": "categorical", "values": ["0", "1"], "missing": True},
    }


def test_a_table_is_taken_for_a_dictionary_only_if_its_name_says_so(tmp_path: Path) -> None:
    path = saved(tmp_path / "visits.csv", "name,description,type\nJane Doe,31337,secret\n")
    assert [entry.name for entry in drafted(path).entries] == ["name", "description", "type"]
    assert [entry.name for entry in drafted(path, kind="dictionary").entries] == ["Jane Doe"]


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([{"name": "Jane Doe", "age": 31337}, {"name": "John Roe", "age": 4}], "json"),
        ({"Jane Doe": 31337, "John Roe": 4}, "json"),
        ({"p1": {"label": "Jane Doe", "min": 31337}, "p2": {"label": "John Roe", "min": 4}}, "json"),
        ("- {name: Jane Doe, age: 31337}\n- {name: John Roe, age: 4}\n", "yaml"),
    ],
)
def test_rows_in_json_or_yaml_are_not_taken_for_a_dictionary(tmp_path: Path, rows: Any, kind: str) -> None:
    with pytest.raises(
        UsageError, match=r"A table of rows must not be given as a description.*--kind dictionary"
    ) as raised:
        drafted(saved(tmp_path / f"visits.{kind}", rows))
    with pytest.raises(UsageError, match="must not be given as a description"):
        drafted(saved(tmp_path / f"predictions.{kind}", rows))
    assert not re.search(r"Jane|John|31337", str(raised.value))
    assert drafted(saved(tmp_path / f"codebook.{kind}", rows)).entries  # the name says what it is
    assert drafted(tmp_path / f"visits.{kind}", kind="dictionary").entries


def manifest() -> dict[str, Any]:
    universe = {
        "sex": {"type": "categorical", "values": ["F", "M"], "values_from": None, "missing": True, "outside": "drop"},
        "code": {
            "type": "categorical",
            "values": None,
            "discover": {"most": 5, "length": 3, "share": 0.1},
            "outside": "other",
        },
        "person_id": {"type": "integer", "min": 0, "max": 10**6, "width": 100, "missing": False},
    }
    privacy = {
        "unit": "patient",
        "max_rows_per_unit": 2,
        "weight": None,
        "neighbours": "add-remove",
        "epsilon": 0.5,
        "delta": 0.0,
    }
    return {
        "dataset": "visits",
        "files": [],
        "spec": {
            "privacy": privacy,
            "universe": universe,
            "workload": {"marginals": 3, "target": None},
            "strategy": None,
        },
        "universe": {},
        "discovered": [{"column": "code", "found": 2, "kind": "value", "cells": ["E11", "I10", "other", "missing"]}],
    }


def test_an_earlier_release(tmp_path: Path) -> None:
    folder = tmp_path / "releases" / "visits"
    (folder / "1").mkdir(parents=True)
    saved(folder / "latest.json", {"release": "visits/1"})
    saved(folder / "1" / "manifest.json", manifest())
    for named in (folder, folder / "1", folder / "1" / "manifest.json"):
        draft = drafted(named)
        assert declared(draft) == {
            "sex": {"type": "categorical", "values": ["F", "M"], "missing": True, "outside": "drop"},
            "code": {"type": "categorical", "values": ["E11", "I10"], "outside": "other"},
            "person_id": {"type": "integer", "min": 0, "max": 10**6, "width": 100},  # its steward decided to release it
        }
        assert draft.privacy["unit"] == "patient"
        assert draft.description.sections["workload"] == {"marginals": 3}
    spec = tmp_path / "visits.yaml"
    spec.write_text(spec_text(draft).replace("FILL_IN}", "visits.csv}"))
    assert load_spec(spec).spec.privacy.max_rows_per_unit == 2


def test_later_metadata_fill_what_the_first_does_not_say(tmp_path: Path) -> None:
    header = saved(tmp_path / "visits.csv", "AGEP,sex,extra\n")
    words = saved(tmp_path / "dictionary.json", DICTIONARY)
    first, second = (describe(str(path), kind=None, table=None) for path in (header, words))
    draft = draft_of(first.filled_by(second), dataset="visits", origin="both")
    assert declared(draft) == {
        "AGEP": {"type": "integer", "min": 0, "max": 99, "missing": True},
        "sex": {"type": "categorical", "values": ["1", "2"], "missing": True},
        "extra": {},
    }
    assert draft.source == {"path": str(header)}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", '{"fields": [}', "a.json:1:13: not valid JSON"),
        ("a.json", '{"fields": [\n{"name": "a"}\n{}]}', "a.json:3:1: not valid JSON"),
        ("a.json", '{"a": 1} x', "a.json:1:10: not valid JSON"),
        ("a.json", '{"a": 1, "a": 2}', "a.json:1:10: not valid JSON: a key is written twice"),
        ("a.json", '{"a": ' + "9" * 5000 + "}", "a.json:1:1: not valid JSON: a number with too many digits"),
        ("a.json", "[" * 100_000, "not valid JSON: more than 100 levels"),
        ("a.json", "", "a.json:1:1: not valid JSON"),
        ("a.json", "{}", "a.json:1:1: describes no table that can be recognised"),
        ("a.json", '{"fields":\n [{"type": "string"}]}', "a.json:2:3: `name` is missing"),
        ("a.json", '{"fields":\n [7]}', "a.json:2:3: item 1 must be a block of keys"),
        ("a.json", '{"fields": [{"name": ["a"]}]}', "a.json:1:14: `name` must be text"),
        ("a.json", '{"fields": [{"name": "a", "constraints": {"enum": [{}]}}]}', "a.json:1:52: a value must be text"),
        ("a.json", '{"resources": [{"name": "a"}]}', "a.json:1:16: `fields` is missing"),
        ("a.json", '{"recordSet": [{"name": "a"}]}', "a.json:1:16: `field` is missing"),
        ("a.json", '{"recordSet": {"name": "a"}}', "a.json:1:2: `recordSet` must be a list"),
        ("a.json", '{"expectations": []}', "a.json:1:2: the suite names no column"),
        ("a.json", '{"@context": "http://www.w3.org/ns/csvw"}', "a.json:1:1: `tableSchema`"),
        ("dictionary.json", '{"a": 0}', "dictionary.json:1:2: the number of values must be at least 1"),
        ("a.yml", "models: [", "a.yml:1:10: not valid YAML"),
        ("a.yml", "models:\n  - 7", "a.yml:2:5: item 1 must be a block of keys"),
        ("a.yml", "models:\n  - name: a\n    columns: 7", "a.yml:3:5: `columns` must be a list"),
        ("a.yml", "schema_type: x\ncolumns:\n  a: 7", "a.yml:3:3: `a` must be a column"),
        ("dictionary.csv", "name,type\n,text\n", "dictionary.csv:2:1: the row names no column"),
        ("dictionary.csv", 'name,type\na,"text\n', "dictionary.csv:2:1: not valid CSV"),
        ("dictionary.csv", "name,type\n", "dictionary.csv:2:1: describes no column"),
    ],
)
def test_malformed_metadata_are_refused_with_their_position(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    path = saved(tmp_path / name, content)
    with pytest.raises(DpflowError) as caught:
        drafted(path)
    assert words in str(caught.value)


def test_a_manifest_that_is_no_valid_spec_is_refused_at_its_column(tmp_path: Path) -> None:
    broken = manifest()
    broken["spec"]["universe"]["sex"]["values"] = ["F", "F"]
    path = saved(tmp_path / "manifest.json", broken)
    with pytest.raises(SpecError, match=r"manifest.json:1:\d+: `sex` is not part of a valid spec"):
        drafted(path)


def test_files_that_are_no_text_or_too_large_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a":\n "\xff"}')
    with pytest.raises(SpecError, match=r"a\.json:2:3: is not UTF-8"):
        drafted(path)
    with path.open("wb") as file:
        file.truncate((8 << 20) + 1)
    with pytest.raises(SpecError, match="larger than 8 MiB"):
        drafted(path)


def test_more_columns_than_a_spec_can_have_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "wide.csv", ",".join(f"c{number}" for number in range(5001)) + "\n")
    with pytest.raises(SpecError, match=r"wide\.csv: describes 5,001 columns, more than 5,000"):
        drafted(path)
