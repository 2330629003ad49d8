"""A table on a Dask cluster of two processes: the same counts, whoever is killed, and not a word about the rows."""

import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import partial
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
from dpcore.tables.cluster.histogram import ClusterHistogram
from dpcore.tables.cluster.records import ingest_on, readable_version_on
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Fingerprint, Source, ingest, readable_version
from dpcore.tables.ingest.tally import TALLY
from dpcore.tables.ingest.window import Window
from dpcore.universe import Boolean, Categorical, Every, Integer, Universe
from dpcore.universe.blocks import Calendar
from tests.conftest import visits
from tests.dpcore.tables.cluster.parts import Careless, Killing
from tests.dpcore.tables.sources.one_record import UNIVERSE as ANYTHING
from tests.dpcore.tables.sources.one_record import WORLDS, Kind, case, tables
from tests.dpcore.tables.sources.one_record import counted as counted_here
from tests.dpcore.tables.sources.one_record_kinds import csv_kinds, parquet_kinds, partition_kinds

if TYPE_CHECKING:
    from distributed import Client

FILES = 5
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


def counted(client: "Client", source: Source, coding: Coding) -> tuple[Histogram, Histogram]:
    """Count here and there, with the same draws."""
    draws = Draws.fresh()
    here = LocalHistogram.count(ingest(source, coding=coding, draws=draws), coding.universe)
    there = ClusterHistogram(ingest_on(client, source, coding=coding, draws=draws), coding.universe)
    return here, there


def assert_equal(here: Histogram, there: Histogram, sets: list[tuple[int, ...]]) -> None:
    there.prepare(sets)
    for axes in sets:
        left, right = here.marginal(axes), there.marginal(axes)
        assert left.shape == right.shape
        assert left.dtype == right.dtype
        assert np.array_equal(left, right)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("protection", [BY_ROW, BY_PERSON, WEIGHTED], ids=["row", "person", "weighted"])
def test_the_counts_are_those_of_one_machine(client: "Client", folder: Path, kind: str, protection: Protection) -> None:
    source = Source.locate(SourceSpec(path=kind), base=folder)
    here, there = counted(client, source, Coding(universe=UNIVERSE, protection=protection, window=None))
    assert_equal(here, there, SETS)
    assert there.marginal(()) > 0


@pytest.mark.parametrize("protection", [BY_PERSON, WEIGHTED], ids=["person", "weighted"])
def test_the_units_by_their_number_of_rows_are_those_of_one_machine(
    client: "Client", folder: Path, protection: Protection
) -> None:
    source = Source.locate(SourceSpec(path="parquet"), base=folder)
    coding = Coding(universe=UNIVERSE, protection=protection, window=None, tallies=True)
    draws = Draws.fresh()
    here = LocalHistogram.count(ingest(source, coding=coding, draws=draws), TALLY)
    there = ClusterHistogram(ingest_on(client, source, coding=coding, draws=draws), TALLY)
    assert_equal(here, there, [(), (0,)])
    assert (there.marginal((0,)) > 0).sum() > 2


def test_a_window_leaves_the_same_rows_out(client: "Client", folder: Path) -> None:
    calendar = Calendar("day", Every.MONTH, start=date(2026, 1, 1), arrived=None, grace_days=0)
    window = Window.of(calendar, ["2026-02"])
    source = Source.locate(SourceSpec(path="parquet"), base=folder)
    coding = Coding(universe=UNIVERSE, protection=BY_PERSON, window=window)
    here, there = counted(client, source, coding)
    _, all_rows = counted(client, source, replace(coding, window=None))
    assert_equal(here, there, SETS)
    assert 0 < there.marginal(()) < all_rows.marginal(())


def test_axes_that_are_taken_together_count_the_same(client: "Client", folder: Path) -> None:
    source = Source.locate(SourceSpec(path="parquet"), base=folder)
    here, there = counted(client, source, Coding(universe=UNIVERSE, protection=BY_PERSON, window=None))
    for histogram in (here, there):
        histogram.coarsen(1, np.array([0, 0, 1, 1]))
        histogram.coarsen(3, np.array([0, 1, 1]))
    assert_equal(here, there, [(4,), (5, 4), (0, 4), (2, 5, 0), (1, 3)])


