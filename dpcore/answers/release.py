"""Open a release from its folder alone: its universe, its measurements, and the model that was fitted to them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpcore.answers.uncertainty import Fit, Uncertainty, read_uncertainty
from dpcore.errors import DpflowError, UsageError
from dpcore.marginals.measurements import BOUGHT, EXPECTED_TOTAL, Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.zeros import Zeros
from dpcore.models import Model
from dpcore.models.fitting import How, SignedSteps, Transcript, fit, new_model
from dpcore.models.start import UNIFORM, Start
from dpcore.object_store import AnyPath, ObjectPath, any_path
from dpcore.release.integrity import MANIFEST, damaged, is_there, one_line, open_regular, refuse_store_error
from dpcore.release.listing import pointed
from dpcore.release.manifest import manifest_in
from dpcore.release.measured import MEASUREMENTS, START, read_measurements, read_start
from dpcore.release.publishing import UNCERTAINTY
from dpcore.release.signing import SUMS
from dpcore.release.withdrawal import require_not_withdrawn
from dpcore.spec.described import restore_universe
from dpcore.universe import Universe


@dataclass(frozen=True, eq=False)
class Release:
    """A release that was read from its folder.

    Attributes:
        folder: The folder.
        manifest: Its manifest.
        universe: The columns, with the cells that the run has found.
        resolutions: The columns and their coarser versions, which the axes of measurements refer to.
        measurements: All noisy measurements, in the order of their charges.
        unwritten_uncertainty: What it knows about its errors, for a release that is not yet in its folder.
        begun: Where its weights have started, likewise.
        manifest_sha256: The SHA-256 of the very bytes that `manifest` was read from; empty likewise.
    """

    folder: AnyPath
    manifest: Mapping[str, Any]
    universe: Universe
    resolutions: Resolutions
    measurements: tuple[Measurement, ...]
    unwritten_uncertainty: Uncertainty | None = None
    manifest_sha256: str = ""
    begun: Start | None = None

    @property
    def name(self) -> str:
        """The dataset."""
        return str(self.manifest["dataset"])

    @property
    def limit(self) -> str | None:
        """Say which rows count if a limit on the rows of a unit has left some out; None if all rows count."""
        privacy = self.manifest.get("privacy") or {"unit": "row"}
        if privacy["unit"] == "row" or self.describes_all:
            return None
        unit, most = one_line(privacy["unit"]), int(privacy["max_rows_per_unit"])
        where = " in each release" if self.parts > 1 else ""
        return f"at most {most:,} row{'' if most == 1 else 's'} of each {unit} {'counts' if most == 1 else 'count'}{where}, chosen at random"

    @property
    def sizes_deviation(self) -> float:
        """The relative standard deviation of the number of rows, if it was estimated by the sizes of units; else 0."""
        return float(self._sizes["deviation"]) if self.describes_all else 0.0

    @property
    def describes_all(self) -> bool:
        """Whether it describes all rows, although only some rows of a unit with many were counted."""
        return bool(self._sizes)

    @property
    def _sizes(self) -> Mapping[str, Any]:
        """The classes of sizes by which its counts were corrected; none if they were not."""
        chosen = (self.manifest.get("privacy") or {}).get("chosen_limit") or {}
        return chosen.get("sizes") or {}

    @property
    def parts(self) -> int:
        """Of how many releases it is the sum."""
        return len(self.manifest.get("parts") or ()) or 1

    @property
    def local_folder(self) -> Path:
        """The folder, if it is on this machine.

        Raises:
            UsageError: If the release is in an object store.
        """
        if isinstance(self.folder, ObjectPath):
            raise UsageError(f"{one_line(self.folder)} is in an object store; copy the release to this machine first")
        return self.folder

    @property
    def transcript(self) -> Transcript:
        """The measurements that the model was fitted to."""
        return Transcript.of(
            measurement
            for measurement in self.measurements
            if not measurement.step.startswith((EXPECTED_TOTAL, BOUGHT))
        )

    @cached_property
    def zeros(self) -> Zeros:
        """What the constraints of the release exclude."""
        return Zeros(self.universe.possible)

    @cached_property
    def uncertainty(self) -> Uncertainty | None:
        """What the release knows about its errors; None for a release that was published without it."""
        if self.unwritten_uncertainty is not None:
            return self.unwritten_uncertainty
        return read_uncertainty(self._file(UNCERTAINTY), self.measurements) if self._has_file(UNCERTAINTY) else None

    @cached_property
    def start(self) -> Start:
        """Where the weights of the model have started: uniform, unless the release has a prior that was used."""
        if self.begun is not None:
            return self.begun
        return read_start(self._file(START)) if self._has_file(START) else UNIFORM

    def _has_file(self, name: str) -> bool:
        return any(file["path"] == name for file in self.manifest["files"])

    def _file(self, name: str) -> AnyPath:
        """Return the path of a file. Raise if it is not the one that was published."""
        _require_unchanged(self.folder, self.manifest, name)
        return self.folder / name

    @cached_property
    def model(self) -> Model:
        """The last model of the run: restored, or fitted again, which takes seconds. It is then kept."""
        uncertainty = self.uncertainty
        return self.fit(self.transcript) if uncertainty is None else self.assigned(uncertainty.model)

    @property
    def is_factored(self) -> bool:
        """Whether the model is a factored one."""
        return bool(self.manifest["strategy"] == "adaptive")

    @cached_property
    def steps(self) -> SignedSteps | None:
        """The steps in which the model was corrected, count by count; None if it was fitted to marginals."""
        declared = self.manifest["spec"].get("strategy") or {}
        if "alpha" not in declared:
            return None
        return SignedSteps.of(self.universe.shape, rounds=declared["rounds"], alpha=declared["alpha"])

    def fit(self, transcript: Transcript) -> Model:
        """Fit the release's kind of model to a transcript, as the run did."""
        return self.fitted(transcript)[0]

    def fitted(
        self, transcript: Transcript, *, how: How | None = None, model: Model | None = None
    ) -> tuple[Model, Fit]:
        """Fit the release's kind of model to a transcript, and return its functions, too.

        Args:
            transcript: Measurements like those of the release.
            how: How it is fitted; None as the run did. Signed steps have only one way.
            model: A model that this method has returned for measurements of the same marginals. It is used again, which saves time.
        """
        fitted: Model
        universe = self.universe
        if self.steps is not None:
            fitted, functions = self.steps.fitted(universe.shape, transcript, zeros=self.zeros)
        else:
            fitted, functions = fit(
                self._modelled_columns,
                transcript,
                orders=universe.orders,
                zeros=self.zeros,
                how=how,
                model=model,
                start=self.start,
            )
        return fitted, Fit(fitted.total, functions)

    def assigned(self, fitted: Fit) -> Model:
        """Return the release's kind of model with these functions."""
        model = new_model(self._modelled_columns, total=fitted.total, start=self.start.functions, zeros=self.zeros)
        model.make_room_in_turn(fitted.functions)
        model.assign(fitted.functions)
        return model

    @property
    def _modelled_columns(self) -> Sequence[int] | Resolutions:
        """The columns as `new_model` needs them."""
        return self.resolutions.nested if self.is_factored else self.universe.shape


