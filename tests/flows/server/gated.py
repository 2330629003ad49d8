"""The flow `synthesize` with a gate, for processes of the tests: each stops after a step is charged and before its output is committed.

`DPFLOW_TEST_GATE` names a folder in which a stopped process leaves a file named after its pid. The gate opens once the folder contains
a file `open`.
"""

import os
import time
from pathlib import Path

from dpcore.ledger import Ledger, Operation
from flows.synthesize import synthesize
from flows.tasks import retry
from tests.flows.connections import GATE

__all__ = ["STEP", "synthesize"]

STEP = "round-002/measure"


def _close(gate: Path) -> None:
    commit = Ledger.commit

    def say(what: str) -> None:
        (gate / f"{os.getpid()}.{what}").touch()

    def gated_commit(self: Ledger, operation: Operation, output: bytes) -> Operation:
        if operation.step == STEP:
            say("paid")
            while not (gate / "open").exists():
                time.sleep(0.01)
        return commit(self, operation, output)

    def sleep(seconds: float) -> None:
        say("waits")
        time.sleep(seconds)

    Ledger.commit = gated_commit  # type: ignore[method-assign]
    retry.HELD_SECONDS = (0.2,)  # type: ignore[assignment]
    retry.retry_infrastructure.__kwdefaults__["sleep"] = sleep


if GATE in os.environ:
    _close(Path(os.environ[GATE]))
