"""The files that share a server are those that the schedule keeps together, and it names none that is not there."""

from pathlib import Path

import pytest

from tests.schedule import FAULTS, GROUPS, LONGEST, PARTS, STACK, TOGETHER, file_of

ROOT = Path(__file__).parents[1]


def test_every_file_of_the_schedule_is_there_once() -> None:
    assert [file for file in LONGEST if not (ROOT / file).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)
    assert len(TOGETHER) == sum(map(len, GROUPS))


def test_files_that_share_a_server_are_kept_together(request: pytest.FixtureRequest) -> None:
    """Of all the files that this process has collected, which are all of them for `make test`."""
    items = request.session.items
    on_stack = {file_of(item.nodeid) for item in items if "stack" in getattr(item, "fixturenames", ())}
    on_server = {file_of(item.nodeid) for item in items if item.get_closest_marker("prefect")}
    on_server |= {file_of(item.nodeid) for item in items if "prefect_server" in getattr(item, "fixturenames", ())}
    assert on_stack <= set(STACK)
    assert on_server <= {*STACK, *FAULTS, *PARTS}
