"""Fixtures of the tests of runs."""

import pytest

from tests.rough_models import fit_roughly


@pytest.fixture
def rough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of a few evaluations, for a test that looks at files, charges or the ledger."""
    fit_roughly(monkeypatch)