def open_release(folder: str | AnyPath) -> Release:
    """Read a release from its folder, or the newest one from the folder of its dataset.

    Raises:
        UsageError: If there is no release, or it was withdrawn, or it is damaged.
        OutputError: If its store fails.
    """
    path = any_path(folder)
    if name := pointed(path):
        path = path / name
    elif not is_there(path / MANIFEST) and not is_there(path / SUMS):
        raise UsageError(
            f"{one_line(path)} has no {MANIFEST}; name the folder of a release, such as releases/DATASET/RELEASE"
        )
    return open_release_with(None, path)


def open_release_with(written: bytes | None, path: AnyPath) -> Release:
    """Read the release of exactly this folder, with a manifest that the caller has read and, for example, compared with the ledger.

    The manifest has the hashes of the other files. So nothing that was put into the folder since can take their place. None reads it here.

    Raises:
        UsageError: If it was withdrawn, or it is damaged.
        OutputError: If its store fails.
    """
    require_not_withdrawn(path)
    manifest, digest = manifest_in(path, written=written)
    _require_unchanged(path, manifest, MEASUREMENTS)
    resolutions, measurements = read_measurements(path / MEASUREMENTS)
    universe = universe_of(manifest, path)
    if universe.shape != resolutions.shape[: resolutions.columns]:
        raise damaged(path, f"{MANIFEST} and {MEASUREMENTS} contradict each other")
    return Release(path, manifest, universe, resolutions, measurements, manifest_sha256=digest)


def universe_of(manifest: Mapping[str, Any], path: AnyPath) -> Universe:
    """Return the columns of a release by its manifest.

    Raises:
        ReleaseDamaged: If they do not follow from it.
    """
    try:
        return restore_universe(
            manifest["spec"]["universe"],
            described=manifest["universe"],
            discovered=manifest["discovered"],
            constraints=manifest["spec"]["constraints"],
            dependencies=manifest.get("dependencies", ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError, DpflowError):
        raise damaged(path, f"the columns in {MANIFEST} are not what dpflow writes") from None


def _require_unchanged(folder: AnyPath, manifest: Mapping[str, Any], name: str) -> None:
    """Raise if a file is not the one that was published."""
    try:
        (published,) = (file["sha256"] for file in manifest["files"] if file["path"] == name)
        with open_regular(folder / name) as opened:
            unchanged = hashlib.file_digest(opened, "sha256").hexdigest() == published
    except (OSError, KeyError, TypeError, ValueError) as error:
        refuse_store_error(folder / name, error)
        unchanged = False
    if not unchanged:
        require_not_withdrawn(folder)  # meanwhile
        raise damaged(folder, f"{name} is missing, or not what was published")
