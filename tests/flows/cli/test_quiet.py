import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from flows.cli.quiet import quiet, server_answers
from flows.server.password import client_environment
from flows.server.temporary import own_home, temporary_server
from tests.flows.stack import wait_for

TINY = """
from flows.cli.quiet import quiet
from dpcore.errors import DpflowError
print("before", flush=True)
try:
    with quiet() as url:
        from flows.tasks.guard import private_flow, private_task
        print(url, flush=True)

        @private_task(name="count", task_run_name="round-{{number:03}}/count")
        def count(number: int) -> int:
            return 1

        @private_flow(name="tiny", flow_run_name="{name}")
        def tiny(rounds: int) -> int:
            return sum(count(number) for number in range(rounds))

        print(tiny(20), flush=True)
        {then}
except DpflowError as error:
    print(f"{{type(error).__name__}}: {{error}}")
print("after")
"""
Start = Callable[..., subprocess.Popen[str]]
NOBODY = "http://127.0.0.1:9/api"  # the discard port, where no server is

FOR_OTHER_SERVERS = {"HTTP_PROXY": NOBODY, "ALL_PROXY": NOBODY, "PREFECT_SERVER_API_AUTH_STRING": "name:password"}


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def start(then: str = "pass", *, name: str = "tiny", **environment: str) -> subprocess.Popen[str]:
        script = tmp_path / "script.py"
        script.write_text(TINY.format(then=then, name=name))
        return subprocess.Popen(
            [sys.executable, "-W", "default", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"} | environment,
        )

    return start


def listens(url: str) -> bool:
    address = urlsplit(url)
    with closing(socket.socket()) as client:
        return client.connect_ex((address.hostname, address.port)) == 0


@pytest.mark.prefect
def test_a_run_on_a_running_server_prints_only_what_the_script_prints(start: Start, prefect_server: str) -> None:
    run = start(PREFECT_API_URL=prefect_server)
    assert run.communicate() == (f"before\n{prefect_server}\n20\nafter\n", "")
    assert run.returncode == 0


def test_a_run_on_a_temporary_server_prints_only_what_the_script_prints_and_is_recorded_whole(
    start: Start,
) -> None:
    run = start(name="whole", **FOR_OTHER_SERVERS)
    out, err = run.communicate()
    url = out.splitlines()[1]
    assert (out, err, run.returncode) == (f"before\n{url}\n20\nafter\n", "", 0)
    assert not listens(url)
    with closing(sqlite3.connect(Path(os.environ["PREFECT_HOME"], "prefect.db"))) as database:
        query = "SELECT count(*), min(task_run.state_type), max(task_run.state_type) FROM task_run JOIN flow_run ON flow_run.id = flow_run_id "
        assert database.execute(query + "WHERE flow_run.name = 'whole'").fetchone() == (20, "COMPLETED", "COMPLETED")


def test_a_killed_run_leaves_no_server_running(start: Start) -> None:
    with start(then="input()") as run:
        assert run.stdout is not None
        url = [run.stdout.readline() for _ in range(3)][1]
        assert listens(url)
        run.send_signal(signal.SIGKILL)
    wait_for(lambda: not listens(url), "the end of the server")


def test_a_server_that_vanishes_is_told_in_one_line(start: Start) -> None:
    with temporary_server() as server:
        client = client_environment(server.url, server.password)
        run = start(then="input(); tiny(3)", **client, PREFECT_CLIENT_MAX_RETRIES="0")
        assert run.stdout is not None
        assert [run.stdout.readline() for _ in range(3)] == ["before\n", f"{server.url}\n", "20\n"]
    failure, err = run.communicate("\n")
    assert failure.startswith(f"DpflowError: the Prefect server at {server.url} failed during the run")
    assert failure.endswith("\nafter\n")
    assert (err, run.returncode) == ("", 0)


def test_a_server_that_does_not_answer_is_refused_before_anything_is_done_and_without_its_password(
    start: Start,
) -> None:
    run = start(PREFECT_API_URL=NOBODY.replace("//", "//user:secret@"))
    expected = f"UsageError: the Prefect server at {NOBODY} does not answer; start it, or unset PREFECT_API_URL to run on a temporary one"
    assert run.communicate() == (f"before\n{expected}\nafter\n", "")


def test_a_server_of_the_profile_counts(start: Start, tmp_path: Path) -> None:
    (tmp_path / "profiles.toml").write_text(f'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "{NOBODY}"\n')
    out, err = start(PREFECT_HOME=str(tmp_path)).communicate()
    assert "run `prefect config unset PREFECT_API_URL` to run on a temporary one" in out
    assert err == ""


@pytest.mark.parametrize(
    "url", [NOBODY, "no url", "ftp://127.0.0.1/api", "http://[", "http://user:secret@127.0.0.1:9/api"]
)
def test_what_is_no_prefect_server_does_not_answer(url: str) -> None:
    assert not server_answers(url, timeout=1)


def test_a_silent_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not server_answers(f"http://127.0.0.1:{silent.getsockname()[1]}/api", timeout=0.2)


@pytest.mark.prefect
def test_a_running_server_answers_and_a_wrong_path_does_not(prefect_server: str) -> None:
    assert server_answers(prefect_server, timeout=10)
    assert not server_answers(prefect_server.replace("/api", "/wrong"), timeout=10)


@pytest.mark.prefect
def test_a_quiet_context_within_another_uses_the_same_server(prefect_server: str) -> None:
    with quiet() as url:
        assert url == prefect_server


def test_dpflow_keeps_a_prefect_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dpflow").mkdir()
    assert own_home() == tmp_path / ".dpflow" / "prefect"
