"""A spec is read whole: every mistake at once, each at its place, each with what to write instead."""

import json
import re
from pathlib import Path

import pytest

from dpcore.errors import SpecError
from dpcore.marginals.workload import Workload
from dpcore.spec import Declaration, document, json_schema, load_spec
from dpcore.spec.document import LARGEST_BYTES, Document

GOOD = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M], missing: true}
  age: {type: integer, min: 0, max: 99, width: 10}
  cost: {type: number, min: 0, max: 100, bins: 4}
  day: {type: date, min: 2025-01-01, max: 2025-12-31, every: month}
workload: {marginals: 2}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_spec(write(folder, text))
    return [line.removeprefix(f"{folder}/") for line in str(caught.value).splitlines()]


def place_of(token: str, text: str) -> str:
    before = text[: text.index(token)]
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


def test_a_good_spec_becomes_a_declaration(tmp_path: Path) -> None:
    declaration = load_spec(write(tmp_path, GOOD))
    assert declaration.universe.names == ("sex", "age", "cost", "day")
    assert declaration.universe.shape == (3, 10, 4, 12)
    assert len(declaration.workload.marginals) == 6
    assert declaration.spec.strategy is None
    assert declaration.strategy.name == "mwem"
    assert declaration.output_folder == tmp_path / "releases" / "visits"


def test_ten_mistakes_are_reported_at_once_with_line_and_column(tmp_path: Path) -> None:
    text = """\
dataset: my visits
source: {pth: visits.csv}
privacy:
  unit: row
  epsilon: -1
  delta: 1.0
universe:
  sex: {type: categorical, values: [F, M, F]}
  age: {type: integer, min: 99, max: 0, width: many}
  cost: {type: number, edges: [0, 100, 50]}
  city: {type: categorical, values: []}
  day: {type: date, min: 2025-13-01, max: 2025-12-31, every: fortnight}
workload: {marginals: [[sex, town]]}
outputs: {path: releases}
"""
    found = mistakes(tmp_path, text)
    tokens = ("dataset:", "pth:", "privacy:", "epsilon:", "delta:", "values: [F", "max: 0", "width:", "edges:", "values: []", "min: 2025-13",
              "every:", "town", "outputs:")  # fmt: skip
    assert [line.split(": ", 1)[0] for line in found] == [f"spec.yaml:{place_of(token, text)}" for token in tokens]
    together = "\n".join(found)
    for hint in (
        "did you mean `path`",
        "neighbours: add-remove",
        "must be > 0",
        "must be < 1",
        "swap them",
        "100",
        "town",
        "'F' twice",
        "did you mean `output`",
    ):
        assert hint in together


