"""What the sum of releases promises, by what each of them promises."""

import math
from typing import Any

import pytest

from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency, Promise, promise_of
from dpcore.release.summed_statement import SummedStatement, state_sum

RHO = 0.25


def part(number: int, **changes: Any) -> dict[str, Any]:
    """Return the statement of a month, as its manifest has it."""
    told = {
        "guarantee": "a sentence",
        "epsilon": 5.0,
        "delta": 1e-6,
        "sampler_delta": 1e-30,
        "draws": 100,
        "accounting": "zero-concentrated differential privacy",
        "rho": RHO,
        "mu": None,
        "bookkeeping": {"counts": "rho", "reserved": RHO, "spent": 0.2},
        "unit": "patient",
        "max_rows_per_unit": 20,
        "neighbours": "add-remove",
        "account": "visits",
        "run": f"run-{number}",
        "ledger": "l",
        "ledger_head": f"head-{number}",
        "spec_sha256": "0" * 64,
        "versions": {"numpy": "2"},
        "blocks": {"names": [f"2026-{number:02}"]},
        "weight": None,
        "max_row_weight": 1,
        "chosen_limit": None,
        "earlier": [],
    }
    return told | changes


def stated(**changes: Any) -> SummedStatement:
    return state_sum([part(number, **changes) for number in (1, 2, 3)])


def promised(times: int) -> Promise:
    amount = round(RHO * AMOUNT_OF_ONE)
    return promise_of(Cap(Currency.ZCDP, times * amount, first=amount if times > 1 else None), delta=1e-6)


def test_a_row_is_in_one_part_and_loses_the_most_of_one() -> None:
    statement = stated(unit="row")
    assert Promise(statement.epsilon, statement.delta) == promised(1)
    assert statement.rho == RHO
    assert statement.in_one_part is None
    assert "adding or removing one row." in statement.sentence


def test_a_replaced_row_may_leave_one_part_and_enter_another() -> None:
    statement = stated(unit="row", neighbours="replace-one")
    assert Promise(statement.epsilon, statement.delta) == promised(2)


def test_a_person_in_every_part_loses_the_sum_and_is_told_so() -> None:
    statement = stated()
    assert Promise(statement.epsilon, statement.delta) == promised(3)
    assert statement.in_one_part == promised(1)
    assert statement.epsilon > 1.5 * promised(1).epsilon
    assert (
        "at most 20 count in each of its 3 parts. For one patient whose rows all lie in one part, the promise is ("
        in statement.sentence
    )
    assert statement.difference == (
        "adding or removing one patient with all its rows, of which at most 20 count in each of its 3 parts"
    )
    assert "of which at most 1 counts in each of its 3 parts." in stated(max_rows_per_unit=1).sentence
    assert statement.earlier == ("run-1", "run-2", "run-3")
    assert (statement.draws, statement.bookkeeping.reserved) == (300, pytest.approx(3 * RHO))


@pytest.mark.parametrize("unit", ["row", "patient"])
@pytest.mark.parametrize("rhos", [(0.25, 0.5), (0.5, 0.25)])
def test_the_first_run_decides_what_was_fixed_before_the_first_draw(unit: str, rhos: tuple[float, float]) -> None:
    # With 0.25 chosen after 0.5 was seen, 0.25 cannot decide the order of the conversion.
    statement = state_sum([part(at, unit=unit, rho=rho, delta=1e-6 / at) for at, rho in enumerate(rhos, 1)])
    total, first = (round(each * AMOUNT_OF_ONE) for each in (max(rhos) if unit == "row" else sum(rhos), rhos[0]))
    expected = promise_of(Cap(Currency.ZCDP, total, first=first if total > first else None), delta=1e-6)
    assert Promise(statement.epsilon, statement.delta) == expected


def given(number: int) -> dict[str, str]:
    return {"run": f"run-{number}", "release": f"release-{number}", "manifest_sha256": f"{number}" * 64}


@pytest.mark.parametrize("unit", ["row", "patient"])
def test_a_sum_was_given_what_its_parts_were_given_and_is_no_part(unit: str) -> None:
    parts = [part(1, given=[given(9)]), part(2, given=[given(1)]), part(3, given=[given(2), given(9)])]
    statement = state_sum([{**each, "unit": unit} for each in parts])
    assert [each.run for each in statement.given] == ["run-9"]
    assert "It was made with release release-9, which was published before." in statement.sentence
    plain = stated(unit=unit)
    assert plain.given == ()
    assert "made with" not in plain.sentence
    assert (statement.epsilon, statement.delta) == (plain.epsilon, plain.delta)
    assert statement.in_one_part == plain.in_one_part


def test_a_chain_whose_every_release_is_a_part_has_no_condition() -> None:
    parts = [part(1), part(2, given=[given(1)]), part(3, given=[given(2)])]
    assert state_sum(parts).given == ()


def test_several_earlier_releases_are_all_named() -> None:
    statement = state_sum([part(1, given=[given(8)]), part(2, given=[given(9)])])
    assert "It was made with the releases release-8, release-9, which were published before." in statement.sentence
    assert "what it adds to those releases" in statement.sentence


def test_a_part_that_was_also_made_from_other_runs_is_refused() -> None:
    with pytest.raises(UsageError, match=r"run-2 was also made from the answers of other runs.*made by one run each"):
        state_sum([part(1, unit="row"), part(2, unit="row", earlier=["run-1"])])


@pytest.mark.parametrize(
    ("accounting", "changes"),
    [
        ("pure epsilon, basic composition", {"rho": None, "delta": 0.0, "epsilon": 1.5}),
        ("Gaussian differential privacy", {"rho": None, "mu": 0.5}),
    ],
)
def test_other_currencies_add_up_likewise(accounting: str, changes: dict[str, Any]) -> None:
    statement = stated(accounting=accounting, **changes)
    if statement.mu is None:
        assert statement.epsilon == pytest.approx(4.5)
    else:
        assert statement.mu == pytest.approx(0.5 * math.sqrt(3))


def test_parts_with_different_units_have_no_common_promise() -> None:
    with pytest.raises(
        UsageError, match=r"different promises \(`unit`\), so their sum has none; merge only releases of one spec"
    ):
        state_sum([part(1), part(2, unit="doctor")])
