"""Compare answers with DuckDB on the released rows: `python -m benchmarks.questions RELEASE [--count 5000] [--seed 1] [--json]`.

Random questions are asked twice: of the release's model, and of its rows. The two may differ by the sampling error of the rows only. Each
difference is divided by a bound of that error, so a ratio above 1 is a disagreement. `outside` counts the numbers by rows that lie further
from the stated interval than that bound. The control asks DuckDB about the next question's rows, and must disagree often.
"""

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd

from dpcore.answers.answer import answer
from dpcore.answers.release import Release, open_release
from dpcore.universe import Attribute, Date, Datetime, Integer, Number, Universe
from dpcore.universe.spread import category_values, null_codes
from dpcore.universe.spreading import spread_of

SIGMAS = 4.0  # of independent draws; rows are drawn more evenly than that
FEW = 30  # of fewer rows neither means nor quantiles are compared
MOST_GROUPS = 400
MOST_CELLS = 1 << 19  # of the columns of a question, so that none is refused


@dataclass(frozen=True)
class Asked:
    """A number: its kind, and how it is written in SQL. `of` is the column, or the other condition of a share."""

    kind: str
    sql: str
    of: str
    where: str
    share: float = 0.5


@dataclass(frozen=True)
class Question:
    """A question, with its keys as written here and for DuckDB."""

    where: str
    keys: tuple[tuple[str, str], ...]
    numbers: tuple[Asked, ...]

    @property
    def sql(self) -> str:
        """The question."""
        keys = [ours for ours, _ in self.keys]
        outputs = [f"{key} as k{at}" for at, key in enumerate(keys)]
        outputs += [f"{each.sql} as n{at}" for at, each in enumerate(self.numbers)]
        group = f" group by {', '.join(keys)}" if keys else ""
        return f"select {', '.join(outputs)} from release where {self.where}{group}"  # noqa: S608  generated here

    @property
    def duckdb(self) -> str:
        """The same for DuckDB, with what the bounds need beside every number."""
        outputs = [f"{key} as k{at}" for at, (_, key) in enumerate(self.keys)]
        for at, each in enumerate(self.numbers):
            rows = f"filter (where {each.where})"
            outputs.append(f"count(*) {rows} as rows{at}")
            match each.kind:
                case "count":
                    outputs.append(f"count(*) {rows} as n{at}")
                case "share":
                    outputs.append(f"count(*) filter (where ({each.of}) and ({each.where})) / count(*) {rows} as n{at}")
                case "quantile":
                    outputs += [f"list({each.of}) {rows} as n{at}"]
                case _:
                    outputs.append(f"{each.kind}({each.of}) {rows} as n{at}")
                    outputs.append(f"stddev_pop({each.of}) {rows} as sd{at}")
                    outputs.append(f"avg({each.of}) {rows} as mean{at}")
        group = f" group by {', '.join(key for _, key in self.keys)}" if self.keys else ""
        return f"select {', '.join(outputs)} from release where {self.where}{group}"  # noqa: S608  generated here