@pytest.mark.parametrize(
    ("change", "token", "hint"),
    [
        (("epsilon: 1.0", "epsilon: 0"), "epsilon:", "must be > 0"),
        (("epsilon: 1.0", "epsilon: .nan"), "epsilon:", "`epsilon`"),
        (("epsilon: 1.0", "epsilon: .inf"), "epsilon:", "finite"),
        (("epsilon: 1.0", 'epsilon: "1"'), "epsilon:", "must be a number"),
        (("delta: 1e-9", "delta: 1"), "delta:", "must be < 1"),
        (("delta: 1e-9", "delta: -0.1"), "delta:", "must be >= 0"),
        (("neighbours: add-remove, ", ""), "privacy:", "`neighbours` is missing"),
        (("neighbours: add-remove", "neighbours: both"), "neighbours:", "'add-remove' or 'replace-one'"),
        (("unit: row", "unit: row, max_rows_per_unit: 2"), "max_rows_per_unit:", "must be 1 when the unit is `row`"),
        (("unit: row", "unit: row, max_rows_per_unit: auto"), "max_rows_per_unit:", "cannot be auto when the unit is `row`"),
        (("unit: row", "unit: p, max_rows_per_unit: automatic"), "max_rows_per_unit:", "a whole number from 1 to 1,000,000, or auto"),
        (("unit: row", "unit: p, max_rows_per_unit: 0"), "max_rows_per_unit:", "a whole number from 1 to 1,000,000, or auto"),
        (("unit: row", "unit: p, max_rows_per_unit: true"), "max_rows_per_unit:", "a whole number from 1 to 1,000,000, or auto"),
        (("unit: row", "unit: patient"), "privacy:", "`max_rows_per_unit` is missing"),
        (("unit: row", "unit: age, max_rows_per_unit: 2"), "age: {", "cannot be released"),
        (("unit: row", "unit: row, weight: {column: age, max: 3}"), "age: {", "is the weight of a row"),
        (("unit: row", "unit: p, max_rows_per_unit: 2, weight: {column: p, max: 3}"), "column:", "cannot be the weight of its rows"),
        (("unit: row", "unit: row, weight: {column: w}"), "weight:", "`max` is missing"),
        (("unit: row", "unit: row, weight: {column: w, max: 0}"), "max: 0", "must be >= 1"),
        (("every: month", 'every: month, format: "%d/%m"'), "format:", "does not name a whole day"),
        (("every: month", 'every: week, format: "%b-%Y"'), "day: {", "'%b-%Y' names a month without a day: write `type: date`, `every: month`"),
        (("every: month", 'every: month, format: ["%d/%m/%Y", "%m/%d/%Y"]'), "format:", "different days"),
        (("every: month", "every: month, format: []"), "format:", "or a list of them"),
        (("every: month", "every: month, format: 3"), "format:", "or a list of them"),
        (("width: 10", 'width: 10, description: "in\\tyears"'), "description:", "cannot be printed, such as tabs"),
        (("width: 10", 'width: 10, measured_in: ""'), "measured_in:", "is empty; write a sentence, or remove the key"),
        (("width: 10", f"width: 10, description: {'a' * 1001}"), "description:", "use at most 1,000 characters"),
        (("values: [F, M]", "values: [F, M], measured_in: EUR"), "measured_in:", "the keys here are description, discover"),
        (("workload: {marginals: 2}", "about: {title: Visits}"), "about:", "`curators` is missing; write `curators: [Health Office]`"),
        (("workload: {marginals: 2}", "about: {titel: Visits}"), "titel:", "did you mean `title`?"),
        (("workload: {marginals: 2}", "about: {sector: Health}"), "sector:", "must be one of 'Technology'"),
        (("workload: {marginals: 2}", "about: {authors: Ann}"), "authors:", "must be a list such as [a, b]"),
        (("type: integer", "type: intger"), "age: {", "did you mean `integer`"),
        (("type: integer, ", ""), "age: {", "`type` must be one of"),
        (("width: 10", "width: 0"), "width:", "must be >= 1"),
        (("bins: 4", "edges: [0, 1]"), "cost:", "keep one of the two forms"),
        (("bins: 4", "missing: true"), "cost:", "or `min`, `max` and `bins`, or"),
        (("values: [F, M]", "values: [F, M], values_from: sex.txt"), "sex: {", "either `values: [...]` or"),
        (("values: [F, M]", "values_from: sex.txt"), "sex: {", "sex.txt does not exist"),
        (("values: [F, M], missing: true", "values: [F, M], outside: clip"), "outside:", "'other' or 'drop'"),
        (("marginals: 2", "marginals: 7"), "marginals:", "the universe has 4 columns"),
        (("marginals: 2", "marginals: [[sex, sox]]"), "sox", "`sox` is not a column"),
        (("workload: {marginals: 2}", "constraint: []"), "constraint:", "did you mean `constraints`?"),
        (("workload: {marginals: 2}", "strategy: {name: adaptve}"), "strategy:", "adaptive"),
        (("workload: {marginals: 2}", "strategy: {name: mwem, round: 3}"), "round:", "did you mean `rounds`"),
        (("workload: {marginals: 2}", "output: {rows: 0}"), "rows:", "`rows` must be `noisy` or a whole number"),
        (("workload: {marginals: 2}", "output: {rows: 1000000001}"), "rows:", "a whole number from 1 to 1,000,000,000"),
        (("epsilon: 1.0", "epsilon: 1e9"), "epsilon:", "`epsilon` must be at most 1,000,000"),
        (("marginals: 2", "marginals: 0"), "marginals:", "must be a whole number from 1 to 8"),
        (("marginals: 2", "marginals: [[sex, age, sex]]"), "sex]]", "is listed twice"),
        (("min: 0, max: 100, bins: 4", "edges: [0, many]"), "many]", "`edges[1]` must be a number"),
        (("values: [F, M]", "values: [F, {a: 1}]"), "{a: 1}", "a category must be"),
        (("source: {path: visits.csv}\n", ""), "dataset:", "write `source: {path: visits.csv}`"),
        (("source: {path: visits.csv}", "source: {sql: select 1}"), "source:", "needs `sql` and `url_env` together"),
        (("dataset: visits", "dataset: visits\ndataset: visits"), "dataset: visits\nsource", "written twice"),
        (("dataset: visits", "dataset: ../visits"), "dataset:", "letters, digits"),
        (("marginals: 2", "marginals: [[sex], {columns: [age], weight: 0}]"), "weight:", "from 1 to 100"),
        (("marginals: 2", "marginals: [[sex], {columns: [age], weight: 101}]"), "weight:", "from 1 to 100"),
        (("marginals: 2", "marginals: [[sex], {columns: [age], weight: 1.5}]"), "weight:", "from 1 to 100"),
        (("marginals: 2", "marginals: [[sex], {columns: [age], weight: true}]"), "weight:", "from 1 to 100"),
        (("marginals: 2", "marginals: [[sex], {columns: [age], wieght: 2}]"), "wieght:", "did you mean `weight`"),
        (("marginals: 2", "marginals: [[sex], {weight: 2}]"), "{weight:", "write `columns: [age, income]`"),
        (("marginals: 2", "marginals: [[sex], {columns: age}]"), "columns: age", "must be a list of columns"),
        (("marginals: 2", "marginals: [[sex], {columns: []}]"), "columns: []", "must be a list of columns"),
        (("marginals: 2", "marginals: [[sex], {columns: [age, sox]}]"), "sox", "`sox` is not a column"),
        (("marginals: 2", "marginals: [[sex], {columns: [age, cost, age]}]"), "age]}]", "is listed twice"),
        (("marginals: 2", "marginals: [[sex], 5]"), "5]", "must be a list of columns"),
        (("marginals: 2", "marginals: [[sex, 5]]"), "5]", "put quotes around a number"),
        (("marginals: 2", "marginals: []"), "marginals:", "must be a whole number from 1 to 8, or a list"),
        (("marginals: 2", "target: age"), "workload:", "write `marginals: 3`"),
        (("marginals: 2", "marginals: 2, target: income"), "target:", "`income` is not a column"),
        (("marginals: 2", "marginals: 2, target: 5"), "target:", "must be text"),
        (("marginals: 2", "marginals: 1, target: age"), "marginals:", "must be at least 2"),
        (("marginals: 2", "marginals: [[sex, age], [cost]], target: cost"), "target:", "or remove `target`"),
        (("marginals: 2", "marginals: 2, ranges: [age, sex]"), "sex]", "integer, number, date or datetime"),
        (("marginals: 2", "marginals: 2, ranges: [age, town]"), "town]", "`town` is not a column"),
        (("marginals: 2", "marginals: 2, ranges: [day, age, day]"), "day]", "is listed twice"),
        (("marginals: 2", "marginals: 2, ranges: []"), "ranges:", "name at least one"),
        (("marginals: 2", "marginals: 2, ranges: age"), "ranges:", "write `ranges: [age]`"),
        (("marginals: 2", "marginals: 2, ranges: [7]"), "7]", "`ranges[0]` must be text"),
        (("marginals: 2", "marginals: 2, range: [age]"), "range:", "did you mean `ranges`"),
        (("2}", "2, ranges: [age]}\nstrategy: {name: mwem}"), "name:", "must be adaptive if"),
        (("2}", "2, ranges: [age]}\nstrategy: {name: pmw}"), "name:", "must be adaptive if"),
        (("2}", "[{columns: [age], weight: 2}, [sex]]}\nstrategy: {name: pmw}"), "name:", "must be adaptive or mwem"),
        (("2}", "[[age, sex]], target: age}\nstrategy: {name: pmw}"), "name:", "must be adaptive or mwem"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_place_and_its_remedy(
    tmp_path: Path, change: tuple[str, str], token: str, hint: str
) -> None:
    assert change[0] in GOOD
    text = GOOD.replace(*change)
    found = mistakes(tmp_path, text)
    matching = [line for line in found if hint in line]
    assert matching, found
    assert matching[0].startswith(f"spec.yaml:{place_of(token, text)}: "), found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just text",
        "- a\n- b\n",
        "a: [1, 2",
        "a: b: c",
        "\tkey: 1",
        "a: !!python/object:os.system {}",
        "a: &a [*a]",
        "a: \x07",
    ],
)
def test_what_is_not_a_spec_at_all_is_one_clear_error(tmp_path: Path, text: str) -> None:
    found = mistakes(tmp_path, text)
    assert found
    assert all(re.match(r"spec\.yaml:\d+:\d+: ", line) for line in found)


def test_mistakes_at_one_place_come_in_the_same_order_each_time() -> None:
    document, words = Document(Path("s.yaml")), [f"mistake {number}" for number in range(10, 40)]
    for word in (*reversed(words), words[3]):
        document.mistake((), word)
    with pytest.raises(SpecError) as error:
        document.raise_mistakes()
    assert str(error.value).splitlines() == [f"s.yaml:1:1: {word}" for word in words]


def test_a_missing_file_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="dpflow init"):
        load_spec(tmp_path / "none.yaml")


