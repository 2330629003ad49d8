"""What a session knows: the model of its first release, corrected by everything that was bought since, and the errors of that model.

Everything is a function of the transcript, in its order. So all processes that serve a session give the same free answers.

The pilot stands for the truth, as in a release (`answers.replicates`). After each purchase, the model and the pilot are fitted to all
measurements, starting from where they were. Then every replicate gets the counts of the new pilot with its own noise, which stays the same,
and is fitted likewise. A purchase so narrows the intervals of all answers that it teaches something about.
"""

import hashlib
import math
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from dpcore.answers.intervals import Intervals
from dpcore.answers.release import Release
from dpcore.answers.replicates import PILOT_PER_CELL, alike, make_uncertainty, replicates_for, seed_of
from dpcore.answers.uncertainty import Fit, Uncertainty
from dpcore.answers.usual import counts_of, random_counts
from dpcore.errors import UsageError
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.models import DenseModel, Evidence, FactoredModel, Functions, Model, refine
from dpcore.models.evidence import UNORDERED
from dpcore.models.factored import BYTES_PER_CELL
from dpcore.models.fitting import Transcript
from dpcore.models.lifted import Grid, LiftedModel, flattened, key_of
from dpcore.models.model import Weights
from dpcore.session.bought import Bought, with_axes
from dpcore.spec.release import AdaptiveSpec

TRIES = 60  # evaluations of the model for each fit after a purchase
COMPARED = 96  # random counts, by which the usual size of errors is compared after each purchase
PER_CELL = {"mwem": DenseModel.PER_CELL, "adaptive": FactoredModel.PER_CELL}

FOLDER = "sessions"
"""The folder of the fits of all sessions, within the steward's own."""

DAMAGED = (OSError, ValueError, LookupError, EOFError, BadZipFile, zlib.error)
"""What reading a file raises that is empty, cut off or changed."""

