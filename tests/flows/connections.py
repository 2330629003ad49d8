"""To which hosts the programs of a test talk, recorded from inside each of them."""

import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path

RECORDER = Path(__file__).with_name("recorder")


@dataclass(frozen=True)
class Connection:
    """A program's word to a host, or its question where that host is; or, without a host, that the program has started."""

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
    """Return the variables with which every Python program, and what it starts, adds its connections to a file."""
    paths = [str(RECORDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"RECORD_CONNECTIONS": str(file), "PYTHONPATH": os.pathsep.join(paths)}


def recorded(file: Path) -> list[Connection]:
    """Return what was added to the file so far."""
    return [Connection(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
