"""What is printed never promises more than the exact number: epsilons and deltas are rounded up."""

import ast
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency, epsilon_of, promise_of
from dpcore.reporting import formatting as wording

ROOT = Path(wording.__file__).parents[2]
positive = st.floats(1e-300, 1e12)


@given(positive, st.integers(2, 8))
def test_a_printed_number_read_back_is_not_below_the_exact_one(number: float, places: int) -> None:
    assert number <= float(wording.at_most(number)) <= number * (1 + 1.1e-5)
    assert number <= float(wording.up(number, places=places)) <= number + 1.1 * 10**-places + number * 1e-12
    epsilon, delta = wording.pair(number, number).strip("()").split(", ")
    assert min(float(epsilon), float(delta)) >= number
    assert float(wording.stated(number, number).split()[1]) >= number
    assert float(wording.stated(number, number).split()[-1]) >= number


@pytest.mark.parametrize("number", [1.2345649e-9, 0.12345649, 9.9999949, 1.00000049])
def test_ordinary_formatting_would_be_noticed(number: float) -> None:
    """The control: `:g` rounds to nearest, which is downwards here."""
    assert float(f"{number:g}") < number
    assert float(wording.at_most(number)) > number


@given(st.integers(1, 10**15))
def test_a_pure_epsilon_is_rounded_up_from_its_exact_amount(amount: int) -> None:
    exact = Fraction(amount, AMOUNT_OF_ONE)
    epsilon = epsilon_of(amount, currency=Currency.PURE, delta=0)
    assert exact <= Fraction(epsilon) <= exact * (1 + Fraction(1, 2**50))
    assert Fraction(Decimal(wording.at_most(epsilon))) >= exact


def test_a_price_is_rounded_up_and_what_is_left_down() -> None:
    assert wording.price(AMOUNT_OF_ONE // 3, Currency.GDP) == "mu^2 0.333334"
    assert wording.down(0.12349) == "0.1234"


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_what_was_spent_never_looks_like_more_than_the_cap(one: int, other: int) -> None:
    spent, cap = sorted((one, other))
    assert Decimal(wording.booked(spent)) <= Decimal(wording.booked(cap))
    assert Decimal(wording.figure(spent / AMOUNT_OF_ONE)) <= Decimal(wording.booked(spent))
    assert Decimal(wording.left(cap - spent)) <= Decimal(wording.booked(cap))


@pytest.mark.parametrize("count", [1, 2, 11])
@pytest.mark.parametrize("delta", ["1e-9", "3e-9"])
def test_the_delta_of_a_raised_cap_is_printed_as_the_multiple_that_it_is(delta: str, count: int) -> None:
    first, raised = AMOUNT_OF_ONE // 10**6, 2 * 4 ** (count - 1) * AMOUNT_OF_ONE // 10**6
    promise = promise_of(Cap(Currency.ZCDP, raised, first=first), delta=float(delta))
    assert Decimal(wording.at_most(promise.delta)) == count * Decimal(delta)
    exact = promise_of(Cap(Currency.ZCDP, raised), delta=Fraction(promise.delta) / count).epsilon
    assert exact <= promise.epsilon  # it holds at its part of the delta that is told


def formatted(tree: ast.AST) -> list[str]:
    """Return the formats of epsilons and deltas in f-strings that round to nearest."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            value, style = ast.unparse(node.value), ast.unparse(node.format_spec)
            if any(word in value for word in ("epsilon", "delta")) and style.strip("f'\"")[-1:] in set("gGeEfF"):
                found.append(f"{value}:{style}")
    return found


def test_no_epsilon_or_delta_is_formatted_to_the_nearest() -> None:
    """What audits call their own settings, which are no promises, is left alone."""
    assert formatted(ast.parse("f\"{epsilon:g} {body['delta']:.6g} {epsilon!r} {at_most(delta)}\"")) != []
    offences = {
        str(path.relative_to(ROOT)): found
        for package in ("dpcore", "flows")
        for path in (ROOT / package).rglob("*.py")
        if "audit" not in path.parts and (found := formatted(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert offences == {}
