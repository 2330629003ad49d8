import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import signal, sys, time
def end(number, frame):
    print("told", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, {interrupt})
print("child", flush=True)
time.sleep(600)
"""

WORKER = """
import asyncio, os, sys
from flows.worker import shutdown
end = shutdown._end

async def said(*given):
    print("ending", flush=True)
    await end(*given)

shutdown._end = said

async def work():
    environment = os.environ | {"PREFECT__FLOW_RUN_ID": "run-1"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", sys.argv[1], env=environment)
    try:
        await process.wait()
        await asyncio.Event().wait()
    finally:
        if process.returncode is None:
            process.kill()

interrupted = asyncio.run(shutdown.until_signalled(work()))
print("ended", *interrupted, flush=True)
"""


def begin(*, interrupt: str = "signal.SIG_IGN") -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, CHILD.format(interrupt=interrupt)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "child\n"
    return worker


def said(worker: subprocess.Popen[str]) -> str:
    with worker:
        return worker.communicate()[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_is_told_before_its_worker_ends(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = begin()
    worker.send_signal(number)
    assert said(worker) == "ending\ntold\nended run-1\n"
    assert worker.returncode == 0


def test_a_second_signal_does_not_wait_for_the_run() -> None:
    worker = begin()
    worker.send_signal(signal.SIGINT)  # the child ignores it, and is asked again only after some seconds
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ending\n"
    worker.send_signal(signal.SIGINT)
    assert said(worker) == "ended run-1\n"


def test_work_that_ends_by_itself_needs_no_signal(tmp_path: Path) -> None:
    program = "import asyncio; from flows.worker.shutdown import until_signalled; asyncio.run(until_signalled(asyncio.sleep(0)))"
    assert subprocess.run([sys.executable, "-c", program], check=True).returncode == 0


def test_an_error_of_the_work_is_passed_on() -> None:
    program = """
import asyncio
from flows.worker.shutdown import until_signalled
async def work():
    raise ValueError("broken")
try:
    asyncio.run(until_signalled(work()))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "broken\n"
