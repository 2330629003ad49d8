"""Whatever is changed in a ledger past the protocol, in its rows or in its files, is found."""

import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpcore.errors import LedgerDamaged
from dpcore.ledger import open_ledger
from dpcore.ledger.verification import Verified, verify
from dpcore.mechanisms import from_description
from dpcore.privacy.accounting import Currency
from tests.campaign import often
from tests.dpcore.ledger.story import tell
from tests.dpcore.ledger.tampering import KEYS, Books, PostgresBooks, Row, SqliteBooks, others
from tests.postgres import postgres_server  # noqa: F401  the fixture

IMPOSSIBLE = (sqlite3.IntegrityError, psycopg.IntegrityError)
"""What a table refuses even without its rules: two rows of one key."""
SOME = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _only_rows_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """These books have their rules taken away, so that anything can be done to their rows."""
    for store in ("sqlite", "postgres"):
        monkeypatch.setattr(f"dpcore.ledger.{store}.store.rules_changed", lambda _: False)


def priced(mechanism: Any, currency: Currency) -> int:
    return from_description(mechanism).price(currency)


def checked(url: str, **options: Any) -> Verified:
    with open_ledger(url) as ledger:
        return verify(ledger, **({"price": priced, "heads": {}} | options))


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> SqliteBooks:
    return SqliteBooks(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="module")
def postgres(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresBooks]:
    server = request.getfixturevalue("postgres_server")
    with closing(PostgresBooks(server, tmp_path_factory.mktemp("postgres"))) as books:
        yield books


@pytest.fixture(params=["sqlite", "postgres"])
def books(request: pytest.FixtureRequest) -> Books:
    return request.getfixturevalue(request.param)


def test_the_heads_of_these_ledgers_are_not_remembered_in_the_checkout(books: Books, tmp_path: Path) -> None:
    checked(books.url)
    assert Path(os.environ["DPFLOW_PRIVATE"]) == tmp_path / "private"
    assert list((tmp_path / "private" / "heads").iterdir())


def is_found(books: Books, change: Callable[..., object], *arguments: Any, **values: Any) -> bool | None:
    """Say whether a change is found; None if it cannot be made. It is undone in any case."""
    with books.tampered():
        try:
            change(*arguments, **values)
        except IMPOSSIBLE:
            return None
        try:
            checked(books.url)
        except LedgerDamaged:
            return True
        return False


def test_a_ledger_with_everything_in_it_is_whole(books: Books) -> None:
    found = checked(books.url)
    counts = (found.events, found.runs, found.operations)
    assert counts == tuple(len(books.rows(table)) for table in ("event", "run", "operation"))
    assert (found.outputs, found.manifests, found.head) == (6, 0, books.rows("event")[-1]["hash"])
    assert is_found(books, books.rows, "event") is False


@pytest.mark.campaign
def test_every_changed_value_is_found(books: Books) -> None:
    chance, found = random.Random(1), Counter()  # noqa: S311  not for noise
    each = often(1 if isinstance(books, PostgresBooks) else 3, campaign=12)
    for table in KEYS:
        rows = books.rows(table)
        for column, kind in books.columns(table).items():
            for row in chance.sample(rows, min(len(rows), each)):
                other = chance.choice(others(row[column], kind))
                seen = is_found(books, books.change, table, row, **{column: other})
                assert seen is not False, (table, column, row[column], other)
                found[seen] += 1
    assert found[True] > 5 * found[None]


@SOME
@given(data=st.data(), table=st.sampled_from(sorted(KEYS)))
def test_any_byte_of_any_value_matters(sqlite: SqliteBooks, table: str, data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(sqlite.rows(table)))
    texts = [name for name, value in row.items() if isinstance(value, str | bytes) and value]
    column = data.draw(st.sampled_from(texts))
    value = row[column]
    at = data.draw(st.integers(0, len(value) - 1))
    other = data.draw(st.integers(1, 127))
    if isinstance(value, str):
        changed: str | bytes = value[:at] + chr(ord(value[at]) ^ other) + value[at + 1 :]
    else:
        changed = value[:at] + bytes([value[at] ^ other]) + value[at + 1 :]
    assert is_found(sqlite, sqlite.change, table, row, **{column: changed}) is not False


def test_every_dropped_row_is_found(books: Books) -> None:
    for table in KEYS:
        for row in books.some_rows(table):
            assert is_found(books, books.drop, table, row), (table, row)


