"""The installed version of dpflow.

The distribution's name differs from the command's, because `dpflow` belongs to another project on PyPI.
"""

from importlib.metadata import version

DISTRIBUTION = "dpflow-synth"


def installed_version() -> str:
    """Return the installed version, as `dpflow --version` prints it and each release states it."""
    return version(DISTRIBUTION)
