"""What must hold for every way to use the product, on a private table and on its neighbours.

A setting of the catalogue is played on a table, and again on its neighbours, which are given the same noisy answers. Then
- every draw is the one that its ledger row describes and prices, and none is without a row (`unpaid`);
- what is stored for an operation is what was drawn for it, all of it and nothing else (`unstored`);
- all that a mechanism was given, and all counts that were handed over to be measured, differ by at most what was paid for (`moved_too_far`);
- all that anybody but the steward sees is alike to the byte (`differences`).
Each check returns its problems in words.
"""

import json
import logging
import math
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import shake_256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpcore import cli
from dpcore.curator.ask import STEP as ASKED
from dpcore.curator.ask import _stored as answer_bytes
from dpcore.errors import DpflowError, LedgerDamaged
from dpcore.ledger import Operation, open_ledger
from dpcore.marginals.measurements import BOUGHT, Measurement, Selection
from dpcore.mechanisms import ExponentialMechanism, SparseVector, from_description
from dpcore.mechanisms.noise import KIND_OF_NOISE, one_number
from dpcore.mechanisms.sampling.thresholds import Shape
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours, Sensitivity
from dpcore.session.bought import Bought
from tests.catalogue import Play, Rows, Setting
from tests.power.recording import DECLARED, ENTROPY, Draw, Recording, name_of, replayed

Seen = dict[str, str]
"""What can be seen, by where it is seen, as text without what differs from one run to the next anyway."""

# Charges, draws and entropy


def unpaid(recording: Recording, currency: Currency) -> set[str]:
    """Return what is wrong with a run's draws, charges and entropy."""
    problems = {problem for draws in recording.of_operations().values() for problem in _unpaid(draws)}
    if any(draw.operation is None for draw in recording.draws):
        problems.add("a draw without a charged operation")
    if any(from_description(row.mechanism).price(currency) > row.amount for row in recording.charged):
        problems.add("charged less than the ledger row describes")
    if {taken.caller for taken in recording.taken if taken.operation is None} - DECLARED.keys():
        problems.add("entropy taken outside of a charged operation")
    if {taken.caller for taken in recording.taken if taken.operation is not None} - {ENTROPY}:
        problems.add("another source of randomness within an operation")
    return problems


def _unpaid(draws: list[Draw]) -> Iterator[str]:
    """Make the draws of an operation again, from the same words, by the mechanism that its ledger row describes."""
    last = draws[-1]
    paid = _rebuilt(last)
    if not all(draw.words for draw in draws):
        yield "a draw that took no entropy"
    elif last.whole:  # the draws before it are its parts
        if not _comes_out_again(lambda: paid.answer(_Given(last.values)), last.words, last.result):
            yield "a draw other than the one that was paid for"
    elif last.threshold is not None:
        words = tuple(word for draw in draws for word in draw.words)
        answers = [answer for draw in draws for answer in draw.result]
        if not _comes_out_again(lambda: _gate(paid, draws), words, [*last.threshold, *answers]):
            yield "a draw other than the one that was paid for"
    elif len(draws) > 1:
        yield "two draws for one charge"
    elif not _comes_out_again(lambda: paid.draw(last.values), last.words, last.result):
        yield "a draw other than the one that was paid for"


def _rebuilt(draw: Draw) -> Any:
    """Return the mechanism that a draw was paid as. The declared columns are not in its description."""
    paid: Any = from_description(draw.operation.mechanism)  # type: ignore[union-attr]
    declared = {name: getattr(draw.mechanism, name, None) for name in ("universe", "attribute") if hasattr(paid, name)}
    return replace(paid, **declared) if draw.whole else paid


@dataclass(frozen=True)
class _Given:
    values: Any

    def for_noise(self) -> Any:
        return self.values


def _gate(paid: Any, draws: list[Draw]) -> list[Any]:
    threshold = draws[0].threshold[0]  # type: ignore[index]
    session = paid.begin(threshold)
    noisy = [threshold, session._bar, session._query_scale]
    return noisy + [answer for draw in draws for answer in session._answers(draw.values.tolist())]


