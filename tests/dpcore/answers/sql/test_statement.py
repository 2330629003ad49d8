"""SQL becomes a query; mistakes get an error with their place, whatever they are."""

import re
from fractions import Fraction
from functools import partial

import pytest

from dpcore.answers.evaluate import Prepared
from dpcore.answers.query import (
    All,
    Among,
    Arithmetic,
    Bin,
    Cells,
    Compare,
    Count,
    IsNull,
    Key,
    KeyOf,
    Mean,
    Not,
    Output,
    Overall,
    Part,
    Quantile,
    Sum,
    Term,
)
from dpcore.answers.sql import QueryError, parse
from dpcore.errors import UsageError
from dpcore.marginals.resolutions import Resolutions
from dpcore.models import FactoredModel
from dpcore.models.projection import projected
from dpcore.universe import Universe
from tests.dpcore.answers.malformed import HOSTILE, VALID, mutated
from tests.dpcore.answers.releases import declared_universe

UNIVERSE = declared_universe()
SEX, CITY, SMOKER, AGE, COST, HOURS, DAY = (
    UNIVERSE.names.index(name) for name in ("sex", "city", "smoker", "age", "cost", "hours", "day")
)


def number(sql: str) -> object:
    """Return the number that a text asks for."""
    (output,) = parse(f"select {sql} from release", UNIVERSE).outputs
    return output.value


def test_a_question_becomes_a_tree() -> None:
    query = parse(
        "select city, avg(cost) as mean from release where age >= 65 and sex in ('F') group by city order by mean desc limit 3",
        UNIVERSE,
    )
    assert query.outputs == (Output("city", KeyOf(0)), Output("mean", Mean(COST)))
    assert query.where == All((Compare(Term(AGE), ">=", Fraction(65)), Among(Term(SEX), ("F",))))
    assert query.keys == (Key("city", Term(CITY)),)
    assert [(order.by, order.descending) for order in query.order] == [(Mean(COST), True)]
    assert query.limit == 3


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("count(1)", Count()),
        ("count(cost)", Count(Not(IsNull(Term(COST))))),
        ("count_if(smoker)", Count(Compare(Term(SMOKER), "=", value=True))),
        ("sum(smoker::int)", Count(Compare(Term(SMOKER), "=", value=True))),
        ("sum(case when smoker then cost end)", Sum(COST, Compare(Term(SMOKER), "=", value=True))),
        ("median(cost)", Quantile(COST, 0.5)),
        ("percentile_cont(0.9) within group (order by cost desc)", Quantile(COST, 0.1)),
        ("quantile_disc(cost, 0.2)", Quantile(COST, 0.2)),
        ("sum(count(*)) over ()", Overall(Count())),
        ("sum(cost) / count(*)", Arithmetic("/", Sum(COST), Count())),
    ],
)
def test_numbers_are_written_as_in_duckdb(sql: str, expected: object) -> None:
    assert number(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("floor(hours / 10) * 10", Bin(Fraction(10))),
        ("10 * floor(hours / 10.0)", Bin(Fraction(10))),
        ("age // 5 * 5", Bin(Fraction(5))),
        ("bin(cost, 0.25)", Bin(Fraction(1, 4))),
        ("bin(cost)", Cells()),
        ("age", Cells()),
        ("hours", None),
        ("extract(month from day)", Part("month")),
        ("date_part('dow', day)", Part("dayofweek")),
    ],
)
def test_groups_are_written_as_in_duckdb(sql: str, expected: object) -> None:
    (key,) = parse(f"select {sql} as k, count(*) from release group by k", UNIVERSE).keys
    assert key.term.transform == expected


