"""What can be told about privacy from outputs alone: lower bounds to hold against what was charged.

`one_run`, `bounds`, `events` and `goodness` are statistics and know no mechanism. `cases` audits the installed code with them, each
mechanism beside planted bugs that must be caught.
"""

from dpcore.audit.bounds import Tally, at_least, probability_bounds
from dpcore.audit.events import most_telling
from dpcore.audit.goodness import chi_square_p
from dpcore.audit.one_run import least_epsilon

__all__ = ["Tally", "at_least", "chi_square_p", "least_epsilon", "most_telling", "probability_bounds"]
