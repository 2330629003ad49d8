"""Prefect settings under which a server or a run sends out nothing private, and sends nothing at all to outside hosts."""

from collections.abc import Mapping

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
"""Store no results on disk, and no lines of libraries in a run's log."""

SAFE: dict[str, str] = {**TELEMETRY, **STORED}

HEARTBEAT_SECONDS = 30
"""Interval of a deployed run's heartbeats. Fixed, because the automation that detects dead runs relies on it."""
