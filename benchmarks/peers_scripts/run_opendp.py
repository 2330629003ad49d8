"""Run opendp's AIM or MST, both built on mbi, on a table whose columns and sizes are all declared."""

import jax  # noqa: F401  opendp imports it late; it belongs to the imports, not to what is timed
import mbi  # noqa: F401  likewise
import numpy as np
import opendp.prelude as dp
import pandas as pd  # noqa: F401  likewise
import polars as pl
from measured import Job, run_measured

ALGORITHMS = {"aim": dp.mbi.AIM, "mst": dp.mbi.MST}


def make_rows(job: Job, codes: np.ndarray) -> np.ndarray:
    """Return as many rows as there were; adding or removing a row is what its distance counts."""
    dp.enable_features("contrib")
    settings = dict(job["settings"])
    algorithm = ALGORITHMS[settings.pop("mechanism")](**settings)
    # Cuts at each code give a column exactly its cells; keys would give it one more, for nulls.
    cuts = {column: list(range(size - 1)) for column, size in zip(job["columns"], job["sizes"], strict=True)}
    context = dp.Context.compositor(
        data=pl.DataFrame(codes, schema=job["columns"]).lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=job["rho"]),
    )
    table = context.query(rho=job["rho"]).contingency_table(cuts=cuts, algorithm=algorithm).release()
    return table.synthesize(rows=len(codes)).select(job["columns"]).to_numpy()


if __name__ == "__main__":
    run_measured(make_rows)