def _comes_out_again(act: Callable[[], Any], words: tuple[bytes, ...], result: Any) -> bool:
    with replayed(words) as left:
        try:
            again = act()
        except LookupError:
            return False
    return not left and _alike(again, result)


def _alike(one: Any, other: Any) -> bool:
    """Tell whether two results are equal: arrays and numbers, or answers to whole queries."""
    return (
        np.array_equal(one, other)
        if isinstance(one, np.ndarray | np.integer)
        else bool(answer_bytes(one) == answer_bytes(other))
    )


# Storing


def unstored(recording: Recording) -> set[str]:
    """Return what is stored and was not drawn, or was drawn and is not stored."""
    drawn, problems = recording.of_operations(), set()
    for operation, output in recording.committed:
        try:
            stored = _is_what_was_drawn(operation, output, drawn.get(name_of(operation), []), recording)
        except (LedgerDamaged, ValueError, KeyError, IndexError):
            stored = False
        if not stored:
            problems.add(f"what is stored for {_family(operation)} is not what was drawn")
    left = drawn.keys() - {name_of(operation) for operation, _ in recording.committed}
    return problems | {f"nothing is stored of the draw {name}" for name in left}


def _is_what_was_drawn(operation: Operation, output: bytes, draws: list[Draw], recording: Recording) -> bool:
    if operation.step == ASKED:
        *parts, whole = draws
        return bool(parts) and whole.whole and output == answer_bytes(whole.result)
    if isinstance(from_description(operation.mechanism), SparseVector):
        record, answers = json.loads(output), [answer for draw in draws for answer in draw.result]
        hard = record["hard"] is not None
        return answers == [False] * len(record["easy"]) + [True] * hard
    (draw,) = draws
    if isinstance(draw.mechanism, ExponentialMechanism):
        offered, chosen = (
            recording.offered[f"{operation.run} {operation.step}"],
            Selection.from_bytes(output, step=operation.step),
        )
        sizes = [1 if chosen.cell is None else offer.expected.size for offer in offered]
        ends = np.cumsum(sizes)
        place = int(np.searchsorted(ends, draw.result, side="right"))
        cell = None if chosen.cell is None else int(draw.result - ends[place] + sizes[place])
        found = (offered[place].axes, cell, draw.values.size)
        return found == (chosen.axes, chosen.cell, chosen.candidates) and int(ends[-1]) == draw.values.size
    if operation.step.startswith(BOUGHT):
        bought = Bought.from_bytes(output, step=operation.step)
        values, noise = bought.counts, bought.noise
        if bought.drawn is not None:  # sums and rows by turns, of which the counts are the rows
            rows = np.rint(bought.drawn[1::2] * (noise / draw.mechanism.standard_deviation))
            same = np.array_equal(np.sort(rows), np.sort(values, axis=None))
            return same and np.array_equal(bought.drawn, np.ravel(draw.result))
    else:
        measured = Measurement.from_bytes(output, step=operation.step)
        values, noise = measured.values, measured.noise
    return np.array_equal(values, draw.result) and noise == draw.mechanism.standard_deviation


def _family(operation: Operation) -> str:
    """Return the kind of a step: its name without numbers and hashes."""
    return re.sub(r"[0-9a-f]{32}|\d+", "N", operation.step)


# Moving


def reach(mechanism: Any, before: Any, after: Any) -> float:
    """Return how far a mechanism's input moved, as a share of what it is priced for. More than 1 is too far."""
    if np.shape(before) != np.shape(after):
        return math.inf
    return REACH[mechanism.name](mechanism, np.ravel(after) - np.ravel(before))


def _within(paid: Sensitivity, moved: Any) -> float:
    size = np.abs(np.ravel(moved))
    size = size[size != 0]  # a person moves few of them
    return max(
        float(size.sum() / paid.l1),
        math.sqrt(float((size.astype(object) ** 2).sum() / paid.l2_squared)),
        float(size.max(initial=0) / paid.linf),
    )


