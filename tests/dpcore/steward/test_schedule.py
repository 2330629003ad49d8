"""Schedules: the plain forms of cron are accepted; everything else is refused with an example."""

import pytest

from dpcore.errors import UsageError
from dpcore.steward.schedule import checked_schedule

GOOD = [
    "0 3 * * *",
    "*/15 * * * *",
    "5/10 8-18 * * mon-FRI",
    "0 0 1,15 JAN-mar *",
    "0 0 29 2 *",
    "0 0 * * 7",
    "59 23 31 12 0",
    "0 0 1-5/2 * *",
    "00 03 * * *",
]
BAD = [
    "",
    "every night at three",
    "0 3 * *",
    "0 0 3 * * *",
    "@daily",
    "60 * * * *",
    "0 0 0 * *",
    "*/0 * * * *",
    "0 22-2 * * *",
    "0, * * * *",
    "H 3 * * *",
    "0 0 LW * *",
    "0 0 * * 1#1",
    "\N{FULLWIDTH DIGIT ONE} 3 * * *",
    "0 0 31 2 *",
    "0 0 31 4,6 *",
    "0 0 30 2 1",
    "0 3 * * *; rm",
]


@pytest.mark.parametrize("cron", GOOD)
def test_a_cron_text_is_accepted(cron: str) -> None:
    assert checked_schedule(cron, "Europe/Zurich") == (cron, "Europe/Zurich")


@pytest.mark.parametrize("cron", BAD)
def test_a_text_that_is_no_cron_is_refused_with_an_example(cron: str) -> None:
    with pytest.raises(UsageError, match=r'--cron "0 3 \* \* \*" --timezone Europe/Zurich is every night at three'):
        checked_schedule(cron, None)


@pytest.mark.parametrize(
    "timezone",
    ["", "Europe/Atlantis", "europe/zurich", "../../etc/passwd", "/etc/localtime", "localtime", "+02:00", "x\0"],
)
def test_an_unknown_time_zone_is_refused_with_an_example(timezone: str) -> None:
    with pytest.raises(UsageError, match="name one such as Europe/Zurich"):
        checked_schedule("0 3 * * *", timezone)


def test_a_time_zone_needs_a_cron_text() -> None:
    with pytest.raises(UsageError, match="--timezone needs --cron"):
        checked_schedule(None, "UTC")
    assert checked_schedule(None, None) == (None, None)


def test_space_between_fields_does_not_count() -> None:
    assert checked_schedule(" 0\t3  * * *\n", None) == ("0 3 * * *", "UTC")
