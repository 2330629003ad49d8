"""A record is coded alone as it is coded together with any other records, in any order and in batches of any size.

The cases are tied to the code: a new kind of attribute, a new setting of one, a new constraint or rule needs a case here.
"""

import dataclasses
import datetime as dt
import importlib
import inspect
import pkgutil
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import cycle, islice, product
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

from dpcore import universe as universe_package
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.starter.forms import Forms
from dpcore.tables.ingest import Coding, Draws, coding, violations
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.violations import Rules
from dpcore.tables.ingest.window import Window
from dpcore.tables.reading import encoding
from dpcore.tables.reading import values as value_reading
from dpcore.tables.reading.encoding import reads
from dpcore.tables.reading.finest import Finest
from dpcore.tables.reading.grid import Grid
from dpcore.tables.reading.places import ABOVE
from dpcore.tables.sources.ids import numbers_in_text
from dpcore.universe import Boolean, Categorical, Date, Datetime, Every, Integer, Number, Outside, Universe
from dpcore.universe.attribute import Attribute
from dpcore.universe.blocks import Calendar
from dpcore.universe.categorical import Stems
from dpcore.universe.constraints import Condition, Constraint, Implication, Listed, Violations
from dpcore.universe.dependencies import Depends
from dpcore.universe.fine_days import FineDate, FineDatetime, WeekTimes
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Leaves, Scale
from dpcore.universe.numeric import UnevenInteger
from dpcore.universe.orders import Order
from dpcore.universe.sums import Sum

DRAWS = Draws.fresh()
Read = Callable[[Sequence[Any]], Sequence[Hashable]]
"""Codes records together, and returns what becomes of each that is kept, in any order."""


def broken(records: Sequence[Any], read: Read) -> list[Counter[Hashable]]:
    """Return what is coded otherwise together than alone: in order, and at random with some records twice and some left out."""
    chance, places = random.Random(len(records)), range(len(records))  # noqa: S311  not for secrets
    alone = [Counter(read([record])) for record in records]
    found = []
    for chosen in (places, *(chance.choices(places, k=size) for size in (3, 2 * len(records)))):
        together = Counter(read([records[place] for place in chosen]))
        apart: Counter[Hashable] = sum((alone[place] for place in chosen), Counter())
        if together != apart:
            found.append((together - apart) + (apart - together))
    return found


def kinds_of(base: type) -> set[type]:
    """Return all classes of dpcore that are of a kind and have objects of their own."""
    kinds = {*base.__subclasses__()}
    kinds |= {kind for each in kinds for kind in kinds_of(each)}
    return {kind for kind in kinds if not inspect.isabstract(kind) and kind.__module__.startswith("dpcore.")}


# Attributes

