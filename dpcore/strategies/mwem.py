"""Multiplicative weights with the exponential mechanism, on whole marginals."""

import math
from fractions import Fraction

import numpy as np

from dpcore.curator import Candidate, Curator
from dpcore.measurements import Measurement, Selection
from dpcore.models import DenseModel, update_towards
from dpcore.queries import Workload
from dpcore.strategies.strategy import Strategy, step_name

INITIAL = Fraction(1, 5)
SELECTING = Fraction(1, 10)


class Mwem(Strategy):
    """Draft."""

    def __init__(self, shape: tuple[int, ...], workload: Workload, *, rounds: int | None) -> None:
        super().__init__()
        self.model = DenseModel(shape, total=1.0)
        self._candidates = workload.candidates()
        self._rounds = rounds or 30

    @property
    def rounds(self) -> int:
        """How many marginals are selected."""
        return self._rounds

    @property
    def answers(self) -> int:
        """A one-way marginal of each column, and a selection and a measurement in each round."""
        return len(self.model.shape) + 2 * self._rounds

    def begin(self, curator: Curator) -> None:
        """Measure."""
        columns = len(self.model.shape)
        for axis in range(columns):
            share = INITIAL / columns / (1 - INITIAL * axis / columns)
            self.measurements.append(curator.measure_marginal(f"one-way/{axis}", (axis,), share=share))
        self.model.rescale(max(1.0, float(np.mean([m.values.sum() for m in self.measurements]))))
        self._refine()

    def select(self, curator: Curator, number: int) -> Selection:
        """Select."""
        left = self._rounds - number + 1

        def candidates() -> list[Candidate]:
            noise = curator.expected_noise((1 - SELECTING) / left) * math.sqrt(2 / math.pi)
            return [
                Candidate(
                    axes=axes,
                    expected=np.rint(marginal).astype(np.int64),
                    weight=self._candidates[axes],
                    penalty=round(noise * marginal.size),
                )
                for axes, marginal in self.model.marginals(self._candidates).items()
            ]

        return curator.select_marginal(step_name(number, "select"), candidates, share=SELECTING / left)

    def measure(self, curator: Curator, number: int, selection: Selection) -> Measurement:
        """Measure."""
        left = self._rounds - number
        share = (1 - SELECTING) / (left + 1 - SELECTING)
        return curator.measure_marginal(step_name(number, "measure"), selection.axes, share=share)

    def update(self, number: int, measurement: Measurement) -> None:
        """Update."""
        self.measurements.append(measurement)
        self._refine()

    def _refine(self) -> None:
        for _ in range(20):
            update_towards(self.model, [(m.axes, m.values) for m in self.measurements], rate=0.5)
