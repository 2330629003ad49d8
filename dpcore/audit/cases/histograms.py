"""Audit of noisy histograms and marginals, with canaries in one run and with events of one row."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.audit.case import Bug, Case
from dpcore.audit.cases.outputs import answers, event
from dpcore.audit.cases.values import AMOUNT, DRAWS, PRICES, REPLACED, bought_event, price_halved
from dpcore.audit.checks import CANARIES, Counts, Draw, EventCheck, OneRunCheck, StreamCheck
from dpcore.audit.made_up import ROW
from dpcore.mechanisms.noisy_histogram import Marginals, NoisyHistogram
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Protection
from dpcore.universe import Boolean, Integer, Universe


def _histogram(
    universe: Universe, protection: Protection, *, currency: Currency = Currency.PURE, **marginals: Any
) -> NoisyHistogram:
    return NoisyHistogram.for_amount(AMOUNT, currency=currency, universe=universe, protection=protection, **marginals)


def _one_run(setting: str, *, noise_of: int) -> OneRunCheck:
    """Return the check of two marginals that each contain every canary, with the noise for one marginal or for two."""

    def measure(counts: Counts) -> tuple[Counts, int]:
        universe = Universe({"cell": Integer(minimum=0, maximum=len(counts) - 1), "flag": Boolean()})
        both = [["cell"], ["cell", "flag"]]
        paid, drawn = _histogram(universe, ROW, axes=both[:noise_of]), _histogram(universe, ROW, axes=both)
        cells = np.flatnonzero(counts)
        table = pa.table({"cell": cells, "flag": np.ones(cells.size, dtype=np.bool_)})
        noisy = replace(drawn, scale=paid.scale).draw(table)
        parts = (noisy["cell",], noisy["cell", "flag"][:, 1])
        # a count changes from 0 to 1, so values outside that range carry no more evidence
        return sum((np.clip(part, 0, 1) for part in parts), start=-np.ones_like(counts)), paid.price(Currency.PURE)

    return OneRunCheck(setting=setting, measure=measure)


def _apart(drawn: NoisyHistogram) -> Callable[[list[bool]], Draw]:
    """Return the draws on a table of one row, reported as whether both cells indicate that the flag is set."""

    def code(marginals: Marginals) -> bool:
        cells = marginals["flag",]
        return bool(cells[1] >= 1 and cells[0] <= 0)

    return lambda flags: answers(drawn, drawn.read(pa.table({"flag": flags})), code)


def _stacked(setting: str, *, noise_of: int) -> EventCheck:
    """Return the check, in rho, of marginals that all contain one row, with the noise for all of them or for some."""
    universe = Universe({"flag": Boolean(), "other": Boolean()})
    axes = [["flag"], ["other"], ["flag", "other"], []]
    paid, drawn = (
        _histogram(universe, ROW, currency=Currency.ZCDP, axes=axes[:count]) for count in (noise_of, len(axes))
    )
    drawn = replace(drawn, scale=paid.scale)

    def summed(rows: int) -> Draw:
        """Return draws of the sum of a row's cells, which best distinguishes whether the row is there."""
        table = pa.table({name: pa.array([True] * rows, type=pa.bool_()) for name in universe.names})
        return answers(
            drawn,
            drawn.read(table),
            lambda marginals: sum(int(cells[(1,) * cells.ndim]) for cells in marginals.values()),
        )

    charged = min(paid.price(Currency.ZCDP), AMOUNT)
    return event(setting, summed, tables=(1, 0), paid=charged, draws=DRAWS, currency=Currency.ZCDP)


def noisy_histogram() -> Case:
    """Return the audit of a noisy histogram."""
    universe = Universe({"flag": Boolean()})
    replaced, added = (_histogram(universe, protection) for protection in (REPLACED, ROW))

    def replacing(setting: str, drawn: NoisyHistogram) -> EventCheck:
        return bought_event(setting, drawn, _apart(drawn), tables=([True], [False]))

    sound = replacing("one column, its only row replaced", replaced)
    return Case(
        name=NoisyHistogram.name,
        theorem="c marginals, as one vector of counts, have c times the L1 sensitivity and c times the squared L2 sensitivity of one.",
        reference="Dwork, McSherry, Nissim and Smith 2006; Barak et al. 2007",
        prices=PRICES,
        checks=(
            _one_run(f"{CANARIES:,} canaries, two marginals", noise_of=2),
            sound,
            _stacked("four marginals, a row or none", noise_of=4),
            StreamCheck(setting="one column", draw=_apart(replaced)([True])),
        ),
        bugs=(
            Bug(
                name="sensitivity halved",
                how="two marginals are measured with the noise and at the price of one",
                check=_one_run(f"{CANARIES:,} canaries, two marginals, paid as one", noise_of=1),
            ),
            Bug(
                name="neighbour flag ignored",
                how="rows are replaced, but the noise is for adding or removing one",
                check=replacing("one column, a row replaced, paid as add-remove", added),
            ),
            Bug(
                name="L2 not stacked",
                how="four marginals are measured with the L2 sensitivity of one",
                check=_stacked("four marginals, paid as one", noise_of=1),
            ),
            price_halved(sound),
        ),
    )
