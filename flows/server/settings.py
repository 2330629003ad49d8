"""Prefect settings under which a server or a run sends out nothing private, and sends nothing at all to outside hosts."""

import shutil
from collections.abc import Mapping
from pathlib import Path

TELEMETRY: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",  # its pages call an analytics host
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}
"""Turn off all reports about how Prefect is used."""

STORED: Mapping[str, str] = {
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_LOGGING_LOG_PRINTS": "false",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "",
}
"""Store no results of steps on disk, and no lines of libraries in a run's log. Prefect still pickles the error of a failed run, whose text is public."""

SAFE: dict[str, str] = {**TELEMETRY, **STORED}

HEARTBEAT_SECONDS = 30
"""Interval of a deployed run's heartbeats. Fixed, because the automation that detects dead runs relies on it."""


def first_ui_only(home: Path) -> dict[str, str]:
    """Prepare a server's folder, and return the setting with which it serves and offers only the first of Prefect's two UIs.

    Pages of the second UI call an analytics host, and no setting prevents that: `PREFECT_SERVER_UI_V2_ENABLED` only chooses which of
    the two a browser sees first, and the other stays one click away.

    The server copies the files of each UI into a folder before it serves them. In place of the second UI's folder we put a dangling
    link. The server then logs that this UI is not available, and redirects requests for it to the first.
    """
    pages = home / "ui"
    pages.mkdir(parents=True, exist_ok=True)
    second = pages / "v2"
    if not second.is_symlink():
        shutil.rmtree(second, ignore_errors=True)
        second.symlink_to("not-served")
    return {"PREFECT_SERVER_UI_STATIC_DIRECTORY": str(pages)}
