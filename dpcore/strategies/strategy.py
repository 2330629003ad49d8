"""The interface of a strategy: the steps that the drivers call."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpcore.curator.curator import Curator
from dpcore.marginals.measurements import ONE_WAY, Measurement, Selection
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.workload import Axes
from dpcore.models import Model
from dpcore.models.refine import Functions
from dpcore.models.start import UNIFORM, Gate, PublicRows, Start
from dpcore.strategies.earlier import Earlier


@dataclass(frozen=True)
class Outline:
    """The plan of a run's measurements, in shares of its whole budget.

    Attributes:
        first: For each marginal, or count, of the first model, the shares of its measurements. A marginal may be measured more than once.
        rounds: The number of rounds that follow.
        rest: The share of all rounds together.
        selecting: The fraction of a round's budget that its selection gets.
        room: A marginal is measured only if its expected noise in all cells is at most this many times the rows; None if there is no limit.
        candidates: The sets of columns that the rounds select from.
        offered: Those of them that are worth their noise, in groups: rounds select from a group until all of it was measured, and then
            from the next one.
        model_cells: The most cells of the model; None if it has as many as the universe.
    """

    first: tuple[tuple[Fraction, ...], ...]
    rounds: int
    rest: Fraction
    selecting: Fraction
    room: float | None
    candidates: tuple[Axes, ...]
    offered: tuple[tuple[Axes, ...], ...]
    model_cells: int | None

    @property
    def measuring(self) -> Fraction | None:
        """The share of each round's measurement; None if there are no rounds."""
        return (1 - self.selecting) * self.rest / self.rounds if self.rounds else None


@dataclass(frozen=True)
class EarlyCounts:
    """Noisy counts of columns that were measured before the strategy begins, and that it need not buy.

    Attributes:
        counts: The measurement of each such column by its axis; None while a run is planned.
        alone: The noise of a marginal that got all of the strategy's budget; None while a run is planned, or without such columns.
    """

    counts: Mapping[int, Measurement | None]
    alone: float | None = None


NoiseOf = Callable[[Fraction], float]
"""The standard deviation of the noise that a share of the whole budget buys for a marginal."""


NOTHING = EarlyCounts({})


class Strategy(ABC):
    """Improves a public model round by round, from the curator's noisy answers alone.

    The drivers call `begin` once, then `select`, `measure` and `update` for each round until `finished`, and `conclude` at the end. Every
    choice depends on the spec and on earlier noisy answers only, so a resumed run repeats the steps of its transcript.
    """

    single_counts: ClassVar[bool] = False
    """Whether it measures single counts, never whole marginals."""
    model: Model
    prior: PublicRows | None = None
    """A public table that `begin` may start the weights from. Set it before."""
    gate: Gate | None = None
    """Whether `begin` has used the prior; None if there is none."""
    start: Start = UNIFORM
    """Where the weights have started."""
    functions: Functions | None = None
    """The functions of the released model, if `conclude` has fitted it."""
    earlier: Earlier | None = None
    """What an earlier release of the same table has measured. Set it before `begin`, which raises if new counts contradict it."""

    def __init__(self, shape: Sequence[int], *, early_counts: EarlyCounts = NOTHING) -> None:
        self._early_counts = early_counts
        self.resolutions = Resolutions(shape)
        self.measurements: list[Measurement] = []
        self.finished = False

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The most rounds."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """The number of answers that share the budget."""

    @property
    @abstractmethod
    def smallest_share(self) -> Fraction:
        """The least share of the whole budget that any planned measurement gets, whatever the earlier answers are."""

    @abstractmethod
    def outline(self, rows: float, noise_of: NoiseOf) -> Outline:
        """Return the plan for a table of about `rows` rows. It is called before the run begins."""

    @abstractmethod
    def begin(self, curator: Curator) -> None:
        """Measure the counts of the first model."""

    @abstractmethod
    def select(self, curator: Curator, number: int) -> Selection:
        """Select the candidate that the model gets most wrong. Rounds are numbered from 1."""

    @abstractmethod
    def measure(self, curator: Curator, number: int, selection: Selection) -> Measurement:
        """Measure the selected candidate."""

    @abstractmethod
    def update(self, number: int, measurement: Measurement) -> None:
        """Correct the model by the measurement, and decide from noisy values alone whether to continue."""

    @abstractmethod
    def conclude(self) -> None:
        """Build the released model after the last measurement."""

    @property
    def total(self) -> float:
        """The noisy number of rows."""
        return self.model.total


def step_name(number: int, action: str) -> str:
    """Return the name of a round's step in the ledger and in Prefect.

    >>> step_name(7, "select")
    'round-007/select'
    """
    return f"round-{number:03}/{action}"


def column_step(axis: int, name: str) -> str:
    r"""Return the name of the step that measures one column: its position makes it unique, its printable name readable.

    >>> column_step(2, " age\t")
    'one-way/03-age'
    """
    return f"{ONE_WAY}{column_name(axis, name)}"


def column_name(axis: int, name: str) -> str:
    """Return the name of a column within a step name."""
    printable = "".join(character for character in name if character.isprintable())
    return f"{axis + 1:02}-{printable[:100].strip()}"
