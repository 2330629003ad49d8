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

REPLICATES = 8  # of a model that is fitted within seconds
OTHER_FITS = 3  # besides the replicates: of the model, of its pilot, and to the earlier rounds alone
LARGE, LARGE_REPLICATES = 1 << 21, 4  # from this many cells on, a dense model gets fewer
HUGE, HUGE_REPLICATES = 1 << 24, 3
PILOT_PER_CELL = {
    "mwem": 1.0,
    "adaptive": 1.5,
    "pmw": None,
}  # twice, or one and a half times, what the model may fit; docs/decisions/0044
TRIES, PILOT_TRIES = 90, 80  # the pilot continues from the model; a fit that ends by itself takes less
RANGES_EACH = 60  # of each marginal that is predicted
FEWEST_PREDICTED = 3  # marginals


def replicates_for(release: Release) -> int:
    """Return how many replicates a release gets."""
    return replicates_of(release.manifest["strategy"], release.universe.size)


def replicates_of(strategy: str, size: int) -> int:
    """Return how many replicates a release of a strategy gets, whose universe has `size` cells."""
    cells = 0 if strategy == "adaptive" else size
    fewer = HUGE_REPLICATES if cells > HUGE else LARGE_REPLICATES
    return min(REPLICATES, fewer) if cells > LARGE else REPLICATES


def make_uncertainty(release: Release, *, pause: Callable[[], None] = lambda: None) -> Uncertainty:
    """Fit the model of a release again, its pilot and its replicates. No file of the release is read.

    Args:
        release: The release.
        pause: Called after every fit.
    """
    transcript, replicates = release.transcript, replicates_for(release)
    used, functions = release.fitted(transcript)
    model = Fit(used.total, functions)
    pause()
    # The pilot keeps what smoothing drops from the release, so that replicates show what that costs.
    closer = PILOT_PER_CELL[release.manifest["strategy"]]
    how = How(per_cell=closer, tries=PILOT_TRIES, start=functions, smooth=False)
    used, functions = release.fitted(transcript, how=how, model=used)
    pilot = Fit(used.total, functions)
    rng = np.random.default_rng(seed_of(transcript))
    measurements = (*transcript.first, *transcript.later)
    expected = {each.axes: used.marginal(each.axes) for each in measurements}
    pure = release.manifest["spec"]["privacy"]["delta"] == 0
    usual = UsualErrors(used, measurements, list(release.universe.attributes.values()), rng)
    made: list[Fit] = []
    for _ in range(replicates):
        pause()
        redrawn = _redrawn(transcript, expected, rng, pure=pure)
        used, functions = release.fitted(redrawn, how=How(tries=TRIES), model=used)
        made.append(Fit(used.total, functions))
        usual.add(used)
    pause()
    scale = replace(usual.scale(), unmeasured=rounded(_unmeasured(release, rng)))
    model, pilot, *made = _alike([model, pilot, *made])
    return Uncertainty(model, pilot, tuple(made), scale)


def seed_of(transcript: Transcript) -> int:
    """Return a seed that the measurements determine."""
    digest = hashlib.sha256()
    for each in (*transcript.first, *transcript.later):
        digest.update(each.to_bytes())
    return int.from_bytes(digest.digest()[:16])


def _redrawn(
    transcript: Transcript, expected: dict[Axes, Weights], rng: np.random.Generator, *, pure: bool
) -> Transcript:
    """Return measurements of the expected counts, with fresh noise of the recorded kind."""

    def drawn(each: Measurement) -> Measurement:
        counts = expected[each.axes]
        true = counts if each.cell is None else counts.ravel()[each.cell : each.cell + 1]
        noise = (
            rng.laplace(0.0, each.noise / math.sqrt(2), true.shape) if pure else rng.normal(0.0, each.noise, true.shape)
        )
        return Measurement(each.step, each.axes, each.cell, np.rint(true + noise).astype(np.int64), each.noise)

    return Transcript(tuple(map(drawn, transcript.first)), tuple(map(drawn, transcript.later)))


def _unmeasured(release: Release, rng: np.random.Generator) -> float:
    """Return the variance of counts over columns that were never measured together, as a multiple of n (1 - n / N).

    It is learned from the last third of the rounds: their marginals are predicted by a model that was fitted to the earlier ones. The
    squared error in random ranges, less what the noise explains, is that of structure that the model could not know.
    """
    transcript = release.transcript
    known = len(transcript.later) * 2 // 3
    if not known or release.manifest["strategy"] == "pmw":
        return 0.0
    model = release.fit(Transcript(transcript.first, transcript.later[:known]))
    sums = np.array([_predicted(each, model, rng) for each in transcript.later[known:]])
    squares, rows = sums.T
    if len(sums) < FEWEST_PREDICTED or rows.sum() <= 0:
        return 0.0
    found = float(squares.sum() / rows.sum())
    error = math.sqrt(float(np.sum((squares - found * rows) ** 2)) * len(sums) / (len(sums) - 1)) / float(rows.sum())
    return max(0.0, found - error)  # with little budget the noise alone would often give a large number


def _predicted(measured: Measurement, model: Model, rng: np.random.Generator) -> tuple[float, float]:
    """Return the squared error of a prediction that noise does not explain, and n (1 - n / N), summed over random ranges."""
    predicted = model.marginal(measured.axes)
    squares = expected = 0.0
    for _ in range(RANGES_EACH):
        ends = [sorted(rng.integers(0, size, 2).tolist()) for size in predicted.shape]
        inside = tuple(slice(first, last + 1) for first, last in ends)
        rows = float(predicted[inside].sum())
        squares += (float(measured.values[inside].sum()) - rows) ** 2 - predicted[inside].size * measured.noise**2
        expected += max(rows, 1.0) * max(1 - rows / model.total, 0.0)
    return squares, expected


def _alike(fits: Sequence[Fit]) -> list[Fit]:
    """Return fits that all have functions of the same marginals, in the same order. `pmw` corrects only what is wrong, so fits may differ."""
    shapes = {axes: function.shape for fit in fits for axes, function in fit.functions.items()}
    return [
        Fit(fit.total, {axes: fit.functions.get(axes, np.zeros(shape)) for axes, shape in shapes.items()})
        for fit in fits
    ]
