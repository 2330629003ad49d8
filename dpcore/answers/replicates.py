"""Make the replicates of a release: what its model could have been if the noise had been different.

1. The pilot is fitted to the release's measurements more closely than the model is. It stands for the truth.
2. Each replicate gets fresh noise, at the recorded scales, around the pilot's counts, and is fitted as the model was.
3. A replicate differs from the pilot as the model differs from the truth: by the noise that it has fitted, and by the structure that it has
   smoothed away. So the root mean square of these differences is a standard error that includes bias.

Everything is computed from public measurements. The seed is their hash, so a release is written with the same replicates every time.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from dpcore.answers.release import Release
from dpcore.answers.uncertainty import Fit, Uncertainty
from dpcore.answers.usual import UsualErrors
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.models.fitting import How, Transcript
from dpcore.models.model import Weights

REPLICATES = 5
LARGE, LARGE_REPLICATES = 1 << 21, 4  # a dense model of more cells gets fewer
PILOT_PER_CELL = {"mwem": 1.0, "adaptive": 1.5}  # about twice what the model may fit; docs/decisions/0044
TRIES, PILOT_TRIES = 90, 80  # the pilot continues from the model; a fit that ends by itself takes less


def replicates_for(release: Release) -> int:
    """Return how many replicates a release gets."""
    return replicates_of(release.manifest["strategy"], release.universe.size)


def replicates_of(strategy: str, size: int) -> int:
    """Return how many replicates a release of a strategy gets, whose universe has `size` cells."""
    is_large = strategy != "adaptive" and size > LARGE
    return min(REPLICATES, LARGE_REPLICATES) if is_large else REPLICATES


def make_uncertainty(
    release: Release, *, released: Fit | None = None, pause: Callable[[], None] = lambda: None
) -> Uncertainty:
    """Fit the pilot of a release and its replicates. No file of the release is read.

    Args:
        release: The release.
        released: Its own model; None to fit it again.
        pause: Called after every fit.
    """
    transcript = release.transcript
    if released is None:
        released = release.fitted(transcript)[1]
        pause()
    # The pilot keeps what smoothing drops from the release, so that replicates show what that costs.
    closer = PILOT_PER_CELL.get(release.manifest["strategy"])
    how = How(per_cell=closer, tries=PILOT_TRIES, start=released.functions, smooth=False)
    model, pilot = release.fitted(transcript, how=how)
    rng = np.random.default_rng(seed_of(transcript))
    measurements = (*transcript.first, *transcript.later)
    expected = {measurement.axes: model.marginal(measurement.axes) for measurement in measurements}
    pure = release.manifest["spec"]["privacy"]["delta"] == 0
    usual = UsualErrors(model, measurements, list(release.universe.attributes.values()), rng)
    replicates = []
    for _ in range(replicates_for(release)):
        pause()
        redrawn = _redrawn(transcript, _of_rows(expected, rng, deviation=release.sizes_deviation), rng, pure=pure)
        model, replicate = release.fitted(redrawn, how=How(tries=TRIES), model=model)
        replicates.append(replicate)
        usual.add(model)
    pause()
    released, pilot, *replicates = alike([released, pilot, *replicates])
    return Uncertainty(released, pilot, tuple(replicates), usual.scale())


def seed_of(transcript: Transcript) -> int:
    """Return a seed that the measurements determine."""
    digest = hashlib.sha256()
    for measurement in (*transcript.first, *transcript.later):
        digest.update(measurement.to_bytes())
    return int.from_bytes(digest.digest()[:16])


def _of_rows(expected: dict[Axes, Weights], rng: np.random.Generator, *, deviation: float) -> dict[Axes, Weights]:
    """Return the counts of a table whose number of rows is as uncertain as the sizes of units make it."""
    if not deviation:
        return expected
    rows = max(0.0, rng.normal(1.0, deviation))
    return {axes: rows * counts for axes, counts in expected.items()}


def _redrawn(
    transcript: Transcript, expected: dict[Axes, Weights], rng: np.random.Generator, *, pure: bool
) -> Transcript:
    """Return measurements of the expected counts, with fresh noise of the recorded kind."""

    def drawn(measured: Measurement) -> Measurement:
        counts, size = expected[measured.axes], measured.deviations
        true = counts if measured.cell is None else counts.ravel()[measured.cell : measured.cell + 1]
        noise = rng.laplace(0.0, size / math.sqrt(2), true.shape) if pure else rng.normal(0.0, size, true.shape)
        return replace(measured, values=np.rint(true + noise).astype(np.int64))

    return Transcript(tuple(map(drawn, transcript.first)), tuple(map(drawn, transcript.later)))


def alike(fits: Sequence[Fit]) -> list[Fit]:
    """Return fits that all have functions of the same marginals, in the same order. Steps correct only what is wrong, so fits may differ."""
    shapes = {axes: function.shape for fit in fits for axes, function in fit.functions.items()}
    return [
        Fit(fit.total, {axes: fit.functions.get(axes, np.zeros(shape)) for axes, shape in shapes.items()})
        for fit in fits
    ]
