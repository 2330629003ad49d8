"""Validate the schedule of a registered release: a cron expression and a time zone."""

import re
from datetime import UTC, datetime
from functools import cache
from zoneinfo import available_timezones

from cronsim import CronSim, CronSimError

from dpcore.errors import UsageError

EXAMPLE = '--cron "0 3 * * *" --timezone Europe/Zurich is every night at three'
DEFAULT_TIMEZONE = "UTC"

# Portable cron syntax: numbers, names, ranges, steps and lists. Implementations disagree on L, W, # and @daily, or do not support them.
_ITEM = r"(\*|[0-9]{1,2}|[A-Za-z]{3})(-([0-9]{1,2}|[A-Za-z]{3}))?(/[0-9]{1,2})?"
_FIELD = re.compile(rf"{_ITEM}(,{_ITEM})*")
_LONGEST_MONTH = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


def checked_schedule(cron: str | None, timezone: str | None) -> tuple[str | None, str | None]:
    """Return the schedule in its normal form, in UTC unless a time zone is given. Raise if it is invalid.

    >>> checked_schedule("0  3 * * mon-fri", None)
    ('0 3 * * mon-fri', 'UTC')
    >>> checked_schedule("0 0 3 * * *", None)
    Traceback (most recent call last):
    dpcore.errors.UsageError: a cron expression has 5 fields (minute, hour, day, month, weekday), not 6; --cron "0 3 * * *" --timezone Europe/Zurich is every night at three
    """
    if cron is None:
        if timezone is not None:
            raise UsageError(f"--timezone needs --cron; {EXAMPLE}")
        return None, None
    return _checked_cron(cron), _checked_timezone(DEFAULT_TIMEZONE if timezone is None else timezone)


def _checked_cron(cron: str) -> str:
    fields = cron.split()
    if len(fields) != 5:
        raise UsageError(
            f"a cron expression has 5 fields (minute, hour, day, month, weekday), not {len(fields)}; {EXAMPLE}"
        )
    plain = " ".join(fields)
    try:
        parsed = CronSim(plain, datetime.now(UTC)) if all(map(_FIELD.fullmatch, fields)) else None
    except CronSimError:
        parsed = None
    if parsed is None:
        raise UsageError(f"{plain[:100]!r} is not a cron expression; {EXAMPLE}")
    # Rejected even if the expression also names a weekday: the scheduler looks for the day first, and fails if no month has it.
    if min(parsed.days) > max(_LONGEST_MONTH.get(month, 31) for month in parsed.months):
        raise UsageError(f"{plain!r} names a day that none of its months has; {EXAMPLE}")
    return plain


def _checked_timezone(timezone: str) -> str:
    if timezone not in _timezones():
        raise UsageError(f"{timezone[:100]!r} is not a time zone known here; name one such as Europe/Zurich, or UTC")
    return timezone


@cache
def _timezones() -> frozenset[str]:
    # `localtime` is a different zone on every machine.
    return frozenset(available_timezones() - {"localtime"})
