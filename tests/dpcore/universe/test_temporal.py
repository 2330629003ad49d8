"""Days and points in time: bins as the calendar has them, and values in whatever form data gives them."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import SpecError
from dpcore.universe import Date, Datetime, Every, Outside, reading, temporal
from dpcore.universe.places import cut

RNG = np.random.default_rng(0)


def label_of(day: date, every: Every) -> str:
    """What the calendar says, written down a second time."""
    week = day.isocalendar()
    return {
        Every.DAY: day.isoformat(),
        Every.WEEK: f"{week.year:04}-W{week.week:02}",
        Every.MONTH: f"{day.year:04}-{day.month:02}",
        Every.QUARTER: f"{day.year:04}-Q{(day.month - 1) // 3 + 1}",
        Every.YEAR: f"{day.year:04}",
    }[every]


LONG = [Every.DAY, Every.WEEK, Every.MONTH, Every.QUARTER, Every.YEAR]


@settings(deadline=None)
@given(st.dates(max_value=date(9990, 1, 1)), st.integers(0, 1500), st.sampled_from(LONG))
def test_a_day_lies_in_the_bin_that_the_calendar_names(minimum, span, every):
    days = [minimum + timedelta(days=step) for step in range(span + 1)]
    attribute = Date(minimum=days[0], maximum=days[-1], every=every)
    expected = [label_of(day, every) for day in days]
    labels = attribute.labels
    assert labels == tuple(dict.fromkeys(expected))
    assert [labels[code] for code in attribute.encode(pa.array(days))] == expected


@settings(deadline=None)
@given(st.datetimes(max_value=datetime(9990, 1, 1)), st.integers(0, 10**7), st.sampled_from(LONG))
def test_a_point_in_time_lies_in_the_bin_that_the_calendar_names(moment, seconds, every):
    minimum = moment.replace(microsecond=0)
    attribute = Datetime(minimum=minimum, maximum=minimum + timedelta(seconds=seconds), every=every)
    found = [minimum, minimum + timedelta(seconds=seconds // 2), minimum + timedelta(seconds=seconds)]
    labels = attribute.labels
    codes = attribute.encode(pa.array(found, pa.timestamp("us")))
    assert [labels[code] for code in codes] == [label_of(day.date(), every) for day in found]


def test_months_start_with_the_minimum_and_end_with_the_maximum():
    attribute = Date(minimum=date(2024, 1, 15), maximum=date(2024, 3, 10), every=Every.MONTH, outside=Outside.OTHER)
    days = [
        date(2024, 1, 14),
        date(2024, 1, 15),
        date(2024, 1, 31),
        date(2024, 2, 1),
        date(2024, 2, 29),
        date(2024, 3, 10),
    ]
    assert attribute.encode(pa.array([*days, date(2024, 3, 11)])).tolist() == [3, 0, 0, 1, 1, 2, 3]
    assert attribute.decode(np.array([0, 1, 2]), RNG).to_pylist() == [
        date(2024, 1, 15),
        date(2024, 2, 1),
        date(2024, 3, 1),
    ]


def test_weeks_start_on_mondays():
    attribute = Date(minimum=date(2025, 1, 1), maximum=date(2025, 1, 14), every=Every.WEEK)
    assert attribute.labels == ("2025-W01", "2025-W02", "2025-W03")
    assert attribute.encode(
        pa.array([date(2025, 1, 5), date(2025, 1, 6), date(2025, 1, 12), date(2025, 1, 13)])
    ).tolist() == [0, 1, 1, 2]


def test_minutes_and_hours_start_with_the_clock():
    bounds = {"minimum": datetime(2025, 3, 1, 10, 30, 30), "maximum": datetime(2025, 3, 1, 12, 0, 0)}
    hours = Datetime(**bounds, every=Every.HOUR)
    assert hours.labels == ("2025-03-01T10", "2025-03-01T11", "2025-03-01T12")
    assert hours.encode(pa.array([datetime(2025, 3, 1, 10, 59, 59, 999999), datetime(2025, 3, 1, 11)])).tolist() == [
        0,
        1,
    ]
    assert Datetime(**bounds, every=Every.MINUTE).labels[:2] == ("2025-03-01T10:30", "2025-03-01T10:31")


def test_the_maximum_is_inside_to_the_end_of_its_second():
    attribute = Datetime(
        minimum=datetime(2025, 1, 1), maximum=datetime(2025, 1, 1, 1), every=Every.HOUR, outside=Outside.DROP
    )
    column = [datetime(2025, 1, 1, 1), datetime(2025, 1, 1, 1, 0, 0, 999999), datetime(2025, 1, 1, 1, 0, 1)]
    assert attribute.encode(pa.array(column)).tolist() == [1, 1, -1]
    assert set(attribute.decode(np.full(50, 1), RNG).to_pylist()) == {datetime(2025, 1, 1, 1)}


DAYS = Date(minimum=date(2025, 3, 1), maximum=date(2025, 3, 3), every=Every.DAY, outside=Outside.DROP)
NIGHT = datetime(2025, 3, 1, 23, 30, tzinfo=UTC)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_timestamp_of_any_unit_is_its_calendar_day_in_utc(unit):
    assert DAYS.encode(pa.array([NIGHT], pa.timestamp(unit))).tolist() == [0]
    assert DAYS.encode(pa.array([NIGHT], pa.timestamp(unit, "Europe/Berlin"))).tolist() == [0]
    assert DAYS.encode(pa.array([NIGHT], pa.timestamp(unit, "No/Where"))).tolist() == [0]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2025-03-02", 1),
        (" 2025-03-02 ", 1),
        ("20250302", 1),
        ("2025-03-02T23:59:59.999999", 1),
        ("2025-03-02 00:00", 1),
        ("2025-03-02T23:30:00Z", 1),
        ("2025-03-02T23:30:00-01:00", 2),
        ("2025-03-03T00:30:00+01:00", 1),
        ("2025-02-30", -1),
        ("02/03/2025", -1),
        ("45718", -1),
    ],
)
def test_iso_text_is_read_and_other_text_is_not(text, code):
    assert DAYS.encode(pa.array([text])).tolist() == [code]


def test_a_bare_number_is_no_date():
    assert DAYS.encode(pa.array([20149])).tolist() == [-1]
    assert DAYS.encode(pa.array([20149.0])).tolist() == [-1]


def test_a_day_in_a_datetime_column_is_its_midnight():
    attribute = Datetime(minimum=datetime(2025, 3, 1), maximum=datetime(2025, 3, 2), every=Every.HOUR)
    assert attribute.encode(pa.array([date(2025, 3, 2)])).tolist() == [24]
    assert attribute.encode(pa.array(["2025-03-02"])).tolist() == [24]


def test_the_ends_of_the_calendar_are_read_with_any_offset():
    attribute = Datetime(minimum=datetime(1, 1, 1), maximum=datetime(9999, 12, 31, 23, 59, 59), every=Every.YEAR)
    assert attribute.encode(pa.array(["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])).tolist() == [0, 9998]


@settings(deadline=None)
@given(st.lists(st.datetimes(timezones=st.none() | st.just(timezone(timedelta(hours=7))) | st.just(UTC)), min_size=1))
def test_arrow_and_python_read_the_same_moment_from_a_text(moments):
    written = [moment.isoformat(separator) for moment in moments for separator in "T "]
    written += [moment.replace(microsecond=0, tzinfo=None).isoformat() for moment in moments]
    written += [moment.date().isoformat() for moment in moments]
    values, states = reading.parsed_seconds(pa.array([text.encode() for text in written], pa.large_binary()))
    assert not states.any()
    assert values.tolist() == [reading._moment(text) for text in written]


def test_every_plain_day_of_the_calendar_is_one_that_arrow_reads():
    days = [
        f"{year}-{month:02}-{day:02}" for year in (1900, 2000, 2023, 2024) for month in range(14) for day in range(33)
    ]
    values, states = reading.parsed_seconds(pa.array([day.encode() for day in days], pa.large_binary()))
    for day, value, state in zip(days, values, states, strict=True):
        try:
            expected = date.fromisoformat(day).toordinal() - date(1970, 1, 1).toordinal()
        except ValueError:
            assert state < 0
        else:
            assert (state, value) == (0, expected * 86_400)


def test_a_release_has_days_as_dates_and_points_in_time_to_the_second():
    assert DAYS.decode(np.array([1]), RNG).to_pylist() == [date(2025, 3, 2)]
    moments = Datetime(minimum=datetime(2025, 3, 1), maximum=datetime(2025, 3, 2), every=Every.DAY)
    drawn = moments.decode(np.zeros(100, dtype=np.int64), RNG)
    assert drawn.type == pa.timestamp("us")
    assert all(value.microsecond == 0 and value.date() == date(2025, 3, 1) for value in drawn.to_pylist())


DAY, MOMENT = date(2025, 1, 1), datetime(2025, 1, 1)


@pytest.mark.parametrize(
    ("kind", "minimum", "maximum", "every"),
    [
        (Date, date(2025, 1, 2), DAY, Every.DAY),
        (Date, MOMENT, MOMENT, Every.DAY),
        (Date, "2025-01-01", DAY, Every.DAY),
        (Date, DAY, DAY, Every.HOUR),
        (Date, DAY, DAY, Every.MINUTE),
        (Date, DAY, DAY, "fortnight"),
        (Datetime, datetime(2025, 1, 2), MOMENT, Every.DAY),
        (Datetime, DAY, DAY, Every.DAY),
        (Datetime, MOMENT.replace(tzinfo=UTC), MOMENT.replace(tzinfo=UTC), Every.DAY),
        (Datetime, MOMENT.replace(microsecond=1), datetime(2026, 1, 1), Every.DAY),
        (Datetime, datetime(1, 1, 1), datetime(9999, 1, 1), Every.MINUTE),
    ],
)
def test_bounds_and_bins_that_make_no_calendar_are_refused(kind, minimum, maximum, every):
    with pytest.raises(SpecError):
        kind(minimum=minimum, maximum=maximum, every=every)


PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@pytest.mark.parametrize("slots", [0, temporal.MOST_SLOTS])
@settings(deadline=None)
@given(
    minimum=st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(microsecond=0)),
    seconds=st.integers(0, 3 * 10**6),
    every=st.sampled_from(Every),
    unit=st.sampled_from(list(PER_SECOND)),
    others=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
)
def test_every_bound_and_its_neighbours_are_placed_as_by_a_search(slots, minimum, seconds, *, every, unit, others):
    attribute = Datetime(minimum=minimum, maximum=minimum + timedelta(seconds=seconds), every=every)
    bounds = attribute._bounds * PER_SECOND[unit]
    values = np.concatenate([bounds, bounds - 1, bounds + 1, np.array(others, dtype=np.int64)])
    expected = cut(values // PER_SECOND[unit], attribute._bounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(temporal, "MOST_SLOTS", slots)
        found = attribute._place(pa.array(values).view(pa.timestamp(unit)))
    assert found.tolist() == expected.tolist()


@given(
    minimum=st.datetimes(datetime(1, 1, 1), datetime(9000, 1, 1)).map(lambda moment: moment.replace(microsecond=0)),
    hours=st.integers(0, 3_000),
    every=st.sampled_from(LONG),
    others=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
)
def test_days_in_a_datetime_column_are_placed_as_their_midnights(minimum, hours, every, others):
    attribute = Datetime(minimum=minimum, maximum=minimum + timedelta(hours=hours), every=every)
    near = attribute._bounds // 86_400
    days = np.concatenate([near - 1, near, near + 1, others]).astype(np.int64)
    found = attribute._place(pa.array(days.astype(np.int32)).view(pa.date32()))
    assert found.tolist() == cut(days * 86_400, attribute._bounds).tolist()
