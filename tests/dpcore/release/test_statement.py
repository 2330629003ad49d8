"""What releases promise: the sum of several, by what each of them promises."""

import math
from dataclasses import asdict
from typing import Any

import pytest

from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency, Promise, promise_of
from dpcore.release.statement import Statement, state_sum
from tests.dpcore.release.statements import part as run_part
from tests.dpcore.release.statements import statement

RHO = 0.25


def made(number: int, **changes: Any) -> dict[str, Any]:
    """Return the run of a month, as a manifest lists it."""
    terms = {"fixed": 100 + number, "blocks": (f"2026-{number:02}",), "delta": 1e-6, "max_rows_per_unit": 20}
    return asdict(run_part(f"run-{number}", **({"amount": round(RHO * AMOUNT_OF_ONE)} | terms | changes)))


def part(number: int, **changes: Any) -> dict[str, Any]:
    """Return the statement of a month, as its manifest has it."""
    books = {"counts": "rho", "reserved": RHO, "spent": 0.2}
    terms = {"delta": 1e-6, "rho": RHO, "bookkeeping": books, "unit": "patient", "max_rows_per_unit": 20}
    return statement().to_json() | terms | {"run": f"run-{number}", "made_from": [made(number)]} | changes


def stated(**changes: Any) -> Statement:
    return state_sum([part(number, **changes) for number in (1, 2, 3)])


def promised(times: int) -> Promise:
    amount = round(RHO * AMOUNT_OF_ONE)
    return promise_of(Cap(Currency.ZCDP, times * amount, first=amount if times > 1 else None), delta=1e-6)


def test_a_row_is_in_one_part_and_loses_the_most_of_one() -> None:
    summed = stated(unit="row")
    assert Promise(summed.epsilon, summed.delta) == promised(1)
    assert summed.rho == RHO
    assert summed.in_one_block is None
    assert "adding or removing one row." in summed.sentence


def test_a_replaced_row_may_leave_one_part_and_enter_another() -> None:
    summed = stated(unit="row", neighbours="replace-one")
    assert Promise(summed.epsilon, summed.delta) == promised(2)


def test_a_person_in_every_part_loses_the_sum_and_is_told_so() -> None:
    summed = stated()
    assert Promise(summed.epsilon, summed.delta) == promised(3)
    assert summed.in_one_block == promised(1)
    assert summed.epsilon > 1.5 * promised(1).epsilon
    assert (
        "at most 20 count in each of 3 runs. For one patient whose rows all lie in one block, the promise is ("
        in summed.sentence
    )
    assert summed.difference == (
        "adding or removing one patient with all its rows, of which at most 20 count in each of 3 runs"
    )
    few = state_sum([part(number, made_from=[made(number, max_rows_per_unit=1)]) for number in (1, 2)])
    assert "of which at most 1 counts in each of 2 runs." in few.sentence
    assert [run.run for run in summed.made_from] == ["run-1", "run-2", "run-3"]
    assert (summed.draws, summed.bookkeeping.reserved) == (300, pytest.approx(3 * RHO))


@pytest.mark.parametrize("unit", ["row", "patient"])
@pytest.mark.parametrize("rhos", [(0.25, 0.5), (0.5, 0.25)])
def test_the_first_run_decides_what_was_fixed_before_the_first_draw(unit: str, rhos: tuple[float, float]) -> None:
    # With 0.25 chosen after 0.5 was seen, 0.25 cannot decide the order of the conversion.
    runs = [made(at, amount=round(rho * AMOUNT_OF_ONE), delta=1e-6 / at) for at, rho in enumerate(rhos, 1)]
    summed = state_sum([part(at, unit=unit, made_from=[run]) for at, run in enumerate(runs, 1)])
    total, first = (round(each * AMOUNT_OF_ONE) for each in (max(rhos) if unit == "row" else sum(rhos), rhos[0]))
    expected = promise_of(Cap(Currency.ZCDP, total, first=first if total > first else None), delta=1e-6)
    assert Promise(summed.epsilon, summed.delta) == expected


def test_a_run_counts_once_however_many_releases_go_back_to_it() -> None:
    links = [made(number) for number in (1, 2, 3)]
    chain = [part(number, made_from=links[:number]) for number in (1, 2, 3)]
    summed, plain = state_sum(chain), stated()
    assert [run.run for run in summed.made_from] == ["run-1", "run-2", "run-3"]
    assert (summed.epsilon, summed.delta, summed.draws) == (plain.epsilon, plain.delta, plain.draws)


@pytest.mark.parametrize(("unit", "amounts"), [("row", (2 * RHO, 2)), ("patient", (4 * RHO, 4))])
def test_a_run_that_is_no_part_counts_for_whoever_it_has_read(unit: str, amounts: tuple[float, int]) -> None:
    before = made(0, blocks=["2026-02"])
    parts = [part(1), part(2, made_from=[before, made(2)]), part(3)]
    summed = state_sum([{**each, "unit": unit} for each in parts])
    assert (summed.rho, summed.draws) == (amounts[0], 400)
    assert summed.made_from[0].run == "run-0"
    assert Promise(summed.epsilon, summed.delta) == promised(amounts[1])
    assert "The promise counts the reservations of all 4 runs that were used." in summed.sentence


@pytest.mark.parametrize("accounting", ["pure epsilon, basic composition", "Gaussian differential privacy"])
def test_other_currencies_add_up_likewise(accounting: str) -> None:
    pure = accounting.startswith("pure")
    runs = [made(number, delta=0.0 if pure else 1e-6) for number in (1, 2, 3)]
    summed = state_sum([part(at, accounting=accounting, made_from=[run]) for at, run in enumerate(runs, 1)])
    if pure:
        assert summed.epsilon == pytest.approx(3 * RHO)
    else:
        assert summed.mu == pytest.approx(math.sqrt(3 * RHO))


def test_parts_with_different_units_have_no_common_promise() -> None:
    with pytest.raises(
        UsageError, match=r"different promises \(`unit`\), so their sum has none; merge only releases of one spec"
    ):
        state_sum([part(1), part(2, unit="doctor")])
