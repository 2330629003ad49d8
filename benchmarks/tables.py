"""The real tables for measuring accuracy, read from a folder outside the project and never copied into it.

Each has a spec in `specs`, which declares its universe. Errors are measured on the codes that this universe assigns to true and synthetic
rows. A release is made from the original table, with its texts, nulls and amounts.
"""

import os
import sys
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from dpcore.spec import load_spec
from dpcore.tables.reading.encoding import encode_rows
from dpcore.universe import Universe

SPECS = Path(__file__).parent / "specs"
ADULT7 = ("workclass", "education-num", "marital-status", "race", "sex", "income>50K", "hours-per-week")
# The chapters of ICD-9-CM by their first codes. Diabetes itself, 250, is separated from its chapter, because it is the subject here.
CHAPTER_STARTS = (1, 140, 240, 280, 290, 320, 390, 460, 520, 580, 630, 680, 710, 740, 760, 780, 800, 1000)
DIABETES = 250


@dataclass(frozen=True, eq=False)
class BenchmarkTable:
    """An integer-coded table, the number of values of each of its columns, and the table before it was coded."""

    name: str
    frame: pd.DataFrame
    sizes: dict[str, int]
    original: pd.DataFrame
    universe: Universe

    def coded(self, rows: pa.Table) -> pd.DataFrame:
        """Return the codes of rows in the original's schema, such as synthetic rows."""
        codes, kept = encode_rows(self.universe, rows)
        if not kept.all():
            sys.exit(f"benchmarks: {self.name} has rows outside its declared universe; correct {self.name}.yaml")
        return pd.DataFrame(dict(zip(self.universe.names, codes, strict=True))).astype("int64")


def shared_data() -> Path:
    """Return the folder of benchmark tables: `$DPFLOW_BENCH_DATA`, or `shared/data` beside the project."""
    folder = Path(os.environ.get("DPFLOW_BENCH_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        sys.exit(f"benchmarks: no folder {folder}; set DPFLOW_BENCH_DATA to where the tables are")
    return folder


def load(name: str) -> BenchmarkTable:
    """Load a table by its name, and code it by its spec."""
    if name not in TABLES:
        sys.exit(f"benchmarks: unknown table {name}; choose from {', '.join(TABLES)}")
    return code(name, TABLES[name](shared_data()), load_spec(SPECS / f"{name}.yaml").universe)


def code(name: str, original: pd.DataFrame, universe: Universe) -> BenchmarkTable:
    """Encode a table by a universe. Columns that the universe does not declare are left out."""
    sizes = dict(zip(universe.names, universe.shape, strict=True))
    kept = original[list(sizes)]
    table = BenchmarkTable(name, pd.DataFrame(), sizes, kept, universe)
    return BenchmarkTable(name, table.coded(pa.Table.from_pandas(kept, preserve_index=False)), sizes, kept, universe)


def icd9_chapter(diagnosis: str) -> str:
    """Return the chapter of an ICD-9 code as its range of codes; supplementary codes are grouped by their letter.

    >>> icd9_chapter("8"), icd9_chapter("250.83"), icd9_chapter("276"), icd9_chapter("V57")
    ('001-139', '250', '240-279', 'V')
    """
    if not diagnosis[0].isdigit():
        return diagnosis[0]
    number = int(float(diagnosis))
    if number == DIABETES:
        return str(DIABETES)
    place = bisect_right(CHAPTER_STARTS, number)
    return f"{CHAPTER_STARTS[place - 1]:03}-{CHAPTER_STARTS[place] - 1}"


def _adult_discretized(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "adult_discretized.parquet").astype("int64")


def _adult7(folder: Path) -> pd.DataFrame:
    frame = _adult_discretized(folder)[list(ADULT7)]
    frame["hours-per-week"] //= 10
    return frame


def _adult_full(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "adult.parquet")


def _nist_national2019(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "nist_national2019.parquet")


def _census_kdd(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "census_kdd_full.parquet")


def _diabetes(folder: Path) -> pd.DataFrame:
    """Load the visits, with each diagnosis column's 750 or so codes merged into chapters, since they are far too many for 3-way marginals."""
    frame = pd.read_parquet(folder / "diabetes_130us.parquet")
    for column in ("diag_1", "diag_2", "diag_3"):
        frame[column] = frame[column].map(icd9_chapter, na_action="ignore")
    return frame


TABLES: dict[str, Callable[[Path], pd.DataFrame]] = {
    "adult7": _adult7,
    "adult_discretized": _adult_discretized,
    "adult_full": _adult_full,
    "nist_national2019": _nist_national2019,
    "census_kdd": _census_kdd,
    "diabetes": _diabetes,
}