def test_every_row_that_no_event_tells_of_is_found(books: Books) -> None:
    for table, keys in KEYS.items():
        for row in books.some_rows(table):
            name = keys[-1]
            more = {name: f"{row[name]}-more" if isinstance(row[name], str) else row[name] + 1000}
            if table == "run":
                more["id"] = f"{row['id']}-more"
            if table == "operation":
                more["step"] = f"{row['step']}-more"
            assert is_found(books, books.add, table, {**row, **more}), (table, row)


def test_any_two_rows_exchanged_are_found(books: Books) -> None:
    for table, keys in KEYS.items():
        rows = books.some_rows(table)
        for one, two in pairwise(rows) if table == "event" else combinations(rows, 2):
            left, right = ({key: row[key] for key in keys} for row in (one, two))
            if {**one, **right} != two:  # otherwise they are the same but for their names
                seen = is_found(books, replace_rows, books, table, (one, two), ({**two, **left}, {**one, **right}))
                assert seen, (table, left, right)


def replace_rows(books: Books, table: str, before: tuple[Row, Row], after: tuple[Row, Row]) -> None:
    for row in before:
        books.drop(table, row)
    for row in after:
        books.add(table, row)


@SOME
@given(data=st.data(), table=st.sampled_from(sorted(KEYS)))
def test_any_two_values_exchanged_are_found(sqlite: SqliteBooks, table: str, data: st.DataObject) -> None:
    rows = sqlite.rows(table)
    one, two = data.draw(st.sampled_from(list(combinations(rows, 2))))
    differing = [name for name in one if one[name] != two[name]]
    name = data.draw(st.sampled_from(differing))
    swapped = ({**one, name: two[name]}, {**two, name: one[name]})
    same = sorted(map(repr, swapped)) == sorted(map(repr, (one, two)))  # an exchange of all in which they differ
    assert same or is_found(sqlite, replace_rows, sqlite, table, (one, two), swapped) is not False


def test_an_output_beside_the_database_is_held_against_its_hash(sqlite: SqliteBooks) -> None:
    whole = sqlite.output.read_bytes()
    for damaged in (whole[:-1], whole + b"x", b"", bytes([whole[0] ^ 1]) + whole[1:], None):
        sqlite.output.unlink()
        if damaged is not None:
            sqlite.output.write_bytes(damaged)
        problem = "lost" if damaged is None else "not what was committed"
        with pytest.raises(LedgerDamaged, match=rf"\(committed, run 'visits-1'\) has an output that is {problem}; "):
            checked(sqlite.url)
        sqlite.output.write_bytes(whole)
    checked(sqlite.url)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("file")
    tell(f"sqlite:///{folder}/ledger.sqlite", folder / "release" / "manifest.json")
    return folder / "ledger.sqlite"


@SOME
@given(place=st.floats(0, 1, exclude_max=True), change=st.integers(1, 255))
def test_a_changed_byte_of_the_file_is_found_or_changes_no_row(
    file: Path, tmp_path: Path, place: float, change: int
) -> None:
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= change
    path, outputs = tmp_path / "ledger.sqlite", tmp_path / "ledger.sqlite.outputs"
    for leftover in tmp_path.glob("ledger.sqlite-*"):
        leftover.unlink()
    path.write_bytes(content)
    if not outputs.exists():
        outputs.symlink_to(file.with_name(outputs.name))
    as_it_was = rows_in(path) == rows_in(file)
    try:
        checked(f"sqlite:///{path}")
    except LedgerDamaged:
        return
    assert as_it_was


def rows_in(path: Path) -> object:
    """Read all rows, past all indexes, or say why not."""
    try:
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
            return {table: sorted(map(repr, _rows_in(connection, table))) for table in KEYS}
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return repr(error)


def _rows_in(connection: sqlite3.Connection, table: str) -> Iterator[Any]:
    return connection.execute(f"SELECT * FROM {table} NOT INDEXED")  # noqa: S608  our own names


def test_an_index_that_lost_a_row_is_found(file: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(file, tmp_path))
    shutil.copytree(file.with_name("ledger.sqlite.outputs"), tmp_path / "ledger.sqlite.outputs")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = sql || ' AND number < 2' WHERE name = 'run_open'")
        connection.execute("PRAGMA writable_schema = RESET")
        connection.execute("REINDEX run_open")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' AND number < 2', '') WHERE name = 'run_open'")
    assert rows_in(path) == rows_in(file)
    with pytest.raises(LedgerDamaged, match="its tables and its indexes contradict each other"):
        checked(f"sqlite:///{path}")