DAYS: dict[str, Any] = {"minimum": dt.date(2025, 1, 15), "maximum": dt.date(2025, 12, 30)}
TIMES: dict[str, Any] = {"minimum": dt.datetime(2025, 1, 15, 8), "maximum": dt.datetime(2025, 12, 30)}
FORMATS = ("%m/%d/%Y", "%d.%m.%y", "%Y-%m-%d")
HUNDRED = Leaves(starts=(0, 7, 50), masses=(5, 0, 9), size=100)
QUARTERS = Scale.of(Fraction(0), Fraction(25), step=Fraction(1, 4))
YEAR = Leaves(starts=(0, 30), masses=(5, 9), size=350)
WEEKDAYS = Leaves(starts=(0, 5), masses=(5, 9), size=7)
SETTINGS: dict[type[Attribute], list[dict[str, Any]]] = {
    Categorical: [{"values": ("F", "M", "250", "250.1")}, {"values": (7, 0.25), "exact": True}, {"values": ("25", "other"), "prefixes": True}],
    Stems: [
        {"values": ("2", "25", "V1"), "depth": 2, "length": 4, "exact": True},
        {"values": ("F",), "depth": 1, "length": 6, "prefixes": True},
    ],
    Boolean: [{}],
    Forms: [{}],
    Integer: [{"minimum": 0, "maximum": 99}, {"minimum": -5, "maximum": 20, "width": 10}],
    UnevenInteger: [{"minimum": 0, "maximum": 99, "cuts": (7, 50)}, {"minimum": -5, "maximum": 20, "cuts": ()}],
    Number: [{"edges": (0, 7, 100)}, {"edges": (-3.5, 0.25)}],
    FineInteger: [
        {"minimum": 0, "maximum": 99},
        {"minimum": 0, "maximum": 99, "starts": (7, 50), "leaves": HUNDRED},
        {"minimum": -5, "maximum": 20},
    ],
    FineNumber: [
        {"scale": QUARTERS},
        {"scale": Scale.of(Fraction(0), Fraction(99), step=Fraction(1)), "starts": (7,), "leaves": HUNDRED},
    ],
    Date: [
        {**DAYS, "every": Every.MONTH},
        {"minimum": dt.date(2025, 2, 1), "maximum": dt.date(2025, 6, 1), "every": Every.WEEK, "formats": FORMATS},
    ],
    Datetime: [
        {**TIMES, "every": Every.DAY},
        {"minimum": dt.datetime(2025, 1, 31), "maximum": dt.datetime(2025, 6, 1), "every": Every.HOUR, "formats": FORMATS},
    ],
    FineDate: [
        DAYS,
        {**DAYS, "starts": (30,), "leaves": YEAR, "week": WEEKDAYS, "formats": FORMATS},
        {"minimum": dt.date(2025, 2, 1), "maximum": dt.date(2025, 6, 1), "step": "hour"},
    ],
    FineDatetime: [
        {**TIMES, "step": "minute"},
        {**TIMES, "starts": (30,), "leaves": YEAR, "week": WEEKDAYS, "formats": FORMATS},
        {"minimum": dt.datetime(2025, 1, 31), "maximum": dt.datetime(2025, 6, 1), "step": "second"},
    ],
    Finest: [
        {"column": FineInteger(minimum=0, maximum=99)},
        {"column": FineNumber(scale=QUARTERS)},
        {"column": FineDatetime(**TIMES, step="minute", formats=FORMATS)},
    ],
    WeekTimes: [
        {"column": FineDate(**DAYS), "starts": (2, 5)},
        {"column": FineDatetime(**TIMES, step="hour", formats=FORMATS), "starts": (50,)},
    ],
}  # fmt: skip
FIXED = {
    (UnevenInteger, "width"),
    (FineInteger, "width"),
    *((Forms, name) for name in ("values", "prefixes", "exact", "missing")),
}  # settings that have one value only


def attributes() -> Iterator[Attribute]:
    """Yield every kind of attribute in every setting, each with another policy."""
    nulls: list[dict[str, Any]] = [{}, {"missing": True}, {"missing": True, "nulls": ("?", "NA")}]
    for kind, settings in SETTINGS.items():
        policies = [*Outside] if not issubclass(kind, Categorical | Boolean) else [Outside.OTHER, Outside.DROP]
        for setting, policy, null in islice(zip(cycle(settings), cycle(policies), cycle(nulls)), max(4, len(settings))):
            yield kind(**setting, outside=policy, **null)


TEXTS = (
    *("7", " 7.0 ", "-3", "100", "0.25", "1e999", "nan", "2025-01-31", "2024-12-31", "2025-01-31T10:30:00+02:00"),
    *("01/02/2025", "02/03/2025", "31.01.25", "F", "M", "x", "250.13", "V1.2", "true", "?", "", None),
)
MOMENT = dt.datetime(2025, 1, 31, 10, 30)
COLUMNS: dict[str, tuple[Sequence[Any], Callable[[Sequence[Any]], pa.Array]]] = {
    "text": (TEXTS, partial(pa.array, type=pa.string())),
    "dictionary": (TEXTS[::5], lambda values: pa.array(values, pa.string()).dictionary_encode()),
    "bytes": ([b"7", b"2025-01-31", b"F", b"\xff", None], partial(pa.array, type=pa.binary())),
    "whole numbers": ([0, 1, 7, 99, 100, -3, 2**62, None], partial(pa.array, type=pa.int64())),
    "unsigned numbers": ([0, 7, 2**64 - 1, None], partial(pa.array, type=pa.uint64())),
    "floats": ([0.25, 7.0, 99.5, -4.0, 1e300, np.inf, np.nan, None], partial(pa.array, type=pa.float64(), from_pandas=False)),
    "decimals": ([Decimal("0.25"), Decimal("7.00"), Decimal("-3.5"), None], partial(pa.array, type=pa.decimal128(20, 2))),
    "truth values": ([True, False, None], partial(pa.array, type=pa.bool_())),
    "days": ([dt.date(2025, 1, 31), dt.date(1900, 1, 1), dt.date(2099, 1, 1), None], partial(pa.array, type=pa.date32())),
    "moments": ([MOMENT, MOMENT.replace(year=1900), MOMENT.replace(month=7), None], partial(pa.array, type=pa.timestamp("us", "UTC"))),
}  # fmt: skip


