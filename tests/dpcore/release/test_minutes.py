"""What is published states minutes only: seconds would tell how long steps took that have read private rows."""

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpcore import Session, synthesize
from dpcore.ledger import open_ledger
from dpcore.ledger.writing import WritingTransaction
from dpcore.release import dataset_folder, publishing, targets
from dpcore.release.ledger_export import export
from dpcore.release.listing import listed_in
from dpcore.release.withdrawal import withdraw
from dpcore.steward.verify import verify_ledger
from tests.dpcore.release.conftest import Site

pytestmark = pytest.mark.usefixtures("rough_models")

WRITTEN = re.compile(rb"\d{4}-?\d\d-?\d\d[T ]\d\d:?\d\d:?(\d\d(?:[.,]\d+)?)")
"""A time of day with its seconds, with or without punctuation."""
NUMBER = re.compile(rb"(?<![\w.])1\d{9,18}(?:\.\d+)?(?![\w.])")
UNITS = (1, 10**3, 10**6, 10**9)
FINE = "2026-11-18T07:20:24.500000+00:00"


def publish() -> list[Path]:
    """Publish a release, and export the ledger. Return the folders."""
    synthesize("spec.yaml", run_id="first")
    with open_ledger() as ledger:
        export(ledger, Path("exported"), account=None, sizes=(1, 2))
    return [Path("releases"), Path("exported")]


def publish_more() -> list[Path]:
    """Publish releases of a run and of a session, withdraw one, and export the ledger. Return the folders."""
    synthesize("spec.yaml", run_id="withdrawn")
    with Session.open("spec.yaml", session="s") as session:
        session.release()
    with open_ledger() as ledger:
        release = Path("releases/visits", str(ledger.run("withdrawn").release))
        withdraw(ledger, "withdrawn", release, reason="wrong codes")
    return publish()


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield everything that a reader of a folder gets: paths, bytes, and the decoded columns and metadata of Parquet files."""
    for path in sorted(folder.rglob("*")):
        yield "a name", str(path).encode()
        if path.is_file():
            yield str(path), path.read_bytes()
        if path.suffix == ".parquet" and path.read_bytes().startswith(
            b"PAR1"
        ):  # a withdrawn release has a file that is none
            file = pq.ParquetFile(path)
            yield f"the metadata of {path}", repr((file.metadata, file.schema_arrow.metadata)).encode()
            yield f"the values of {path}", file.read().to_pandas().to_csv(index=False).encode()


def finer_than_a_minute(folders: list[Path], *, since: float) -> set[str]:
    """Return where a time is stated with seconds: written, or as the number of seconds, or of parts of them, since 1970."""
    now = time.time()
    found = set()
    for where, content in ((where, content) for folder in folders for where, content in contents(folder)):
        texts = [match[1] for match in WRITTEN.finditer(content)]
        numbers = [float(match[0]) for match in NUMBER.finditer(content)]
        stored = [
            float(each)
            for offset in range(8)
            for values in [
                np.frombuffer(
                    content, "<i8", count=max(0, len(content) - offset) // 8, offset=min(offset, len(content))
                )
            ]
            for unit in UNITS[1:]
            for each in values[(values >= since * unit) & (values <= now * unit)]
        ]
        moments = [each / unit for each in (*numbers, *stored) for unit in UNITS if since <= each / unit <= now]
        if any(float(text.replace(b",", b".")) for text in texts) or any(moment % 60 for moment in moments):
            found.add(where)
    return found


@pytest.mark.usefixtures("paid")
def test_nothing_that_is_published_states_a_time_finer_than_a_minute() -> None:
    before = time.time()
    folders = publish_more()
    assert sum(1 for folder in folders for _ in folder.rglob("*.parquet")) >= 6
    assert finer_than_a_minute(folders, since=before - 60) == set()
    verify_ledger()


def in_manifests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(targets, "whole_minute", lambda _: FINE)


def in_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(dataset_folder, "release_id", lambda run_id, **_: f"20261118T072024Z-{run_id}")
    for module in ("dpcore.runs.draft", "dpcore.session.publishing"):
        patch.setattr(f"{module}.release_id", dataset_folder.release_id)


def in_events(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WritingTransaction, "at", FINE)


def as_a_number(patch: pytest.MonkeyPatch) -> None:
    write = publishing._write_text
    at = f"{time.time():.6f}"
    patch.setattr(
        publishing,
        "_write_text",
        lambda folder, name, text: write(folder, name, f"{text}\n{at}" if name == "card.html" else text),
    )


@pytest.mark.parametrize(
    ("plant", "where"),
    [(in_manifests, "manifest.json"), (in_names, "a name"), (in_events, "history.parquet"), (as_a_number, "card.html")],
)
@pytest.mark.usefixtures("paid")
def test_a_planted_second_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], where: str
) -> None:
    plant(monkeypatch)
    before = time.time()
    assert any(where in each for each in finer_than_a_minute(publish(), since=before - 60))


def test_releases_of_one_minute_are_in_the_order_of_the_ledger(paid: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WritingTransaction, "now", datetime(2026, 3, 1, 12, tzinfo=UTC))
    names = [paid.make(f"run-{number}").name for number in range(3)]
    assert names != sorted(names)  # the hashes of these runs happen to be in another order
    assert {name.partition("-")[0] for name in names} == {"20260301T1200Z"}
    assert [each.name for each in listed_in(paid.releases)] == names
    assert [each.name for each in listed_in(paid.releases) if each.newest] == names[-1:]
    verify_ledger()
