"""The privacy statement of the sum of several releases, from what each of them states. Nothing new is drawn.

Write p(t) for the amount of release t, in a currency in which adaptively chosen mechanisms add up. The releases cover disjoint blocks. The
mechanism of a release may take the earlier ones as its input, for instance as the start of its weights. Number the releases in the order of
their runs. The density of all outcomes is then the product of the densities f_t(y_t | D_t, y_1 ... y_(t-1)), where D_t are the rows of the
blocks of release t. Two neighbours differ in some of the D_t only. In the ratio of their densities the factors of all other releases cancel,
because these take the same rows and, at the same outcomes, the same input.

- *A row* lies in one block. Adding or removing it changes one D_t, so one factor is left, and the sum costs it at most the largest p(t).
- *A row under replace-one* may leave one block and enter another: at most the two largest p(t) together.
- *A person* may have rows in every block: at most the sum of all p(t). A person with rows in one block loses at most the largest p(t).

The amounts of later releases may have been chosen after earlier ones were seen. They count as raises of the first run's amount, which was
fixed before the first draw (docs/decisions/0027). For the same reason, the delta is that of the first run.

A release may also have been given an earlier one that is not added, because others cover its blocks. Its outcome z is then one more fixed
input of f_t, and all of the above holds for every z. The sum was given z, too: its promise is about what the parts add to it. What both reveal
together is charged to the account.

A release that was also made from other runs' answers can depend on any block, and these runs may have begun before the first one of the sum.
Its statement does not say what they reserved first, so it is refused.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from dpcore.errors import UsageError
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency, Promise, mu_of, promise_of, sampler_delta
from dpcore.release.integrity import one_line
from dpcore.release.statement import ACCOUNTING, Bookkeeping, Statement
from dpcore.reporting.formatting import pair
from dpcore.reporting.given import Given
from dpcore.version import installed_version

SAME = ("accounting", "unit", "neighbours", "account", "weight", "max_row_weight")
"""What must be the same in all releases of a sum."""


@dataclass(frozen=True, kw_only=True)
class SummedStatement(Statement):
    """The statement of a sum.

    Attributes:
        parts: The number of releases that were added.
        in_one_part: The promise to a unit whose rows lie in the blocks of one of them; None if that is the promise itself.
    """

    parts: int
    in_one_part: Promise | None

    @property
    def difference(self) -> str:
        """By what two neighbours differ, as text: the limit on rows per unit holds in each part by itself."""
        if self.unit == "row":
            return super().difference
        change = "adding or removing" if self.neighbours == "add-remove" else "replacing"
        most = "at most 1 counts" if self.max_rows_per_unit == 1 else f"at most {self.max_rows_per_unit} count"
        weighed = "" if self.weight is None else f", each {self.weighing}"
        return f"{change} one {self.unit} with all its rows, of which {most} in each of its {self.parts} parts{weighed}"

    def promised(self, subject: str) -> str:
        """Return the guarantee about something, and that to units whose rows all lie in one part."""
        told = super().promised(subject)
        if self.in_one_part is None:
            return told
        one = pair(self.in_one_part.epsilon, self.in_one_part.delta)
        return f"{told} For one {self.unit} whose rows all lie in one part, the promise is {one}."


def state_sum(privacy: Sequence[Mapping[str, Any]]) -> SummedStatement:
    """Return the statement of the sum of releases of disjoint blocks.

    Args:
        privacy: The statement of each release, as its manifest has it, in the order of their runs.

    Raises:
        UsageError: If they do not protect the same, or one of them was also made from other runs' answers.
    """
    first, last = privacy[0], privacy[-1]
    _refuse_made_from_others(privacy)
    for name in SAME:
        if any(each.get(name) != last.get(name) for each in privacy):
            raise UsageError(
                f"the releases have different promises (`{name}`), so their sum has none; merge only releases of one spec"
            )
    currency = next(each for each, words in ACCOUNTING.items() if words == last["accounting"])
    amounts, delta = [_amount(each, currency) for each in privacy], float(first["delta"])
    draws = sum(int(each["draws"]) for each in privacy)
    cap = _cap(amounts, currency, together=_together(last, len(amounts)))
    whole = promise_of(cap, delta=delta)
    in_one = None
    if last["unit"] != "row":
        most = 1 if last["neighbours"] == "add-remove" else 2
        in_one = promise_of(_cap(amounts, currency, together=most), delta=delta)
    known = {each.name for each in fields(Statement)}
    kept = {name: value for name, value in last.items() if name in known}
    told: dict[str, Any] = {
        "epsilon": whole.epsilon,
        "delta": whole.delta,
        "sampler_delta": sampler_delta(draws, epsilon=whole.epsilon),
        "draws": draws,
        "rho": cap.amount / AMOUNT_OF_ONE if currency is Currency.ZCDP else None,
        "mu": mu_of(cap.amount) if currency is Currency.GDP else None,
        "bookkeeping": Bookkeeping(
            currency.symbol,
            reserved=sum(each["bookkeeping"]["reserved"] for each in privacy),
            spent=sum(each["bookkeeping"]["spent"] for each in privacy),
        ),
        "max_rows_per_unit": max(int(each["max_rows_per_unit"]) for each in privacy),
        "run": f"the sum of {len(privacy)} runs",
        "versions": {**last["versions"], "dpflow": installed_version()},
        "blocks": None,
        "chosen_limit": None,
        "earlier": tuple(each["run"] for each in privacy),
        "given": _given(privacy),
    }
    return SummedStatement(**{**kept, **told}, parts=len(privacy), in_one_part=in_one)


def _refuse_made_from_others(privacy: Sequence[Mapping[str, Any]]) -> None:
    for each in privacy:
        if each.get("earlier"):
            raise UsageError(
                f"the release of run {one_line(each['run'])} was also made from the answers of other runs, and what they reserved before the "
                "first draw is not known here, so the sum has no promise; merge only releases that were made by one run each"
            )


def _given(privacy: Sequence[Mapping[str, Any]]) -> tuple[Given, ...]:
    """Return the releases that parts of a sum were given and that are not parts themselves."""
    parts = {each["run"] for each in privacy}
    found = (Given(**told) for each in privacy for told in each.get("given") or ())
    return tuple(dict.fromkeys(each for each in found if each.run not in parts))


def _together(privacy: Mapping[str, Any], parts: int) -> int:
    """Return how many of the releases one unit can affect."""
    if privacy["unit"] != "row":
        return parts
    return 1 if privacy["neighbours"] == "add-remove" else min(2, parts)


def _cap(amounts: Sequence[int], currency: Currency, *, together: int) -> Cap:
    """Return what the largest amounts are together, as a raise of the first run's amount if it is more."""
    total, first = sum(sorted(amounts)[-together:]), amounts[0]
    return Cap(currency, total, first=first if total > first else None)


def _amount(privacy: Mapping[str, Any], currency: Currency) -> int:
    """Return the amount that a release states, rounded up."""
    match currency:
        case Currency.ZCDP:
            stated = Fraction(privacy["rho"])
        case Currency.GDP:
            stated = Fraction(privacy["mu"]) ** 2
        case _:
            stated = Fraction(privacy["epsilon"])
    return math.ceil(stated * AMOUNT_OF_ONE)
