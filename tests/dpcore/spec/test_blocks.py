"""Blocks in a spec: what follows from them, and the mistakes that they can have."""

from datetime import date
from pathlib import Path

import pytest

from dpcore import load_spec
from dpcore.errors import SpecError
from dpcore.universe import Every

SPEC = """\
dataset: visits
source: {path: visits.csv}
privacy: {unit: row, neighbours: add-remove, epsilon: 1.0, delta: 0}
blocks: {BLOCKS}
universe:
  sex: {type: categorical, values: [F, M]}
  day: {type: date, min: 2025-02-03, max: 2026-12-31, every: month}
  moment: {type: datetime, min: 2025-03-04T05:06:07, max: 2026-12-31T00:00:00, every: month}
"""


def written(folder: Path, blocks: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(SPEC.replace("BLOCKS", blocks), encoding="utf-8")
    return path


def test_blocks_begin_where_the_spec_says_or_where_their_column_does(tmp_path: Path) -> None:
    for blocks, start in (
        ("column: day, every: week", date(2025, 2, 3)),
        ("column: moment, every: week", date(2025, 3, 4)),
        ("column: day, every: week, start: 2026-01-01", date(2026, 1, 1)),
        ("column: elsewhere, every: week, start: 2026-01-01", date(2026, 1, 1)),
    ):
        calendar = load_spec(written(tmp_path, blocks)).calendar
        assert calendar is not None
        assert (calendar.start, calendar.every) == (start, Every.WEEK)


@pytest.mark.parametrize(
    ("blocks", "mistake"),
    [
        ("column: elsewhere, every: month", "4:1: `start` is missing; write the first day of the first block"),
        ("column: sex, every: month", "`start` is missing; .* or declare `sex` as a date"),
        ("every: month, start: 2026-01-01", "`column` is missing"),
        ("column: day", "`every` is missing; write `every: month`"),
        ("column: day, every: hour", "`every` must be one of 'day', 'week', 'month', 'quarter' or 'year'"),
        ("column: day, every: month, start: soon", "`start` must be a date such as 2025-01-31"),
        ("column: day, every: month, window: last", "`window` must be all, new, or last and a number of periods"),
        ("column: day, every: month, window: last 0", "`window` must be all, new, or last and a number of periods"),
        ("column: day, every: month, arrived: day", "`arrived` is the same as `column`, so no row would ever be late"),
        ("column: day, every: month, grace_days: -1", "`grace_days` must be >= 0"),
        ("column: day, every: month, series: a/b", "`series` must be letters, digits"),
        ('column: day, every: month, format: "%m/%d"', "`format` cannot be used: .* does not name a whole day"),
        ('column: day, every: month, format: "%m/%d/%Y"', "4:.* `format` differs from that of `day` in the universe"),
        (
            'column: sent, every: week, start: 2026-01-01, format: "%b-%Y"',
            "4:.*'%b-%Y' names a month .* `every: month` or",
        ),
        (
            'column: sent, every: month, start: 2026-01-01, format: ["%b-%Y"], arrived: day',
            "names a month without a day; .* leave `arrived` out",
        ),
        ("column: sent, every: week, start: 2026-01-01, format: 3", "`format` must be a format such as"),
        ("column: day, every: month, windows: all", "unknown key `windows`; did you mean `window`"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, blocks: str, mistake: str) -> None:
    with pytest.raises(SpecError, match=mistake):
        load_spec(written(tmp_path, blocks))


def test_a_broken_column_is_not_reported_twice(tmp_path: Path) -> None:
    path = written(tmp_path, "column: day, every: month")
    path.write_text(path.read_text(encoding="utf-8").replace("min: 2025-02-03", "min: soon"), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert len(str(caught.value).splitlines()) == 1


def test_months_without_days_decide_blocks_of_months(tmp_path: Path) -> None:
    calendar = load_spec(written(tmp_path, 'column: sent, every: month, start: 2026-01-01, format: "%b-%Y"')).calendar
    assert calendar is not None
    assert calendar.words == 'month of sent, written "%b-%Y"'


@pytest.mark.parametrize(
    ("blocks", "series"),
    [
        ("column: day, every: month", None),
        ("column: day, every: month, window: last 3", None),
        ("column: day, every: month, window: new", "visits"),
        ("column: day, every: month, window: new, series: monthly", "monthly"),
        ("column: day, every: month, window: all, series: monthly", "monthly"),
    ],
)
def test_a_run_belongs_to_a_series_if_it_asks_for_what_is_new_or_names_one(
    tmp_path: Path, blocks: str, series: str | None
) -> None:
    assert load_spec(written(tmp_path, blocks)).series == series


def test_a_spec_without_blocks_has_no_calendar_and_what_it_leaves_out_leaves_no_trace(tmp_path: Path) -> None:
    path = written(tmp_path, "column: day, every: month")
    with_blocks = load_spec(path)
    path.write_text(
        path.read_text(encoding="utf-8").replace("blocks: {column: day, every: month}\n", ""), encoding="utf-8"
    )
    without = load_spec(path)
    assert (without.calendar, without.series) == (None, None)
    assert without.digest != with_blocks.digest
    assert (
        load_spec(written(tmp_path, "column: day, every: month, window: all, grace_days: 0")).digest
        == with_blocks.digest
    )


def test_blocks_are_read_as_their_column_is_and_the_account_is_kept_by_that_format_too(tmp_path: Path) -> None:
    path = written(tmp_path, "column: day, every: month")
    path.write_text(
        path.read_text().replace("2026-12-31, every: month}", '2026-12-31, every: month, format: "%m/%d/%Y"}', 1)
    )
    calendar = load_spec(path).calendar
    assert calendar is not None
    assert calendar.formats == ("%m/%d/%Y",)
    assert calendar.words == 'month of day, written "%m/%d/%Y"'
    blocks = 'column: seen, every: month, start: 2026-01-01, format: ["%d.%m.%Y", "%Y-%m-%d"]'
    calendar = load_spec(written(tmp_path, blocks)).calendar
    assert calendar is not None
    assert calendar.words == 'month of seen, written "%d.%m.%Y" or "%Y-%m-%d"'
