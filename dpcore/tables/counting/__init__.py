"""Count coded rows exactly over many sets of columns, in as few passes as possible, for any number of rows."""

from dpcore.tables.counting.distinct import distinct_rows
from dpcore.tables.counting.marginals import Chunk, Coarse, Counts, count_sets, in_groups
from dpcore.tables.counting.norms import count_by_norm

__all__ = ["Chunk", "Coarse", "Counts", "count_by_norm", "count_sets", "distinct_rows", "in_groups"]
