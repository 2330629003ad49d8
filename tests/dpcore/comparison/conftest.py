"""A release of a table with persons, nulls and undeclared values, which the tests of a module share."""

import json
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dpcore import synthesize
from dpcore.comparison.compare import Written, compare
from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import budget_of
from dpcore.privacy.protection import Neighbours
from tests.conftest import SPEC, visits

MARKER = "zq7-marker"
"""Planted in the table as undeclared values and as ids. No file or stream outside the private folder may contain it."""


@dataclass(frozen=True)
class Site:
    """A folder with a table, its spec, its ledger, a release of it, and a comparison of that."""

    folder: Path
    spec: Path
    release: Path
    table: pd.DataFrame
    written: Written

    @property
    def found(self) -> dict[str, Any]:
        """The content of the comparison."""
        return dict(json.loads(self.written.data.read_text(encoding="utf-8")))


def marked_visits(rows: int) -> pd.DataFrame:
    """Make visits in which every fiftieth city and every id is a marker."""
    table = visits(rows, seed=5)
    table["person"] = [f"{MARKER}-{person}" for person in table["person"]]
    table.loc[table.index % 50 == 0, "city"] = [f"{MARKER}-{row}" for row in table.index if row % 50 == 0]
    table.loc[table.index % 3 == 0, "person"] = table["person"].iloc[0]
    return table


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Make a release in a folder of its own, which is the working folder."""
    folder = tmp_path_factory.mktemp("site")
    table = marked_visits(2000)
    table.to_csv(folder / "visits.csv", index=False)
    spec = folder / "spec.yaml"
    spec.write_text(SPEC.replace("rounds: 4", "rounds: 2"), encoding="utf-8")
    currency, cap = budget_of(10.0, delta=1e-9)
    with chdir(folder):
        with pytest.MonkeyPatch.context() as patch:
            # the private folder is beside the ledger's file, as it is in the tests
            for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY"):
                patch.delenv(name, raising=False)
            with open_ledger(create=True) as ledger:
                terms = {"unit": "person", "neighbours": Neighbours.ADD_REMOVE, "epsilon": 10.0, "delta": 1e-9}
                ledger.open_account("visits", currency=currency, cap=cap, **terms)
            release = Path(synthesize(spec).release).resolve()
            written = compare(release, spec)
        yield Site(folder, spec, release, table, written)
