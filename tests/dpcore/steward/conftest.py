"""The steward's folder in the workspace of a test, as `dpflow ledger open` creates it."""

import pytest

from tests.conftest import Workspace


@pytest.fixture(autouse=True)
def _steward_folder(request: pytest.FixtureRequest) -> None:
    if "workspace" in request.fixturenames:
        space: Workspace = request.getfixturevalue("workspace")
        (space.folder / ".dpflow").mkdir(mode=0o700)
