"""The content of a release before it is written."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore.descent import Finding
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.models import Model
from dpcore.models.persons import NoisyPersons, PersonSizes
from dpcore.models.start import UNIFORM, Start
from dpcore.release.statement import Statement
from dpcore.reporting.outcome import Round
from dpcore.reporting.portrait import Portrait
from dpcore.spec import Declaration
from dpcore.universe.dependencies import LearnedFunction

Codes = Sequence[npt.NDArray[np.integer[Any]]]


def public_seed(purpose: str, run: str) -> int:
    """Return the seed by which a run draws rows, values or persons from public figures."""
    return int.from_bytes(hashlib.sha256(f"{purpose}:{run}".encode()).digest()[:8])


@dataclass(frozen=True)
class Persons:
    """What is known about the persons of a release.

    Attributes:
        column: The name of the id column.
        constant: The columns that have one value for each person.
        sizes: How many rows persons have, as it was measured.
        spent: The price of these measurements, as a share of the run's budget.
        seed: The public seed for dividing the rows into persons.
    """

    column: str
    constant: tuple[str, ...]
    sizes: PersonSizes
    spent: float
    seed: int

    @classmethod
    def read(cls, manifest: Mapping[str, Any], *, seed: int) -> Self | None:
        """Return the persons that a manifest describes, to be divided anew; None if its release has no ids."""
        stated = manifest.get("persons")
        if stated is None:
            return None
        sizes = PersonSizes.of_one()
        if (measured := stated["measured"]) is not None:
            sizes = PersonSizes(
                *(NoisyPersons(tuple(numbers["numbers"]), numbers["noise"]) for numbers in measured.values())
            )
        return cls(stated["column"], tuple(stated["constant"]), sizes, spent=stated["spent"], seed=seed)


@dataclass(frozen=True, eq=False)
class SyntheticRows:
    """The rows of a release, as codes. `chunks` draws them chunk by chunk, and yields the same rows on every call.

    With `persons`, they are divided into synthetic persons when they are written.
    """

    count: int
    chunks: Callable[[], Iterator[Codes]]
    persons: Persons | None = None

    @classmethod
    def drawn_from(cls, model: Model, declaration: Declaration, *, run: str, persons: Persons | None) -> Self:
        """Return the rows that a run draws from its model: as many as the spec says, or as the model has."""
        rows, near = declaration.spec.output.rows, declaration.workload.marginals
        count, seed = max(0, round(model.total)) if rows == "noisy" else rows, public_seed("rows", run)
        return cls(count, lambda: model.row_chunks(count, rng=np.random.default_rng(seed), near=near), persons)


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a release says about its own accuracy: the table of `errors.parquet`, and the figures of its pictures."""

    errors: pa.Table
    portrait: Portrait


@dataclass(frozen=True, eq=False)
class Draft:
    """The content of a release: the model's rows, the measurements, the privacy statement and the discovered values.

    `uncertainty` returns the table of `uncertainty.parquet` for a size of at most so many bytes. It takes longer than
    the rest; None to publish without it. `judge` returns the release's judgement by that table. `before` is the name of the dataset's release
    before it, by the reservations of their runs. `prior` says what its weights have started from, if the spec has a prior, and `start` is
    that distribution. `parts` describes the releases that it is the sum of, if it is one.
    """

    declaration: Declaration
    rows: SyntheticRows
    measurements: Sequence[Measurement]
    resolutions: Resolutions
    rounds: Sequence[Round]
    statement: Statement
    name: str
    seed: int
    findings: Sequence[Finding] = ()
    functions: Sequence[LearnedFunction] = ()
    warnings: Sequence[str] = ()
    uncertainty: Callable[[int], pa.Table] | None = None
    judge: Callable[[pa.Table], Judgement] | None = None
    before: str | None = None
    prior: Mapping[str, Any] | None = None
    start: Start = UNIFORM
    parts: Sequence[Mapping[str, Any]] = ()
