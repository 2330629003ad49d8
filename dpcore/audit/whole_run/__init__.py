"""Audits of complete releases, from a CSV file to Parquet, with canary persons: `dpflow audit --whole-run`.

`settings` makes tables of canaries, `guessing` reads a published release as an analyst would, `faults` plants bugs along the whole path,
and `cases` combines them. Nothing here looks inside a run: the guesser sees only the folder of the release.
"""

from dpcore.audit.whole_run.cases import RELEASES

__all__ = ["RELEASES"]
