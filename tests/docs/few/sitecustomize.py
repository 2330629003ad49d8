"""Fewer replicates and rough fits in the programs that a page runs: nothing that is shown depends on them. Python loads this file by its name."""

import tests.few_replicates  # noqa: F401
from dpcore.models import fitting
from tests.rough_fits import FEW_TRIES

if __name__ == "sitecustomize":  # pytest, too, loads every file of the tests, and its own fits are not rough
    vars(fitting).update(FEW_TRIES)
