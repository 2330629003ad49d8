"""Two tables that differ by one person look alike to everybody but the steward, but for what was bought."""

import logging
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq
import pytest
from prefect import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
    LogFilter,
    LogFilterFlowRunId,
)

from dpcore.mechanisms import DiscreteGaussian, ExponentialMechanism
from dpcore.mechanisms.sampling import entropy
from dpcore.runs.synthesis import Synthesis
from dpcore.tables.ingest.draws import Draws as BoundingDraws
from flows.synthesize import synthesize
from tests.conftest import Workspace, visits
from tests.flows.conftest import DATABASE, Search

pytestmark = pytest.mark.prefect

Observed = dict[str, Any]

# What differs from one run to the next even on the same table: ids, hashes, moments, and how long things took.
PASSING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\b[0-9a-f]{64}\b|\b[0-9a-f]{16}`?…", "HASH"),
    (r"\d{8}T\d{4}Z-[0-9a-f]{12}", "RELEASE"),
    (r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?( UTC|Z|\+00:00)?", "MOMENT"),
    (r"about \d+ s left", "SECONDS"),
)
BOUGHT = (
    (r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+", "PLOT"),
    (r"\d[\d,]*(\.\d+)?(e-?\d+)?", "N"),
)


@pytest.mark.parametrize("coupled", [True, False], ids=["same-answers", "same-noise"])
def test_one_person_more_or_less_changes_nothing_that_prefect_or_a_reader_sees(
    workspace: Workspace, stored: Search, coupled: bool
) -> None:
    """With noise that makes up for the person, all is equal; with equal noise, all but the bought figures."""
    draws = Draws()
    first = observed(workspace, visits(3000, seed=1), draws, stored, coupled=coupled)
    second = observed(workspace, without_one_person(), draws, stored, coupled=coupled)
    assert len(first["tasks"]) > 15
    assert {kind for kind, *_ in first["artifacts"]} >= {"markdown", "progress"}
    if not coupled:
        first, second = figures_masked(first), figures_masked(second)
    assert first == second


def test_a_true_count_in_a_line_of_the_log_would_be_found(
    workspace: Workspace, stored: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest = Synthesis.ingest

    def telling(self: Synthesis) -> Any:
        lines = Path("visits.csv").read_text(encoding="utf-8").count("\n")
        logging.getLogger("dpcore.progress").info("read %d rows", lines)
        return ingest(self)

    monkeypatch.setattr(Synthesis, "ingest", telling)
    draws = Draws()
    first = observed(workspace, visits(3000, seed=1), draws, stored, coupled=True)
    second = observed(workspace, without_one_person(), draws, stored, coupled=True)
    assert first["logs"] != second["logs"]
    assert first["tasks"] == second["tasks"]


class Draws:
    """The answers of the first run, and a stream of noise that begins anew with every run."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    @contextmanager
    def fixed(self, *, coupled: bool) -> Iterator[None]:
        """Draw from a fixed stream; if coupled, give the answers of the first run again to the second."""
        rng = np.random.default_rng(7)
        real_noise = DiscreteGaussian.draw
        replayed = iter(list(self.answers))

        def words(count: int) -> npt.NDArray[np.uint64]:
            return rng.integers(0, 2**64, count, dtype=np.uint64)

        def select(self: ExponentialMechanism, scores: npt.NDArray[np.int64]) -> int:
            return int(np.argmax(scores * float(self.epsilon) / (2 * self.sensitivity) + rng.gumbel(size=scores.shape)))

        def answered(draw: Callable[..., Any]) -> Callable[..., Any]:
            def answer(mechanism: Any, values: Any) -> Any:
                drawn = draw(mechanism, values)
                if coupled:
                    drawn = next(replayed, drawn)
                    self.answers.append(drawn)
                return drawn

            return answer

        with pytest.MonkeyPatch.context() as patch:
            for module in ("release.draft", "runs.draft", "runs.synthesis"):
                # else by the run's id, which is new each time
                patch.setattr(f"dpcore.{module}.public_seed", lambda purpose, _run: len(purpose))
            patch.setattr(entropy, "random_words", words)
            patch.setattr(BoundingDraws, "fresh", lambda unit_key=None: BoundingDraws(bytes(32)))
            patch.setattr(DiscreteGaussian, "draw", answered(real_noise))
            patch.setattr(ExponentialMechanism, "draw", answered(select))
            yield


def without_one_person() -> pd.DataFrame:
    table = visits(3000, seed=1)
    return table[table["person"] != table["person"].iloc[100]]


def observed(workspace: Workspace, table: pd.DataFrame, draws: Draws, stored: Search, *, coupled: bool) -> Observed:
    """Run on a table in a fresh ledger, and return all that anybody but the steward can look at, with passing things masked."""
    for old in (*workspace.folder.glob(".dpflow/ledger*"), *workspace.folder.glob(".dpflow/**/*.sqlite*")):
        old.unlink(missing_ok=True)
    for old in (".dpflow/private/heads", "releases"):  # they would tell, rightly, that another ledger was here
        shutil.rmtree(workspace.folder / old, ignore_errors=True)
    table.to_csv(workspace.folder / "visits.csv", index=False)
    workspace.open_account()
    with draws.fixed(coupled=coupled):
        outcome = synthesize(str(workspace.spec), note="alike")
    stored("nothing, but by then all is recorded")
    return masked(_seen_in_prefect(UUID(outcome["run"])) | _seen_in_release(Path(outcome["release"])), PASSING)


def _seen_in_prefect(run: UUID) -> Observed:
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(run)
        states = [(state.type, state.name, state.message) for state in client.read_flow_run_states(run)]
        logs = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run])), limit=200)
        tasks = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run])), limit=200)
        artifacts = client.read_artifacts(
            artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run])), limit=200
        )
    with closing(sqlite3.connect(DATABASE, uri=True)) as database:
        query = "SELECT event FROM events WHERE instr(related, ?) OR instr(resource, ?)"
        # How often a run that takes longer beats, and whether a page is the first of its key, is not the table's doing.
        events = [
            event
            for (event,) in database.execute(query, (str(run), str(run)))
            if not event.endswith("heartbeat") and "artifact-collection" not in event
        ]
    return {
        "run": (flow_run.name, flow_run.parameters, flow_run.tags, flow_run.labels, states),
        "logs": [(line.level, line.name, line.message) for line in sorted(logs, key=lambda line: line.timestamp)],
        "tasks": sorted(
            (task.name, task.state_type, task.state.message if task.state else "")
            for task in tasks
            if not task.name.endswith("/last")  # the search's own
        ),
        "artifacts": sorted((art.type, art.key, art.description or "", str(art.data)) for art in artifacts),
        "events": sorted(set(events)),  # progress is shown about once a second
    }


def _seen_in_release(release: Path) -> Observed:
    files = {str(path.relative_to(release)): path for path in sorted(release.rglob("*")) if path.is_file()}
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items() if path.suffix != ".parquet"}
    # The bytes of Parquet files have the run's id in the footer: their content is compared instead.
    tables = {name: pq.read_table(path) for name, path in files.items() if path.suffix == ".parquet"}
    return {
        "files": list(files),
        "texts": {name: re.sub(r'"bytes": \d+', '"bytes": N', text) for name, text in texts.items()},
        "schemas": {name: str(table.schema.remove_metadata()) for name, table in tables.items()},
        "rows": {name: table.to_pylist() for name, table in tables.items()},
    }


def masked(value: Any, patterns: tuple[tuple[str, str], ...]) -> Any:
    """Return the value with every text in it rewritten."""
    if isinstance(value, dict):
        return {masked(key, patterns): masked(part, patterns) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [masked(part, patterns) for part in value]
    if isinstance(value, str):
        for pattern, word in patterns:
            value = re.sub(pattern, word, value)
    return value


def figures_masked(seen: Observed) -> Observed:
    """Leave out what the run bought: the noisy counts, the rows made from them, and how far the model was from them.

    The card's pictures, and the page that shows them in Prefect, say in words and by order which of these figures to rely on. They are left
    out whole. The card from its promise on is compared.
    """
    card = seen["texts"]["card.html"]
    shown = {
        "logs": seen["logs"],
        "artifacts": [each for each in seen["artifacts"] if not each[1].startswith("data-")],
        "texts": seen["texts"] | {"card.html": card[card.index("<h2>What is promised</h2>") :]},
    }
    return {
        **{part: seen[part] for part in ("run", "tasks", "files", "schemas", "events")},
        **masked(shown, BOUGHT),
    }
