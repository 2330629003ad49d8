"""The version of dpflow that is installed.

The distribution has another name than the command: `dpflow` belongs to somebody else on the public package index.
"""

from importlib.metadata import version

DISTRIBUTION = "dpflow-synth"


def installed_version() -> str:
    """Return the installed version, as `dpflow --version` prints it and each release states it."""
    return version(DISTRIBUTION)
