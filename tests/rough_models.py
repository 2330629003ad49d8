"""Models that are fitted roughly, for tests of files, charges or the ledger, which do not look at what a model says."""

from collections.abc import Iterator

import pytest

from dpcore.models import fitting
from tests.rough_fits import FEW_TRIES


def fit_roughly(patch: pytest.MonkeyPatch) -> None:
    """Let every model that this process makes take a few evaluations instead of hundreds."""
    for most, few in FEW_TRIES.items():
        patch.setattr(fitting, most, few)


@pytest.fixture(scope="module")
def rough_models() -> Iterator[None]:
    """Fit roughly in all tests of a module, and in what its own fixtures make."""
    with pytest.MonkeyPatch.context() as patch:
        fit_roughly(patch)
        yield