def read_by(attribute: Attribute, make: Callable[[Sequence[Any]], pa.Array]) -> Read:
    return lambda values: list(zip(map(repr, values), encoding.encode(attribute, make(values)).tolist(), strict=True))


def broken_attributes(kinds: type[Attribute] = Attribute) -> Iterator[Any]:
    for attribute in attributes():
        for column, (values, make) in COLUMNS.items() if isinstance(attribute, kinds) else ():
            if reads(attribute, make([]).type):
                yield from ((attribute, column, wrong) for wrong in broken(values, read_by(attribute, make)))


def test_every_attribute_codes_a_value_alone_as_together() -> None:
    assert [*broken_attributes()] == []


def test_every_kind_of_attribute_and_every_setting_of_it_has_a_case() -> None:
    for module in pkgutil.iter_modules(universe_package.__path__):
        importlib.import_module(f"{universe_package.__name__}.{module.name}")
    assert {*SETTINGS} == kinds_of(Attribute)
    for kind in SETTINGS:
        ours = [attribute for attribute in attributes() if type(attribute) is kind]
        for setting in (each.name for each in dataclasses.fields(kind) if each.init):
            values = {getattr(attribute, setting) for attribute in ours}
            assert len(values) > 1 or (kind, setting) in FIXED, f"{kind.__name__}.{setting} has one value only"


# Constraints, weights and windows

ROW = "row"
BATCH_ROWS = 8
BY_ROW = Protection(unit="row", rows_per_unit=1, neighbours=Neighbours.ADD_REMOVE)
NUMBERS = ("0", "3", "7", "12", "25", "99", "100", "-1", "x", None)
MONTHS = ("2025-01-20", "2025-03-01", "2025-03-31", "2025-12-30", "2024-12-31", "2026-01-01", "x", None)


def columns_like(column: Attribute, *names: str, null: bool) -> dict[str, Attribute]:
    """Return several columns, of which the last, which is repaired, has nulls or not."""
    return {name: dataclasses.replace(column, missing=null or name != names[-1]) for name in names}


def constrained() -> Iterator[tuple[Universe, Sequence[str | None]]]:
    """Yield universes with every constraint, over columns of every kind that it can have, and the values of their columns."""
    whole, fine, exact = (
        Integer(minimum=0, maximum=99, width=5),
        FineInteger(minimum=0, maximum=99),
        FineNumber(scale=QUARTERS),
    )
    days = (Date(**DAYS, every=Every.MONTH), FineDate(**DAYS), FineDatetime(**TIMES, step="hour"))
    named = Categorical(("3", "7"), outside=Outside.OTHER)
    for policy, null in ((Violations.DROP, False), (Violations.REPAIR, False), (Violations.REPAIR, True)):
        for column in (whole, fine, exact, Number((0.0, 5.0, 12.0, 99.0)), *days):
            like = partial(columns_like, column, null=null)
            values = MONTHS if column in days else NUMBERS
            yield Universe(like("a", "b"), (Order(low="a", high="b", violations=policy),)), values
            if column in (whole, fine, exact):
                yield (
                    Universe(like("a", "b", "c"), (Sum(total="c", terms=("a", "b"), violations=policy),)),
                    values[1:8:2],
                )
        columns = {"a": named, **columns_like(whole, "b", null=null)}
        given = Condition("a", values=("3",))
        for then in ((), (Condition("b", low=5, high=9),)):
            when = (given,) if then else (given, Condition("b", low=10, high=14))
            yield Universe(columns, (Implication(when=when, then=then, violations=policy),)), NUMBERS
        possible = ((("3",), (3, 12)), (("7",), (*range(8), 99)))
        single = {"a": named, **columns_like(Integer(minimum=0, maximum=99), "b", null=null)}
        yield Universe(single, (Listed(listed=("a", "b"), rows=possible, violations=policy),)), NUMBERS
        learned = Depends(given=("a",), determined="b", share=Fraction(1, 20), codes=(0, 1), violations=policy)
        yield Universe({"a": named, "b": named}, (learned,)), NUMBERS


