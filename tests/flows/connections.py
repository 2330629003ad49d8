"""The hosts to which the programs of a test connect, recorded inside each program."""

import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDER = Path(__file__).with_name("recorder")
GATE = "DPFLOW_TEST_GATE"
"""The variable that gives the processes of runs a gate (`server/gated.py`)."""


@dataclass(frozen=True)
class Connection:
    """A connection of a program to a host, or a lookup of its name. Without a host, the start of a program."""

    program: str
    event: str
    host: str | None

    @property
    def outside(self) -> bool:
        """Whether the host is another machine, or may be."""
        if self.host in {None, "", "localhost"}:
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:  # a name
            return True


def recording(file: Path) -> dict[str, str]:
    """Return the variables that make every Python program, and its children, append their connections to a file."""
    paths = [str(RECORDER), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"RECORD_CONNECTIONS": str(file), "PYTHONPATH": os.pathsep.join(paths)}


def recorded(file: Path) -> list[Connection]:
    """Return the connections recorded so far."""
    return [Connection(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
