"""The ways to publish that spend an account's budget, each as a function of a spec."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow.csv as pc

from dpcore.curator.ask import ask
from dpcore.curator.gate import CountQuery
from dpcore.mechanisms.noisy_histogram import NoisyHistogram
from dpcore.mechanisms.sampling import entropy
from dpcore.runs.steps import in_order, open_run, synthesize
from dpcore.runs.synthesis import Synthesis
from dpcore.session.session import Session
from dpcore.spec import load_spec
from dpcore.spec.engine import EngineSpec
from dpcore.tables.cluster.connecting import private_connection
from dpcore.textbook.online.opening import open_online

if TYPE_CHECKING:
    from distributed import Client

Driver: TypeAlias = Callable[[Path], object]
"""Publishes by a spec: `run`, or a flow. What it returns is not looked at."""

ANSWERS = "answers"
"""The folder, beside the spec, of what analysts were told."""

MONTHS = (2, 3, 4, 5)
"""The months of 2001 on whose first days `run_each_month` runs."""


def _write_answers(spec: Path, numbers: Iterable[int]) -> None:
    (spec.parent / ANSWERS).mkdir()
    (spec.parent / ANSWERS / "answers.json").write_text(json.dumps(list(numbers)), encoding="utf-8")


def run(spec: Path, *, times: int = 1) -> None:
    """Make releases of the same table: `dpflow run`."""
    for _ in range(times):
        synthesize(spec)


def run_each_month(spec: Path) -> None:
    """Make a release on the first day of each month."""
    for month in MONTHS:
        synthesize(spec, as_of=date(2001, month, 1))


def run_on_threads(spec: Path) -> None:
    """Make a release on a Dask cluster whose workers are threads, so that they have the faults of this process."""

    @contextmanager
    def threads(_: EngineSpec) -> Iterator["Client"]:
        from distributed import Client, LocalCluster  # noqa: PLC0415  an extra

        options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
        with (
            private_connection() as folder,
            LocalCluster(**options, local_directory=str(folder)) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client

    with open_run(Synthesis(load_spec(spec), run_id="on-threads", resume=False, connect=threads)) as run:
        in_order(run)


def hold_session(spec: Path) -> None:
    """Open a session, buy an answer twice, the second time a narrower one, and publish what is known: `dpflow session`."""
    question, answers = "select cell, count(*) as rows from release where flag = 'y' group by cell", []
    with Session.open(spec, first_share=0.5) as session:
        for share in (0.4, 1.0):
            most = share * session.run.remaining
            within = next(width for width in count(2) if session.price(question, within=width).amount <= most)
            answers = session.ask(question, within=within).table["rows"].tolist()
        session.release()
        session.close()
    _write_answers(spec, (round(1000 * rows) for rows in answers))


def ask_once(spec: Path) -> None:
    """Ask one question about the table: `dpcore.ask`."""
    declaration = load_spec(spec)
    privacy = declaration.spec.privacy
    query = NoisyHistogram.for_epsilon(
        privacy.epsilon,
        delta=privacy.delta,
        universe=declaration.universe,
        protection=declaration.protection,
        axes=[declaration.universe.names[:1]],
    )
    ask(declaration.spec.dataset, query, pc.read_csv(spec.parent / "table.csv"))


ASKED = 6
"""The number of canaries that an online session asks about. Each has one of the first cells of `ROWS_ONLINE`."""

SMALL = 10
"""The number of cells after these that have few rows."""

ROWS_ONLINE = np.array([0] * ASKED + [1 << bit for bit in range(15)] + [0] * 17)
"""The rows in each cell that are always in the table of an online session."""


def answer_online(spec: Path) -> None:
    """Hold an online session. Each query is so wrong that its canary alone decides whether its error reaches the threshold."""
    answers = []
    with open_online(spec, alpha=0.4, beta=0.05, queries=ASKED, rows=int(ROWS_ONLINE.sum()), restarts=0) as session:
        for canary in range(ASKED):
            rows, expected = ROWS_ONLINE, session.model.marginal((0,))
            coins = entropy.random_words(rows.size << 10) >> np.uint64(63)
            many, few = coins.astype(np.bool_).reshape(2, -1, rows.size)
            many[:, : ASKED + SMALL], few[:, ASKED + SMALL :] = False, False
            few[:, :ASKED] = np.arange(ASKED) == canary
            errors = np.add.outer(many @ rows, few @ rows) - np.rint(np.add.outer(many @ expected, few @ expected))
            nearest = np.unravel_index(np.argmin(np.abs(errors - (session.bounds.threshold - 1))), errors.shape)
            answers.append(int(session.ask(CountQuery((0,), many[nearest[0]] | few[nearest[1]])).hard))
        session.end()
    _write_answers(spec, answers)


VERBS: Mapping[Driver, str] = {hold_session: "session", answer_online: "online", ask_once: "ask"}
"""The verbs of drivers. That of all others is `run`."""
