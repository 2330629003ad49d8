"""What a portrait says about its tables: ratings that no expected error can improve, and a few tables for the summary."""

import pytest

from dpcore.reporting.portrait import GUESS, INFERRED, MEASURED, MODEL, Portrait
from dpcore.reporting.portrait_plots import column_words, error_words, pairs_plot, pairs_words
from dpcore.reporting.ratings import Rating
from tests.dpcore.reporting.portraits import count_table, portrait
from tests.dpcore.reporting.test_plots import elements, texts


@pytest.mark.parametrize(
    ("basis", "error", "rating"),
    [
        (MEASURED, 0.05, Rating.GOOD),
        (MODEL, 0.05, Rating.GOOD),
        (INFERRED, 0.05, Rating.FAIR),  # the error cannot know of a relation that was never measured
        (INFERRED, 0.8, Rating.POOR),
        (GUESS, 0.01, Rating.POOR),
        (MEASURED, 0.3, Rating.FAIR),
        (MEASURED, None, Rating.POOR),
    ],
)
def test_a_rating_depends_on_the_error_and_on_what_was_measured(
    basis: str, error: float | None, rating: Rating
) -> None:
    assert count_table("age", "sex", basis=basis, error=error).rating is rating


def test_the_summary_has_a_few_tables_about_different_columns() -> None:
    tables = [
        count_table("sex", error=0.01),
        count_table("sex", "age", error=0.02),
        count_table("sex", "city", error=0.03),
        count_table("job", error=0.04),
        count_table("age", "job", error=0.6),
        count_table("age", "job", "city", error=0.7),
        count_table("sex", "job", error=0.9),
    ]
    found = Portrait((), (), (), tuple(tables))
    # Tables of several columns first; then others, but no part of one that is there.
    assert [each.columns for each in found.trusted] == [("sex", "age"), ("sex", "city"), ("job",)]
    assert [each.columns for each in found.doubtful] == [("sex", "job"), ("age", "job", "city")]


def test_the_pairs_are_told_in_words_and_drawn_with_symbols() -> None:
    found = portrait("age", "sex", "city", "job")
    told = (
        "6 pairs: 4 good, 1 fair, 1 poor. The strongest dependences: city × job 50 %; sex × job 40 %; age × job 20 %."  # noqa: RUF001
    )
    assert pairs_words(found) == told
    svg = pairs_plot(found)
    assert {"✓m", "~i", "✗"} <= set(texts(svg))
    assert len(elements(svg, "rect", "poor")) == 1 + 3  # and those of the legend
    assert "only one column" in pairs_words(portrait("age"))
    assert column_words(found.columns[0]).startswith("age. The counts, with 95 % intervals: 20 to 39: 300 (250 to 360)")


def test_an_error_that_is_not_known_is_not_told() -> None:
    told = [error_words(count_table("age", "sex", basis=basis)) for basis in (MEASURED, MODEL, INFERRED, GUESS)]
    assert told == ["5.0 %", "5.0 %", "at least 5.0 %", "not known"]
    assert error_words(count_table("age", "sex", error=None)) == "not known"