_usual_errors: WeakKeyDictionary[Release, float] = WeakKeyDictionary()
_trees: WeakKeyDictionary[Release, tuple[frozenset[Axes], Model]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class KnownRelease(Release):
    """A release with what was bought since, as `answers` sees it. It is in no folder."""

    first: Release = field(kw_only=True)

    def assigned(self, fit: Fit) -> Model:
        """Return the first release's kind of model with these functions. It has no axes for classes."""
        return assigned(self.first, fit)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What is known after some purchases.

    Attributes:
        first: The release with which the session began.
        bought: All purchases so far, in the order of the ledger.
        learned: Which of them the model has learned. A factored model has no room for some, and none learns sums.
        fits: The functions of the model, the pilot and the replicates, with those of grids apart; None before the first purchase.
    """

    first: Release
    bought: tuple[Bought, ...] = ()
    learned: tuple[int, ...] = ()
    fits: tuple[Fit, ...] | None = None

    @cached_property
    def intervals(self) -> Intervals:
        """The intervals of all answers."""
        return Intervals(self.release)

    @cached_property
    def release(self) -> Release:
        """The release that answers are computed from."""
        if not self.bought:
            return self.first
        counted = [purchase for purchase in self.bought if purchase.drawn is None]
        resolutions, measured = with_axes(self.first.resolutions, counted)
        return KnownRelease(
            folder=self.first.folder,
            manifest=self.first.manifest,
            universe=self.first.universe,
            resolutions=resolutions,
            measurements=(*self.first.measurements, *measured),
            unwritten_uncertainty=self._uncertainty,
            begun=self.first.start,
            first=self.first,
        )

    @cached_property
    def _uncertainty(self) -> Uncertainty:
        begun = self._begun
        if self.fits is None:
            return begun
        grids = [purchase.grid for purchase in self.bought]
        model, pilot, *replicates = alike([Fit(fit.total, flattened(fit.functions, grids)) for fit in self.fits])
        learned = Uncertainty(model, pilot, tuple(replicates), begun.scale)
        if self.first not in _usual_errors:
            _usual_errors[self.first] = self._usual_error(begun)
        # Errors have become smaller by this factor, on average over random counts. So has the usual variance of a count.
        constant, *curve = begun.scale.curve
        constant += min(0.0, self._usual_error(learned) - _usual_errors[self.first])
        return replace(learned, scale=replace(begun.scale, curve=(constant, *curve)))

    def _usual_error(self, uncertainty: Uncertainty) -> float:
        """Return the mean logarithm of the squared errors of random counts, by the replicates."""
        rng = np.random.default_rng(self._seed)
        asked = list(random_counts(list(self.first.universe.attributes.values()), rng))[:COMPARED]

        def counts(fit: Fit) -> Weights:
            return counts_of(assigned(self.first, fit), asked)

        pilot = counts(uncertainty.pilot)
        squares = np.mean([(counts(fit) - pilot) ** 2 for fit in uncertainty.replicates], axis=0)
        return float(np.mean(np.log(squares + 1.0))) if len(squares) else 0.0

    @cached_property
    def _begun(self) -> Uncertainty:
        return self.first.uncertainty or make_uncertainty(self.first)

    def after(self, purchase: Bought) -> "Knowledge":
        """Return what is known after one more purchase."""
        grown = replace(self, bought=(*self.bought, purchase))
        number = len(self.bought)
        if not self._has_room(purchase):
            vars(grown)["_uncertainty"] = self._uncertainty  # it is the same
            return grown
        started = self if self.fits is not None else replace(self, fits=self._started())
        return replace(grown, learned=(*self.learned, number), fits=started.refitted(grown, number))

    def _has_room(self, purchase: Bought) -> bool:
        """Return whether the model can have a function of the purchase's columns. A dense model can.

        Sums teach it nothing: they tell how many rows of a group have a value, and not how the values lie, which it would seem to know then.
        """
        if purchase.drawn is not None:
            return False
        fit = self._begun.model if self.fits is None else self._uncertainty.model
        model = assigned(self.first, fit)
        if not isinstance(model, FactoredModel):
            return True
        strategy = AdaptiveSpec.model_validate(self.first.manifest["spec"].get("strategy") or {"name": "adaptive"})
        most = max(strategy.max_model_mb * 2**20 / BYTES_PER_CELL, model.cells)
        return model.cells_with(purchase.grid.columns) <= most

    def _started(self) -> tuple[Fit, ...]:
        """Fit replicates to noise that can be drawn again, which those of the release are not fitted to."""
        transcript = self.first.transcript
        truth = assigned(self.first, self._begun.pilot)
        expected = truth.marginals({measured.axes for measured in self._measured})
        replicates = []
        for number in range(replicates_for(self.first)):
            drawn = iter(self._redrawn(expected, number))
            own = Transcript(tuple(next(drawn) for _ in transcript.first), tuple(next(drawn) for _ in transcript.later))
            _, fit = self.first.fitted(own)
            replicates.append(fit)
        return (self._begun.model, self._begun.pilot, *replicates)

    def refitted(self, grown: "Knowledge", number: int) -> tuple[Fit, ...]:
        """Fit all models to everything that was learned before, and to a purchase by its number."""
        if self.fits is None:
            raise UsageError("there are no fits to go on from; report this")
        strategy = self.first.manifest["strategy"]
        usual, closer = PER_CELL[strategy], PILOT_PER_CELL[strategy]
        grids = [purchase.grid for purchase in grown.bought]
        bought = [grown.bought[place].measurement(key_of(place)) for place in (*self.learned, number)]
        evidence = [*self._measured, *bought]
        # With a function of the new grid, which is zero so far, all models have room for it from the beginning.
        new = {key_of(number): np.zeros(grids[number].shape)}
        model, pilot, *replicates = (Fit(fit.total, {**fit.functions, **new}) for fit in self.fits)
        _, model = self._fitted(model, evidence, grids, per_cell=usual)
        truth, pilot = self._fitted(pilot, evidence, grids, per_cell=closer or usual, smooth=False)
        expected = truth.marginals({measured.axes for measured in evidence})
        return (
            model,
            pilot,
            *(
                self._fitted(fit, self._redrawn(expected, place, bought=bought), grids, per_cell=usual)[1]
                for place, fit in enumerate(replicates)
            ),
        )

    def _fitted(
        self,
        start: Fit,
        measured: Sequence[Measurement],
        grids: Sequence[Grid],
        *,
        per_cell: float,
        smooth: bool = True,
    ) -> tuple[LiftedModel, Fit]:
        evidence = Evidence(self.first.universe.orders if smooth else UNORDERED)
        for measurement in measured:
            evidence.add(measurement)
        plain = assigned(self.first, Fit(evidence.total, flattened(start.functions, grids)))
        lifted = LiftedModel(plain, grids)
        functions: Functions = refine(lifted, evidence, start.functions, tries=TRIES, per_cell=per_cell)
        return lifted, Fit(evidence.total, functions)

    @cached_property
    def _measured(self) -> tuple[Measurement, ...]:
        transcript = self.first.transcript
        return (*transcript.first, *transcript.later)

    def _redrawn(
        self, expected: dict[Axes, Weights], replicate: int, *, bought: Sequence[Measurement] = ()
    ) -> list[Measurement]:
        """Return all measurements as they would be if the pilot were the truth, with a replicate's noise."""
        pure = self.first.manifest["spec"]["privacy"]["delta"] == 0
        redrawn = []
        for place, measured in enumerate((*self._measured, *bought)):
            # A replicate's noise in a measurement is the same after every purchase.
            own = place if place < len(self._measured) else len(self._measured) - 1 - measured.axes[0]
            rng = np.random.default_rng([self._seed, replicate, own])
            size, shape = measured.deviations, measured.values.shape
            noise = rng.laplace(0.0, size / math.sqrt(2), shape) if pure else rng.normal(0.0, size, shape)
            redrawn.append(
                replace(measured, cell=None, values=np.rint(expected[measured.axes] + noise).astype(np.int64))
            )
        return redrawn

    @cached_property
    def _seed(self) -> int:
        return seed_of(self.first.transcript)


def assigned(first: Release, fit: Fit) -> Model:
    """Return a release's kind of model with these functions.

    The tree of a factored model depends on the sets of columns alone, and finding it takes longer than everything else. So it is found
    once for all fits with the same sets.
    """
    if first.manifest["strategy"] != "adaptive":
        return first.assigned(fit)
    sets = frozenset(fit.functions)
    tree = _trees.get(first)
    if tree is None or tree[0] != sets:
        _trees[first] = tree = sets, first.assigned(fit)
    model = copy(tree[1])
    model.rescale(fit.total)
    model.assign(fit.functions)
    return model


def remembered(knowledge: Knowledge, *, session: str, folder: Path) -> None:
    """Write the fits of a session to the steward's folder, in place of earlier ones, so that another process need not make them again.

    A disk that is full or read-only is no error: losing the fits loses nothing but time.
    """
    if knowledge.fits is None:
        return
    arrays: dict[str, npt.NDArray[Any]] = {"learned": np.array(knowledge.learned, dtype=np.int64)}
    for place, fit in enumerate(knowledge.fits):
        arrays[f"{place}:total"] = np.array(fit.total)
        for axes, function in fit.functions.items():
            arrays[f"{place}:{','.join(map(str, axes))}"] = function
    path = _path(session, folder)
    with suppress(OSError):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path / f".{os.getpid()}"
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())  # else a crash of the machine may leave an empty file under the final name
        temporary.replace(path / _name(knowledge.bought))
        for earlier in path.glob("*.npz"):
            if earlier.name != _name(knowledge.bought):
                earlier.unlink(missing_ok=True)


