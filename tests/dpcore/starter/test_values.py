"""Types, ranges and values of a public file."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import UsageError
from dpcore.starter import describe_public
from dpcore.starter.description import Column
from dpcore.starter.values import MOST_LISTED, describe_values


def described(values: list[object]) -> Column:
    return describe_values("x", pa.chunked_array([pa.array(values)]))


def test_ranges_are_rounded_outwards_to_plain_numbers() -> None:
    ages = described([str(age) for age in range(17, 91)])
    assert (ages.stored, ages.minimum, ages.maximum) == ("integer", 17, 90)
    prices = described(["12789", "755000", "163211"])
    assert (prices.minimum, prices.maximum) == (10000, 760000)
    lengths = described(["0.5", "2.25", "-1", "NA"])
    assert (lengths.stored, lengths.minimum, lengths.maximum, lengths.nulls) == ("number", -1, 2.3, ("NA",))
    assert described(["0", "0"]).maximum == 0


def test_dates_get_whole_years_and_their_format() -> None:
    assert described([date(2024, 3, 5), None]).maximum == "2024-12-31"
    texts = described(["3/4/2024", "31/1/2025", "5/6/2024"])
    assert (texts.stored, texts.format, texts.minimum, texts.maximum) == (
        "date",
        "%d/%m/%Y",
        "2024-01-01",
        "2025-12-31",
    )
    assert described(["3/4/2024", "1/31/2025", "5/6/2024"]).format == "%m/%d/%Y"
    moments = described(["2024-03-04 10:00:00", "2024-12-31 23:59:59"])
    assert (moments.stored, moments.format, moments.maximum) == ("datetime", None, "2024-12-31T23:59:00")


def test_values_are_listed_and_others_stay_possible() -> None:
    few = described(["b", "a ", "a", "NA", None, "\u00e9t\u00e9"])
    assert (few.values, few.others, few.nulls) == (("a", "b", "\u00e9t\u00e9"), True, ("NA",))
    many = described([f"v{number}" for number in range(3 * MOST_LISTED)] + ["v1", "v2"])
    assert many.values == ("v1", "v2")
    assert described([f"v{number}" for number in range(3 * MOST_LISTED)]).values is None
    assert described(["yes", "no"]).stored == "boolean"
    assert described(["yes", "no", "perhaps"]).values == ("no", "perhaps", "yes")


def test_a_column_without_values_says_nothing() -> None:
    assert described([None, "NA"]) == Column("x", nulls=("NA",))


def test_the_private_table_is_refused_as_its_public_likeness(tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": [31, 32]}), tmp_path / "visits.parquet")
    (tmp_path / "link.parquet").symlink_to("visits.parquet")
    private = {"path": str(tmp_path / "visits.parquet")}
    for name in ("visits.parquet", "link.parquet"):
        with pytest.raises(UsageError, match="is the private table itself"):
            describe_public(str(tmp_path / name), private=private)
    (tmp_path / "dictionary.json").write_text('{"age": {"min": 0, "max": 99}}')
    with pytest.raises(UsageError, match="--like takes a public"):
        describe_public(str(tmp_path / "dictionary.json"), private=private)
    pq.write_table(pa.table({"age": [7, 8]}), tmp_path / "other.parquet")
    (column,) = describe_public(str(tmp_path / "other.parquet"), private=private).columns
    assert (column.stored, column.minimum, column.maximum) == ("integer", 7, 8)