def _one_by_one(most: int, moved: Any, *, monotone: bool) -> float:
    if monotone and (moved > 0).any() and (moved < 0).any():
        return math.inf
    return float(np.abs(moved).max(initial=0) / most)


def _of_counts(query: Any, moved: Any) -> float:
    protection = query.protection
    monotone = protection.neighbours is Neighbours.ADD_REMOVE
    return _one_by_one(protection.count_sensitivity.linf, moved, monotone=monotone)


def _of_mean(mean: Any, moved: Any) -> float:
    """Compare the price of this movement with that of the worst one."""
    currency = {
        Shape.LAPLACE: Currency.PURE,
        Shape.GAUSSIAN: Currency.ZCDP,
        Shape.ROUNDED_GAUSSIAN: Currency.GDP,
    }[mean.noise]
    scales = zip((mean.sum_scale, mean.count_scale), np.abs(moved).ravel().tolist(), strict=True)
    cost = sum(
        KIND_OF_NOISE[mean.noise](scale=scale, sensitivity=one_number(by)).price(currency) for scale, by in scales if by
    )
    return float(cost / mean.price(currency))


Reach = Callable[[Any, Any], float]
REACH: Mapping[str, Reach] = {
    **dict.fromkeys(
        ("discrete-laplace", "discrete-gaussian", "rounded-gaussian", "noisy-count", "bounded-sum", "noisy-histogram"),
        lambda noise, moved: _within(noise.sensitivity, moved),
    ),
    "exponential": lambda each, moved: _one_by_one(each.sensitivity, moved, monotone=False),
    **dict.fromkeys(
        ("report-noisy-max", "sparse-vector"),
        lambda each, moved: _one_by_one(each.sensitivity, moved, monotone=each.monotone),
    ),
    "noisy-value": lambda each, moved: float(np.abs(moved).max() / float(each.moves_by)),
    "bounded-mean": _of_mean,
    **dict.fromkeys(
        ("noisy-quantiles", "top-categories"), lambda each, moved: _within(each.protection.sensitivity, moved)
    ),
    **dict.fromkeys(("noisy-choice", "counts-above"), _of_counts),
}
"""For every mechanism that a ledger row may describe, how far its input moved as a share of what it is priced for."""


def moved_too_far(here: Recording, there: Recording) -> set[str]:
    """Compare neighbours: what mechanisms were given, and all counts that were handed over to be measured."""
    problems = {*_moved_draws(here, there), *_moved_counts(here, there)}
    if len(here.draws) != len(there.draws):
        problems.add("another number of draws on the neighbour")
    if len(here.received) != len(there.received):
        problems.add("another number of tables of counts on the neighbour")
    if [output for _, output in here.committed] != [output for _, output in there.committed]:
        problems.add("the same draws are stored otherwise on the neighbour")
    return problems


def _moved_draws(here: Recording, there: Recording) -> Iterator[str]:
    for before, after in zip(_joined(here), _joined(there), strict=False):
        if before.operation is None or after.operation is None:
            continue  # reported as unpaid
        step = _family(before.operation)
        if _described(before) != _described(after):
            yield f"another draw on the neighbour at {step}"
            return  # what follows need not be comparable
        if reach(before.mechanism, before.values, after.values) > 1:
            yield f"a person moves {step} by more than was paid for"
        if before.whole and not _alike(before.result, after.result):
            yield f"the same draws give another answer at {step}"


def _described(draw: Draw) -> tuple[Any, ...]:
    step = None if draw.operation is None else draw.operation.step
    return step, draw.mechanism.describe(), draw.threshold and draw.threshold[0]


def _moved_counts(here: Recording, there: Recording) -> Iterator[str]:
    for before, after in zip(here.received, there.received, strict=False):
        if (before.protection, *map(np.shape, before.counts)) != (after.protection, *map(np.shape, after.counts)):
            yield "other counts on the neighbour"
        elif any(
            _within(before.protection.sensitivity, one - other) > 1
            for one, other in zip(before.counts, after.counts, strict=True)
        ):
            yield "a person moves received counts by more than they are bounded by"


