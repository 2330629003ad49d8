"""Models that are fitted roughly, for tests of files, charges or the ledger, which do not look at what a model says."""

from collections.abc import Iterator

import pytest

from dpcore.models import fitting


@pytest.fixture(scope="module")
def rough_models() -> Iterator[None]:
    """Let every model that this module makes in its own process take a few evaluations instead of hundreds."""
    with pytest.MonkeyPatch.context() as patch:
        for most in ("FIRST_TRIES", "LAST_TRIES", "FEWEST_LAST_TRIES"):
            patch.setattr(fitting, most, 5)
        yield
