"""Where the steward's things lie, said so that a program in any other working folder finds the same ones."""

import os
from pathlib import Path

from dpcore.ledger import DEFAULT_URL
from dpcore.registry import registry_folder
from dpcore.stewardlog import private_folder

_SQLITE = "sqlite:///"


def absolute_places() -> dict[str, str]:
    """Return the environment variables that name ledger, private folder and registry, each independent of the working folder.

    What is set already is kept, made absolute; what is not gets the place that it has by default from here.
    """
    url = os.environ.get("DPFLOW_LEDGER_URL") or DEFAULT_URL
    if url.startswith(_SQLITE):
        url = f"{_SQLITE}{Path(url.removeprefix(_SQLITE)).absolute()}"
    return {
        "DPFLOW_LEDGER_URL": url,
        "DPFLOW_PRIVATE": str(private_folder().absolute()),
        "DPFLOW_REGISTRY": str(registry_folder().absolute()),
    }
