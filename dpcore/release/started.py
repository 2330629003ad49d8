"""The start of a release's model as a file: the functions of a public table, from which its weights have started.

Without it nobody could restore the model from the release alone, since the functions in `uncertainty.parquet` are relative to the start.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import UsageError
from dpcore.models.start import Start
from dpcore.object_store import AnyPath
from dpcore.release.integrity import open_regular, refuse_store_error

START = "start.parquet"
_METADATA = b"dpflow-start"


def start_table(start: Start) -> pa.Table:
    """Return the file's table: a row for each cell of each function."""
    public = {
        "sets": [{"axes": axes, "shape": each.shape} for axes, each in start.functions.items()],
        "news": start.news.hex(),
    }
    values = np.concatenate([each.ravel() for each in start.functions.values()]).astype(np.float32)
    metadata = {_METADATA: json.dumps(public, separators=(",", ":")).encode()}
    return pa.table([pa.array(values)], schema=pa.schema([("logarithm", pa.float32())], metadata=metadata))


def start_options(table: pa.Table) -> dict[str, Any]:
    """Return the options for a small file of floats: their bytes are kept apart."""
    return {"use_dictionary": False, "column_encoding": dict.fromkeys(table.column_names, "BYTE_STREAM_SPLIT")}


def read_start(path: AnyPath) -> Start:
    """Restore the start that `start_table` has written.

    Raises:
        UsageError: If the file cannot be read.
    """
    try:
        with open_regular(path) as opened:
            table = pq.read_table(opened)
        public = json.loads((table.schema.metadata or {})[_METADATA])
        values = table["logarithm"].to_numpy().astype(np.float64)
        functions, begin = {}, 0
        for each in public["sets"]:
            size = int(np.prod(each["shape"], dtype=np.int64))
            functions[tuple(each["axes"])] = values[begin : begin + size].reshape(each["shape"])
            begin += size
        return Start(functions, float.fromhex(public["news"]))
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, RecursionError) as error:
        refuse_store_error(path, error)
        raise UsageError(f"{START} cannot be read; copy the release again") from None
