"""Counts of coded rows over sets of columns: many sets in as few passes as possible, exact, for any number of rows."""

from dpcore.tables.counting.distinct import distinct_rows
from dpcore.tables.counting.groups import in_groups
from dpcore.tables.counting.sets import Chunk, Coarse, Counts, count_sets

__all__ = ["Chunk", "Coarse", "Counts", "count_sets", "distinct_rows", "in_groups"]
