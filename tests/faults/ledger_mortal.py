"""A process that ends without warning: by its own hand at a chosen boundary between two statements, or by its parent's.

It is forked, so that it need not import everything again; nothing may be connected to a database when it is. Boundaries lie
before and after each statement that reaches a database's driver, BEGIN and COMMIT included, and around each step by which a
file comes into being.
"""

import os
import signal
import sqlite3
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import psycopg


@dataclass
class Boundaries:
    """Counts the boundaries that a process has come to, and ends it at one of them."""

    end_at: int | None
    labels: list[str] = field(default_factory=list)

    def reach(self, label: str) -> None:
        """Come to a boundary, and no further if it is the one."""
        self.labels.append(label)
        if len(self.labels) == self.end_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, call: Callable[..., Any], label: Callable[..., str]) -> Callable[..., Any]:
        """Return the call with a boundary on both its sides."""

        @wraps(call)
        def bounded(*arguments: Any, **options: Any) -> Any:
            words = label(*arguments)
            self.reach(f"before {words}")
            result = call(*arguments, **options)
            self.reach(f"after {words}")
            return result

        return bounded

    def watch(self) -> None:
        """Put a boundary around everything in this process that leaves a trace; there is no way back."""
        statements = ("execute", "executemany", "executescript")
        connection = type("BoundedConnection", (sqlite3.Connection,), {})
        for name in statements:
            setattr(connection, name, self.around(getattr(sqlite3.Connection, name), _statement))
        sqlite3.connect = partial(sqlite3.connect, factory=connection)
        for name in statements[:2]:
            setattr(psycopg.Cursor, name, self.around(getattr(psycopg.Cursor, name), _statement))
        for owner, name in ((os, "fchmod"), (os, "fsync"), (Path, "mkdir"), (Path, "replace"), (Path, "hardlink_to")):
            setattr(owner, name, self.around(getattr(owner, name), lambda *_, name=name: f"file: {name}"))


@dataclass
class Mortal:
    """A forked process at work; `reap` it."""

    pid: int

    def kill(self) -> None:
        """End it without warning."""
        os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for its end; return its exit code, or, negative, the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def born(life: Callable[[], None], *, errors: Path) -> Mortal:
    """Fork a process that lives `life`, and return when it begins; an exception that ends it is written to the file."""
    ready, said = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.write(said, b".")
            life()
            code = 0
        except BaseException:  # noqa: BLE001  whatever ends this life is for the parent to read
            errors.write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(code)
    os.close(said)
    os.read(ready, 1)
    os.close(ready)
    return Mortal(pid)


def _statement(_: object, statement: object, *__: object) -> str:
    return " ".join(str(statement).split()[:3])
