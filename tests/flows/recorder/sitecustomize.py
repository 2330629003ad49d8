"""Record the hosts that a Python program connects to, sends to or looks up, one JSON line each. Python loads this file by its name.

Children of the program load it, too. The start of each program is also recorded, so that a missing connection means something.
A process that executes a run gets a gate, if the environment names one.
"""

import importlib
import json
import os
import sys
from typing import Any

SENT = {"socket.connect", "socket.sendto", "socket.sendmsg"}
ASKED = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo"}
INTERNET = {2, 10}  # AF_INET and AF_INET6, without importing `socket` into every program


def _record_to(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    program = " ".join(sys.orig_argv[1:])

    def write(event: str, host: object) -> None:
        text = host.decode() if isinstance(host, bytes) else host if host is None else str(host)
        os.write(file, json.dumps({"program": program, "event": event, "host": text}).encode() + b"\n")

    def record(event: str, arguments: tuple[Any, ...]) -> None:
        if event in SENT and int(arguments[0].family) in INTERNET and arguments[1]:
            write(event, arguments[1][0])
        elif event in ASKED:
            write(event, arguments[0][0] if isinstance(arguments[0], tuple) else arguments[0])

    sys.addaudithook(record)
    write("start", None)


if "RECORD_CONNECTIONS" in os.environ:
    _record_to(os.environ["RECORD_CONNECTIONS"])

if "DPFLOW_TEST_GATE" in os.environ and "flows.worker.execute" in sys.orig_argv:
    importlib.import_module("tests.flows.server.gated")