def _joined(recording: Recording) -> list[Draw]:
    """Return the draws, with all comparisons of a gate as one: whether they move in one direction shows only together."""
    joined: list[Draw] = []
    for draw in recording.draws:
        last = joined[-1] if joined else None
        if (
            draw.threshold is not None
            and last is not None
            and (last.operation, last.threshold) == (draw.operation, draw.threshold)
        ):
            values = np.concatenate([last.values, draw.values])
            joined[-1] = replace(last, values=values, result=[*last.result, *draw.result])
        else:
            joined.append(draw)
    return joined


def furthest(here: Recording, there: Recording) -> float:
    """Return the largest share of what was paid for that a person moves."""
    pairs = zip(_joined(here), _joined(there), strict=False)
    return max((reach(before.mechanism, before.values, after.values) for before, after in pairs), default=0.0)


# Seeing

# What differs from one run to the next even on the same table: hashes, moments, and how long things took.
PASSING = (
    (r"\b[0-9a-f]{64}\b|\b[0-9a-f]{16}`?…", "HASH"),
    (r"\bidentity [0-9a-f]{12}\.\.\.", "IDENTITY"),
    (r"\d{8}T\d{4}Z-[0-9a-f]{12}", "RELEASE"),
    (r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?( UTC|Z|\+00:00)?", "MOMENT"),
    (r"about \d+ s left", "SECONDS"),
    (r"leased until \d{2}:\d{2}:\d{2} UTC", "LEASED"),
    (r"(data-version +[\w -]+ +)[0-9a-f]{16}", r"\1VERSION"),  # tells only whether two runs read the same table
)
OF_DATA = (
    (r": [\w x]+, noise", ": COLUMNS, noise"),
    (r"\b[0-9a-f]{16}\b", "HASH"),  # of a noisy answer
    (r"\d[\d,]*(\.\d+)?(e-?\d+)?", "N"),
)
UNBOUGHT = ("exit", "charges", "steps", "files", "schemas")
"""What noisy values have no part in: the same even where they differ."""


@contextmanager
def one_stream(name: str) -> Iterator[None]:
    """Let the operating system give the same bytes in every run of a setting."""
    asked = 0

    def stream(size: int) -> bytes:
        nonlocal asked
        asked += 1
        return shake_256(b"%s %d" % (name.encode(), asked)).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", stream)
        yield


UNRELATED = ("distributed", "asyncio", "httpcore", "httpx", "websockets")
"""Loggers that tell of our own cluster, and of loops and connections that earlier tests in this process have left behind."""


@dataclass
class Watcher:
    """Plays a setting on tables in a clean folder, and looks at everything that is not the steward's."""

    folder: Path
    caplog: pytest.LogCaptureFixture
    capfd: pytest.CaptureFixture[str]

    def play(self, setting: Setting, rows: Rows, *, answers_of: Recording | None = None) -> tuple[Seen, Recording]:
        """Play a setting on the table of all others and one unit's rows."""
        folder, recording = self.folder / "work", Recording()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.caplog.clear()
        self.capfd.readouterr()
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}  # of earlier tests
        with pytest.MonkeyPatch.context() as patch, one_stream(setting.name):
            patch.chdir(folder)
            with setting.prepared(rows, patch), self.caplog.at_level(logging.DEBUG):
                play = Play(setting, folder)
                with recording.of_a_run(answers_of=answers_of):
                    try:
                        setting.drive(play)
                    except DpflowError as error:
                        play.codes.append(str(error))
                shown = [self.capfd.readouterr()]
                shown += [
                    (cli.main(["ledger", *words], runner=play.runner), self.capfd.readouterr())
                    for words in (["show"], ["history", "visits"], ["verify"])
                ]
                logs = [
                    (line.name, line.levelname, line.getMessage())
                    for line in self.caplog.records
                    if line.thread not in others and not line.name.startswith(UNRELATED)
                ]
                seen = {"exit": play.codes, "logs": logs, "shown": shown, **booked(), **published(folder)}
        return {part: masked(content, PASSING) for part, content in seen.items()}, recording

    def plays(self, setting: Setting) -> Iterator[tuple[Seen, Recording]]:
        """Play a setting on a table and its neighbours, which are given the same answers; last with rows that nobody may count, if any."""
        first, *units = setting.units
        seen, here = self.play(setting, first)
        yield seen, here
        for rows in (*units, *([[*first, *setting.unread]] if setting.unread else ())):
            yield self.play(setting, rows, answers_of=here)


