"""The Prefect settings under which nothing private, and nothing at all to an outside host, leaves a server or a run."""

from collections.abc import Mapping

TELEMETRY: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_V2_ENABLED": "false",  # its pages call an analytics host
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}
"""No word to anybody about how Prefect is used."""

STORED: Mapping[str, str] = {
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
    "PREFECT_LOGGING_LOG_PRINTS": "false",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "",
}
"""No result on a disk, and no line of a library in the log of a run."""

SAFE: dict[str, str] = {**TELEMETRY, **STORED}

HEARTBEAT_SECONDS = 30
"""How often a deployed run tells that it is alive. Fixed: the automation that looks for dead runs counts on it."""
