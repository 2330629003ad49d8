"""Programs that go on after the command that started them: known again whatever happened since, and ended with all their children.

Each carries a mark in its environment, which its children inherit. So a process is ours if it has the mark, and never because
of its number alone, which the system may have given to another program in the meantime.
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
    """Start Python with some arguments, in a session of its own, and return its process number.

    Args:
        arguments: What follows the interpreter, such as `-m` and a module.
        folder: Where the logs are. It is also the mark: what was started for one folder is never taken for another's.
        log: The file's name in that folder to which the program's output is added.
        environment: All of the program's environment but the mark.
        keep: The open files and sockets that the program inherits, by the same numbers.
    """
    with (folder / log).open("ab") as output:
        child = subprocess.Popen(  # noqa: S603  our own interpreter
            # -P: a folder of the user's that has the name of a module of ours must not be taken for it
            [sys.executable, "-P", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**environment, MARK: str(folder)},
            pass_fds=keep,
            start_new_session=True,  # a Ctrl-C or the end of the terminal is not for it
        )
    child.returncode = 0  # it outlives this process, so nobody here waits for it, and Python is not to complain of that
    return child.pid


def runs(pid: int, arguments: Sequence[str], *, folder: Path) -> bool:
    """Tell whether a process is alive and is the program that was started for this folder with these arguments."""
    try:
        process = psutil.Process(pid)
        return _is_marked(process, folder) and process.cmdline()[2:] == list(arguments)
    except psutil.Error:
        return False


def all_of(folder: Path) -> list[psutil.Process]:
    """Return every process that was started for this folder, or by one that was."""
    return [process for process in psutil.process_iter() if _is_marked(process, folder)]


def end(processes: Sequence[psutil.Process], *, patience: float) -> None:
    """Ask processes to end, wait until they are gone, and kill those that are not after `patience` seconds."""
    for send in (psutil.Process.terminate, psutil.Process.kill):
        for process in processes:
            try:
                send(process)  # psutil looks first whether the number is still that process's
            except psutil.NoSuchProcess:
                continue
        if _gone(processes, within=patience):
            return


def end_with(pid: int, *, words: str) -> None:
    """End this process and its children at once when another process is gone, and say why.

    They are killed, and not asked: whatever they still had to say would be said to the program that has taken the other's place.
    """
    try:
        other = psutil.Process(pid)
    except psutil.NoSuchProcess:
        _end_now(words)
    else:
        Thread(target=_end_after, args=(other, words), daemon=True).start()


def _end_after(other: psutil.Process, words: str) -> None:
    while _is_alive(other):
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
    """Tell whether a process still runs; one that has ended, but is still listed because nobody has asked how, does not."""
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_marked(process: psutil.Process, folder: Path) -> bool:
    try:
        environment: dict[str, Any] = process.environ()
    except (psutil.Error, OSError):  # somebody else's, or gone by now
        return False
    return environment.get(MARK) == str(folder) and process.pid != os.getpid()
