"""SQL counts become counting queries over declared cells; anything else is refused with its position."""

import numpy as np
import pytest

from dpcore.answers.sql import QueryError
from dpcore.curator.gate import CountQuery
from dpcore.textbook.online import count_query
from dpcore.universe import Boolean, Categorical, Integer, Universe

UNIVERSE = Universe(
    {
        "sex": Categorical(("F", "M"), missing=True),
        "age": Integer(minimum=0, maximum=99, width=25),
        "smoker": Boolean(),
    }
)


def test_a_count_is_the_cells_that_satisfy_its_conditions() -> None:
    query = count_query("select count(*) from release where age >= 50 and sex = 'F'", UNIVERSE)
    assert query.axes == (0, 1)
    assert np.argwhere(query.cells).tolist() == [[0, 2], [0, 3]]
    either = count_query("select count(*) from release where smoker or sex is null", UNIVERSE)
    assert either.cells.shape == (3, 2)
    assert either.cells.sum() == 4


def test_a_count_of_all_rows_has_no_columns() -> None:
    query = count_query("select count(*) from release", UNIVERSE)
    assert query.axes == ()
    assert query.on(np.array(7)) == 7
    assert query.fits(UNIVERSE.shape)


@pytest.mark.parametrize(
    ("text", "said", "line", "column"),
    [
        ("select count(*) from release\nwhere age >= 60", "such as 25, 50, 75", 2, 7),
        ("select sum(age) from release", "only counts can be asked here", 1, 1),
        ("select count(*), count(*) as n from release", "one at a time", 1, 1),
        ("select sex, count(*) from release group by sex", "one at a time", 1, 1),
        ("select count(*) from release limit 0", "one at a time", 1, 1),
        ("select count(*) + 1 as n from release", "only counts", 1, 1),
        ("select count(*) from release where weight > 3", "weight", 1, 36),
    ],
)
def test_what_is_no_count_of_cells_is_refused_with_its_position(text: str, said: str, line: int, column: int) -> None:
    with pytest.raises(QueryError, match=said) as refused:
        count_query(text, UNIVERSE)
    assert (refused.value.line, refused.value.column) == (line, column)


def test_a_key_tells_queries_apart() -> None:
    cells = np.array([True, False, True])
    same = CountQuery((0,), cells.copy())
    others = [
        CountQuery((1,), cells),
        CountQuery((0,), ~cells),
        CountQuery((0,), np.array([True, False, True, False])),
        CountQuery((0, 1), cells.reshape(3, 1)),
    ]
    assert same.key == CountQuery((0,), cells).key
    assert len({same.key, *(other.key for other in others)}) == 5


@pytest.mark.parametrize(
    "query",
    [
        CountQuery((3,), np.array([True])),
        CountQuery((1, 0), np.ones((4, 3), dtype=np.bool_)),
        CountQuery((0,), np.ones(4, dtype=np.bool_)),
        CountQuery((0,), np.ones(3)),
        CountQuery((0, 0), np.ones((3, 3), dtype=np.bool_)),
        CountQuery([0], np.ones(3, dtype=np.bool_)),
        CountQuery((0,), [True, True, True]),
    ],
)
def test_queries_of_other_universes_do_not_fit(query: CountQuery) -> None:
    assert not query.fits(UNIVERSE.shape)