def test_countries_are_not_booleans_and_small_numbers_are_numbers(tmp_path: Path) -> None:
    text = GOOD.replace("values: [F, M]", "values: [NO, yes, on, y]")
    assert load_spec(write(tmp_path, text)).universe.attributes["sex"].labels[:4] == ("NO", "yes", "on", "y")


def test_edges_between_decimal_numbers_are_short(tmp_path: Path) -> None:
    declared = load_spec(
        write(tmp_path, GOOD.replace("min: 0, max: 100, bins: 4", "min: 16.3, max: 52864.7, bins: 20"))
    )
    assert declared.universe.attributes["cost"].labels[1] == "[2658.72, 5301.14)"


def test_values_from_a_file_are_relative_to_the_spec_and_part_of_the_digest(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("values: [F, M]", "values_from: sex.txt"))
    (tmp_path / "sex.txt").write_text("F\n\nM\n", encoding="utf-8")
    first = load_spec(path)
    assert first.universe.shape[0] == 3
    (tmp_path / "sex.txt").write_text("F\nM\nX\n", encoding="utf-8")
    assert load_spec(path).digest != first.digest


def test_comments_and_layout_do_not_change_the_digest(tmp_path: Path) -> None:
    first = load_spec(write(tmp_path, GOOD)).digest
    assert (
        load_spec(write(tmp_path, "# a comment\n" + GOOD.replace("{path: visits.csv}", "\n  path: visits.csv"))).digest
        == first
    )
    assert load_spec(write(tmp_path, GOOD.replace("epsilon: 1.0", "epsilon: 1.5"))).digest != first


