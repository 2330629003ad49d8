"""Run smartnoise-synth's MWEM on a table of codes."""

import numpy as np
from measured import Job, run_measured
from snsynth.mwem import MWEMSynthesizer
from snsynth.transform import NoTransformer


def make_rows(job: Job, codes: np.ndarray) -> np.ndarray:
    """Return as many rows as there were."""
    settings = dict(job["settings"])
    if settings.pop("pairs", False):
        settings["splits"] = _pairs(job["sizes"])
    mwem = MWEMSynthesizer(job["epsilon"], **settings)
    mwem.fit(codes, transformer=NoTransformer())
    return np.asarray(mwem.sample(len(codes)))


def _pairs(sizes: list[int]) -> list[np.ndarray]:
    # The largest column with the smallest and so on: the histograms stay small, and no data is asked.
    order = list(np.argsort(sizes, kind="stable"))
    pairs = []
    while order:
        pairs.append(np.array([order.pop(), *([order.pop(0)] if order else [])]))
    return pairs


if __name__ == "__main__":
    run_measured(make_rows)