@pytest.mark.parametrize(
    ("sql", "line", "column", "message"),
    [
        ("select count(*)\nfrom release\nwhere agee > 3", 3, 7, "there is no column 'agee'; did you mean age"),
        (
            "select count(*) from release where city = 'nroth'",
            1,
            43,
            "not a declared value of city; did you mean north",
        ),
        ("select avg(city) from release", 1, 8, "city is text, which has no avg"),
        ("select cost, count(*) from release group by cost", 1, 45, "write bin(cost, 100)"),
        ("select at, count(*) from release group by at", 1, 43, "date_trunc('month', at)"),
        ("select max(cost) from release", 1, 12, "quantile_cont(x, 0.99)"),
        ("select count(distinct sex) from release", 1, 8, "distinct values cannot be counted"),
        ("select sex, count(*) from release", 1, 8, "group by sex"),
        ("select count(*) from visits", 1, 22, "write `from release`"),
        ("select count(*) from release where sex = null", 1, 36, "write sex is null"),
        ("select count(*) from release where city = north", 1, 43, "put a text in single quotes"),
        ("select count(*) form release", 1, 22, "this is not SQL"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_remedy(sql: str, line: int, column: int, message: str) -> None:
    with pytest.raises(QueryError, match=re.escape(message)) as caught:
        parse(sql, UNIVERSE)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("select hours-per-week, count(*) from release group by 1", 8),
        ("select avg(hours - per - week) from release", 12),
        ("select count(*) from release where Hours-per-week > 40", 36),
        ("select count(*) from release where sex = 'F' -- hours-per-week\n and hours-per-week > 40", 6),
    ],
)
def test_a_name_with_hyphens_is_to_be_quoted(sql: str, column: int) -> None:
    universe = Universe({"hours-per-week": UNIVERSE.attributes["hours"], "sex": UNIVERSE.attributes["sex"]})
    with pytest.raises(QueryError, match='write the column "hours-per-week" in double quotes') as caught:
        parse(sql, universe)
    assert caught.value.column == column
    quoted = re.sub("(?<!')hours ?- ?per ?- ?week", '"hours-per-week"', sql, flags=re.IGNORECASE)
    if "'" not in quoted:
        parse(quoted, universe)


@pytest.mark.parametrize("name", ["2019", "hours-per-week"])
def test_a_mistake_elsewhere_is_not_blamed_on_a_name_that_needs_quotes(name: str) -> None:
    universe = Universe({name: UNIVERSE.attributes["hours"], "hours": UNIVERSE.attributes["hours"]})
    with pytest.raises(QueryError, match="there is no function 'cuont'"):
        parse("select cuont(*) from release where hours > 2019", universe)


def test_an_unknown_column_lists_those_that_there_are_if_they_are_few() -> None:
    few = Universe({name: UNIVERSE.attributes[name] for name in ("age", "sex")})
    with pytest.raises(QueryError, match=r"there is no column 'ages'; did you mean age\? The columns are age, sex$"):
        parse("select ages from release", few)
    many = Universe({f"q{number}": UNIVERSE.attributes["sex"] for number in range(13)})
    with pytest.raises(QueryError, match=r"The release's card and its spec list all 13 columns$"):
        parse("select ages from release", many)


def outcome(sql: str, model: FactoredModel) -> str:
    """Ask a question, and say how it ended. Any other error than ours is raised."""
    try:
        Prepared(parse(sql, UNIVERSE), UNIVERSE).evaluate(partial(projected, model))
    except QueryError as error:
        return "mistake" if is_well_said(error, sql) else f"badly said: {error}"
    except UsageError:
        return "too large"
    return "answered"


def is_well_said(error: QueryError, sql: str) -> bool:
    """Return whether an error is one short line, and its place is in the text."""
    lines = sql.splitlines() or [""]
    inside = 1 <= error.line <= len(lines) and 1 <= error.column <= max(map(len, lines)) + 1
    return inside and str(error).isprintable() and len(str(error)) < 600


def test_a_thousand_malformed_questions_get_an_error_with_a_place_and_nothing_else() -> None:
    model = FactoredModel(Resolutions(UNIVERSE.shape), total=1000.0)
    assert {outcome(sql, model) for sql in VALID} == {"answered"}
    assert {sql for sql in HOSTILE if outcome(sql, model) != "mistake"} == set()
    ends = [outcome(sql, model) for sql in mutated(1000 - len(HOSTILE), seed=3)]
    assert ends.count("mistake") > 0.9 * len(ends)  # a few changes leave a question valid
