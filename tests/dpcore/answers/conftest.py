"""A release with every kind of column, which all tests of the folder share."""

import pytest

from benchmarks.coverage_releases import seeded
from dpcore.answers.release import Release, open_release
from tests.dpcore.answers.releases import EVERY_KIND, make_release


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release with every kind of column, opened. Its noise and its rows are the same in every run of the tests."""
    with seeded(5):
        return open_release(make_release(tmp_path_factory.mktemp("kinds"), EVERY_KIND))
