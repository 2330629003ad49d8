"""A table on a Dask cluster of two processes: the same counts, whoever is killed, and not a word about the rows."""

import os
import random
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from dpcore.errors import SourceError, StepFailed
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.spec.engine import EngineSpec
from dpcore.spec.source import SourceSpec
from dpcore.tables.cluster import connected
from dpcore.tables.cluster.engine import DaskEngine
from dpcore.tables.engines import Engine, LocalEngine
from dpcore.tables.histogram import Histogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source
from dpcore.tables.ingest.tally import EDGES, tally_universe
from dpcore.tables.ingest.window import Window
from dpcore.universe import Boolean, Categorical, Every, Integer, Universe
from dpcore.universe.blocks import Calendar
from tests.campaign import often
from tests.conftest import visits
from tests.dpcore.tables.cluster.parts import Careless, Killing
from tests.dpcore.tables.sources.one_record import UNIVERSE as ANYTHING
from tests.dpcore.tables.sources.one_record import WORLDS, case, tables
from tests.dpcore.tables.sources.one_record import counted as counted_here
from tests.dpcore.tables.sources.one_record_kinds import partition_kinds

if TYPE_CHECKING:
    from distributed import Client

FILES = 5
FINGERPRINT = Fingerprint(bytes(32))
UNIVERSE = Universe(
    {
        "sex": Categorical(values=("F", "M"), missing=True),
        "age": Integer(minimum=0, maximum=99, width=25),
        "smoker": Boolean(),
        "city": Categorical(values=("north", "south", "west")),
    }
)
BY_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
BY_PERSON = replace(BY_ROW, unit="person", rows_per_unit=2)
WEIGHTED = replace(BY_PERSON, weight="times", row_weight=3)
SETS = [(), *((axis,) for axis in range(4)), *combinations(range(4), 2), (3, 0, 1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows in Parquet and in CSV files; people are spread over all files."""
    folder = tmp_path_factory.mktemp("cluster")
    for number in range(FILES):
        table = visits(800, seed=number)
        rng = np.random.default_rng(number)
        table["times"] = rng.choice(np.array(["1", "2.5", "9", "-1", "often", None], dtype=object), len(table))
        table["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, len(table)), unit="D")
        for kind in ("parquet", "csv"):
            (folder / kind).mkdir(exist_ok=True)
        table.to_parquet(folder / "parquet" / f"{number}.parquet", row_group_size=300)
        table.to_csv(folder / "csv" / f"{number}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steward") / "private"


@pytest.fixture(scope="module")
def client(private: Path) -> Iterator["Client"]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPFLOW_PRIVATE", str(private))
        with connected(EngineSpec(name="dask", workers=2)) as client:
            yield client
        assert [path.name for path in private.iterdir() if path.is_dir()] == []  # whoever was killed meanwhile


@pytest.fixture(scope="module")
def engine(client: "Client") -> DaskEngine:
    return DaskEngine(EngineSpec(name="dask"), connect=lambda _: nullcontext(client))


def read_and_count(engine: Engine, source: Source, coding: Coding, *, draws: Draws, universe: Universe) -> Histogram:
    records = engine.read(source, coding=coding, draws=draws, fingerprint=FINGERPRINT)
    return engine.count(records, universe)


def counted(
    engine: DaskEngine, source: Source, coding: Coding, *, universe: Universe = UNIVERSE
) -> tuple[Histogram, Histogram]:
    """Count here and there, with the same draws."""
    draws = Draws.fresh()
    here, there = (
        read_and_count(reader, source, coding, draws=draws, universe=universe) for reader in (LocalEngine(), engine)
    )
    return here, there


def assert_equal(here: Histogram, there: Histogram, sets: list[tuple[int, ...]]) -> None:
    there.prepare(sets)
    for axes in sets:
        left, right = here.marginal(axes), there.marginal(axes)
        assert left.shape == right.shape
        assert left.dtype == right.dtype
        assert np.array_equal(left, right)


@pytest.mark.parametrize(
    ("kind", "protection"),
    [("csv", BY_ROW), ("parquet", BY_PERSON), ("parquet", WEIGHTED)],
    ids=["row", "person", "weighted"],
)
def test_the_counts_are_those_of_one_machine(
    engine: DaskEngine, folder: Path, kind: str, protection: Protection
) -> None:
    source = Source.locate(SourceSpec(path=kind), base=folder)
    here, there = counted(engine, source, Coding(universe=UNIVERSE, protection=protection, window=None))
    assert_equal(here, there, SETS)
    assert there.marginal(()) > 0
    for histogram in (here, there):
        histogram.coarsen(1, np.array([0, 0, 1, 1]))
        histogram.coarsen(3, np.array([0, 1, 1]))
    assert_equal(here, there, [(4,), (5, 4), (0, 4), (2, 5, 0), (1, 3)])


def test_the_units_by_their_number_of_rows_are_those_of_one_machine(engine: DaskEngine, folder: Path) -> None:
    source = Source.locate(SourceSpec(path="parquet"), base=folder)
    coding = Coding(universe=UNIVERSE, protection=WEIGHTED, window=None, edges=EDGES)
    here, there = counted(engine, source, coding, universe=tally_universe(EDGES))
    assert_equal(here, there, [(), (0,)])
    assert (there.marginal((0,)) > 0).sum() > 2


def test_counts_by_norm_and_by_class_are_those_of_one_machine(engine: DaskEngine, folder: Path) -> None:
    source = Source.locate(SourceSpec(path="parquet"), base=folder)
    here, there = counted(engine, source, Coding(universe=UNIVERSE, protection=BY_PERSON, window=None, ends=(1, 4)))
    assert_equal(here, there, [(), (0,), (1, 3)])
    for histogram in (here, there):
        histogram.coarsen(1, np.array([0, 0, 1, 1]))
    for axes in ((0,), (3, 1), (4, 0)):
        for by_norm in (True, False):
            left, right = (each.contributions(axes, by_class=True, by_norm=by_norm) for each in (here, there))
            assert left.shape == (*left.shape[: len(axes)], 3)
            assert np.array_equal(left, right)
    by_norm, kept = (there.contributions((3,), by_class=False, by_norm=norm).sum() for norm in (True, False))
    assert by_norm > kept > 0


def test_a_window_leaves_the_same_rows_out(engine: DaskEngine, folder: Path) -> None:
    calendar = Calendar("day", Every.MONTH, start=date(2026, 1, 1), arrived=None, grace_days=0)
    window = Window.of(calendar, ["2026-02"])
    source = Source.locate(SourceSpec(path="parquet"), base=folder)
    coding = Coding(universe=UNIVERSE, protection=BY_PERSON, window=window, constant=("sex",))
    here, there = counted(engine, source, coding)
    all_rows = read_and_count(
        LocalEngine(), source, replace(coding, window=None), draws=Draws.fresh(), universe=UNIVERSE
    )
    assert_equal(here, there, SETS)
    assert 0 < there.marginal(()) < all_rows.marginal(())


def test_records_of_any_bytes_count_as_on_one_machine(engine: DaskEngine, tmp_path: Path) -> None:
    kind = partition_kinds()[1]
    chance, draws = random.Random(kind.name), Draws.fresh()  # noqa: S311  not for secrets
    changed, _ = tables([case(kind, chance, world, by_person=False) for world in WORLDS])
    coding = Coding(universe=ANYTHING, protection=BY_ROW, window=None)
    source = kind.write(tmp_path, changed)
    there = read_and_count(engine, source, coding, draws=draws, universe=ANYTHING)
    cells = there.marginal(tuple(range(len(ANYTHING.names))))
    here = counted_here(source, protection=BY_ROW, draws=draws)
    assert sum(counts.total() for counts in here.values()) == cells.sum()
    assert all(cells[world, *cell] == n for world, counts in here.items() for cell, n in counts.items())


def test_the_version_of_the_data_is_that_of_one_machine(engine: DaskEngine, folder: Path) -> None:
    source = Source.locate(SourceSpec(path="csv"), base=folder)
    coding = Coding(universe=UNIVERSE, protection=WEIGHTED, window=None)
    draws = Draws.fresh(unit_key=FINGERPRINT.unit_key())
    here, there = (
        (
            reader.read(source, coding=coding, draws=draws, fingerprint=FINGERPRINT).version,
            reader.version(source, coding=coding, undecided={"age"}, fingerprint=FINGERPRINT),
        )
        for reader in (LocalEngine(), engine)
    )
    assert here == there


def test_a_worker_that_is_killed_while_it_reads_changes_no_count(
    engine: DaskEngine, folder: Path, tmp_path: Path
) -> None:
    whole = Source.locate(SourceSpec(path="parquet"), base=folder)
    (tmp_path / "life").touch()
    draws, coding = Draws.fresh(), Coding(universe=UNIVERSE, protection=WEIGHTED, window=None)
    here = read_and_count(LocalEngine(), whole, coding, draws=draws, universe=UNIVERSE)
    # the last one to be read: others have been shuffled by then, to workers that are lost
    deadly = Source((*whole.parts[:-1], Killing(whole.parts[-1], lives=tmp_path)))
    there = read_and_count(engine, deadly, coding, draws=draws, universe=UNIVERSE)
    assert list(tmp_path.iterdir()) == []
    assert_equal(here, there, SETS)


@pytest.mark.campaign
def test_workers_that_are_killed_between_two_questions_change_no_count(
    engine: DaskEngine, client: "Client", folder: Path
) -> None:
    source = Source.locate(SourceSpec(path="parquet"), base=folder)
    here, there = counted(engine, source, Coding(universe=UNIVERSE, protection=BY_PERSON, window=None))
    assert_equal(here, there, SETS[:3])
    workers = list(client.run(os.getpid).values())  # each of them has rows that nobody else has
    for worker in workers[: often(1, campaign=len(workers))]:
        os.kill(worker, signal.SIGKILL)
    assert_equal(here, there, SETS[3:])


def test_a_piece_that_takes_down_every_worker_fails_in_public_words(
    engine: DaskEngine, client: "Client", folder: Path, tmp_path: Path
) -> None:
    whole = Source.locate(SourceSpec(path="parquet"), base=folder)
    for life in range(10):
        (tmp_path / str(life)).touch()
    client.cluster.scheduler.allowed_failures = 0  # as patience goes, three; each of them takes seconds
    deadly = Source((Killing(whole.parts[0], lives=tmp_path),))
    with pytest.raises(StepFailed, match="workers were killed repeatedly"):
        engine.read(deadly, coding=Coding(universe=UNIVERSE, protection=BY_ROW, window=None), draws=Draws.fresh())


def test_a_file_that_breaks_on_a_worker_is_named_and_nothing_of_it(engine: DaskEngine, folder: Path) -> None:
    whole = Source.locate(SourceSpec(path="csv"), base=folder)
    careless = Source((*whole.parts[1:], Careless(whole.parts[0])))
    with pytest.raises(SourceError) as caught:
        engine.read(careless, coding=Coding(universe=UNIVERSE, protection=BY_PERSON, window=None), draws=Draws.fresh())
    assert str(caught.value) == whole.parts[0].damaged
    assert caught.value.__context__ is caught.value.__cause__ is None


def test_the_workers_files_and_words_are_the_stewards(client: "Client", private: Path) -> None:
    (folder,) = [path for path in private.iterdir() if path.is_dir()]
    workers = client.run(_place)
    assert all(Path(place).is_relative_to(folder) for place, _, _ in workers.values())
    assert all(output == error == str(private / "output.log") for _, output, error in workers.values())
    assert folder.stat().st_mode & 0o777 == 0o700


def test_nobody_without_the_clusters_certificate_talks_to_it(client: "Client") -> None:
    from distributed import Client  # noqa: PLC0415

    address = client.scheduler.address
    assert address.startswith("tls://127.0.0.1:")
    with pytest.raises(OSError, match=r"closed|reset|Timed out"):
        Client(address.replace("tls:", "tcp:"), timeout=0.5, set_as_default=False)


def _place(dask_worker: Any) -> tuple[str, str, str]:
    return dask_worker.local_directory, *(str(Path(f"/proc/self/fd/{stream}").readlink()) for stream in (1, 2))
