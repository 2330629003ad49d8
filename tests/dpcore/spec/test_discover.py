"""What a spec leaves to be found in the data, and what counts as null in it: checked like everything else, before any data is read."""

from fractions import Fraction
from pathlib import Path

import pytest

from dpcore.errors import SpecError
from dpcore.spec import Changes, changed, load_spec
from dpcore.spec.shares import Early
from dpcore.universe import Categorical, Outside

DECLARED = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M], missing: true}
  dx: {type: categorical, values_from: icd9.txt, outside: other}
  age: {type: integer, min: 0, max: 99, width: 10}
  cost: {type: number, min: 0, max: 100, bins: 4}
  price: {type: number, edges: [0, 1, 10]}
  smoker: {type: boolean}
  day: {type: date, min: 2025-01-01, max: 2025-12-31, every: month}
workload: {marginals: 2}
"""
NEW = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
universe:
  dx: {type: categorical, discover: {most: 20, length: 6, alphabet: 0123456789.EV, share: 0.1}, outside: other}
  cost: {type: number, min: 0, max: 100, discover: {bins: 10, share: 0.05}, missing: ["?", "NA"]}
  age: {type: integer, min: 0, max: 5, discover: {bins: 8, share: 0.05}}
  sex: {type: categorical, values: [F, M], match: prefix, missing: ["?"]}
"""


def write(folder: Path, text: str) -> Path:
    (folder / "icd9.txt").write_text("250\n401.9\n", encoding="utf-8")
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "change",
    [
        ("missing: true", 'missing: ["?"]'),
        ("values: [F, M]", "values: [F, M], match: prefix"),
        ("width: 10", "discover: {bins: 5, share: 0.1}"),
        ("bins: 4", "discover: {bins: 5, share: 0.1}"),
        ("values_from: icd9.txt", "discover: {most: 5, length: 3, share: 0.1}"),
    ],
)
def test_keys_that_are_used_are_part_of_the_hash(tmp_path: Path, change: tuple[str, str]) -> None:
    assert load_spec(write(tmp_path, DECLARED.replace(*change))).digest != load_spec(write(tmp_path, DECLARED)).digest


def test_what_is_to_be_found_has_as_many_cells_as_it_may(tmp_path: Path) -> None:
    declaration = load_spec(write(tmp_path, NEW))
    assert declaration.universe.shape == (21, 11, 6, 3)  # of six ages there are no eight bins
    assert list(declaration.descents()) == ["dx", "cost", "age"]
    assert declaration.share(Early.DISCOVERY) == Fraction(1, 5)
    assert declaration.universe.attributes["sex"].missing
    assert declaration.universe.attributes["cost"].nulls == ("?", "NA")


def test_what_was_found_takes_its_place_and_the_hash_stays(tmp_path: Path) -> None:
    declaration = load_spec(write(tmp_path, NEW))
    found = declaration.discovered({"dx": Categorical(("250",), outside=Outside.OTHER)})
    assert found.universe.shape == (2, 11, 6, 3)
    assert (found.digest, found.strategy, found.share(Early.DISCOVERY)) == (
        declaration.digest,
        declaration.strategy,
        Fraction(1, 5),
    )
    assert found.universe.names == declaration.universe.names


def test_the_strategy_is_chosen_before_anything_is_found(tmp_path: Path) -> None:
    broad = NEW.replace("most: 20", "most: 7000")
    declaration = load_spec(write(tmp_path, broad))
    assert declaration.strategy.name == "adaptive"
    assert declaration.discovered({"dx": Categorical(("250",))}).strategy == declaration.strategy


def test_a_changed_epsilon_keeps_what_is_to_be_found(tmp_path: Path) -> None:
    declaration = changed(load_spec(write(tmp_path, NEW)), Changes(epsilon=2.0))
    assert list(declaration.descents()) == ["dx", "cost", "age"]