class Generator:
    """Draws questions about a universe."""

    def __init__(self, universe: Universe, *, seed: int) -> None:
        self._universe = universe
        self._random = random.Random(seed)  # noqa: S311  public questions

    def question(self) -> Question:
        """Draw a question of one to four columns."""
        draw = self._random
        names = draw.sample(self._universe.names, min(len(self._universe.names), draw.randint(1, 4)))
        while math.prod(2 * self._attribute(name).size for name in names) > MOST_CELLS and len(names) > 1:
            names.pop()
        keys = tuple(key for name in names[: draw.choice([0, 1, 1, 2])] if (key := self._key(name)))
        where = self._condition(names[len(keys) :], depth=2)
        numbers = tuple(self._number(draw.choice(names)) for _ in range(draw.randint(1, 2)))
        return Question(where, keys, numbers)

    def conjunction(self, columns: int) -> str:
        """Draw a condition on each of so many columns, all of which must hold."""
        return " and ".join(f"({self._atom(name)})" for name in self._random.sample(self._universe.names, columns))

    def _attribute(self, name: str) -> Attribute:
        return self._universe.attributes[name]

    def _key(self, name: str) -> tuple[str, str] | None:
        """Return a key, as written here and for DuckDB."""
        attribute, quoted = self._attribute(name), _quoted(name)
        if not attribute.ordered:
            return (quoted, quoted) if attribute.size <= MOST_GROUPS else None
        if isinstance(attribute, Date | Datetime):
            unit = self._random.choice(["month", "quarter", "year"])
            part = self._random.choice(["year", "month", "quarter", "dayofweek"])
            written = self._random.choice([f"date_trunc('{unit}', {quoted})", f"{part}({quoted})"])
            return written, written
        low, high = (float(edge) for edge in (spread_of(attribute).edges[0], spread_of(attribute).edges[-1]))
        width = max(1, round((high - low) / self._random.choice([3, 7, 20])))
        buckets = f"width_bucket({quoted}, {low:g}, {high:g}, {self._random.randint(2, 9)})"
        floor = f"floor({quoted} / {width}) * {width}"
        return self._random.choice([(floor, floor), (f"bin({quoted}, {width})", floor), (buckets, _bucket(buckets))])

    def _number(self, name: str) -> Asked:
        attribute, quoted = self._attribute(name), _quoted(name)
        where = self._condition([name], depth=1) if self._random.random() < 0.3 else "true"
        rows = "" if where == "true" else f" filter (where {where})"
        kinds = ["count", "share"]
        if isinstance(attribute, Integer | Number):
            kinds += ["sum", "avg", "avg", "quantile", "quantile"]
        match self._random.choice(kinds):
            case "count":
                return Asked("count", f"count(*){rows}", quoted, where)
            case "share":
                part = self._condition([name], depth=1)
                written = f"count(*) filter (where ({part}) and ({where})) / count(*){rows}"
                return Asked("share", written, part, where)
            case "quantile":
                share = self._random.choice([0.1, 0.25, 0.5, 0.9])
                present = f"({where}) and {quoted} is not null"
                return Asked("quantile", f"quantile_cont({quoted}, {share}){rows}", quoted, present, share)
            case kind:
                return Asked(kind, f"{kind}({quoted}){rows}", quoted, f"({where}) and {quoted} is not null")

    def _condition(self, names: Sequence[str], *, depth: int) -> str:
        draw = self._random
        if not names or draw.random() < 0.1:
            return "true"
        if depth == 0 or draw.random() < 0.4:
            return self._atom(draw.choice(names))
        match draw.choice(["and", "and", "or", "not"]):
            case "not":
                return f"not ({self._condition(names, depth=depth - 1)})"
            case word:
                parts = [self._condition(names, depth=depth - 1) for _ in range(2)]
                return f"({parts[0]}) {word} ({parts[1]})"

    def _atom(self, name: str) -> str:
        attribute, quoted, draw = self._attribute(name), _quoted(name), self._random
        if null_codes(attribute) and draw.random() < 0.2:
            return f"{quoted} is {draw.choice(['', 'not '])}null"
        if not attribute.ordered:
            return self._of_categories(attribute, quoted)
        if isinstance(attribute, Date | Datetime) and draw.random() < 0.3:
            return draw.choice([f"month({quoted}) in (1, 2, 7)", f"year({quoted}) >= 2025", f"quarter({quoted}) <> 2"])
        one, other = sorted([self._constant(attribute), self._constant(attribute)])
        compared = f"{quoted} {draw.choice(['<', '<=', '>', '>=', '=', '<>'])} {_literal(one)}"
        return draw.choice([compared, compared, f"{quoted} between {_literal(one)} and {_literal(other)}"])

    def _of_categories(self, attribute: Attribute, quoted: str) -> str:
        values = [value for value in category_values(attribute) or () if value is not None]
        one = _literal(self._random.choice(values))
        if isinstance(values[0], bool):
            return self._random.choice([quoted, f"{quoted} = {one}", f"{quoted} is not true"])
        some = self._random.sample(values, min(len(values), self._random.randint(1, 4)))
        listed = ", ".join(map(_literal, some))
        operator = self._random.choice(["=", "<>", "<", ">="])
        return self._random.choice(
            [f"{quoted} {operator} {one}", f"{quoted} in ({listed})", f"{quoted} not in ({listed})"]
        )

    def _constant(self, attribute: Attribute) -> Any:
        """Draw a value: from the whole range, or one that is likely."""
        spread = spread_of(attribute)
        if self._random.random() < 0.5:
            place = spread.quantile(self._random.random() * spread.cells)
        else:
            low, high = spread.bounds[0].item(), spread.bounds[-1].item()
            place = np.asarray(low + self._random.random() * (high - low))
            place = place.astype(np.int64) if spread.whole else place
        value = spread.value(np.asarray([place]))[0]
        return value.astype("datetime64[s]").item() if value.dtype.kind == "M" else round(float(value), 6)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
    return f"timestamp '{value.isoformat(sep=' ')}'"


