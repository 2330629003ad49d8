"""SQL as a way to ask: a text becomes a query, or an error that says where and what to write instead."""

from dpcore.answers.sql.errors import QueryError
from dpcore.answers.sql.statement import parse
from dpcore.answers.sql.where import parse_condition

__all__ = ["QueryError", "parse", "parse_condition"]