@pytest.mark.parametrize(
    ("change", "token", "hint"),
    [
        (("most: 20, ", ""), "discover: {length", "`most` is missing; write `most: 100`"),
        (("share: 0.1}", "share: 0.1, alphabets: a}"), "alphabets:", "did you mean `alphabet`"),
        (("most: 20", "most: 0"), "most:", "must be >= 1"),
        (("length: 6", "length: six"), "length:", "must be a whole number"),
        (("0123456789.EV", '"0010"'), "alphabet:", "has '0' twice"),
        (("0123456789.EV", "123456789"), "alphabet:", 'must be text; write `alphabet: "0123456789.EV"`'),
        (("0123456789.EV", '""'), "alphabet:", "is empty"),
        (("share: 0.1}", "share: 1}"), "share: 1}", "must be <= 0.9"),
        (("share: 0.1}", "share: 0.85}"), "share: 0.85", "because the release needs the rest"),
        (("most: 20, length: 6", "most: 10000, length: 6"), "dx: {", "a level may have 100,000"),
        (("bins: 10, share", "bins: 1, share"), "bins: 1,", "must be >= 2"),
        (("bins: 10, ", "most: 10, bins: 10, "), "most: 10,", "the keys here are bins, finest, share"),
        (("bins: 10, ", "bins: 10, finest: 1.0e-300, "), "cost: {", "`finest` is too small"),
        (("min: 0, max: 100,", "min: -1.7e308, max: 1.7e308,"), "cost: {", "narrow `min` and `max`"),
        (("min: 0, max: 5,", "min: 0, max: 9007199254740992,"), "age: {", "narrow `min` and `max`"),
        (("discover: {bins: 10, share: 0.05}", "bins: 3, discover: {bins: 10, share: 0.05}"), "cost: {", "keep one"),
        (("discover: {bins: 8,", "width: 2, discover: {bins: 8,"), "age: {", "both `width` and `discover`"),
        (
            ("type: categorical, discover", "type: categorical, values: [a], discover"),
            "dx: {",
            "either `values: [...]`",
        ),
        (("match: prefix", "match: suffix"), "match:", "'exact' or 'prefix'"),
        (('missing: ["?"]', "missing: []"), "missing: []", "a list of different texts"),
        (('missing: ["?"]', "missing: [-9]"), "missing: [-9]", "put quotes around numbers"),
        (('missing: ["?"]', 'missing: ["?", " ?"]'), 'missing: ["?", " ?"', "a list of different texts"),
        (('missing: ["?"]', "missing: maybe"), "missing: maybe", "must be true, false, or a list"),
        (('missing: ["?"]', "missing: [F]"), "sex: {", "'F' is declared both as a value and as a null"),
    ],
)
def test_each_mistake_has_its_place_and_its_remedy(
    tmp_path: Path, change: tuple[str, str], token: str, hint: str
) -> None:
    assert change[0] in NEW
    text = NEW.replace(*change)
    with pytest.raises(SpecError) as caught:
        load_spec(write(tmp_path, text))
    before = text[: text.index(token)]
    place = f"spec.yaml:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}: "
    lines = [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]
    assert len(lines) == 1
    assert lines[0].startswith(place)
    assert hint in lines[0]


def test_a_value_that_is_not_found_counts_as_other_unless_the_spec_drops_it(tmp_path: Path) -> None:
    left_out = load_spec(write(tmp_path, NEW.replace(", outside: other", "")))
    assert left_out.universe.attributes["dx"].outside is Outside.OTHER
    assert left_out.digest == load_spec(write(tmp_path, NEW)).digest
    dropped = load_spec(write(tmp_path, NEW.replace("outside: other", "outside: drop")))
    assert dropped.universe.attributes["dx"].outside is Outside.DROP
    assert (
        load_spec(write(tmp_path, DECLARED.replace(", outside: other", ""))).universe.attributes["dx"].outside
        is Outside.DROP
    )