def _bucket(written: str) -> str:
    """Write `width_bucket`, which DuckDB lacks, by other functions."""
    column, low, high, count = written.removeprefix("width_bucket(").removesuffix(")").rsplit(", ", 3)
    step = f"floor(({column} - {low}) / (({high} - {low}) / {count}))"
    return f"case when {column} is null then null else greatest(0, least({count} + 1, {step} + 1)) end"


@dataclass(frozen=True)
class Comparison:
    """A number of one group: by the model, by the rows, their difference, and the distance of the rows from the interval, in bounds."""

    question: Question
    kind: str
    model: float
    rows: float
    ratio: float
    outside: float


def compare(
    release: Release, rows: duckdb.DuckDBPyConnection, question: Question, *, of: Question | None = None
) -> Iterator[Comparison]:
    """Yield the comparison of every number of a question. `of` asks DuckDB about something else, as a control."""
    return compare_with(answer(release, question.sql), release, rows, question, of=of)


def compare_with(
    ours: pd.DataFrame,
    release: Release,
    rows: duckdb.DuckDBPyConnection,
    question: Question,
    *,
    of: Question | None = None,
) -> Iterator[Comparison]:
    """Yield the comparison of every number of an answer."""
    theirs = rows.execute((of or question).duckdb).fetchdf()
    keys = [f"k{at}" for at in range(len(question.keys))]
    found = {tuple(_key(row[key]) for key in keys): row for row in theirs.to_dict("records")}
    scale = release.model.total / max(1, int(release.manifest["rows"]))
    for row in ours.to_dict("records"):
        other = found.pop(tuple(_key(row[key]) for key in keys), {})
        for at, asked in enumerate(question.numbers):
            ours_of = Ours(*(float(row[f"n{at}{end}"]) for end in ("", "_low", "_high")))
            yield from _compared(question, asked, ours_of, other, at=at, scale=scale)
    for group in found:  # the model must have every group that the rows have
        yield Comparison(question, f"group {group}", 0.0, 1.0, math.inf, math.inf)


class Ours(NamedTuple):
    """A number by the model, and the ends of its interval."""

    value: float
    low: float
    high: float

    def beside(self, rows: float, bound: float) -> tuple[float, float]:
        """Return how far a number by the rows is from this one, and from its interval, in bounds. The interval must contain the number."""
        if not self.low <= self.value <= self.high:
            return abs(self.value - rows) / bound, math.inf
        return abs(self.value - rows) / bound, max(0.0, self.low - rows, rows - self.high) / bound