def problems(setting: Setting, plays: Sequence[tuple[Seen, Recording]]) -> set[str]:
    """Return everything that is wrong with a setting that was played on a table and its neighbours."""
    (seen, here), *others = plays
    problems = unpaid(here, setting.currency) | unstored(here) | failed(seen)
    for other, there in others:
        problems |= moved_too_far(here, there)
        problems |= {f"the neighbour differs in {part}" for part in differences(seen, other)}
    shares = [furthest(here, there) for _, there in others]
    if any(shares[len(setting.units) - 1 :]):
        problems.add("rows that were not paid for are counted")
    if max(shares, default=0) < 1:
        problems.add("nobody moved anything as far as was paid for: this comparison has no power")
    return problems


def failed(seen: Seen) -> set[str]:
    """Return which of a setting's commands have failed."""
    return {f"a command has failed: {code}" for code in json.loads(seen["exit"]) if code}


def differences(one: Seen, other: Seen) -> set[str]:
    """Return in which respects two plays look different, and of logs also which loggers."""
    different = {part for part in one.keys() | other.keys() if one.get(part) != other.get(part)}
    if "logs" in different:
        counts = [Counter(re.findall(r'\["([\w.]+)", "[A-Z]+", ".*?"\]', play["logs"])) for play in (one, other)]
        different = different - {"logs"} | {f"logs, lines by logger {counts[0]} and {counts[1]}"}
    return different


def booked() -> dict[str, Any]:
    """Return what the ledger holds, without the hashes by which noisy outputs and moments are chained."""
    with open_ledger() as ledger:
        events, balances = list(ledger.history("visits")), str(ledger.blocks("visits"))
    hidden = {"sha256", "version", "holder", "salt"}
    bodies = [(e.kind, {k: v for k, v in e.details.items() if k not in hidden}) for e in events]
    return {
        "steps": [(e.kind, e.details.get("step"), e.details.get("attempt")) for e in events],
        "charges": (balances, [(e.details["amount"], e.details["mechanism"]) for e in events if e.kind == "charged"]),
        "events": bodies,
    }


def published(folder: Path) -> dict[str, Any]:
    """Return what lies in the folder; of the source, the steward's own files and stored outputs, their names."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {str(path.relative_to(folder)): path for path in paths}
    released = {name: path for name, path in names.items() if name.startswith(("releases/", "answers/"))}
    texts = {name: path.read_text("utf-8") for name, path in released.items() if path.suffix != ".parquet"}
    tables = {name: pq.read_table(path) for name, path in released.items() if path.suffix == ".parquet"}
    return {
        "files": [name for name in names if not name.endswith(("-wal", "-shm", "-journal"))],
        "texts": {name: re.sub(r'"bytes": \d+', '"bytes": N', text) for name, text in texts.items()},
        "schemas": {name: str(table.schema.remove_metadata()) for name, table in tables.items()},
        "rows": {name: table.to_pylist() for name, table in tables.items()},
    }


def masked(content: Any, patterns: tuple[tuple[str, str], ...]) -> str:
    """Write content as text, without what matches."""
    text = (
        content
        if isinstance(content, str)
        else json.dumps(content, default=str, ensure_ascii=False).replace("\\n", "\n")
    )
    for pattern, word in patterns:
        text = re.sub(pattern, word, text)
    return text


def without_what_was_bought(seen: Seen) -> Seen:
    """Leave out the rows, every figure in a text, and what was selected in a round: it is bought as well."""
    return {part: seen[part] for part in UNBOUGHT} | {part: masked(seen[part], OF_DATA) for part in ("logs", "shown")}
