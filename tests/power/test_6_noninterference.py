"""Non-interference: on two tables that differ by one person, all that anybody but the steward sees is alike, but for what was bought.

Without Prefect: the command line, the log lines, the ledger, the folder and the release. Two comparisons: a neighbour that is given the same
noisy answers must look the same to the byte, and one that is given the same noise must look the same up to the figures that were bought.
(tests/faults/flows/test_noninterference.py looks at what the orchestrator sees.)
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from hashlib import shake_256
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dpcore import Outcome, cli, synthesize
from dpcore.curator.curator import Curator
from dpcore.errors import SourceError
from dpcore.ledger import open_ledger
from dpcore.runs.synthesis import Synthesis
from dpcore.tables.histogram import LocalHistogram
from tests.conftest import Workspace, visits
from tests.power.recording import Recording

pytestmark = pytest.mark.system_entropy  # a recorded stream stands for the operating system
Seen = dict[str, Any]

# What differs from one run to the next even on the same table: hashes, moments, and how long things took.
PASSING = (
    (r"\b[0-9a-f]{64}\b|\b[0-9a-f]{16}`?…", "HASH"),
    (r"\bidentity [0-9a-f]{12}\.\.\.", "IDENTITY"),
    (r"\d{8}T\d{4}Z-[0-9a-f]{12}", "RELEASE"),
    (r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?( UTC|Z|\+00:00)?", "MOMENT"),
    (r"about \d+ s left", "SECONDS"),
    (r"leased until \d{2}:\d{2}:\d{2} UTC", "LEASED"),
    (r"(data-version +the run +)[0-9a-f]{16}", r"\1VERSION"),  # tells only whether two runs read the same table
)
BOUGHT = (
    (r": [\w x]+, noise", ": COLUMNS, noise"),
    (r"\b[0-9a-f]{16}\b", "HASH"),  # of a noisy answer
    (r"\d[\d,]*(\.\d+)?(e-?\d+)?", "N"),
)
UNBOUGHT = ("exit", "charges", "steps", "files", "schemas")
"""What noisy values have no part in: the same even where they differ."""

STRATEGIES = {
    "mwem": "{name: mwem, rounds: 4}",
    "pmw": "{name: pmw, rounds: 12, alpha: 0.0001}",
    "adaptive": "{name: adaptive, rounds: 6}",
}
ROW = {"person": "one more", "sex": "F", "age": 40, "smoker": True, "city": "west"}
ODD = {"sex": "?", "age": 10**30, "smoker": "perhaps", "city": "\u0000=cmd()"}
"""Values that no cell is for: too large, of the wrong type, not declared."""


def neighbours(extra: dict[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    others = visits(1500, seed=5).astype(object)
    return others, pd.concat([others, pd.DataFrame([ROW, {**ROW, **extra}])], ignore_index=True)


@contextmanager
def one_stream() -> Iterator[None]:
    """Let the operating system give the same bytes in every run."""
    given = 0

    def stream(size: int) -> bytes:
        nonlocal given
        given += 1
        return shake_256(b"one stream %d" % given).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", stream)
        yield


def runner(spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
    return synthesize(spec, run_id="the run", as_of=as_of)


class Watcher:
    """Runs a spec on a table in a clean folder, and looks at everything that is not the steward's."""

    def __init__(
        self, workspace: Workspace, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        self.workspace, self.caplog, self.capfd = workspace, caplog, capfd

    def seen(self, table: pd.DataFrame, *, answers_of: Recording | None = None) -> tuple[Seen, Recording]:
        folder = self.workspace.folder
        for old in (".dpflow", "releases"):
            shutil.rmtree(folder / old, ignore_errors=True)
        table.to_csv(folder / "visits.csv", index=False)
        self.workspace.open_account()
        self.caplog.clear()
        self.capfd.readouterr()
        recording = Recording()
        with self.caplog.at_level(logging.DEBUG), one_stream(), recording.of_a_run(answers_of=answers_of):
            code = cli.main(["run", str(self.workspace.spec)], runner=runner)
        lines = [(line.name, line.levelname, line.getMessage()) for line in self.caplog.records]
        shown = [
            self.capfd.readouterr(),
            *(self.told(*words) for words in (["show"], ["history", "visits"], ["verify"])),
        ]
        return masked({"exit": code, "logs": lines, "shown": shown, **self.booked(), **self.left()}, PASSING), recording

    def told(self, *words: str) -> Any:
        code = cli.main(["ledger", *words], runner=runner)
        return code, self.capfd.readouterr()

    @staticmethod
    def booked() -> Seen:
        """What the ledger holds, without the hashes by which noisy outputs and moments are chained."""
        with open_ledger() as ledger:
            events, balance = list(ledger.history("visits")), ledger.balance("visits")
        hidden = {"sha256", "version", "holder"}
        bodies = [(e.kind, {k: v for k, v in e.details.items() if k not in hidden}) for e in events]
        return {
            "steps": [(e.kind, e.details.get("step"), e.details.get("attempt")) for e in events],
            "charges": (
                balance,
                [(e.details["amount"], e.details["mechanism"]) for e in events if e.kind == "charged"],
            ),
            "events": json.loads(json.dumps(bodies, default=str)),
        }

    def left(self) -> Seen:
        """What lies in the folder; of the steward's own files and of stored outputs, their names."""
        found = sorted(path for path in self.workspace.folder.rglob("*") if path.is_file())
        names = {str(path.relative_to(self.workspace.folder)): path for path in found}
        released = {name: path for name, path in names.items() if name.startswith("releases/")}
        texts = {name: path.read_text("utf-8") for name, path in released.items() if path.suffix != ".parquet"}
        tables = {name: pq.read_table(path) for name, path in released.items() if path.suffix == ".parquet"}
        return {
            "files": [name for name in names if not name.endswith(("-wal", "-shm", "-journal"))],
            "texts": {name: re.sub(r'"bytes": \d+', '"bytes": N', text) for name, text in texts.items()},
            "schemas": {name: str(table.schema.remove_metadata()) for name, table in tables.items()},
            "rows": {name: table.to_pylist() for name, table in tables.items()},
        }

    def differences(self, first: pd.DataFrame, second: pd.DataFrame, *, same_answers: bool) -> set[str]:
        """In which respects the two runs look different."""
        one, recording = self.seen(first)
        other, _ = self.seen(second, answers_of=recording if same_answers else None)
        if not same_answers:
            one, other = without_what_was_bought(one), without_what_was_bought(other)
        assert one.keys() == other.keys()
        return {part for part in one if one[part] != other[part]}


def masked(value: Any, patterns: tuple[tuple[str, str], ...]) -> Any:
    """Rewrite every text in a value."""
    if isinstance(value, dict):
        return {masked(key, patterns): masked(part, patterns) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [masked(part, patterns) for part in value]
    if isinstance(value, str):
        for pattern, word in patterns:
            value = re.sub(pattern, word, value)
    return value


def without_what_was_bought(seen: Seen) -> Seen:
    """Leave out the rows, every figure in a text, and what was selected in a round: it is bought as well."""
    kept = {part: seen[part] for part in UNBOUGHT}
    return kept | masked({part: seen[part] for part in ("logs", "shown")}, BOUGHT)


@pytest.fixture
def watcher(workspace: Workspace, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Watcher:
    return Watcher(workspace, caplog, capfd)


@pytest.mark.parametrize("extra", [{}, ODD, dict.fromkeys(ODD)], ids=["plain", "odd", "null"])
@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_one_person_more_changes_nothing_if_the_noise_makes_up_for_it(
    watcher: Watcher, strategy: str, extra: dict[str, Any]
) -> None:
    watcher.workspace.write_spec(("{name: mwem, rounds: 4}", STRATEGIES[strategy]))
    assert watcher.differences(*neighbours(extra), same_answers=True) == set()


@pytest.mark.parametrize("extra", [{}, ODD], ids=["plain", "odd"])
@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_one_person_more_changes_only_what_was_bought_if_the_noise_is_the_same(
    watcher: Watcher, strategy: str, extra: dict[str, Any]
) -> None:
    watcher.workspace.write_spec(("{name: mwem, rounds: 4}", STRATEGIES[strategy]))
    assert watcher.differences(*neighbours(extra), same_answers=False) == set()


def test_the_comparison_sees_the_figures_that_were_bought(watcher: Watcher) -> None:
    one, _ = watcher.seen(neighbours({})[0])
    other, _ = watcher.seen(neighbours({})[1])
    assert one["rows"] != other["rows"]
    assert len(one["charges"][1]) == len(other["charges"][1]) == 12


def test_a_step_that_breaks_breaks_in_the_same_words(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(histogram: LocalHistogram, axes: Any) -> Any:
        message = f"{histogram.marginal.__name__} of {Path('visits.csv').read_text(encoding='utf-8')[-200:]}"
        raise ValueError(message)

    monkeypatch.setattr(LocalHistogram, "marginal", broken)
    first, second = neighbours(ODD)
    assert watcher.seen(first)[0]["exit"] == 1
    assert watcher.differences(first, second, same_answers=True) == set()


Plant = Callable[[pytest.MonkeyPatch], None]


def true_rows() -> int:
    return Path("visits.csv").read_text(encoding="utf-8").count("\n")


def before_ingest(act: Callable[[Synthesis], None]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        ingest = Synthesis.ingest

        def telling(self: Synthesis) -> Any:
            act(self)
            return ingest(self)

        patch.setattr(Synthesis, "ingest", telling)

    return plant


def logs_the_rows(_run: Synthesis) -> None:
    logging.getLogger("dpcore.tables.ingest").debug("read %d rows", true_rows())


def names_a_file_by_the_rows(_run: Synthesis) -> None:
    Path(f".dpflow/part-{true_rows()}").touch()


def stops_by_the_rows(run: Synthesis) -> None:
    begin = run.strategy.begin

    def begun(curator: Curator) -> None:
        begin(curator)
        run.strategy.finished = true_rows() > 1501

    run.strategy.begin = begun  # type: ignore[method-assign]


def refuses_a_value(_run: Synthesis) -> None:
    if "one more" in Path("visits.csv").read_text(encoding="utf-8"):
        message = "visits.csv holds a person that nobody knows"
        raise SourceError(message)


def a_price_by_the_rows(patch: pytest.MonkeyPatch) -> None:
    amount = Curator._amount
    patch.setattr(Curator, "_amount", lambda self, share: amount(self, share) - (true_rows() > 1501))


@pytest.mark.parametrize(
    ("plant", "where"),
    [
        (before_ingest(logs_the_rows), {"logs"}),
        (before_ingest(names_a_file_by_the_rows), {"files"}),
        (before_ingest(stops_by_the_rows), {"steps", "charges", "shown"}),
        (before_ingest(refuses_a_value), {"exit", "steps", "charges", "shown"}),
        (a_price_by_the_rows, {"charges", "events"}),
    ],
    ids=["log", "file", "rounds", "error", "price"],
)
def test_a_leak_is_found_where_it_is(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch, plant: Plant, where: set[str]
) -> None:
    plant(monkeypatch)
    assert watcher.differences(*neighbours({}), same_answers=True) >= where


@pytest.mark.parametrize("act", [names_a_file_by_the_rows, stops_by_the_rows, refuses_a_value])
def test_a_leak_is_found_behind_the_figures_too(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch, act: Callable[[Synthesis], None]
) -> None:
    before_ingest(act)(monkeypatch)
    assert watcher.differences(*neighbours({}), same_answers=False)