def _compared(  # noqa: PLR0913  all that a bound depends on
    question: Question, asked: Asked, model: Ours, other: dict[str, Any], *, at: int, scale: float
) -> Iterator[Comparison]:
    count = float(other.get(f"rows{at}", 0))
    value = other.get(f"n{at}", 0)
    if asked.kind == "count":
        bound = SIGMAS * math.sqrt(max(model.value, count, 1.0)) + SIGMAS
        yield Comparison(question, "count", model.value, count, *model.beside(count * scale, bound))
    elif count < FEW:
        return
    elif asked.kind == "share":
        bound = SIGMAS * math.sqrt(0.25 / count) + 2 / count
        yield Comparison(question, "share", model.value, value, *model.beside(value, bound))
    elif asked.kind == "quantile":
        errors = (_rank_error(ends, value, asked.share) for ends in ((model.value, model.value), model[1:]))
        yield Comparison(question, "quantile", model.value, 0.0, *errors)
    else:
        spread, mean = other[f"sd{at}"], other[f"mean{at}"]
        bound = SIGMAS * (spread + abs(mean) / count + 1e-9) / math.sqrt(count)
        if asked.kind == "sum":
            bound = SIGMAS * (math.sqrt(count * (spread**2 + mean**2)) + abs(mean) + spread + 1e-9)
            model = Ours(*(each / scale for each in model))
        yield Comparison(question, asked.kind, model.value, value, *model.beside(value, bound))


def _rank_error(ends: Sequence[float], values: Any, share: float) -> float:
    """Return how far the ranks, among the rows, from one value to another are from a quantile's share, in bounds."""
    values = np.sort(np.asarray(values, dtype=np.float64))
    low, high = (
        np.searchsorted(values, end + move * 1e-9 * max(1.0, abs(end)), side=side) / len(values)
        for end, move, side in zip(ends, (-1, 1), ("left", "right"), strict=True)
    )
    error = max(0.0, low - share, share - high)
    return float(error / (SIGMAS * math.sqrt(share * (1 - share) / len(values)) + 2 / len(values)))


def _key(value: Any) -> Any:
    if value is None or value != value:  # noqa: PLR0124  not a number, or not a time
        return None
    if hasattr(value, "isoformat"):
        return value.isoformat()[:10]
    return (
        round(float(value), 6) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else value
    )


def rows_of(release: Release) -> duckdb.DuckDBPyConnection:
    """Open the released rows in DuckDB."""
    connection = duckdb.connect()
    connection.execute("set threads = 1")
    connection.execute(f"create table release as select * from read_parquet('{release.folder}/data/*.parquet')")  # noqa: S608  our own path
    return connection


def main() -> None:
    """Ask the questions, and print how the answers compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.questions", description=__doc__)
    parser.add_argument("release", type=Path)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    release = open_release(arguments.release)
    rows, generator = rows_of(release), Generator(release.universe, seed=arguments.seed)
    questions = [generator.question() for _ in range(arguments.count)]
    answer(release, "select count(*) from release")
    begin, seconds, compared = time.process_time(), [], []
    for question in questions:
        before = time.process_time()
        found = answer(release, question.sql)
        seconds.append(time.process_time() - before)
        compared += list(compare_with(found, release, rows, question))
    control = []
    for one, other in pairwise(questions):
        if one.keys == other.keys and len(one.numbers) <= len(other.numbers):
            control += [
                each.ratio
                for each in compare(
                    release,
                    rows,
                    replace(one, numbers=one.numbers[:1]),
                    of=replace(one, where=other.where, numbers=one.numbers[:1]),
                )
            ]
    ratios = np.array([each.ratio for each in compared])
    result = {
        "questions": len(questions),
        "numbers": len(ratios),
        "disagreements": int((ratios > 1).sum()),
        "largest_ratio": float(ratios.max()),
        "outside": sum(each.outside > 1 for each in compared),
        "control_disagreements": float(np.mean(np.array(control) > 1)) if control else None,
        "answer_cpu_ms_median": 1000 * float(np.median(seconds)),
        "answer_cpu_ms_p95": 1000 * float(np.quantile(seconds, 0.95)),
        "answer_cpu_ms_most": 1000 * max(seconds),
        "cpu_seconds": time.process_time() - begin,
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:24} {value}")
    worst = sorted((each for each in compared if each.ratio > 1), key=lambda each: -each.ratio)[:10]
    for each in worst:
        print(f"{each.ratio:.2f} {each.kind} model {each.model} rows {each.rows}: {each.question.sql}", file=sys.stderr)


if __name__ == "__main__":
    main()
