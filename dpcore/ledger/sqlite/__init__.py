"""The ledger in a SQLite file: the default, for one machine."""

from dpcore.ledger.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
