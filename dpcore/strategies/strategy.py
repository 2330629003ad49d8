"""How a release is made: the steps that every strategy offers to the drivers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from dpcore.curator import Curator
from dpcore.measurements import Measurement, Selection
from dpcore.models import Model
from dpcore.resolutions import Resolutions


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
    printable = "".join(character for character in name if character.isprintable())
    return f"one-way/{axis + 1:02}-{printable[:100].strip()}"
