"""Answer adaptive counting queries by private multiplicative weights with the sparse vector technique, with a worst-case guarantee."""

from dpcore.textbook.online.bounds import Bounds, Terms, bounds_for, fewest_rows, smallest_alpha
from dpcore.textbook.online.queries import count_query
from dpcore.textbook.online.session import OnlineAnswer, OnlineSession

__all__ = [
    "Bounds",
    "OnlineAnswer",
    "OnlineSession",
    "Terms",
    "bounds_for",
    "count_query",
    "fewest_rows",
    "smallest_alpha",
]
