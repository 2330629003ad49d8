import os
from pathlib import Path

import httpx
import pytest

from dpcore.errors import UsageError
from flows.server import password as passwords
from flows.server.running import ui_folder
from tests.flows.stack import Stack


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the password is kept."""
    monkeypatch.chdir(tmp_path)
    ui_folder().mkdir(parents=True)
    return ui_folder() / "password"


def test_each_start_has_its_own_for_its_owner_alone(file: Path) -> None:
    before, made = passwords.make_password(), passwords.make_password()
    assert before != made == passwords.password()
    assert file.stat().st_mode & 0o777 == 0o600
    user, _, secret = made.partition(":")
    assert (user, len(secret)) == ("dpflow", 32)


def test_the_path_of_the_page_that_logs_in_is_another_one_each_time() -> None:
    assert len({passwords.new_login_path() for _ in range(100)}) == 100


def test_any_port_that_a_browser_can_use_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    offered: list[list[int]] = []

    def first(ports: list[int]) -> int:
        offered.append(ports)
        return ports[0]

    monkeypatch.setattr(passwords.secrets, "choice", first)
    assert passwords.random_port() == 1024
    (ports,) = offered
    assert len(ports) == len(set(ports)) > 64_000
    assert set(range(1024, 65536)) - set(ports) == passwords.BLOCKED_PORTS


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_one_that_others_may_have_read_counts_no_more(file: Path, mode: int) -> None:
    made = passwords.make_password()
    file.chmod(mode)
    with pytest.raises(UsageError, match="dpflow ui --stop"):
        passwords.password()
    assert passwords.make_password() != made
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"\xff", b"someone:else"])
def test_a_damaged_one_counts_as_none(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    file.chmod(0o600)
    assert passwords.kept_password() is None


@pytest.mark.prefect
def test_the_temporary_server_of_a_run_answers_nobody_else(prefect_server: str) -> None:
    ours = passwords.authorization(os.environ["PREFECT_API_AUTH_STRING"])
    with httpx.Client(base_url=prefect_server, trust_env=False, timeout=60) as client:
        assert client.post("/flow_runs/filter", json={}).status_code == 401
        assert client.post("/flow_runs/filter", json={}, headers=ours).status_code == 200
        for foreign in ({"Host": "evil.test"}, {"Origin": "http://evil.test"}, {"Sec-Fetch-Site": "same-site"}):
            assert client.post("/flow_runs/filter", json={}, headers=ours | foreign).status_code == 403


def test_the_server_of_the_ui_asks_for_password_and_token_and_tells_nobody_its_password(stack: Stack) -> None:
    with stack.client(timeout=60) as client:
        proof = stack.proof(client, "POST")
        codes = {
            "both": client.post("flow_runs/filter", json={}, headers=proof).status_code,
            "no token": client.post("flow_runs/filter", json={}).status_code,
            "no password": client.post("flow_runs/filter", json={}, headers=proof | {"Authorization": ""}).status_code,
            "wrong": client.get("flows/x", headers=passwords.authorization("dpflow:guess")).status_code,
        }
        told = client.get("admin/settings").text
    assert codes == {"both": 200, "no token": 403, "no password": 401, "wrong": 401}
    secret = stack.password.partition(":")[2]
    assert secret not in told
    for command in stack.command_lines():
        assert secret not in command
