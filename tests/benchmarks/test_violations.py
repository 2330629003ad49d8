"""The benchmark of violations: small releases have none, and its judges notice them in the table."""

import pytest

from benchmarks.coverage_releases import seeded
from benchmarks.violations import CASES, made_up, measure


def test_twelve_specs_have_constraints_of_all_kinds_and_the_table_contradicts_each() -> None:
    assert len(CASES) == 12
    lines = [line for case in CASES.values() for line in case.constraints]
    kinds = ("impossible:", "if:", "possible:", "order:", "sum:", "depends:")
    assert all(sum(kind in line for line in lines) > 1 for kind in kinds)
    table = made_up(3000)
    assert all(wrong(table) for case in CASES.values() for wrong in case.wrong if "region" not in case.columns)


@pytest.mark.parametrize("name", ["order-of-three", "depends"])
def test_no_row_of_a_small_release_contradicts_its_spec(name: str) -> None:
    with seeded(3):
        found = measure(CASES[name], rows=3000, table_rows=2000)
    assert found["table"] > 0
    assert found["rows"] > 3200
    assert found["wrong"] == 0
