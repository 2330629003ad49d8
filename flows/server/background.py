"""Background programs that outlive the command that started them: start them, recognize them later, and end them with their children.

Each carries a mark in its environment, which its children inherit. A process is ours only if it has the mark. Its pid alone proves
nothing, because the system may have given it to another program since.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import psutil

MARK = "DPFLOW_BACKGROUND"
POLL_SECONDS = 0.1


def start(
    arguments: Sequence[str], *, folder: Path, log: str, environment: Mapping[str, str], keep: Sequence[int] = ()
) -> int:
    """Start Python with some arguments, in a session of its own, and return its pid.

    Args:
        arguments: What follows the interpreter, such as `-m` and a module.
        folder: The folder of the logs. It is also the mark, so programs of different folders are never confused.
        log: The name of the file in that folder to which the program's output is appended.
        environment: The program's whole environment, except the mark.
        keep: The file descriptors that the program inherits, under the same numbers.
    """
    with (folder / log).open("ab") as output:
        child = subprocess.Popen(  # noqa: S603  our own interpreter
            # -P: a folder in the working directory must not shadow one of our modules
            [sys.executable, "-P", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**environment, MARK: str(folder)},
            pass_fds=keep,
            start_new_session=True,  # Ctrl-C or closing the terminal must not reach it
        )
    child.returncode = 0  # it outlives this process, so nobody waits for it; this silences Python's ResourceWarning
    return child.pid


def runs(pid: int, arguments: Sequence[str], *, folder: Path) -> bool:
    """Return whether a process is alive and is the program that was started for this folder with these arguments."""
    try:
        process = psutil.Process(pid)
        return _is_marked(process, folder) and process.cmdline()[2:] == list(arguments)
    except psutil.Error:
        return False


def all_of(folder: Path) -> list[psutil.Process]:
    """Return every process that was started for this folder, and their descendants."""
    return [process for process in psutil.process_iter() if _is_marked(process, folder)]


def end(processes: Sequence[psutil.Process], *, patience: float) -> None:
    """Terminate processes, wait until they are gone, and kill those that still run after `patience` seconds."""
    for send in (psutil.Process.terminate, psutil.Process.kill):
        for process in processes:
            try:
                send(process)  # psutil first checks that the pid still belongs to that process
            except psutil.NoSuchProcess:
                continue
        if _gone(processes, within=patience):
            return


def end_with(pid: int, *, words: str) -> None:
    """End this process and its children as soon as another process is gone, and write `words` to standard error.

    They are killed, not terminated: anything they still sent would go to whichever program has taken the other's place.
    """
    try:
        awaited = psutil.Process(pid)
    except psutil.NoSuchProcess:
        _end_now(words)
    else:
        Thread(target=_end_after, args=(awaited, words), daemon=True).start()


def _end_after(awaited: psutil.Process, words: str) -> None:
    while _is_alive(awaited):
        time.sleep(POLL_SECONDS)
    _end_now(words)


def _end_now(words: str) -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
    os.write(sys.stderr.fileno(), f"{words}\n".encode())
    os._exit(1)


def _gone(processes: Sequence[psutil.Process], *, within: float) -> bool:
    deadline = time.monotonic() + within
    while any(map(_is_alive, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _is_alive(process: psutil.Process) -> bool:
    """Return whether a process still runs. A zombie does not."""
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_marked(process: psutil.Process, folder: Path) -> bool:
    try:
        environment: dict[str, Any] = process.environ()
    except (psutil.Error, OSError):  # belongs to another user, or is gone by now
        return False
    return environment.get(MARK) == str(folder) and process.pid != os.getpid()
