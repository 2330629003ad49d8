"""Open a release from its folder alone: its universe, its measurements, and the model that was fitted to them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpcore.errors import UsageError
from dpcore.measurements import EXPECTED_TOTAL, Measurement
from dpcore.models import Model
from dpcore.models.fitting import SignedSteps, Transcript, fit_dense, fit_factored
from dpcore.release.dataset_folder import LATEST
from dpcore.release.integrity import LARGEST_MANIFEST, LARGEST_NOTE, MANIFEST, one_line, open_regular, read_regular
from dpcore.release.measured import MEASUREMENTS, read_measurements
from dpcore.resolutions import Resolutions
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
    """

    folder: Path
    manifest: Mapping[str, Any]
    universe: Universe
    resolutions: Resolutions
    measurements: tuple[Measurement, ...]

    @property
    def name(self) -> str:
        """The dataset."""
        return str(self.manifest["dataset"])

    @property
    def transcript(self) -> Transcript:
        """The measurements that the model was fitted to."""
        return Transcript.of(each for each in self.measurements if each.step != EXPECTED_TOTAL)

    @cached_property
    def model(self) -> Model:
        """The last model of the run, fitted again. It takes seconds, and is then kept."""
        return self.fit(self.transcript)

    def fit(self, transcript: Transcript, *, per_cell: float | None = None) -> Model:
        """Fit the release's kind of model to a transcript, as the run did.

        Args:
            transcript: Measurements like those of the release.
            per_cell: See `fit_dense`; None for what the run used.
        """
        shape, rough = self.universe.shape, {} if per_cell is None else {"per_cell": per_cell}
        match self.manifest["strategy"]:
            case "mwem":
                return fit_dense(shape, transcript, orders=self.universe.orders, **rough)[0]
            case "pmw":
                told = self.manifest["spec"]["strategy"]
                return SignedSteps.of(shape, rounds=told["rounds"], alpha=told["alpha"]).fit(shape, transcript)
            case "adaptive":
                return fit_factored(self.resolutions, transcript, orders=self.universe.orders, **rough)[0]
        raise UsageError(f"the release was made by another version of dpflow; answer with the one in its {MANIFEST}")


def open_release(folder: str | Path) -> Release:
    """Read a release from its folder, or the newest one from the folder of its dataset.

    Raises:
        UsageError: If there is no release, or it is damaged or too old.
    """
    path = _newest(Path(folder))
    manifest = _manifest(path)
    _require_unchanged(path, manifest)
    resolutions, measurements = read_measurements(path / MEASUREMENTS)
    try:
        universe = restore_universe(
            manifest["spec"]["universe"], described=manifest["universe"], discovered=manifest["discovered"]
        )
    except (KeyError, TypeError, AttributeError):
        raise UsageError(
            f"{one_line(path)} was made by an earlier version of dpflow, which kept too little for answers; make a new release"
        ) from None
    if universe.shape != resolutions.shape[: resolutions.columns]:
        raise UsageError(f"the files of {one_line(path)} contradict each other; copy the release again")
    return Release(path, manifest, universe, resolutions, measurements)


def _newest(folder: Path) -> Path:
    """Follow the note in the folder of a dataset."""
    try:
        note = json.loads(read_regular(folder / LATEST, limit=LARGEST_NOTE))
        return folder / Path(str(note["release"])).name
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return folder


def _manifest(folder: Path) -> Mapping[str, Any]:
    try:
        manifest = json.loads(read_regular(folder / MANIFEST, limit=LARGEST_MANIFEST))
    except OSError:
        raise UsageError(
            f"{one_line(folder)} has no readable {MANIFEST}; name the folder of a release, such as releases/DATASET/RELEASE"
        ) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{MANIFEST} of {one_line(folder)} is damaged; copy the release again") from None
    if not isinstance(manifest, dict) or "release" not in manifest:
        raise UsageError(f"{one_line(folder)} is not a release; name a folder that dpflow has written")
    return manifest


def _require_unchanged(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Raise if the measurements are not those that were published."""
    try:
        (wanted,) = (each["sha256"] for each in manifest["files"] if each["path"] == MEASUREMENTS)
        with open_regular(folder / MEASUREMENTS) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, KeyError, TypeError, ValueError):
        wanted, found = None, ""
    if wanted != found:
        raise UsageError(f"{MEASUREMENTS} of {one_line(folder)} is missing or damaged; copy the release again")
