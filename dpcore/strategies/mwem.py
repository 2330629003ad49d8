"""Multiplicative weights with the exponential mechanism, on whole marginals."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpcore.curator.curator import Curator, Offer
from dpcore.marginals.workload import Axes, Workload
from dpcore.models import DenseModel
from dpcore.models.start import PublicRows, Start, dense_start
from dpcore.strategies.by_rounds import MOST_FIRST, ByRounds, Column
from dpcore.strategies.worthwhile import Budget, Choice, choose

# Tuned on Adult (seven columns) and on two other census and hospital tables, see docs/decisions/0006.
ORDERING = Fraction(1, 1000)  # a selection's share if all candidates get measured, so that selections only order them


class Mwem(ByRounds):
    """Measure every column, then the marginals that are worth their noise, worst first, then fit all measurements.

    1. All one-way marginals make the first model. Their share of the budget follows from their sizes.
    2. The noisy number of rows decides which marginals are worth their noise, and so how many rounds there are (`worthwhile`). If there
       are fewer than planned, the columns are measured again for a part of what that saves.
    3. Each of T equal rounds selects a marginal by the exponential mechanism, with the score weight x |true - expected|_1, measures it,
       and takes a few multiplicative steps on all measurements so far. None is a candidate again before all were measured as often.
       Pairs with the workload's target come first, up to half of the rounds.
    4. At the end the model is rebuilt from the first one, with all measurements at once, until it fits them as well as the true
       distribution would.

    The curator chooses the noise: Laplace in a pure account, Gaussian in a zCDP account.

    Reference: Hardt, Ligett and McSherry 2012 (MWEM); McKenna, Mullins, Sheldon and Miklau 2022 (AIM) for whole marginals and the first
    one-way round.
    """

    model: DenseModel
    SELECTING = Fraction(1, 20)
    WORTH_AGAIN = 0.02
    TRIES = 5

    @staticmethod
    def _within_reach(workload: Workload, columns: Sequence[Column]) -> Workload:
        return replace(workload.telling([column.size for column in columns]), ranges=())

    def _selectable(self) -> tuple[Axes, ...]:
        return tuple(axes for axes in self._workload.parts() if len(axes) > 1)

    def _prepare_model(self) -> None:
        self._measured: Counter[Axes] = Counter()

    @property
    def _least_rest(self) -> Fraction:
        return 1 - (Fraction(MOST_FIRST) if self._again else sum(self._first, Fraction(0)))

    def _chosen(self, rows: float, *, alone: float) -> Choice:
        """Return the marginals that are worth their noise, if the rounds' budget would buy one marginal with the noise `alone`."""
        budget = Budget(rows=rows, alone=alone, power=self._power, most=self._most_rounds)
        chosen = choose(self._sets, self.resolutions.shape, weights=self._weights, budget=budget)
        return replace(chosen, rounds=self._wanted_rounds) if self._wanted_rounds and self._sets else chosen

    def _wanted(self, choice: Choice) -> tuple[list[float], float]:
        cells = [self.resolutions.cells(axes) ** self._wanted_power for axes in choice.sets]
        later = choice.rounds * sum(cells) / max(len(cells), 1)
        return [size**self._wanted_power for size in self.resolutions.shape], later

    def _selecting(self, choice: Choice) -> Fraction:
        """Return a tiny share if selections only order the marginals."""
        return ORDERING if choice.rounds == len(choice.sets) else self.SELECTING

    def _groups(self, choice: Choice, *, worth: float) -> tuple[tuple[Axes, ...], ...]:
        """Return the offered marginals as often as the rounds go through all of them, or once."""
        del worth  # the choice follows from it
        if not choice.rounds:
            return ()
        sets = self._worth_offering(choice)
        return (sets,) * max(1, choice.rounds // len(sets))

    @property
    def _modelled_columns(self) -> tuple[int, ...]:
        return self.resolutions.shape

    def _start_from(self, prior: PublicRows) -> Start:
        return dense_start(self.resolutions.shape, prior, self._sets)

    def _note(self, axes: Axes) -> None:
        self._measured[axes] += 1

    def _offers(self, curator: Curator, number: int) -> list[Offer]:
        del curator
        marginals = self.model.marginals(self._offered(number))
        return [
            Offer(axes, np.rint(marginal).astype(np.int64), self._weights[axes]) for axes, marginal in marginals.items()
        ]

    def _offered(self, number: int) -> list[Axes]:
        """Return the candidates of a round: those measured least often."""
        if first := [
            axes for axes in self._first_sets(number) if axes in self._choice.worth and not self._measured[axes]
        ]:
            return first
        sets = self._worth_offering(self._choice)
        fewest = min(self._measured[axes] for axes in sets)
        return [axes for axes in sets if self._measured[axes] == fewest]

    def _worth_offering(self, choice: Choice) -> tuple[Axes, ...]:
        """Return the chosen marginals, or the smallest one if the spec wants rounds although noise would swamp every marginal."""
        return choice.sets or (min(self._sets, key=self.resolutions.cells),)
