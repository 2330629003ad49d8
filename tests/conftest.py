"""A small private table with a spec and an account, in a folder of its own that is also the working folder."""

import gc
import importlib
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings

from dpcore.ledger import open_ledger
from dpcore.privacy.accounting import Currency, budget_of
from dpcore.privacy.protection import Neighbours
from tests.campaign import CAMPAIGN
from tests.fixed_draws import pytest_runtest_setup  # noqa: F401  a hook
from tests.postgres import postgres_for_prefect, postgres_server  # noqa: F401  fixtures for all tests
from tests.rough_models import rough_models  # noqa: F401  likewise
from tests.schedule import pytest_collection_modifyitems, pytest_xdist_make_scheduler  # noqa: F401  hooks

# The same examples on every machine, without a deadline: benchmarks measure speed, tests do not.
settings.register_profile("dpflow", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("quick", parent=settings.get_profile("dpflow"), max_examples=15)
settings.register_profile("campaign", parent=settings.get_profile("dpflow"), max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "campaign" if CAMPAIGN else "dpflow"))


def pytest_configure() -> None:
    """Make every HTTP client, in the tests and in the programs they start, load one certificate instead of the system's bundle.

    OpenSSL takes longer to load the bundle than a server to answer, and no test uses TLS with a public host, so an authority that has
    signed nothing is enough. This is a hook, so that a benchmark, which only imports this file, measures what users have.
    """
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("nobody.pem"))
    importlib.import_module("tests.few_replicates")
    os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and output to a terminal that wide is wrapped


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let Python's garbage collector rest while tests are collected: nearly all that this makes is kept."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Let Python's garbage collector leave alone what collecting has made: it would look through millions of objects again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let it look again at the end: otherwise libraries report at exit that their objects were never freed."""
    gc.unfreeze()


SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: person, max_rows_per_unit: 2, neighbours: add-remove, epsilon: 1.0, delta: 1e-9}
universe:
  sex: {type: categorical, values: [F, M], missing: true}
  age: {type: integer, min: 0, max: 99, width: 25}
  smoker: {type: boolean}
  city: {type: categorical, values: [north, south, west], outside: other}
workload: {marginals: 2}
strategy: {name: mwem, rounds: 4}
"""


@dataclass(frozen=True)
class Workspace:
    """A folder with a spec, and the actions of tests on them."""

    folder: Path
    spec: Path

    def write_spec(self, *changes: tuple[str, str]) -> Path:
        text = SPEC
        for old, new in changes:
            if old not in text:
                message = f"the spec has no {old!r}"
                raise ValueError(message)
            text = text.replace(old, new)
        self.spec.write_text(text, encoding="utf-8")
        return self.spec

    def open_account(
        self, *, epsilon: float = 10.0, delta: float = 1e-9, unit: str = "person", currency: Currency | None = None
    ) -> None:
        currency, cap = budget_of(epsilon, delta=delta, currency=currency)
        with open_ledger(create=True) as ledger:
            ledger.open_account(
                "visits",
                currency=currency,
                cap=cap,
                epsilon=epsilon,
                delta=delta,
                unit=unit,
                neighbours=Neighbours.ADD_REMOVE,
            )


def visits(rows: int, *, seed: int) -> pd.DataFrame:
    """Make a table with nulls, repeated persons and values outside the universe."""
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 110, rows)
    return pd.DataFrame(
        {
            "person": [f"p{number}" for number in rng.integers(0, rows * 2 // 3, rows)],
            "sex": rng.choice(np.array(["F", "M", None], dtype=object), rows, p=[0.6, 0.35, 0.05]),
            "age": age,
            "smoker": rng.random(rows) < np.where(age > 50, 0.1, 0.4),
            "city": rng.choice(["north", "south", "west", "elsewhere"], rows, p=[0.5, 0.3, 0.19, 0.01]),
        }
    )


@cache
def visits_file() -> str:
    """Return the table of every workspace, as CSV."""
    return str(visits(3000, seed=1).to_csv(index=False))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Work in a fresh folder with a table and a spec. The test opens the account."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPFLOW_LEDGER_URL", raising=False)
    monkeypatch.delenv("DPFLOW_PRIVATE", raising=False)
    monkeypatch.delenv("DPFLOW_REGISTRY", raising=False)
    (tmp_path / "visits.csv").write_text(visits_file(), encoding="utf-8")
    space = Workspace(tmp_path, tmp_path / "spec.yaml")
    space.write_spec()
    return space


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """Mount a separate file system on a folder. Only root can."""
    folder.mkdir()
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not allow mounting a file system")
    try:
        yield
    finally:
        subprocess.run(["/bin/umount", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Make a read-only folder: by its mode or, for root, who ignores modes, by a read-only file system."""
    if os.geteuid() == 0:
        with small_disk(folder, "ro"):
            yield
        return
    folder.mkdir(mode=0o500)
    yield
    folder.chmod(0o700)


@pytest.fixture
def tree_of() -> Callable[[Path], dict[str, bytes]]:
    """Return a function that reads every file below a folder, to compare before and after."""
    return lambda folder: {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
