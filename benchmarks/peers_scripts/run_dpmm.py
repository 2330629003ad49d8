"""Run dpmm's AIM or MST on a table whose columns and sizes are all declared."""

import numpy as np
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline
from measured import Job, run_measured

PIPELINES = {"aim": AIMPipeline, "mst": MSTPipeline}


def make_rows(job: Job, codes: np.ndarray) -> np.ndarray:
    """Return as many rows as there were; the whole budget goes to the model, none to binning."""
    settings = dict(job["settings"])
    pipeline = PIPELINES[settings.pop("mechanism")](
        epsilon=job["epsilon"],
        delta=job["delta"],
        max_model_size=settings.pop("max_model_size", None),
        n_jobs=1,  # its pools copy the model for each task and are never joined: slower, and not countable
        disable_processing=True,
        gen_kwargs=settings,
    )
    pipeline.fit(
        pd.DataFrame(codes, columns=job["columns"]), domain=dict(zip(job["columns"], job["sizes"], strict=True))
    )
    return pipeline.generate(n_records=len(codes))[job["columns"]].to_numpy()


if __name__ == "__main__":
    run_measured(make_rows)
