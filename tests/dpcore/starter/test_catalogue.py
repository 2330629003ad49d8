"""A database's catalogue as source: no row of any table is read."""

import sqlite3
from pathlib import Path

import psycopg
import pytest

from dpcore.errors import SourceError, UsageError
from dpcore.starter import Draft, describe, draft_of
from tests.postgres import PostgresServer

SQLITE = """
CREATE TABLE wards (code TEXT PRIMARY KEY);
CREATE TABLE visits (
    visit INTEGER PRIMARY KEY,
    age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 120),
    sex TEXT CHECK (sex IN ('F', 'M') OR sex IS NULL),
    ward TEXT NOT NULL REFERENCES wards (code),
    price DECIMAL(10, 2) CHECK (price >= 0 AND price <= 500),
    email TEXT UNIQUE,
    joined DATE,
    paid BOOLEAN NOT NULL,
    picture BLOB
);
INSERT INTO wards VALUES ('CANARY');
INSERT INTO visits VALUES (1, 31, 'F', 'CANARY', 4.2, 'CANARY', '2025-01-01', 1, x'00');
"""
POSTGRES = """
CREATE TYPE mood AS ENUM ('sad', 'fine');
CREATE DOMAIN percent AS integer CHECK (VALUE >= 0 AND VALUE <= 100);
CREATE SCHEMA clinic;
CREATE TABLE clinic.visits (
    visit uuid PRIMARY KEY,
    feels mood NOT NULL,
    share percent,
    sex text CHECK (sex IN ('F', 'M')),
    day date CHECK (day >= DATE '2020-01-01' AND day <= DATE '2026-12-31'),
    seen timestamptz,
    price numeric(8, 2) NOT NULL CHECK (price BETWEEN 0 AND 500),
    paid boolean,
    tags text[]
);
COMMENT ON COLUMN clinic.visits.share IS 'of the day';
INSERT INTO clinic.visits (visit, feels, price) VALUES ('00000000-0000-0000-0000-000000031337', 'sad', 3);
"""


def drafted(table: str | None) -> Draft:
    return draft_of(describe("CLINIC_DB", kind=None, table=table), dataset="visits", origin="the catalogue")


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "clinic.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(SQLITE)
    connection.close()
    monkeypatch.setenv("CLINIC_DB", f"sqlite:///{path}")
    return path


def test_the_catalogue_of_sqlite(clinic: Path) -> None:
    draft = drafted("visits")
    assert {entry.name: entry.declaration for entry in draft.declared} == {
        "age": {"type": "integer", "min": 0, "max": 120},
        "sex": {"type": "categorical", "values": ["F", "M"], "missing": True},
        "ward": {"type": "categorical", "values": "FILL_IN"},
        "price": {"type": "number", "min": 0, "max": 500, "step": 0.01, "missing": True},
        "joined": {"type": "date", "min": "FILL_IN", "max": "FILL_IN", "missing": True},
        "paid": {"type": "boolean"},
    }
    assert {entry.name: entry.left_out.split(":")[-1] for entry in draft.entries if entry.left_out} == {
        "visit": " it is the primary key",
        "email": " its values are unique",
        "picture": "its type is BLOB, which cannot be released; to release it, store it as text, a number or a date",
    }
    assert draft.entries[3].about == ("(refers to wards.code)",)
    assert draft.source == {"sql": "select * from visits", "url_env": "CLINIC_DB"}
    assert "CANARY" not in str(draft)


def test_no_row_is_read_from_sqlite(clinic: Path) -> None:
    """Destroy the pages of the tables. The catalogue, in the first page, stays."""
    whole = drafted("visits")
    content = clinic.read_bytes()
    page = int.from_bytes(content[16:18], "big")
    clinic.write_bytes(content[:page] + b"\xff" * (len(content) - page))
    with pytest.raises(sqlite3.DatabaseError), sqlite3.connect(clinic) as connection:
        connection.execute("SELECT * FROM visits").fetchall()
    connection.close()
    assert drafted("visits") == whole


def test_which_table_must_be_said(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="has 2 tables; choose one with --table: visits, wards"):
        drafted(None)
    with pytest.raises(UsageError, match="no table 'vists'"):
        drafted("vists")
    monkeypatch.setenv("CLINIC_DB", "sqlite:///nowhere.db")
    with pytest.raises(SourceError, match="does not exist"):
        drafted("visits")


def test_the_catalogue_of_postgres(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgres_server.new_database()
    with psycopg.connect(url) as connection:
        connection.execute(POSTGRES)
    monkeypatch.setenv("CLINIC_DB", url)
    draft = drafted("clinic.visits")
    assert {entry.name: entry.declaration for entry in draft.declared} == {
        "feels": {"type": "categorical", "values": ["sad", "fine"]},
        "share": {"type": "integer", "min": 0, "max": 100, "missing": True},
        "sex": {"type": "categorical", "values": ["F", "M"], "missing": True},
        "day": {"type": "date", "min": "2020-01-01", "max": "2026-12-31", "missing": True},
        "seen": {"type": "datetime", "min": "FILL_IN", "max": "FILL_IN", "step": "minute", "missing": True},
        "price": {"type": "number", "min": 0, "max": 500, "step": 0.01},
        "paid": {"type": "boolean", "missing": True},
    }
    assert {entry.name for entry in draft.entries if entry.left_out} == {"visit", "tags"}
    assert draft.entries[2].about == ("of the day",)
    assert draft.source == {"sql": "select * from clinic.visits", "url_env": "CLINIC_DB"}
    assert "31337" not in str(draft)
