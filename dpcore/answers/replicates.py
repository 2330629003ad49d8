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
from dpcore.answers.usual import UsualErrors, rounded
from dpcore.marginals.measurements import Measurement
from dpcore.marginals.workload import Axes
from dpcore.models import Model
from dpcore.models.fitting import How, Transcript
from dpcore.models.model import Weights

REPLICATES = 8
LARGE, LARGE_REPLICATES = 1 << 21, 4  # a dense model of more cells gets fewer
OTHER_FITS = 2  # besides the replicates: of the pilot, and to the earlier rounds alone
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
        redrawn = _redrawn(transcript, expected, rng, pure=pure)
        model, replicate = release.fitted(redrawn, how=How(tries=TRIES), model=model)
        replicates.append(replicate)
        usual.add(model)
    pause()
    scale = replace(usual.scale(), unmeasured=rounded(_unmeasured(release, rng)))
    released, pilot, *replicates = alike([released, pilot, *replicates])
    return Uncertainty(released, pilot, tuple(replicates), scale)


def seed_of(transcript: Transcript) -> int:
    """Return a seed that the measurements determine."""
    digest = hashlib.sha256()
    for measurement in (*transcript.first, *transcript.later):
        digest.update(measurement.to_bytes())
    return int.from_bytes(digest.digest()[:16])


def _redrawn(
    transcript: Transcript, expected: dict[Axes, Weights], rng: np.random.Generator, *, pure: bool
) -> Transcript:
    """Return measurements of the expected counts, with fresh noise of the recorded kind."""

    def drawn(measured: Measurement) -> Measurement:
        counts, size = expected[measured.axes], measured.noise
        true = counts if measured.cell is None else counts.ravel()[measured.cell : measured.cell + 1]
        noise = rng.laplace(0.0, size / math.sqrt(2), true.shape) if pure else rng.normal(0.0, size, true.shape)
        return replace(measured, values=np.rint(true + noise).astype(np.int64))

    return Transcript(tuple(map(drawn, transcript.first)), tuple(map(drawn, transcript.later)))


def _unmeasured(release: Release, rng: np.random.Generator) -> float:
    """Return the variance of counts over columns that were never measured together, as a multiple of n (1 - n / N).

    It is learned from the last third of the rounds: their marginals are predicted by a model that was fitted to the earlier ones. The
    squared error in random ranges, less what the noise explains, is that of structure that the model could not know.
    """
    transcript = release.transcript
    marginals = [measurement for measurement in transcript.later if measurement.cell is None]
    earlier = len(marginals) * 2 // 3
    if not earlier:
        return 0.0
    model = release.fit(Transcript(transcript.first, tuple(marginals[:earlier])))
    sums = np.array([_predicted(measurement, model, rng) for measurement in marginals[earlier:]])
    squares, rows = sums.T
    if len(sums) < 3 or rows.sum() <= 0:  # too few to say
        return 0.0
    ratio = float(squares.sum() / rows.sum())
    error = math.sqrt(float(np.sum((squares - ratio * rows) ** 2)) * len(sums) / (len(sums) - 1)) / float(rows.sum())
    return max(0.0, ratio - error)  # with little budget the noise alone would often give a large number


def _predicted(
    measured: Measurement, model: Model, rng: np.random.Generator, *, ranges: int = 60
) -> tuple[float, float]:
    """Return the squared error of a prediction that noise does not explain, and n (1 - n / N), summed over random ranges."""
    predicted = model.marginal(measured.axes)
    squares = expected = 0.0
    for _ in range(ranges):
        ends = [sorted(rng.integers(0, size, 2).tolist()) for size in predicted.shape]
        inside = tuple(slice(first, last + 1) for first, last in ends)
        rows = float(predicted[inside].sum())
        squares += (float(measured.values[inside].sum()) - rows) ** 2 - predicted[inside].size * measured.noise**2
        expected += max(rows, 1.0) * max(1 - rows / model.total, 0.0)
    return squares, expected


def alike(fits: Sequence[Fit]) -> list[Fit]:
    """Return fits that all have functions of the same marginals, in the same order. Steps correct only what is wrong, so fits may differ."""
    shapes = {axes: function.shape for fit in fits for axes, function in fit.functions.items()}
    return [
        Fit(fit.total, {axes: fit.functions.get(axes, np.zeros(shape)) for axes, shape in shapes.items()})
        for fit in fits
    ]
