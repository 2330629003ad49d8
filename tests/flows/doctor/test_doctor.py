"""For every check of `dpflow doctor` a machine that triggers it; on a machine where nothing is amiss none is triggered."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import prefect.logging
import pytest
from prefect.settings import Settings

from dpcore import cli
from flows.doctor.examination import CHECKS, NOT_LOOKED_AT, answer, examine, find
from flows.doctor.finding import Level
from flows.doctor.machine import Machine
from flows.doctor.server import Reach, ask, reach
from flows.verbs import VERBS
from tests.conftest import read_only
from tests.flows.doctor.machine import SECRET, Calm, FakeServer, Place, amiss, make_place, prefect_variables

LEAK, WARNING = Level.LEAK, Level.WARNING
NOBODY = "http://127.0.0.1:9/api"  # the discard port, where no server is
EVERY = [check for checks in CHECKS.values() for check in checks]
DEFAULT_LOGGING = Path(prefect.logging.__file__).with_name("logging.yml")
IN_A_FILE = (
    DEFAULT_LOGGING.read_text(encoding="utf-8")
    .replace("handlers:\n", "handlers:\n  kept:\n    class: logging.FileHandler\n    filename: all.log\n", 1)
    .replace("  level: WARNING\n  handlers: [console]", "  level: WARNING\n  handlers: [console, kept]")
)

GIT = shutil.which("git") or "git"

Amiss = Callable[[Place], None]
Case = tuple[str, Level, Amiss, bool, set[str]]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[FakeServer, str]]:
    """One server for all tests, which puts it back as it was after each."""
    server = FakeServer()
    with server.running() as url:
        yield server, url


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The name of one folder for all tests, made anew by each. It is not pytest's, into which nobody else can look."""
    outer = Path(tempfile.mkdtemp(prefix="dpflow-doctor-"))
    outer.chmod(0o755)
    yield outer / "work"
    shutil.rmtree(outer)