def test_weights_a_target_and_ranges_become_a_workload(tmp_path: Path) -> None:
    def declared(workload: str) -> Declaration:
        return load_spec(write(tmp_path, GOOD.replace("workload: {marginals: 2}", f"workload: {{{workload}}}")))

    listed = declared("marginals: [[sex, age], {columns: [cost, age, day], weight: 7}, {columns: [age]}], target: age")
    assert listed.workload == Workload(((0, 1), (1, 2, 3), (1,)), (1, 7, 1), target=1)
    assert listed.strategy.name == "mwem"
    numbered = declared("marginals: 3, target: cost, ranges: [day, age]")
    assert numbered.workload == Workload(((0, 1, 2), (0, 2, 3), (1, 2, 3)), (1, 1, 1), target=2, ranges=(1, 3))
    assert (numbered.strategy.name, numbered.strategy_reason) == ("adaptive", "the workload has ranges")
    assert declared("marginals: [{columns: [age], weight: 2}]}\nstrategy: {name: pmw").strategy.name == "pmw"


def test_a_default_that_is_written_out_does_not_change_the_digest(tmp_path: Path) -> None:
    written = GOOD.replace("width: 10", "width: 10, outside: clip") + "output: {path: releases}\n"
    assert load_spec(write(tmp_path, written)).digest == load_spec(write(tmp_path, GOOD)).digest


