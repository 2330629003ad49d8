"""The ledger in a PostgreSQL database, for many machines."""

from dpcore.ledger.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
