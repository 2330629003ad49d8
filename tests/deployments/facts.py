"""What the tests of the deployments look at: the files, and which variables dpflow, Prefect and libpq know."""

import json
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).parents[2]
DEPLOYMENTS = ROOT / "deployments"
TEMPLATE = DEPLOYMENTS / "kubernetes" / "base-job-template.json"


def prefect_says(*templates: dict[str, Any]) -> dict[str, Any]:
    """Return what Prefect knows and thinks of base job templates; asked elsewhere, because its import has a home folder."""
    with tempfile.TemporaryDirectory() as home:
        own = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        answer = subprocess.run(
            [sys.executable, Path(__file__).with_name("prefect_facts.py")],
            input=json.dumps(templates),
            env=own | {"PREFECT_HOME": home, "DO_NOT_TRACK": "1"},
            check=True,
            capture_output=True,
            text=True,
        )
    facts: dict[str, Any] = json.loads(answer.stdout)
    return facts


@cache
def known_variables() -> frozenset[str]:
    """Return the names of all variables that change what dpflow, Prefect, a PostgreSQL client or a container does."""
    sources = [*ROOT.glob("dpcore/**/*.py"), *ROOT.glob("flows/**/*.py"), DEPLOYMENTS / "with-secrets"]
    ours = {name for path in sources for name in re.findall(r"\bDPFLOW_[A-Z_]+\b", path.read_text(encoding="utf-8"))}
    libpq = {setting.envvar.decode() for setting in psycopg.pq.Conninfo.get_defaults() if setting.envvar}
    images = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD_FILE", "DO_NOT_TRACK"}
    return frozenset(ours | libpq | images | set(prefect_says()["settings"]))


def image_environment() -> dict[str, str]:
    """Return what the Dockerfile sets for whatever runs in the image."""
    text = (DEPLOYMENTS / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    settings = re.findall(r"^ENV (.*)$", text, flags=re.MULTILINE)
    return {name: value.strip('"') for name, value in re.findall(r"(\w+)=(\S+)", " ".join(settings))}