def recalled(first: Knowledge, stored: Sequence[Bought], *, session: str, folder: Path) -> Knowledge:
    """Return what is known after the longest part of a transcript whose fits are on disk; else what was known at first."""
    path = _path(session, folder)
    for count in range(len(stored), 0, -1):
        part = tuple(stored[:count])
        file = path / _name(part)
        with suppress(*DAMAGED):
            if file.exists():
                return _read(file, first, part)
    return first


def _read(file: Path, first: Knowledge, bought: tuple[Bought, ...]) -> Knowledge:
    totals: dict[int, float] = {}
    functions: dict[int, dict[Axes, Weights]] = {}
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:  # numpy leaves a damaged file open
        for name in arrays.files:
            place, _, rest = name.partition(":")
            if rest == "total":
                totals[int(place)] = float(arrays[name])
            elif rest:
                functions.setdefault(int(place), {})[tuple(map(int, rest.split(",")))] = arrays[name]
        learned = tuple(map(int, arrays["learned"]))
    fits = tuple(Fit(totals[place], functions[place]) for place in sorted(totals))
    return replace(first, bought=bought, learned=learned, fits=fits)


def _path(session: str, folder: Path) -> Path:
    return folder / FOLDER / hashlib.sha256(session.encode()).hexdigest()[:16]


def _name(bought: Sequence[Bought]) -> str:
    digest = hashlib.sha256()
    for purchase in bought:
        digest.update(purchase.to_bytes())
    return f"{len(bought)}-{digest.hexdigest()[:32]}.npz"
