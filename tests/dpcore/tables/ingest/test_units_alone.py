"""What happens to the rows of one unit does not depend on other units: each rule gives it the same result alone as among all others."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from dpcore.tables.ingest.agreement import agreed
from dpcore.tables.ingest.bounding import bound
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.tally import started, tallied

Rule = Callable[[Coded], Coded]
RULES: dict[str, Rule] = {
    "bound to one row": lambda coded: bound(coded, rows_per_unit=1),
    "bound to two rows": lambda coded: bound(coded, rows_per_unit=2),
    "made to agree": lambda coded: agreed(coded, axes=[0]),
    "tallied": lambda coded: tallied(started(coded)),
}
FOLDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "high bits of ids": lambda ids: ids >> np.uint64(62),
    "low bits of ids": lambda ids: ids % np.uint64(16),
    "first words of ids": lambda ids: ids * np.array([1, 0], dtype=np.uint64),
    "second words of ids": lambda ids: ids * np.array([0, 1], dtype=np.uint64),
}


def rows_of_many() -> Coded:
    """Return rows of units in random order. Many ids have one word, high bits or low bits in common."""
    rng = np.random.default_rng(5)
    words = [low + (high << 62) for low, high in product(range(20), range(3))]
    ids = np.array([[one, other] for one, other in product(words[:30], words[-6:])], dtype=np.uint64)
    ids = rng.permutation(np.repeat(ids, rng.integers(1, 6, len(ids)), axis=0))
    codes = [rng.integers(0, 9, len(ids)).astype(np.uint8) for _ in range(2)]
    return Coded(codes, weights=None, ids=ids, draws=rng.integers(0, 2**63, len(ids)).astype(np.uint64))


def listed(coded: Coded) -> list[tuple[int, ...]]:
    """Return the rows by their draws, which no two share."""
    return sorted(zip(*(column.tolist() for column in coded.columns()), strict=True), key=lambda row: row[-1])


def alone(coded: Coded, rule: Rule) -> list[tuple[int, ...]]:
    assert coded.ids is not None
    units = [(coded.ids == unit).all(axis=1) for unit in np.unique(coded.ids, axis=0)]
    return sorted((row for unit in units for row in listed(rule(coded.take(unit)))), key=lambda row: row[-1])


@pytest.mark.parametrize("name", RULES)
def test_each_unit_alone_has_the_rows_that_it_has_among_others(name: str) -> None:
    coded = rows_of_many()
    assert listed(RULES[name](coded)) == alone(coded, RULES[name])


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("folded", FOLDED)
def test_units_that_share_a_part_of_their_ids_and_are_taken_for_one_are_caught(name: str, folded: str) -> None:
    def planted(coded: Coded) -> Coded:
        assert coded.ids is not None
        return RULES[name](Coded(coded.codes, weights=coded.weights, ids=FOLDED[folded](coded.ids), draws=coded.draws))

    def shown(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [(*row[:2], row[-1]) for row in rows]  # without ids

    coded = rows_of_many()
    assert shown(listed(planted(coded))) != shown(alone(coded, RULES[name]))
