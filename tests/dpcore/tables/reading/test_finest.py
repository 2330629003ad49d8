"""The finest places of a column tell exactly what its cells may tell, under every cut."""

import datetime as dt
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpcore.tables.reading import finest
from dpcore.tables.reading.encoding import encode
from dpcore.tables.reading.finest import Finest
from dpcore.universe import Outside
from dpcore.universe.fine_days import STEPS, FineDate, FineDatetime, WeekTimes
from dpcore.universe.fine_numbers import FineInteger, FineNumber
from dpcore.universe.leaves import Fine, Scale

CHANCE = random.Random(5)  # noqa: S311  examples
FROM, TO = dt.datetime(2025, 1, 1, 8), dt.datetime(2025, 3, 1, 20)
COLUMNS: dict[str, Fine] = {
    "integer": FineInteger(minimum=-20, maximum=300),
    "wide integer": FineInteger(minimum=-(2**53), maximum=2**53),
    "cents": FineNumber(scale=Scale.of(Fraction(0), Fraction(3), step=Fraction("0.01"))),
    "thirds of a cent": FineNumber(scale=Scale.of(Fraction("-0.03"), Fraction("0.6"), step=Fraction("0.003"))),
    "many steps": FineNumber(scale=Scale.of(Fraction(-2), Fraction("2.25"), step=Fraction(1, 10**15))),
    "small steps": FineNumber(scale=Scale.of(Fraction(0), Fraction(1, 10**15), step=Fraction(1, 10**22))),
    "large steps": FineNumber(scale=Scale.of(Fraction(0), Fraction(10**15), step=Fraction(500))),
    "days": FineDate(minimum=FROM.date(), maximum=TO.date()),
    "minutes": FineDatetime(minimum=FROM, maximum=TO, step="minute"),
    "hours, in German": FineDatetime(minimum=FROM, maximum=TO, step="hour", formats=("%d.%m.%Y %H:%M",)),
}
POLICIES: list[dict[str, Any]] = [
    {"missing": missing, "outside": outside, "nulls": nulls}
    for outside in Outside
    for missing, nulls in ((False, ()), (True, ()), (True, ("7", "0.5", "NA", "2025-01-31")))
]


def numbers(low: float, high: float) -> list[pa.Array]:
    values = [low, high, np.nextafter(low, -np.inf), np.nextafter(high, np.inf), low - 1, high + 1, 0.0, -0.0, 0.5, 7.0]
    values += [CHANCE.uniform(low, high) for _ in range(200)] + [np.inf, -np.inf, np.nan]
    values += [value + step for value in values[:30] for step in (0.005, -0.005, 0.0005)]
    texts = [*map(repr, values), "12.340", " 7 ", "1e3", "", "NA", "x", None, "9" * 40]
    wholes = [int(value) for value in values if abs(value) < 2**62]
    return [
        pa.array(values),
        pa.array(np.array(values, dtype=np.float32)),
        pa.array(texts),
        pa.array([*wholes, 2**63 - 1, -(2**63), None]),
        pa.array([0, 7, 255], pa.uint8()),
        pa.array([0, 2**64 - 1, 7], pa.uint64()),
        pa.array([True, False]),
        pa.array([round(value, 3) for value in values[:30]]).cast(pa.decimal128(38, 18), safe=False),
        pa.array([dt.date(2025, 1, 1)]),
    ]


