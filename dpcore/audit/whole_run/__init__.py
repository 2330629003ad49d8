"""Audits of complete releases, from a source to what is published, with canaries: `dpflow audit --whole-run`.

`settings` makes tables of canaries, `drivers` publish, `guessing` reads what was published as an analyst would, `faults` plants bugs along the
whole path, `features` says what is covered, and `cases` combines them. The guesser never looks inside a run.
"""

from dpcore.audit.whole_run.cases import RELEASES

__all__ = ["RELEASES"]