@pytest.fixture
def place(folder: Path, served: tuple[FakeServer, str], calm: Calm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A well kept machine."""
    server, url = served
    vars(server).update(vars(FakeServer()))
    yield replace(make_place(folder, monkeypatch, server, url=url, like=folder.with_name("like")), calm=calm)
    monkeypatch.chdir(folder.parent)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def calm(folder: Path, served: tuple[FakeServer, str]) -> Calm:
    """The settings on that machine."""
    with pytest.MonkeyPatch.context() as patch:
        made = make_place(folder, patch, served[0], url=served[1], like=folder.with_name("like"))
        found = Calm(made.look().settings, prefect_variables())
    shutil.rmtree(folder)
    return found


def sets(**variables: str) -> Amiss:
    return lambda place: place.set(**variables)


def leaves(*names: str, **variables: str) -> Amiss:
    """Leave settings of the server as Prefect has them, where no server is configured that could tell its own."""

    def happens(place: Place) -> None:
        place.unset("PREFECT_API_URL", *names)
        place.set(**variables)

    return happens


def tells(**settings: object) -> Amiss:
    return lambda place: place.server.told.update(settings)


def opens(name: str, mode: int, *, below: str | None = None) -> Amiss:
    def happens(place: Place) -> None:
        if below:
            (place.folder / below).chmod(0o755)
        (place.folder / name).chmod(mode)

    return happens


def far(place: Place) -> None:
    place.patch.setattr("flows.doctor.server.reach", lambda _host: Reach.FAR)


def near(place: Place) -> None:
    place.patch.setattr("flows.doctor.server.reach", lambda _host: Reach.NEAR)


def far_and_open(place: Place) -> None:
    far(place)
    place.server.asks = False


def open_here(place: Place) -> None:
    place.server.asks = False


def open_to_pages(place: Place) -> None:
    place.server.asks = False
    place.server.told["api"] = {"csrf_protection_enabled": False}


def private_in_releases(place: Place) -> None:
    place.set(DPFLOW_PRIVATE=str(place.folder / "releases" / "private"))
    (place.folder / "releases").mkdir()
    place.private.rename(place.folder / "releases" / "private")


def private_in_home(place: Place) -> None:
    place.set(PREFECT_HOME=str(place.folder / ".dpflow"))


def in_git(place: Place) -> None:
    subprocess.run([GIT, "init", "--quiet", str(place.folder)], check=True)


def in_a_broken_tree(place: Place) -> None:
    place.write(".git", "no work tree of git's")


def password_in_profile(place: Place) -> None:
    place.unset("PREFECT_API_AUTH_STRING")
    place.write("home/profiles.toml", f'active = "a"\n[profiles.a]\nPREFECT_API_AUTH_STRING = "{SECRET}"\n').chmod(
        0o644
    )


def password_in_file(place: Place) -> None:
    place.write("prefect.toml", f'[server.database]\npassword = "{SECRET}"\n').chmod(0o640)


def raw_in_releases(place: Place) -> None:
    place.write("releases/visits.csv", SECRET).chmod(0o600)
    place.spec(("path: visits.csv", "path: releases/visits.csv"), registered=True)


def raw_in_home(place: Place) -> None:
    place.write("home/visits.csv", SECRET).chmod(0o600)
    place.spec(("path: visits.csv", "path: home/*.csv"), registered=True)


def password_in_address(place: Place) -> None:
    place.set(DPFLOW_LEDGER_URL=f"postgresql://maria:{SECRET}@127.0.0.1:9/ledger?sslmode=disable")


def password_in_query(place: Place) -> None:
    place.set(DPFLOW_LEDGER_URL=f"postgresql://127.0.0.1:9/ledger?user=maria&password={SECRET}")


def cores(place: Place) -> None:
    place.patch.setattr("resource.getrlimit", lambda _kind: (-1, -1))


def own_logging(text: str) -> Amiss:
    return lambda place: place.write("home/logging.yml", text) and None


# The check, its level, what is amiss, whether the line that is printed mends it, and which other checks see it as well.
CASES: list[Case] = [
    ("persisted results", LEAK, sets(PREFECT_RESULTS_PERSIST_BY_DEFAULT="true"), True, set()),
    ("persisted results", LEAK, sets(PREFECT_TASKS_DEFAULT_PERSIST_RESULT="true"), True, set()),
    ("result storage", LEAK, sets(PREFECT_DEFAULT_RESULT_STORAGE_BLOCK="s3/results"), True, set()),
    ("result storage", LEAK, sets(PREFECT_TASKS_SCHEDULING_DEFAULT_STORAGE_BLOCK="s3/results"), True, set()),
    ("result storage", LEAK, lambda place: setattr(place.server, "storage", "a-block"), False, set()),
    ("printed lines", LEAK, sets(PREFECT_LOGGING_LOG_PRINTS="true"), True, set()),
    ("extra loggers", LEAK, sets(PREFECT_LOGGING_EXTRA_LOGGERS="pyarrow,pandas"), True, set()),
    ("debug mode", LEAK, sets(PREFECT_DEBUG_MODE="true"), True, {"debug lines"}),
    ("debug mode", LEAK, sets(PREFECT_TEST_MODE="true"), True, {"debug lines"}),
    ("debug mode", LEAK, sets(PREFECT_UNIT_TEST_MODE="true"), True, set()),
    ("debug lines", LEAK, sets(PREFECT_LOGGING_LEVEL="DEBUG"), True, set()),
    ("debug lines", LEAK, sets(PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL="DEBUG"), True, set()),
    ("routed lines", LEAK, sets(PREFECT_LOGGING_ROOT_HANDLERS="console,api"), True, set()),
    ("routed lines", LEAK, own_logging(IN_A_FILE), True, {"logging file"}),
    ("logging file", WARNING, own_logging(DEFAULT_LOGGING.read_text(encoding="utf-8")), True, set()),
    ("logging file", WARNING, own_logging("$UNKNOWN: ["), True, set()),
    ("usage reports", WARNING, lambda place: place.unset("DO_NOT_TRACK"), True, set()),
    ("usage reports", LEAK, sets(DO_NOT_TRACK="0"), True, set()),
    ("server analytics", LEAK, tells(analytics_enabled=True), False, set()),
    ("server analytics", WARNING, leaves("PREFECT_SERVER_ANALYTICS_ENABLED"), True, set()),
    ("server analytics", LEAK, leaves(PREFECT_SERVER_ANALYTICS_ENABLED="true"), True, set()),
    ("new pages", LEAK, tells(ui={"v2_enabled": True}), False, set()),
    ("new pages", WARNING, leaves("PREFECT_SERVER_UI_V2_ENABLED"), True, set()),
    ("promotions", WARNING, tells(ui={"show_promotional_content": True}), False, set()),
    ("promotions", WARNING, leaves("PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT"), True, set()),
    ("resource metrics", LEAK, sets(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{SECRET}@collector"), True, set()),
    ("served metrics", LEAK, sets(PREFECT_CLIENT_METRICS_ENABLED="true"), True, set()),
    ("logfire", LEAK, sets(PREFECT_LOGFIRE_ENABLED="true"), True, set()),
    ("server started here", LEAK, sets(PREFECT_SERVER_API_HOST="0.0.0.0"), True, {"server database"}),  # noqa: S104
    ("server configured", LEAK, far_and_open, False, {"way to server"}),
    ("server configured", LEAK, open_here, False, set()),
    ("forged requests", LEAK, open_to_pages, False, {"server configured"}),
    ("server configured", WARNING, sets(PREFECT_API_URL=NOBODY), False, {"forged requests"}),
    ("way to server", LEAK, far, False, {"server version", "forged requests"}),
    ("way to server", WARNING, near, False, {"server version", "forged requests"}),
    ("forged requests", WARNING, tells(api={"csrf_protection_enabled": False}), False, set()),
    ("server version", WARNING, lambda place: setattr(place.server, "version", "3.7.0"), False, set()),
    (
        "server database",
        WARNING,
        sets(PREFECT_SERVER_API_HOST="0.0.0.0", PREFECT_SERVER_API_AUTH_STRING=SECRET),  # noqa: S104
        True,
        set(),
    ),
    ("private folder", LEAK, opens(".dpflow/private", 0o750), True, set()),
    ("private folder", LEAK, opens(".dpflow/private", 0o701), True, set()),
    ("private files", WARNING, opens(".dpflow/private/failures.log", 0o644), True, set()),
    (
        "private files",
        LEAK,
        opens(".dpflow/private/failures.log", 0o640, below=".dpflow/private"),
        True,
        {"private folder"},
    ),
    ("private place", LEAK, private_in_releases, True, set()),
    ("private place", LEAK, private_in_home, True, set()),
    ("private in git", LEAK, in_git, True, set()),
    ("private in git", WARNING, in_a_broken_tree, False, set()),
    ("passwords", LEAK, password_in_profile, True, set()),
    ("passwords", LEAK, password_in_file, True, set()),
    ("ledger file", LEAK, opens(".dpflow/ledger.sqlite", 0o644, below=".dpflow"), True, {"ledger folder"}),
    ("ledger file", LEAK, opens(".dpflow/ledger.sqlite", 0o640, below=".dpflow"), True, {"ledger folder"}),
    ("ledger folder", LEAK, opens(".dpflow", 0o770), True, set()),
    ("ledger folder", WARNING, opens(".dpflow", 0o755), True, set()),
    ("registry folder", LEAK, opens(".dpflow/registry", 0o775, below=".dpflow"), True, {"ledger folder"}),
    (
        "registry folder",
        LEAK,
        opens(".dpflow/registry/spec.json", 0o666, below=".dpflow"),
        True,
        {"ledger folder"},
    ),
    ("raw files", WARNING, opens("visits.csv", 0o604), True, set()),
    ("raw places", LEAK, raw_in_releases, True, set()),
    ("raw places", LEAK, raw_in_home, True, set()),
    ("ledger password", WARNING, password_in_address, True, {"accounts"}),
    ("ledger password", WARNING, password_in_query, True, {"accounts"}),
    (
        "accounts",
        WARNING,
        lambda place: place.spec(("dataset: visits", "dataset: other"), registered=True),
        False,
        set(),
    ),
    ("accounts", WARNING, sets(DPFLOW_LEDGER_URL="sqlite:///.dpflow/another.sqlite"), False, set()),
    ("accounts", WARNING, lambda place: place.ledger.write_bytes(b"no ledger") and None, False, set()),
    (
        "changed specs",
        WARNING,
        lambda place: place.spec(("rounds: 4", "rounds: 5"), registered=False),
        False,
        set(),
    ),
    ("changed specs", WARNING, lambda place: (place.folder / "spec.yaml").unlink(), False, set()),
    ("core dumps", WARNING, cores, False, set()),
]


def test_on_a_well_kept_machine_no_check_finds_anything(place: Place) -> None:
    assert amiss(place.look(), EVERY) == set()


def test_every_check_has_a_machine_that_it_is_for() -> None:
    assert {case[0] for case in CASES} | {"ledger role"} == set(EVERY)


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{number}" for number, case in enumerate(CASES)])
def test_what_is_amiss_is_found_by_its_check_and_mended_by_the_line(place: Place, case: Case) -> None:
    check, level, happens, mends, also = case
    happens(place)
    machine = place.look()
    found = find(machine, check)
    assert found.level is level
    assert SECRET not in f"{found.found} {found.mend}"
    alike = next(checks for checks in CHECKS.values() if check in checks)
    assert amiss(machine, {*alike, *also}) == {check, *also}
    if mends:
        place.paste(found.mend or "")
        assert place.find(check).level is Level.OK


def test_a_role_that_owns_the_tables_is_for_stewards(place: Place) -> None:
    machine = place.look()
    machine = replace(machine, ledger=replace(machine.ledger, file=None, owns_tables=True))
    assert find(machine, "ledger role").level is WARNING


FILES = {
    "prefect.toml": ("prefect.toml", "[results]\npersist_by_default = true\n", False),
    "pyproject.toml": ("pyproject.toml", "[tool.prefect.results]\npersist_by_default = true\n", False),
    ".env": (".env", "PREFECT_RESULTS_PERSIST_BY_DEFAULT=true\n", False),
    "the Prefect profile": (
        "home/profiles.toml",
        'active = "mine"\n[profiles.mine]\nPREFECT_RESULTS_PERSIST_BY_DEFAULT = "true"\n',
        True,
    ),
}


@pytest.mark.parametrize("where", FILES)
def test_a_setting_is_found_wherever_it_was_set(place: Place, where: str) -> None:
    name, text, by_prefect = FILES[where]
    place.write(name, text)
    assert place.find("persisted results").level is Level.OK  # the environment comes first
    place.unset("PREFECT_RESULTS_PERSIST_BY_DEFAULT")
    found = place.find("persisted results")
    assert found.level is LEAK
    assert f"(set in {where})" in found.found
    setting = "PREFECT_RESULTS_PERSIST_BY_DEFAULT=false"
    assert found.mend == (f"prefect config set {setting}" if by_prefect else f"export {setting}")


@pytest.mark.parametrize("name", ["prefect.toml", ".env"])
def test_a_block_that_a_file_sets_is_taken_out_of_the_file(place: Place, name: str) -> None:
    texts = {
        "prefect.toml": '[results]\ndefault_storage_block = "s3/x"\n',
        ".env": "PREFECT_RESULTS_DEFAULT_STORAGE_BLOCK=s3/x\n",
    }
    place.write(name, texts[name])
    found = place.find("result storage")
    assert found.level is LEAK
    place.paste(found.mend or "")
    assert place.find("result storage").level is Level.OK


def test_a_block_of_the_profile_is_unset_there(place: Place) -> None:
    place.write("home/profiles.toml", 'active = "a"\n[profiles.a]\nPREFECT_DEFAULT_RESULT_STORAGE_BLOCK = "s3/x"\n')
    found = place.find("result storage")
    assert (found.level, found.mend) == (LEAK, "prefect config unset --yes PREFECT_DEFAULT_RESULT_STORAGE_BLOCK")


def test_settings_that_do_not_read_are_refused_without_quoting_them(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.set(PREFECT_SERVER_API_PORT=SECRET)
    assert _dpflow("doctor") == 2
    out, err = capsys.readouterr()
    assert "prefect config validate" in err
    assert SECRET not in out + err


@pytest.mark.parametrize(
    ("server", "level"),
    [
        ({"url": "https://prefect.example.org/api"}, Level.OK),
        ({"url": "http://prefect.example.org/api"}, LEAK),
    ],
)
def test_what_travels_far_travels_encrypted(place: Place, server: dict[str, str], level: Level) -> None:
    assert find(_far_away(place.look(), **server), "way to server").level is level


def test_an_encrypted_way_to_anybody_is_no_better(place: Place) -> None:
    place.set(PREFECT_API_TLS_INSECURE_SKIP_VERIFY="true")
    found = find(_far_away(place.look(), url="https://prefect.example.org/api"), "way to server")
    assert (found.level, found.mend) == (LEAK, "export PREFECT_API_TLS_INSECURE_SKIP_VERIFY=false")


def test_a_file_of_certificates_that_is_not_there_trusts_nobody(place: Place) -> None:
    place.set(PREFECT_API_URL="https://127.0.0.1:9/api", PREFECT_API_SSL_CERT_FILE="none.pem")
    assert place.find("server configured").level is WARNING


def test_runs_in_the_cloud_do_not_tell_their_memory(place: Place) -> None:
    machine = place.look()
    cloud = machine.settings.model_copy(deep=True)
    cloud.api.url = "https://api.prefect.cloud/api/accounts/a/workspaces/w"
    assert find(replace(machine, settings=cloud), "resource metrics").level is LEAK


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", Reach.LOOPBACK),
        ("::1", Reach.LOOPBACK),
        ("localhost", Reach.LOOPBACK),
        ("10.1.2.3", Reach.NEAR),
        ("fd00::1", Reach.NEAR),
        ("8.8.8.8", Reach.FAR),
        ("0.0.0.0", Reach.FAR),  # noqa: S104
        ("::", Reach.FAR),
        ("", Reach.FAR),
        ("no such host", Reach.FAR),
    ],
)
def test_a_host_is_as_far_as_its_address(host: str, expected: Reach) -> None:
    assert reach(host) is expected


def test_credentials_are_sent_only_where_nobody_reads_along(place: Place) -> None:
    place.look()
    assert place.server.heard
    place.server.heard.clear()
    far(place)
    place.look()
    assert place.server.heard == []


def test_a_name_and_a_password_in_the_address_of_the_server_are_not_shown(place: Place) -> None:
    url = os.environ["PREFECT_API_URL"].replace("http://", f"http://steward:{SECRET}@")
    place.set(PREFECT_API_URL=url)
    far_and_open(place)
    shown = answer(examine(place.look()))
    assert shown.data["leaks"] == 2
    assert SECRET not in json.dumps(shown.data) + shown.text


def test_a_page_to_log_in_at_is_no_open_server(place: Place) -> None:
    far(place)
    place.server.page = True
    assert place.find("server configured").level is Level.OK


@pytest.mark.prefect
def test_a_real_server_says_what_it_is(prefect_server: str) -> None:
    told = ask(prefect_server, Settings())
    assert (told.reach, told.answers, told.is_open, told.version) == (Reach.LOOPBACK, True, False, prefect.__version__)
    assert not told.has_result_storage
    accessors = ("analytics_enabled", "ui.v2_enabled", "ui.show_promotional_content", "api.csrf_protection_enabled")
    assert [told.setting(f"server.{accessor}") for accessor in accessors] == [False] * 4


def test_what_was_put_in_the_place_of_other_entries_is_undone_with_the_file(place: Place) -> None:
    place.set(PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL="CRITICAL")
    own_logging(IN_A_FILE)(place)
    place.paste(place.find("routed lines").mend or "")
    assert place.find("routed lines").level is Level.OK


def test_names_of_files_that_a_pattern_finds_are_not_shown(place: Place) -> None:
    place.write("raw/Zq7_jane_doe.csv", "x").chmod(0o644)
    place.write("raw/more and.csv", "x").chmod(0o644)
    place.spec(("path: visits.csv", "path: 'raw/*.csv'"), registered=True)
    found = place.find("raw files")
    assert found.level is WARNING
    assert "jane" not in f"{found.found}{found.mend}"
    place.paste(found.mend or "")
    assert place.find("raw files").level is Level.OK


def test_a_folder_above_that_nobody_may_enter_keeps_everybody_out(place: Place) -> None:
    (place.folder / "visits.csv").chmod(0o644)
    assert place.find("raw files").level is WARNING
    place.folder.chmod(0o750)
    assert place.find("raw files").level is Level.OK


def test_a_ledger_among_the_files_of_others_is_safe_where_they_can_not_replace_it(place: Place) -> None:
    place.ledger.parent.chmod(0o1777)
    assert place.find("ledger folder").level is WARNING


def test_an_ignored_private_folder_may_lie_in_a_git_tree(place: Place) -> None:
    in_git(place)
    place.write(".gitignore", ".dpflow/\n")
    assert place.find("private in git").level is Level.OK


def test_a_machine_without_anything_yet_gives_nothing_away(place: Place) -> None:
    shutil.rmtree(place.folder / ".dpflow")
    assert amiss(place.look(), EVERY) == {"accounts"}
    assert not (place.folder / ".dpflow").exists()


def test_a_folder_that_can_not_be_looked_into_is_a_warning(place: Place) -> None:
    def refuse(_path: Path, _pattern: str) -> Iterator[Path]:
        raise PermissionError

    machine = place.look()
    place.patch.setattr(Path, "rglob", refuse)
    found = next(each.finding for each in examine(machine) if each.check == "private files")
    assert found.level is WARNING
    assert "could not be checked" in found.found


def test_people_see_the_worst_first_and_the_verdict_last(place: Place) -> None:
    place.private.chmod(0o755)
    place.unset("DO_NOT_TRACK")
    shown = answer(examine(place.look()))
    shown_lines = shown.text.splitlines()
    assert shown_lines[:2] == [
        "who reads the steward's files",
        f"  leak     the private folder {place.private.resolve()} is open to others; fix: chmod 700 {place.private.resolve()}",
    ]
    assert shown_lines[2].startswith("  ok       private files, private place, ")
    assert shown_lines[4:6] == [
        "what Prefect tells outsiders",
        "  warning  Prefect's client reports to its makers unless dpflow starts it; fix: export DO_NOT_TRACK=1",
    ]
    assert shown_lines[-3] == f"not checked: {NOT_LOOKED_AT}"
    assert shown_lines[-1] == "1 leak to fix, 1 warning."


def test_a_leak_ends_with_1_and_a_warning_does_not(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert _dpflow("doctor") == 0
    assert capsys.readouterr().out.endswith("\nNo leaks found; no warnings.\n")
    place.unset("DO_NOT_TRACK")
    assert _dpflow("doctor") == 0
    assert capsys.readouterr().out.endswith("; 1 warning.\n")
    place.set(PREFECT_LOGGING_LOG_PRINTS="true")
    assert _dpflow("doctor", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["leaks"], told["warnings"], len(told["findings"])) == (1, 1, len(EVERY))
    assert told["findings"][0] == {
        "group": "what Prefect stores",
        "check": "printed lines",
        "level": "leak",
        "found": "printed output of flows is sent to the server (set in the environment)",
        "mend": "export PREFECT_LOGGING_LOG_PRINTS=false",
    }


def test_the_command_itself_leaves_nothing_behind(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    with read_only(work):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "DPFLOW_"))}
        done = subprocess.run(
            [sys.executable, "-P", "-m", "flows", "doctor", "--json"],
            cwd=work,
            env={**kept, "HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    levels = {found["check"]: found["level"] for found in json.loads(done.stdout)["findings"]}
    assert (levels["server analytics"], levels["persisted results"]) == ("warning", "ok")
    assert list(home.iterdir()) == []


def _dpflow(*arguments: str) -> int:
    return cli.main(list(arguments), runner=_no_runner, more=VERBS)


def _no_runner(*_arguments: object, **_options: object) -> None:
    raise NotImplementedError


def _far_away(machine: Machine, *, url: str) -> Machine:
    assert machine.server is not None
    return replace(machine, server=replace(machine.server, url=url, reach=Reach.FAR))
