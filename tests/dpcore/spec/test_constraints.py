"""`constraints` in a spec: read, checked with line and column, refused with an example, and part of the hash and the manifest."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.errors import SpecError, UsageError
from dpcore.spec import Declaration, load_spec
from dpcore.spec.described import restore_universe
from dpcore.spec.shares import Early
from dpcore.universe.description import describe

HEAD = """\
dataset: clinic
privacy: {unit: row, neighbours: add-remove, epsilon: 1, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M]}
  pregnant: {type: boolean}
  relation: {type: categorical, values: [wife, husband, own]}
  age: {type: integer, min: 0, max: 99, width: 5}
  income: {type: integer, min: 0, max: 9999}
  code: {type: categorical, discover: {most: 5, length: 2, alphabet: ABC, share: 0.1}}
"""


def load(folder: Path, constraints: str) -> Declaration:
    path = folder / "spec.yaml"
    path.write_text(f"{HEAD}constraints:\n{constraints}", encoding="utf-8")
    return load_spec(path, with_table=True)


def test_all_kinds_are_read(tmp_path: Path) -> None:
    declaration = load(
        tmp_path,
        "  - impossible: {sex: M, pregnant: true}\n"
        "  - {if: {relation: [wife, husband]}, then: {age: {min: 15}}, violations: repair}\n"
        "  - possible: {columns: [sex, relation], rows: [[F, wife], [M, husband], [[F, M], own]]}\n",
    )
    possible = declaration.universe.possible
    assert {axes: int((~table).sum()) for axes, table in possible.items()} == {(0, 1): 1, (2, 3): 6, (0, 2): 2}
    assert [str(each.violations) for each in declaration.universe.constraints] == ["drop", "repair", "drop"]


def test_the_manifest_restores_the_constraints_and_the_hash_includes_them(tmp_path: Path) -> None:
    some = load(tmp_path, "  - {if: {relation: wife}, then: {sex: F, age: {min: 15, max: 94}}}\n")
    written = some.spec.model_dump(mode="json")
    described = {"code": describe(some.universe.attributes["code"])}
    again = restore_universe(
        written["universe"], described=described, discovered=[{"column": "code"}], constraints=written["constraints"]
    )
    assert again.constraints == some.universe.constraints
    assert written["constraints"][0]["if"] == {"relation": "wife"}
    assert load(tmp_path, "  - {if: {relation: wife}, then: {sex: F}}\n").digest != some.digest
    path = tmp_path / "spec.yaml"
    path.write_text(HEAD, encoding="utf-8")
    assert load_spec(path, with_table=True).digest != some.digest


def test_the_hash_includes_which_column_is_repaired(tmp_path: Path) -> None:
    one = load(tmp_path, "  - {impossible: {sex: M, pregnant: true}, violations: repair}\n")
    other = load(tmp_path, "  - {impossible: {pregnant: true, sex: M}, violations: repair}\n")
    assert one.universe.constraints[0].columns == other.universe.constraints[0].columns[::-1]
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("constraints", "told"),
    [
        ("  - impossible: {sexx: M}\n", "11:18: `sexx` is not a column of the universe; declare it or remove it"),
        ("  - impossible: {sex: X, age: {max: 4}}\n", "11:18: `sex` has no value 'X'; its values are 'F', 'M'"),
        ("  - {if: {age: {max: 17}}, then: {sex: M}}\n", "11:11: the range of `age` cuts its bin [15, 20) in two"),
        ("  - impossible: {sex: M}\n", "11:5: with the constraints so far, `sex` can never be 'M'"),
        (
            "  - impossible: {sex: [F, M]}\n",
            "11:5: together with the constraints before it, this one leaves no possible row",
        ),
        (
            "  - {if: {sex: M}, then: {pregnant: false}}\n  - {if: {sex: F}, then: {pregnant: false}}\n",
            "12:5: with the constraints so far, `pregnant` can never be 'true'; remove that value from the column",
        ),
        ("  - {if: {sex: M}}\n", "11:5: `constraints[0]` needs `if` and `then` together"),
        ("  - {violations: drop}\n", "11:5: `constraints[0]` needs exactly one of `impossible`, `if` with `then`"),
        ("  - sum: income = age\n", "11:5: `sum` must be a column, =, and two or more columns with + between them"),
        ("  - sum: income = age + income\n", "11:5: this constraint names a column twice; name each column once"),
        ("  - sum: income = age + rent\n", "11:5: `rent` is not a column of the universe"),
        ("  - sum: income = age + sex\n", "11:5: `sex` has no whole steps to add up"),
        ("  - depends: sex\n", "11:5: `depends` must be one or more columns, ->, and the column that they determine"),
        ("  - depends: city -> sex\n", "11:5: `city` is not a column of the universe; declare it or remove it"),
        ("  - depends: sex -> sex\n", "11:5: this constraint names a column twice; name each column once"),
        (
            "  - depends: sex -> relation\n  - depends: relation -> sex\n",
            "12:5: the dependencies of `sex` and `relation` form a circle; remove one of them, or list the pairs",
        ),
        ("  - depends: sex -> age\n", "11:5: the bins of `age` have several values, so nothing determines one of them"),
        ("  - depends: income -> sex\n", "11:5: `income` has full resolution, and this constraint needs its cells"),
        ("  - depends: code -> sex\n", "11:5: the cells of `code` are discovered, so they are not known yet"),
        (
            "  - {depends: relation -> sex, violations: repair}\n",
            "11:5: `constraints[0]` cannot have `violations`: the function of `depends` is learned with noise",
        ),
        ("  - {impossible: {sex: M, pregnant: true}, share: 0.1}\n", "has a `share`, but only `depends` costs budget"),
        (
            "  - {depends: relation -> sex, share: 0.5}\n  - {depends: relation -> pregnant, share: 0.4}\n",
            "10:1: all that is learned before the release takes",
        ),
        ("  - {if: {sex: M}, then: {sex: F}}\n", "has `sex` in both `if` and `then`"),
        ("  - possible: {columns: [sex, relation], rows: [[F]]}\n", "has 2 columns, but row 1 has 1 values"),
        ("  - possible: {columns: [sex, relation], rows: 3}\n", "`rows` must be a list of rows"),
        ("  - possible: {columns: [sex, none], rows: [[F, a]]}\n", "11:31: `none` is not a column"),
        (
            "  - impossible: {income: 5, sex: M}\n",
            "11:18: `income` has full resolution, and this constraint needs its cells",
        ),
        ("  - impossible: {code: A, sex: M}\n", "11:18: the cells of `code` are discovered, so they are not known yet"),
        ("  - {impossible: {sex: M}, violation: drop}\n", "11:28: unknown key `violation`; did you mean `violations`?"),
        ("  - {impossible: {sex: M}, violations: skip}\n", "`violations` must be one of 'drop' or 'repair'"),
        ("  - {impossible: 3}\n", "11:6: `impossible` must have a value for each column, such as {sex: M}"),
        ("  - impossible: {sex: {mn: 3}}\n", "11:18: `sex` must be a value, a list of values, or a range"),
        ("  - impossible: {sex: M, age: {min: 150}}\n", "11:5: the constraint on `sex` and `age` excludes nothing"),
        ("  - impossible: {sex: M, pregnant: null}\n", "`pregnant` has no nulls"),
        (
            "  - {order: age <= income}\n  - {order: income <= age}\n",
            "12:5: the orders of `age` form a circle; remove one of",
        ),
        ("  - {order: age < income}\n", "11:6: `order` must be two or more columns with <= between them"),
        ("  - {order: age <= sex}\n", "11:5: `age` and `sex` have no common order; name two numbers"),
        ("  3\n", "10:1: `constraints` must be a list"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_do(tmp_path: Path, constraints: str, told: str) -> None:
    with pytest.raises(SpecError) as error:
        load(tmp_path, constraints)
    assert told in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def dated(folder: Path, columns: str, more: str, order: str) -> Path:
    spec = folder / "spec.yaml"
    dates = "\n".join(f"  {name}: {{type: date, min: 2024-01-01, max: 2024-12-31}}" for name in columns)
    spec.write_text(
        "dataset: stays\nprivacy: {unit: row, neighbours: add-remove, epsilon: 1, delta: 1e-9}\n"
        f"universe:\n{dates}\n{more}constraints:\n  - order: {order}\n",
        encoding="utf-8",
    )
    return spec


def test_the_column_of_blocks_is_in_no_constraint_since_each_run_narrows_it(tmp_path: Path) -> None:
    assert load_spec(dated(tmp_path, "ab", "", "a <= b"), with_table=True)
    blocks = "blocks: {column: a, every: month, start: 2024-01-01}\n"
    with pytest.raises(SpecError, match="`a` is the column of `blocks`"):
        load_spec(dated(tmp_path, "ab", blocks, "a <= b"), with_table=True)


def test_ordered_columns_with_too_many_cells_together_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    assert load_spec(dated(tmp_path, "abc", "", "a <= b <= c"), with_table=True)
    with pytest.raises(SpecError, match="the ordered columns `a`, `b`, `c`, `d` have 16,777,216 combinations"):
        load_spec(dated(tmp_path, "abcde", "", "a <= b <= c <= d <= e"), with_table=True)


def test_dependencies_are_read_and_restored_with_their_functions(tmp_path: Path) -> None:
    made = load(tmp_path, "  - depends: sex, pregnant->relation\n  - {depends: age -> sex, share: 0.02}\n")
    first, second = made.dependencies
    assert (first.given, first.determined, second.given, second.determined) == (
        ("sex", "pregnant"),
        "relation",
        ("age",),
        "sex",
    )
    assert made.share(Early.DEPENDENCIES) == Fraction(7, 100)
    columns = made.universe.attributes
    learned = [replace(first, codes=(0, 0, 1, 2)), replace(second, codes=(1, -1, *[0] * 18))]
    written = made.spec.model_dump(mode="json")
    rows = [{"rows": each.rows(columns)} for each in learned]
    described = {"code": describe(made.universe.attributes["code"])}
    parts = {"described": described, "discovered": [{"column": "code"}], "constraints": written["constraints"]}
    again = restore_universe(written["universe"], **parts, dependencies=rows)
    assert again.constraints == tuple(learned)
    for damaged in ([], rows[:1], rows[::-1], [{"rows": [("F", "true", "nephew")]}, rows[1]]):
        with pytest.raises(UsageError, match="copy the release again"):
            restore_universe(written["universe"], **parts, dependencies=damaged)


def test_sums_are_read_and_a_column_of_one_is_in_no_order(tmp_path: Path) -> None:
    more = HEAD + "  rent: {type: integer, min: 0, max: 9999}\n"
    path = tmp_path / "spec.yaml"
    path.write_text(more + "constraints:\n  - {sum: income=rent + age, violations: repair}\n", encoding="utf-8")
    (made,) = load_spec(path, with_table=True).universe.constraints
    assert made.columns == ("rent", "age", "income")
    path.write_text(more + "constraints:\n  - sum: income = rent + age\n  - order: age <= income\n", encoding="utf-8")
    with pytest.raises(SpecError, match=":13:5: `age` is in a sum, so it cannot be in another sum or in an order"):
        load_spec(path, with_table=True)