def outcomes(coded: Coded) -> list[Hashable]:
    """Return the codes, the weight and the id of each row that counts."""
    weights = [1] * coded.rows if coded.weights is None else coded.weights.tolist()
    ids = [None] * coded.rows if coded.ids is None else map(tuple, coded.ids.tolist())
    codes = zip(*(codes.tolist() for codes in coded.codes), strict=True)
    return list(zip(codes, weights, ids, strict=True))


def code(rules: Coding) -> Read:
    """Return a function that codes rows of text, each with its number, in small batches."""
    columns = (ROW, *rules.columns)
    numbered = {ROW: Integer(minimum=0, maximum=10_000), **rules.universe.attributes}
    rules = dataclasses.replace(rules, universe=Universe(numbered, rules.universe.constraints))

    def read(rows: Sequence[tuple[str | None, ...]]) -> list[Hashable]:
        arrays = [pa.array(values, pa.string()) for values in zip(*rows, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        pieces = (batch[start : start + BATCH_ROWS] for start in range(0, len(rows), BATCH_ROWS))
        return [row for piece in pieces for row in outcomes(rules.code(piece, draws=DRAWS, piece=0, start=0))]

    return read


def rows_of(*columns: Sequence[str | None], most: int) -> list[tuple[str | None, ...]]:
    """Return some combinations of the columns' values, each with its number."""
    every = list(product(*columns))
    chosen = random.Random(1).sample(every, min(most, len(every)))  # noqa: S311  not for secrets
    return [(str(number), *row) for number, row in enumerate(chosen)]


def broken_constraints(kinds: type[Constraint] = Constraint) -> Iterator[Any]:
    for universe, values in constrained():
        if isinstance(universe.constraints[0], kinds):
            rules = Coding(universe=universe, protection=BY_ROW, window=None, rules=Rules.of(universe))
            rows = rows_of(*[values] * len(rules.columns), most=12)
            yield from ((universe, wrong) for wrong in broken(rows, code(rules)))


def test_every_constraint_and_repair_codes_a_row_alone_as_together() -> None:
    assert [*broken_constraints()] == []


def test_every_constraint_with_every_policy_and_every_rule_has_a_case() -> None:
    universes = [universe for universe, _ in constrained()]
    constraints = [constraint for universe in universes for constraint in universe.constraints]
    policies = {(type(each), each.violations) for each in constraints}
    assert policies == {*product(kinds_of(Constraint), Violations)}
    rules = {type(rule) for each in map(Rules.of, universes) if each is not None for rule in each.rules}
    assert rules == {*get_args(violations._Rule)}


WEIGHTED = dataclasses.replace(BY_ROW, weight="weight", row_weight=3)
PERSONS = Protection(unit="person", rows_per_unit=9, neighbours=Neighbours.ADD_REMOVE)
SEXES = Universe({"sex": Categorical(("F", "M"), missing=True)})
PERIODS = Calendar("day", Every.MONTH, start=dt.date(2025, 1, 1), arrived="sent", grace_days=5)
NAMED = [PERIODS.block(name) for name in ("2025-03", "2025-03-late")]
IN_TIME = Window.of(PERIODS, [block.name for block in NAMED])
ALONE = dataclasses.replace(PERIODS, arrived=None, formats=FORMATS)
SENT = ("2025-03-20", "2025-04-03", "2025-04-20", "x", None)
CODINGS: dict[str, tuple[Coding, Sequence[Sequence[str | None]]]] = {
    "weights": (Coding(universe=SEXES, protection=WEIGHTED, window=None), [("1", "2.9", "3", "70", "-1", "often", None)]),
    "persons": (Coding(universe=SEXES, protection=PERSONS, window=None), [("17.1", "17.10", "17", "17.0", "1e+05", "", None)]),
    "a window": (Coding(universe=SEXES, protection=BY_ROW, window=IN_TIME), [MONTHS, SENT]),
    "a window of formats": (
        Coding(universe=SEXES, protection=BY_ROW, window=Window.of(ALONE, ["2025-02", "2025-03"])),
        [("01/02/2025", "02/03/2025", "13/02/2025", "28.02.25", "2025-03-01", None)],
    ),
}  # fmt: skip


def broken_coding(name: str) -> Iterator[Any]:
    rules, columns = CODINGS[name]
    yield from broken(rows_of(("F", None), *columns, most=40), code(rules))


@pytest.mark.parametrize("name", CODINGS)
def test_weights_persons_and_windows_are_read_alone_as_together(name: str) -> None:
    assert [*broken_coding(name)] == []


# Planted: rules by which other records change how one is coded


def largest_of_the_batch(repaired: Any) -> Any:
    """Repair an order by the largest repaired cell of the batch."""

    def repair(rule: Any, codes: Any, rows: Any) -> Any:
        found = repaired(rule, codes, rows)
        return np.full_like(found, found.max(initial=-1))

    return repair


def mean_of_the_batch(repaired: Any) -> Any:
    """Repair a sum by the mean total of the batch."""

    def repair(rule: Any, codes: Any, rows: Any) -> Any:
        found = repaired(rule, codes, rows)
        return np.full_like(found, int(found.mean())) if len(found) else found

    return repair


def format_of_the_batch(first_fitting: Any) -> Any:
    """Read all texts in the format that most of them have."""

    def guess(array: pa.Array, texts: Sequence[str]) -> Any:
        return max((first_fitting(array, [text]) for text in texts), key=lambda read: read[1].sum())

    return guess


def extremes_of_the_batch(place: Any) -> Any:
    """Clip values that are too large to the largest of the batch."""

    def clip(grid: Grid, numbers: Any) -> Any:
        places = place(grid, numbers)
        return np.where(places == ABOVE, max(places.max(initial=0), 0), places)

    return clip


def categories_of_the_batch(encode: Any) -> Any:
    """Count a category that the batch has only once as `other`."""

    def common(attribute: Attribute, column: Any) -> Any:
        codes = encode(attribute, column)
        if not isinstance(attribute, Categorical) or attribute.other_cell is None:
            return codes
        rare = [code for code, times in Counter(codes.tolist()).items() if times == 1]
        return np.where(np.isin(codes, rare), attribute.other_cell, codes).astype(codes.dtype)

    return common


def weights_of_the_batch(read: Any) -> Any:
    """Clip weights to the median of the batch."""
    return lambda column, *, protection: np.minimum(found := read(column, protection=protection), int(np.median(found)))


def ids_of_the_batch(hash_them: Any) -> Any:
    """Read ids as numbers if half of the batch are written as floats."""

    def guessed(ids: pa.Array, *, key: bytes) -> Any:
        floats = sum(str(text).endswith(".0") for text in ids.to_pylist())
        return hash_them(numbers_in_text(ids) if 2 * floats >= len(ids) else ids, key=key)

    return guessed


def window_of_the_batch(keeps: Any) -> Any:
    """Keep all rows of a batch if one of them is in the window."""
    return lambda window, batch: np.full(batch.num_rows, keeps(window, batch).any())


PLANTED: dict[Callable[[Any], Any], tuple[Any, str, Callable[[], Iterator[Any]]]] = {
    largest_of_the_batch: (violations._Compared, "repaired", lambda: broken_constraints(Order)),
    mean_of_the_batch: (violations._Compared, "repaired", lambda: broken_constraints(Sum)),
    format_of_the_batch: (value_reading, "_first_fitting", lambda: broken_attributes(Date)),
    extremes_of_the_batch: (Grid, "place", lambda: broken_attributes(Integer)),
    categories_of_the_batch: (encoding, "encode", lambda: broken_attributes(Categorical)),
    weights_of_the_batch: (coding, "read_weights", lambda: broken_coding("weights")),
    ids_of_the_batch: (coding, "hash_ids", lambda: broken_coding("persons")),
    window_of_the_batch: (Window, "keeps", lambda: broken_coding("a window")),
}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.__name__)
def test_a_rule_that_looks_at_other_records_is_caught(
    planted: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, check = PLANTED[planted]
    monkeypatch.setattr(owner, name, planted(getattr(owner, name)))
    assert next(check(), None) is not None
