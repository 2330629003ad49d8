"""Discover undeclared values in the data by descending declared trees. Each level is one charged measurement of a column.

A level is a small universe of its own: the columns concerned, with their candidates as cells. The table is read, bounded and counted for it
as for the release. Its counts are a marginal, with the same price and the same sensitivity.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from dpcore.curator.curator import Curator
from dpcore.descent import Descent, Finding, Level, threshold
from dpcore.ledger import Lease
from dpcore.marginals.measurements import Measurement
from dpcore.mechanisms import DiscreteLaplace
from dpcore.mechanisms.noise import LEAST_NOISE
from dpcore.privacy.accounting import Currency
from dpcore.spec import Declaration
from dpcore.spec.shares import Early
from dpcore.strategies.strategy import EarlyCounts, column_name
from dpcore.tables.histogram import Histogram
from dpcore.universe import Attribute, Universe

Count = Callable[[Universe], Histogram]
"""Reads the table, bounds the rows of each unit, and counts them over a universe."""


class Descents:
    """The descents of several columns. Their findings and requests depend only on the curator's noisy answers.

    Attributes:
        taken: The share of the run's budget that was spent so far.
    """

    def __init__(
        self,
        descents: Mapping[str, Descent],
        *,
        steps: Mapping[str, str],
        currency: Currency,
        taken: Fraction,
        rarer: int,
    ) -> None:
        """Prepare them.

        Args:
            descents: The descent of each column.
            steps: The name of each descent's steps in the ledger, without the number of the level.
            currency: The currency of the account that pays.
            taken: The share of the run's budget that was spent before.
            rarer: How many times fewer candidates without rows are kept than `FALSE_FINDS`.
        """
        self._descents = descents
        self._steps = steps
        self._laplace = LEAST_NOISE[currency] is DiscreteLaplace
        self._levels: dict[str, list[Level]] = {name: [] for name in descents}
        self._rarer = rarer
        self.taken = taken

    def descend(self, curator: Curator, *, count: Count | None, lease: Lease | None) -> None:
        """Descend all trees at once, level by level. Levels in the transcript need no data.

        Args:
            curator: Charges and draws.
            count: Reads and counts the table; None if all answers are in the transcript.
            lease: The lease on the run, which is needed to charge it.
        """
        for number in range(1, max((descent.levels for descent in self._descents.values()), default=0) + 1):
            asked = {name: descent.candidates for name, descent in self._descents.items()}
            universe = {name: candidates for name, candidates in asked.items() if candidates is not None}
            if not universe:
                return
            steps = {name: f"{self._steps[name]}/{number}" for name in universe}
            if count is not None and lease is not None and not all(map(curator.answered, steps.values())):
                curator.receive(count(Universe({**universe, **self._beside(universe)})), lease=lease)
            for axis, (name, step) in enumerate(steps.items()):
                self._buy(curator, self._descents[name], name=name, step=step, axis=axis)

    def _buy(self, curator: Curator, descent: Descent, *, name: str, step: str, axis: int) -> None:
        """Measure a column's candidates for an equal part of its share, and descend by the noisy answer."""
        share = descent.share / descent.levels
        measured = curator.measure_marginal(step, (axis,), share=share / (1 - self.taken))
        self.taken += share
        least = threshold(measured.values.size * self._rarer, noise=measured.noise, laplace=self._laplace)
        chosen = descent.take(measured.values, least=least, noise=measured.noise)
        level = Level(step, candidates=measured.values.size, noise=measured.noise, threshold=least, kept=chosen)
        self._levels[name].append(level)

    def _beside(self, counted: Mapping[str, Attribute]) -> Mapping[str, Attribute]:  # noqa: ARG002  none are needed
        """Return the other columns that are read with a level."""
        return {}


class Discovery(Descents):
    """The descents of one run."""

    def __init__(self, declaration: Declaration, *, currency: Currency) -> None:
        self._declaration = declaration
        descents, names = declaration.descents(), declaration.universe.names
        steps = {name: f"discover/{column_name(names.index(name), name)}" for name in descents}
        super().__init__(
            descents, steps=steps, currency=currency, taken=declaration.taken_before(Early.DISCOVERY), rarer=1
        )

    def _beside(self, counted: Mapping[str, Attribute]) -> Mapping[str, Attribute]:
        """Return the other columns that are read with a level, so that it counts the rows of the release: those that no column drops.

        The counts of a tree are evidence for the model, so they must be of the same rows. Values that are found as texts only decide
        which rows to keep when they are found, and frequent texts are found without the model's help.
        """
        if not self._declaration.fine:
            return {}
        later = {name for name in self._descents if name not in self._declaration.fine}
        columns = self._declaration.universe.attributes.items()
        return {name: attribute for name, attribute in columns if name not in counted and name not in later}

    def declaration(self) -> Declaration:
        """Return the declaration with the discovered values."""
        return self._declaration.discovered({name: descent.found() for name, descent in self._descents.items()})

    def early_counts(self) -> EarlyCounts:
        """Return what the trees tell a strategy: the counts of their columns, so that it need not buy them again."""
        counts: dict[int, Measurement | None] = {}
        alone = None
        for name in self._declaration.fine:
            descent, axis = self._descents[name], self._declaration.universe.names.index(name)
            if (evidence := descent.evidence()) is not None:
                values, noise = evidence
                counts[axis] = Measurement(self._steps[name], (axis,), cell=None, values=values, noise=noise)
                alone = self._alone(self._levels[name][0].noise, share=descent.share / descent.levels)
        return EarlyCounts(counts, alone=alone)

    def _alone(self, noise: float, *, share: Fraction) -> float:
        """Return the noise of a marginal that got all that discovery leaves, given the noise that a share of the budget has bought."""
        power = 1.0 if self._laplace else 0.5
        return noise * math.pow(share / self._declaration.left, power)

    def findings(self, curator: Curator, *, reserved: int) -> tuple[Finding, ...]:
        """Return the findings for the release: each column's cells, and their price as a share of the reserved budget."""
        descents: Mapping[str, Descent] = self._descents
        return tuple(
            Finding(
                column=name,
                found=descent.number,
                kind=descent.kind,
                cells=descent.found().labels,
                levels=tuple(self._levels[name]),
                spent=curator.price(level.step for level in self._levels[name]) / reserved,
            )
            for name, descent in descents.items()
        )