def moments() -> list[pa.Array]:
    span = int((TO - FROM).total_seconds())
    values = [FROM + dt.timedelta(seconds=CHANCE.randrange(-span // 9, span + span // 9)) for _ in range(300)]
    values += [
        FROM,
        TO,
        dt.datetime(1969, 12, 31, 23, 59, 59),
        dt.datetime(2025, 1, 31),
        FROM + dt.timedelta(minutes=1),
    ]
    texts = [
        form for value in values for form in (value.isoformat(), value.strftime("%d.%m.%Y %H:%M"), str(value.date()))
    ]
    return [
        *(pa.array(values, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
        pa.array([*values, None], pa.timestamp("us", "America/New_York")),
        pa.array([value.date() for value in values]),
        pa.array([*texts, "", "NA", "x", None]),
        pa.array([1, 2]),
    ]


def arrays(column: Fine) -> list[pa.Array]:
    if isinstance(column, FineDate | FineDatetime):
        return moments()
    if isinstance(column, FineInteger):
        return numbers(float(column.minimum), float(column.maximum))
    assert isinstance(column, FineNumber)
    return numbers(*column.scale.values(np.array([0, column.scale.size - 1])).tolist())


def cuts(column: Fine) -> list[tuple[int, ...]]:
    """Return cuts in which every place is next to an edge somewhere: all of a small grid, and some of a large one."""
    if column.places <= 1000:
        return [tuple(range(1, column.places))]
    return [(), *(tuple(sorted({CHANCE.randrange(1, column.places) for _ in range(60)})) for _ in range(4))]


def cells_of(places: Any, starts: tuple[int, ...], *, whole: Finest, column: Fine) -> Any:
    """Return the codes of a cut by the finest places."""
    offset = column.cells - whole.cells  # the codes of other and missing come after those of the cells
    days = 1 if not isinstance(column, FineDate | FineDatetime) else STEPS["day"] // STEPS[column.step]
    first = (column.line.low // column.line.step) % days if isinstance(column, FineDate | FineDatetime) else 0
    inside = np.searchsorted(np.array(starts, dtype=np.int64), (places + first) // days, side="right")
    return np.where(places >= whole.cells, places + offset, np.where(places < 0, places, inside))


def differences(column: Fine) -> int:
    """Count the values whose finest place leads to another cell than the column itself does."""
    found = 0
    for policy in POLICIES:
        each = replace(column, **policy)
        whole = Finest.of(each)
        for array in arrays(each):
            places = encode(whole, array).astype(np.int64)
            for starts in cuts(each):
                cut = each.cut_at(starts)
                found += int((cells_of(places, starts, whole=whole, column=cut) != encode(cut, array)).sum())
    return found


@pytest.mark.parametrize("name", COLUMNS)
def test_the_finest_places_decide_the_cell_under_every_cut(name: str) -> None:
    assert differences(COLUMNS[name]) == 0


@pytest.mark.parametrize("name", ["days", "minutes", "hours, in German"])
def test_the_finest_places_decide_the_time_of_the_week(name: str) -> None:
    column = COLUMNS[name]
    assert isinstance(column, FineDate | FineDatetime)
    for policy in POLICIES:
        each = replace(column, **policy)
        assert isinstance(each, FineDate | FineDatetime)
        week = WeekTimes(column=each, starts=tuple(range(1, each.week_places)), **policy)
        for array in arrays(each):
            pairs = set(zip(encode(Finest.of(each), array).tolist(), encode(week, array).tolist(), strict=True))
            assert len({place for place, _ in pairs}) == len(pairs)


def misplaced(column: Fine) -> int:
    """Count the places of which the number, the lower edge or the double below the edge has another finest place."""
    assert isinstance(column, FineNumber)
    places = np.array([CHANCE.randrange(1, column.places) for _ in range(1000)])
    edges = np.array([column.scale.edges((place,))[1] for place in places.tolist()])
    below = np.nextafter(edges, -np.inf)
    found = [encode(Finest.of(column), pa.array(values)) for values in (column.scale.values(places), edges, below)]
    return sum(int((each != wanted).sum()) for each, wanted in zip(found, (places, places, places - 1), strict=True))


GRIDS = ("many steps", "small steps", "large steps", "cents", "thirds of a cent")


@pytest.mark.parametrize("name", GRIDS)
def test_the_places_of_a_large_grid_are_those_of_its_numbers_and_edges(name: str) -> None:
    assert misplaced(COLUMNS[name]) == 0


def test_places_by_division_alone_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finest, "CORRECTIONS", 0)
    assert all(misplaced(COLUMNS[name]) for name in GRIDS)
