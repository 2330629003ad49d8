"""Open a release from its folder alone: its universe, its measurements, and the model that was fitted to them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpcore.answers.uncertainty import Fit, Uncertainty, read_uncertainty
from dpcore.errors import DpflowError, UsageError
from dpcore.marginals.measurements import BOUGHT, EXPECTED_TOTAL, Measurement
from dpcore.marginals.resolutions import Resolutions
from dpcore.marginals.zeros import Zeros
from dpcore.models import DenseModel, FactoredModel, Functions, Model
from dpcore.models.fitting import How, SignedSteps, Transcript, fit_dense, fit_factored
from dpcore.models.start import UNIFORM, Start
from dpcore.object_store import AnyPath, ObjectPath, any_path
from dpcore.release.integrity import MANIFEST, damaged, is_there, one_line, open_regular, refuse_store_error
from dpcore.release.listing import pointed
from dpcore.release.manifest import manifest_in
from dpcore.release.measured import MEASUREMENTS, read_measurements
from dpcore.release.publishing import UNCERTAINTY
from dpcore.release.started import START, read_start
from dpcore.release.sums import SUMS
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
        known: What it knows about its errors, for a release that is not yet in its folder.
        begun: Where its weights have started, for a release that is not yet in its folder.
        manifest_sha256: The SHA-256 of the very bytes that `manifest` was read from; empty for a release that is not yet in its folder.
    """

    folder: AnyPath
    manifest: Mapping[str, Any]
    universe: Universe
    resolutions: Resolutions
    measurements: tuple[Measurement, ...]
    known: Uncertainty | None = None
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
        if privacy["unit"] == "row":
            return None
        unit, most = one_line(privacy["unit"]), int(privacy["max_rows_per_unit"])
        each = " in each release" if self.manifest.get("parts") else ""
        return f"at most {most:,} row{'' if most == 1 else 's'} of each {unit} {'counts' if most == 1 else 'count'}{each}, chosen at random"

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
        learned = (each for each in self.measurements if not each.step.startswith((EXPECTED_TOTAL, BOUGHT)))
        return Transcript.of(learned)

    @cached_property
    def zeros(self) -> Zeros:
        """What the constraints of the release exclude."""
        return Zeros(self.universe.possible)

    @cached_property
    def uncertainty(self) -> Uncertainty | None:
        """What the release knows about its errors; None for a release that was published without it."""
        if self.known is not None:
            return self.known
        if all(each["path"] != UNCERTAINTY for each in self.manifest["files"]):
            return None
        _require_unchanged(self.folder, self.manifest, UNCERTAINTY)
        return read_uncertainty(self.folder / UNCERTAINTY, self.measurements)

    @cached_property
    def start(self) -> Start:
        """Where the weights of the model have started: uniform, unless the release has a prior that was used."""
        if self.begun is not None:
            return self.begun
        if all(each["path"] != START for each in self.manifest["files"]):
            return UNIFORM
        _require_unchanged(self.folder, self.manifest, START)
        return read_start(self.folder / START)

    @cached_property
    def model(self) -> Model:
        """The last model of the run: restored, or fitted again, which takes seconds. It is then kept."""
        known = self.uncertainty
        return self.fit(self.transcript) if known is None else self.assigned(known.model)

    def fit(self, transcript: Transcript, *, per_cell: float | None = None) -> Model:
        """Fit the release's kind of model to a transcript, as the run did; with `per_cell`, more or less closely."""
        return self.fitted(transcript, how=How(per_cell=per_cell))[0]

    def fitted(
        self, transcript: Transcript, *, how: How | None = None, model: Model | None = None
    ) -> tuple[Model, Functions]:
        """Fit the release's kind of model to a transcript, and return its functions, too.

        Args:
            transcript: Measurements like those of the release.
            how: How it is fitted; None as the run did. `pmw` has only one way.
            model: A model that this method has returned for measurements of the same marginals. It is used again, which saves time.
        """
        shape, orders, zeros = self.universe.shape, self.universe.orders, self.zeros
        match self.manifest["strategy"]:
            case "mwem":
                dense = model if isinstance(model, DenseModel) else None
                return fit_dense(shape, transcript, orders=orders, zeros=zeros, how=how, model=dense, start=self.start)
            case "pmw":
                told = self.manifest["spec"]["strategy"]
                steps = SignedSteps.of(shape, rounds=told["rounds"], alpha=told["alpha"])
                return steps.fitted(shape, transcript, zeros=zeros)
            case "adaptive":
                factored = model if isinstance(model, FactoredModel) else None
                nested = self.resolutions.nested
                return fit_factored(
                    nested, transcript, orders=orders, zeros=zeros, how=how, model=factored, start=self.start
                )
        raise UsageError(f"the release was made by another version of dpflow; answer with the one in its {MANIFEST}")

    def assigned(self, fit: Fit) -> Model:
        """Return the release's kind of model with these functions."""
        if self.manifest["strategy"] != "adaptive":
            dense = DenseModel(self.universe.shape, total=fit.total, start=self.start.functions, zeros=self.zeros)
            dense.assign(fit.functions)
            return dense
        nested, start = self.resolutions.nested, self.start.functions
        model = FactoredModel(nested, total=fit.total, start=start, zeros=self.zeros)
        for axes in fit.functions:
            model.make_room([axes])  # one after the other, as in the rounds: their order decides the tree
        model.assign(fit.functions)
        return model


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
    require_not_withdrawn(path)
    return _opened(*manifest_in(path), path)


def open_release_with(written: bytes, path: AnyPath) -> Release:
    """Read the release of exactly this folder, with a manifest that the caller has read and, for example, compared with the ledger.

    The manifest has the hashes of the other files. So nothing that was put into the folder since can take their place.

    Raises:
        UsageError: If it was withdrawn, or it is damaged.
        OutputError: If its store fails.
    """
    require_not_withdrawn(path)
    return _opened(*manifest_in(path, written=written), path)


def _opened(manifest: Mapping[str, Any], digest: str, path: AnyPath) -> Release:
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
        (wanted,) = (each["sha256"] for each in manifest["files"] if each["path"] == name)
        with open_regular(folder / name) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, KeyError, TypeError, ValueError) as error:
        refuse_store_error(folder / name, error)
        wanted, found = None, ""
    if wanted != found:
        require_not_withdrawn(folder)  # meanwhile
        raise damaged(folder, f"{name} is missing, or not what was published")
