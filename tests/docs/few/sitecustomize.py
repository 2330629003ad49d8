"""Fewer replicates in the programs that a page runs: nothing that is shown depends on them. Python loads this file by its name."""

import tests.few_replicates  # noqa: F401
