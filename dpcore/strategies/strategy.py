"""How a release is made: the steps that every strategy offers to the drivers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpcore.curator.curator import Curator
from dpcore.measurements import Measurement, Selection
from dpcore.models import Model
from dpcore.resolutions import Resolutions
from dpcore.workload import Axes


@dataclass(frozen=True)
class Outline:
    """What a run means to measure, before it does: all in shares of its whole budget.

    Attributes:
        first: The shares of each marginal, or count, that the first model is made of; of more than one if it is measured more than once.
        rounds: How many follow.
        rest: What all rounds get together.
        selecting: The part of a round's budget that its selection gets.
        room: How many times the rows the expected noise in all cells of a marginal may be for it to be measured; None: anything is.
        candidates: The sets of columns that the rounds select from.
        model_cells: How many cells the model may have; None: as many as the universe.
    """

    first: tuple[tuple[Fraction, ...], ...]
    rounds: int
    rest: Fraction
    selecting: Fraction
    room: float | None
    candidates: tuple[Axes, ...]
    model_cells: int | None

    @property
    def measuring(self) -> Fraction | None:
        """The share of each round's measurement; None without rounds."""
        return (1 - self.selecting) * self.rest / self.rounds if self.rounds else None


NoiseOf = Callable[[Fraction], float]
"""The standard deviation of the noise that a share of the whole budget buys for a marginal."""


class Strategy(ABC):
    """Improves a public model round by round; all that it learns comes from the curator's noisy answers.

    The drivers call `begin` once, then `select`, `measure` and `update` for each round until `finished`,
    and `conclude`. Every choice depends
    on the spec and on earlier noisy answers only, so a run that is started again takes the same way through its transcript.
    """

    model: Model

    def __init__(self, shape: Sequence[int]) -> None:
        self.resolutions = Resolutions(shape)
        self.measurements: list[Measurement] = []
        self.finished = False

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How many rounds there are at most."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """How many answers the budget is shared by."""

    @property
    @abstractmethod
    def smallest_share(self) -> Fraction:
        """The least share of the whole budget that any planned measurement gets, whatever earlier ones say."""

    @abstractmethod
    def outline(self, rows: float, noise_of: NoiseOf) -> Outline:
        """Return what a run would measure in a table of about so many rows; asked for before the run begins."""

    @abstractmethod
    def begin(self, curator: Curator) -> None:
        """Measure what the first model is made of."""

    @abstractmethod
    def select(self, curator: Curator, number: int) -> Selection:
        """Select what the model gets most wrong; rounds count from 1."""

    @abstractmethod
    def measure(self, curator: Curator, number: int, selection: Selection) -> Measurement:
        """Measure what was selected."""

    @abstractmethod
    def update(self, number: int, measurement: Measurement) -> None:
        """Correct the model by the measurement, and decide from noisy values alone whether to go on."""

    @abstractmethod
    def conclude(self) -> None:
        """Make the model that is released, once all is measured."""

    @property
    def total(self) -> float:
        """The noisy number of rows."""
        return self.model.total


def step_name(number: int, action: str) -> str:
    """Name a step of a round, in the ledger and in Prefect.

    >>> step_name(7, "select")
    'round-007/select'
    """
    return f"round-{number:03}/{action}"


def column_step(axis: int, name: str) -> str:
    r"""Name the step that measures one column: its place makes it unique, and its name, as far as it can be printed, readable.

    >>> column_step(2, " age\t")
    'one-way/03-age'
    """
    return f"one-way/{column_name(axis, name)}"


def column_name(axis: int, name: str) -> str:
    """Name a column in a step."""
    printable = "".join(character for character in name if character.isprintable())
    return f"{axis + 1:02}-{printable[:100].strip()}"
