"""Count the cells of an attribute once, and keep those that stand out."""

from fractions import Fraction

import numpy as np

from dpcore.descent.descent import Descent
from dpcore.marginals.measurements import Counts
from dpcore.universe import Attribute


class StandingOut(Descent):
    """A tree of one level: the cells of an attribute.

    Attributes:
        counts: The noisy counts of all cells; empty before they are measured.
        noise: Their standard deviation.
        cells: The cells that stand out.
    """

    kind = "cell"

    def __init__(self, template: Attribute, *, share: Fraction) -> None:
        super().__init__(template, share=share, levels=1)
        self.counts: Counts = np.empty(0, dtype=np.int64)
        self.noise = 0.0
        self.cells: tuple[int, ...] = ()

    @property
    def candidates(self) -> Attribute | None:
        """The attribute, until it is measured."""
        return None if self.counts.size else self._template

    def take(self, counts: Counts, *, least: int, noise: float) -> int:
        """Keep the counts, and which of them stand out."""
        self.counts, self.noise = counts, noise
        self.cells = tuple(np.flatnonzero(counts[: self._template.cells] >= least).tolist())
        return len(self.cells)

    def found(self) -> Attribute:
        """Return the attribute as it is."""
        return self._template