@pytest.mark.parametrize("kind", [csv_kinds()[0], parquet_kinds()[3], *partition_kinds()], ids=lambda kind: kind.name)
def test_records_of_any_bytes_count_as_on_one_machine(client: "Client", tmp_path: Path, kind: Kind) -> None:
    chance, draws = random.Random(kind.name), Draws.fresh()  # noqa: S311  not for secrets
    made = [case(kind, chance, world, by_person=False) for world in WORLDS]
    coding = Coding(universe=ANYTHING, protection=BY_ROW, window=None)
    for table in tables(made):
        source = kind.write(tmp_path, table)
        there = ClusterHistogram(ingest_on(client, source, coding=coding, draws=draws), ANYTHING)
        found = there.marginal(tuple(range(len(ANYTHING.names))))
        here = counted_here(source, protection=BY_ROW, draws=draws)
        assert sum(counts.total() for counts in here.values()) == found.sum()
        assert all(found[world, *cell] == n for world, counts in here.items() for cell, n in counts.items())


def test_the_version_of_the_data_is_that_of_one_machine(client: "Client", folder: Path) -> None:
    source, fingerprint = Source.locate(SourceSpec(path="csv"), base=folder), Fingerprint(bytes(32))
    coding = Coding(universe=UNIVERSE, protection=WEIGHTED, window=None)
    draws = Draws.fresh(unit_key=fingerprint.unit_key())
    here, there = (
        read(source, coding=coding, draws=draws, fingerprint=fingerprint).version
        for read in (ingest, partial(ingest_on, client))
    )
    assert here == there
    here, there = (
        read(source, coding=coding, undecided={"age"}, fingerprint=fingerprint)
        for read in (readable_version, partial(readable_version_on, client))
    )
    assert here == there


def test_a_worker_that_is_killed_while_it_reads_changes_no_count(
    client: "Client", folder: Path, tmp_path: Path
) -> None:
    whole = Source.locate(SourceSpec(path="parquet"), base=folder)
    (tmp_path / "life").touch()
    draws, coding = Draws.fresh(), Coding(universe=UNIVERSE, protection=WEIGHTED, window=None)
    here = LocalHistogram.count(ingest(whole, coding=coding, draws=draws), UNIVERSE)
    # the last one to be read: others have been shuffled by then, to workers that are lost
    deadly = Source((*whole.parts[:-1], Killing(whole.parts[-1], lives=tmp_path)))
    there = ClusterHistogram(ingest_on(client, deadly, coding=coding, draws=draws), UNIVERSE)
    assert list(tmp_path.iterdir()) == []
    assert_equal(here, there, SETS)


def test_workers_that_are_killed_between_two_questions_change_no_count(client: "Client", folder: Path) -> None:
    source = Source.locate(SourceSpec(path="parquet"), base=folder)
    here, there = counted(client, source, Coding(universe=UNIVERSE, protection=BY_PERSON, window=None))
    assert_equal(here, there, SETS[:3])
    for worker in client.run(os.getpid).values():  # each of them has rows that nobody else has
        os.kill(worker, signal.SIGKILL)
    assert_equal(here, there, SETS[3:])


def test_a_piece_that_takes_down_every_worker_fails_in_public_words(
    client: "Client", folder: Path, tmp_path: Path
) -> None:
    whole = Source.locate(SourceSpec(path="parquet"), base=folder)
    for life in range(10):
        (tmp_path / str(life)).touch()
    client.cluster.scheduler.allowed_failures = 1  # as patience goes, three; each of them takes seconds
    deadly = Source((Killing(whole.parts[0], lives=tmp_path),))
    with pytest.raises(StepFailed, match="workers were killed repeatedly"):
        ingest_on(client, deadly, coding=Coding(universe=UNIVERSE, protection=BY_ROW, window=None), draws=Draws.fresh())


def test_a_file_that_breaks_on_a_worker_is_named_and_nothing_of_it(client: "Client", folder: Path) -> None:
    whole = Source.locate(SourceSpec(path="csv"), base=folder)
    careless = Source((*whole.parts[1:], Careless(whole.parts[0])))
    with pytest.raises(SourceError) as caught:
        ingest_on(
            client, careless, coding=Coding(universe=UNIVERSE, protection=BY_PERSON, window=None), draws=Draws.fresh()
        )
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