def test_each_key_of_a_workload_is_part_of_the_digest(tmp_path: Path) -> None:
    workloads = (
        "marginals: 2",
        "marginals: 2, target: age",
        "marginals: 2, target: cost",
        "marginals: 2, ranges: [age]",
        "marginals: 2, ranges: [age, cost]",
        "marginals: [[sex, age], [cost, day]]",
        "marginals: [[sex, age], {columns: [cost, day], weight: 2}]",
        "marginals: [[sex, age], {columns: [cost, day], weight: 3}]",
    )
    digests = {load_spec(write(tmp_path, GOOD.replace("marginals: 2", each))).digest for each in workloads}
    assert len(digests) == len(workloads)


def test_the_schema_is_json_and_names_every_key() -> None:
    schema = json.loads(json.dumps(json_schema()))
    keys = {"dataset", "source", "privacy", "blocks", "universe", "constraints", "workload", "strategy", "output"}
    keys |= {"engine", "prior", "persons", "about"}
    assert set(schema["properties"]) == keys | {"analyst", "purpose"}


def test_a_bomb_of_aliases_is_refused_at_once(tmp_path: Path) -> None:
    levels = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert "parts" in mistakes(tmp_path, "\n".join(levels))[0]


def test_more_marginals_than_can_be_listed_are_refused_at_once(tmp_path: Path) -> None:
    columns = "".join(f"  c{number}: {{type: boolean}}\n" for number in range(60))
    head = GOOD[: GOOD.index("  sex")] + columns
    found = mistakes(tmp_path, head + "workload: {marginals: 8}\n")
    assert len(found) == 1
    assert "60 columns have 2,558,620,845 such marginals" in found[0]
    assert "`target`" in found[0]
    many = "".join(f"  d{number}: {{type: boolean}}\n" for number in range(140))
    assert "200 columns have 1,313,400 such marginals" in mistakes(tmp_path, head + many)[0]
    targeted = load_spec(write(tmp_path, head + many + "workload: {marginals: 3, target: c0}\n"))
    assert len(targeted.workload.marginals) == 19_701


def test_a_file_that_is_too_large_for_a_spec_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    with path.open("wb") as file:
        file.write(b"a: [")
        file.truncate(60_000_000)  # the parser would refuse the zero bytes in words of its own
    with pytest.raises(SpecError, match=r"spec\.yaml: is larger than 1 MiB.*`values_from`"):
        load_spec(path)


def test_a_spec_just_below_the_limit_is_read(tmp_path: Path) -> None:
    comment = "#" * (LARGEST_BYTES - len(GOOD))
    assert load_spec(write(tmp_path, GOOD + comment)).spec.dataset == "visits"
    with pytest.raises(SpecError, match="larger"):
        load_spec(write(tmp_path, GOOD + comment + "#"))


ESCAPED = {"value": GOOD.replace("visits.csv", '"\\ud800.csv"'), "key": GOOD.replace("  sex:", '  "\\udfff":')}


@pytest.mark.parametrize("place", ESCAPED)
def test_a_text_that_no_file_can_hold_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(SpecError, match=r"spec\.yaml:\d+:\d+: is not valid Unicode; remove escapes") as caught:
        load_spec(write(tmp_path, ESCAPED[place]))
    assert str(caught.value).isascii()


def test_a_reader_of_any_text_is_caught_by_that_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "is_unicode", lambda _: True)
    with pytest.raises(UnicodeEncodeError):
        repr(load_spec(write(tmp_path, ESCAPED["key"])).universe.names[0].encode("utf-8"))
