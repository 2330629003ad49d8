"""Describe columns by noisy counts of the table itself, in one run that is charged before anything is drawn.

Half of a column's part buys the forms of its values. The other half buys its range or, level by level, its frequent texts. The counts
are levels of trees, as in the discovery of a run: read, bounded and charged like these.
"""

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction

from dpcore.curator.ask import require_agreement
from dpcore.curator.curator import LEAST_AMOUNT, Curator
from dpcore.descent import Descent, PrefixDescent, StandingOut
from dpcore.descent.prefixes import depths
from dpcore.errors import SourceBroken, SourceError, UsageError
from dpcore.ledger import open_ledger
from dpcore.mechanisms.pricing import least_amount
from dpcore.places import Places
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Protection
from dpcore.reporting.formatting import at_most
from dpcore.runs.discovery import Descents
from dpcore.spec.discover import PRINTABLE
from dpcore.starter.description import Column, Description
from dpcore.starter.forms import LONGEST_TEXT, Forms
from dpcore.starter.values import MOST_LISTED, OUTSIDE, Sighted
from dpcore.strategies.strategy import column_name
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Source, ingest
from dpcore.tables.sources.source import check_columns, check_types
from dpcore.universe import Categorical, Outside, Universe

TOTAL = "total"


def look(  # noqa: PLR0913  a table, its columns, and who pays
    source: Source, columns: Collection[str], *, account: str, unit: str, epsilon: float, places: Places
) -> Description:
    """Describe columns of a private table for a part of an account's budget. Each column gets an equal part.

    If the unit is a column, one row of each unit counts.

    Args:
        source: The table.
        columns: The columns to describe.
        account: The account that pays.
        unit: The protected unit: `row`, or the column of the ids.
        epsilon: What to spend, at the account's delta.
        places: Where the ledger is.

    Raises:
        UsageError: If the account has other terms, or epsilon is too small for so many columns. Nothing was read or spent.
        BudgetRefused: If the account cannot pay. Nothing was read.
    """
    opening = f"dpflow ledger open {account} --epsilon 10 --delta 1e-9 --unit {unit} --neighbours add-remove"
    with open_ledger(places=places, opening=opening) as ledger:
        if account not in {existing.name for existing in ledger.accounts()}:
            raise UsageError(f"there is no account '{account}' that could pay; open it first: {opening}")
        payer = ledger.account(account)
        protection = Protection(unit=unit, rows_per_unit=1, neighbours=payer.neighbours)
        require_agreement(payer, protection)
        coding = Coding(universe=Universe({name: Forms() for name in columns}), protection=protection, window=None)
        check_columns(source, columns=coding.columns)
        check_types(source, reads=coding.reads)
        _, amount = budget_of(epsilon, delta=payer.delta, currency=payer.currency)
        _require_enough(amount, len(columns), currency=payer.currency, protection=protection)
        run = str(uuid.uuid4())
        ledger.reserve(run, account=account, amount=amount, claim="first look by dpflow init")
        lease = ledger.lease(run)
        curator = Curator(ledger=ledger, run_id=run, protection=protection, currency=payer.currency)

        def count(universe: Universe) -> Histogram:
            records = ingest(source, coding=replace(coding, universe=universe), draws=Draws.fresh())
            return LocalHistogram.count(records, universe)

        share = Fraction(1, len(columns) + 1)
        taken = Fraction(0)

        def descend(step: str, descents: Mapping[str, Descent]) -> None:
            nonlocal taken
            steps = {name: f"discover/{step}/{column_name(place, name)}" for place, name in enumerate(descents)}
            # All columns together may find a tenth of what one descent of a release may find by chance: a wrong form is a wrong type.
            trees = Descents(descents, steps=steps, currency=payer.currency, taken=taken, rarer=10 * len(columns))
            trees.descend(curator, count=count, lease=lease)
            taken = trees.taken

        try:
            forms = {name: StandingOut(Forms(), share=share / 2) for name in columns}
            descend("form", forms)
            rows = float(curator.measure_cell(TOTAL, (), None, share=share / (1 - taken)).values.item())
            taken += share
            seen = {name: Sighted.of(name, standing, rows=rows) for name, standing in forms.items()}
            ranges = {
                name: StandingOut(sighted.bins, share=share / 2)
                for name, sighted in seen.items()
                if sighted.bins is not None
            }
            texts = {name: _texts(sighted, share=share / 2) for name, sighted in seen.items() if sighted.longest}
            descend("value", {**ranges, **texts})
        except SourceError as failure:
            if isinstance(failure, SourceBroken) or ledger.run(run).spent:  # then private rows may be the cause
                raise SourceBroken(
                    f"{failure}; the reservation is kept, and the steward returns what is not spent with: dpflow ledger settle {run}"
                ) from None
            ledger.refund(run, lease=lease)
            raise
        ledger.settle(run, release=None, lease=lease)

    def described(name: str, sighted: Sighted) -> Column:
        if name in ranges:
            return sighted.between(ranges[name], rows=rows, outside=OUTSIDE)
        if name in texts and texts[name].number:
            return replace(sighted.column, values=texts[name].found().values, others=True)
        return sighted.column

    return Description(
        tuple(described(name, sighted) for name, sighted in seen.items()),
        charged=f"Rows were read once, for epsilon {at_most(epsilon)} of account {account} (run {run}).",
        caution="types, ranges and values that no other source gives were measured in the table with noise, and charged: correct them by what "
        "you know.",
    )


def _texts(seen: Sighted, *, share: Fraction) -> PrefixDescent:
    values = tuple(f"value {number}" for number in range(MOST_LISTED))
    template = Categorical(values, missing=True, nulls=seen.column.nulls, outside=Outside.OTHER)
    return PrefixDescent(template, length=seen.longest, alphabet=PRINTABLE, share=share)


def _require_enough(amount: int, columns: int, *, currency: Currency, protection: Protection) -> None:
    """Raise if the smallest part of a budget would buy no noise."""
    levels = len(depths(most=MOST_LISTED, length=LONGEST_TEXT, alphabet=len(PRINTABLE)))
    least = max(LEAST_AMOUNT, least_amount(currency=currency, protection=protection))
    if amount // (2 * (columns + 1) * levels) < least:
        raise UsageError(
            f"this epsilon is too small to be shared by {columns} columns; ask for more, or describe some of them with a data dictionary"
        )
