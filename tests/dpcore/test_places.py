"""One ledger for a spec, whatever folder a command is called in: `.dpflow` is found upwards, as git finds `.git`."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

import dpcore.places
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.places import current_places, places_from, places_of_spec, using
from dpcore.spec import load_spec
from dpcore.steward.approvals import check_approved, require_approval
from dpcore.steward.registry import register, unregister
from tests.conftest import Workspace
from tests.dpcore.cli.ledgers import dpflow
from tests.postgres import PostgresServer

NAMES = ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE", "DPFLOW_REGISTRY")


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def environment_of(folder: Path) -> dict[str, str]:
    return {
        "DPFLOW_LEDGER_URL": f"sqlite:///{folder}/ledger.sqlite",
        "DPFLOW_PRIVATE": f"{folder}/private",
        "DPFLOW_REGISTRY": f"{folder}/registry",
    }


def test_what_is_not_found_gets_its_place_in_the_working_folder(tmp_path: Path) -> None:
    assert current_places().environment() == environment_of(tmp_path / ".dpflow")
    assert not current_places().found


def test_the_nearest_folder_upwards_is_used_and_the_next_one_named(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (tmp_path / ".dpflow").mkdir()
    found = places_from(deep)
    assert (found.found, found.folder, found.outer) == (True, tmp_path / ".dpflow", None)
    assert found.environment() == environment_of(tmp_path / ".dpflow")
    (tmp_path / "a" / ".dpflow").mkdir()
    found = places_from(deep)
    assert (found.folder, found.outer) == (tmp_path / "a" / ".dpflow", tmp_path / ".dpflow")
    assert places_from(tmp_path).folder == tmp_path / ".dpflow"


NO_FOLDER = {
    "a file": lambda at: at.write_text("", encoding="utf-8"),
    "a link that leads nowhere": lambda at: at.symlink_to("unmounted"),
    "a link to itself": lambda at: at.symlink_to(at),
}


@pytest.mark.parametrize("further_up", [False, True])
@pytest.mark.parametrize("what", NO_FOLDER)
def test_something_else_of_that_name_is_refused_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, further_up: bool
) -> None:
    """Behind a link may lie the ledger, on a disk that is not mounted; the next one upwards has another budget."""
    project = tmp_path / "project"
    project.mkdir()
    if further_up:
        (tmp_path / ".dpflow").mkdir()
    NO_FOLDER[what](project / ".dpflow")
    with pytest.raises(UsageError, match=r"project/\.dpflow is a file or a broken link"):
        places_from(project)
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{tmp_path}/ledger.sqlite")
    assert places_from(project).named  # whoever names a ledger needs no folder
    monkeypatch.delenv("DPFLOW_LEDGER_URL")
    monkeypatch.setattr(dpcore.places, "_require_no_other_thing", lambda start: None)  # planted
    assert places_from(project).found == further_up


def test_something_else_further_up_than_the_folder_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / ".dpflow").symlink_to("unmounted")
    (tmp_path / "project" / ".dpflow").mkdir(parents=True)
    assert places_from(tmp_path / "project").folder == tmp_path / "project" / ".dpflow"


def test_a_spec_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / ".dpflow").mkdir(parents=True)
    (tmp_path / "linked" / ".dpflow").mkdir(parents=True)
    (tmp_path / "real" / "spec.yaml").write_text("", encoding="utf-8")
    (tmp_path / "linked" / "spec.yaml").symlink_to(tmp_path / "real" / "spec.yaml")
    assert places_of_spec(tmp_path / "linked" / "spec.yaml").folder == tmp_path / "real" / ".dpflow"


def test_registry_and_private_folder_lie_beside_the_file_of_the_ledger_whatever_link_leads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "ledger.sqlite").write_text("", encoding="utf-8")
    (tmp_path / "link.sqlite").symlink_to("books/ledger.sqlite")
    for name in ("books/ledger.sqlite", "link.sqlite"):
        monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{name}")
        found = current_places().environment()
        assert found == environment_of(tmp_path / "books") | {"DPFLOW_LEDGER_URL": f"sqlite:///{tmp_path}/{name}"}


def test_what_is_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", "postgresql://steward:secret@host/ledger")
    monkeypatch.setenv("DPFLOW_PRIVATE", "/elsewhere")
    monkeypatch.setenv("DPFLOW_REGISTRY", "/mine")
    assert current_places().environment() == {
        "DPFLOW_LEDGER_URL": "postgresql://steward:secret@host/ledger",
        "DPFLOW_PRIVATE": "/elsewhere",
        "DPFLOW_REGISTRY": "/mine",
    }
    assert current_places().ledger_shown == "postgresql://host/ledger"


@pytest.mark.parametrize("url", [None, "sqlite:////books/ledger.sqlite", "postgresql://host/ledger"])
@pytest.mark.parametrize("variable", ["DPFLOW_PRIVATE", "DPFLOW_REGISTRY"])
@pytest.mark.parametrize("relative", ["mine", "./mine", "../mine", "."])
def test_a_folder_that_depends_on_the_working_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, relative: str, url: str | None
) -> None:
    (tmp_path / ".dpflow").mkdir()
    if url:
        monkeypatch.setenv("DPFLOW_LEDGER_URL", url)
    monkeypatch.setenv(variable, relative)
    for folder in ("", "below"):
        (tmp_path / folder).mkdir(exist_ok=True)
        with pytest.raises(UsageError, match="is a relative path, which means another folder in each") as refused:
            places_from(tmp_path / folder)
        assert str(refused.value).endswith(f"{variable}={tmp_path / relative}")


def test_a_relative_private_folder_would_be_another_one_after_a_cd(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: an old copy of the ledger that was put back is not noticed from another working folder."""
    monkeypatch.setattr(dpcore.places, "_require_absolute", lambda *_, project: None)
    monkeypatch.setenv("DPFLOW_PRIVATE", "mine")
    workspace.open_account()
    file = workspace.folder / ".dpflow" / "ledger.sqlite"
    old = file.read_bytes()
    assert dpflow("ledger", "raise", "visits", "--epsilon", "11", "--reason", "more") == 0
    file.write_bytes(old)
    (workspace.folder / "below").mkdir()
    assert dpflow("ledger", "raise", "visits", "--epsilon", "12", "--reason", "more") == 4
    os.chdir(workspace.folder / "below")
    assert dpflow("ledger", "raise", "visits", "--epsilon", "12", "--reason", "more") == 0


def test_a_relative_registry_would_be_another_one_after_a_cd(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: from another working folder, a run above the threshold needs no approval."""
    monkeypatch.setattr(dpcore.places, "_require_absolute", lambda *_, project: None)
    monkeypatch.setenv("DPFLOW_REGISTRY", "mine")
    workspace.open_account()
    (workspace.folder / "below").mkdir()
    assert dpflow("approval", "visits", "--above", "0.1") == 0
    with pytest.raises(UsageError, match="needs the steward's approval"):
        check_approved(load_spec(workspace.spec), approved=False)
    os.chdir(workspace.folder / "below")
    check_approved(load_spec(workspace.spec), approved=False)


def test_another_process_finds_the_same_places_from_any_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = current_places().environment()
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "other").mkdir()
    os.chdir(tmp_path / "other")
    assert current_places().environment() == found


def test_what_is_used_is_used_inside_only(tmp_path: Path) -> None:
    (tmp_path / "there" / ".dpflow").mkdir(parents=True)
    with using(places_from(tmp_path / "there")):
        assert current_places().folder == tmp_path / "there" / ".dpflow"
    assert current_places().folder == tmp_path / ".dpflow"


def of_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(path, 12345, -1, follow_symlinks=False)
    else:
        someone = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: someone)


@pytest.mark.parametrize("planted", ["folder", "link"])
def test_a_folder_that_another_user_has_planted_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    (tmp_path / "mine").mkdir()
    if planted == "folder":
        (tmp_path / ".dpflow").mkdir()
    else:
        (tmp_path / "mine" / ".dpflow").mkdir()
        (tmp_path / ".dpflow").symlink_to("mine/.dpflow")
    of_another_user(tmp_path / ".dpflow", monkeypatch)
    with pytest.raises(UsageError, match=r"belongs to another user.*set DPFLOW_LEDGER_URL=sqlite:///"):
        open_ledger(create=True)
    monkeypatch.setenv("DPFLOW_LEDGER_URL", "postgresql://steward@host/ledger")  # its private folder would be used
    with pytest.raises(UsageError, match="belongs to another user"):
        current_places()
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{tmp_path}/.dpflow/ledger.sqlite")
    open_ledger(create=True).close()


def test_a_folder_that_this_user_may_not_enter_is_the_owners_to_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = tmp_path / ".dpflow"
    closed.mkdir()
    exists = Path.exists

    def refused(path: Path) -> bool:
        """As for a user whom the folder's mode keeps out, which it never does with root."""
        if path.parent == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", refused)
    for verb in (("ledger", "show", "small"), ("ledger", "history"), ("ledger", "verify")):
        assert dpflow(*verb) == 2
        said = capsys.readouterr().err
        assert said == f"dpflow: {closed}/ledger.sqlite cannot be read by this user; ask its owner\n"
    with pytest.raises(UsageError, match="ask its owner") as refusal:
        open_ledger()
    assert refusal.value.__context__ is None


def test_without_a_folder_nothing_is_made_and_the_message_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=rf"no .dpflow folder was found from {tmp_path} upwards; .* open an account first"
    ):
        open_ledger()
    assert list(tmp_path.iterdir()) == []


def test_an_inner_folder_without_a_ledger_does_not_hide_an_outer_one_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ledger(create=True).close()
    (tmp_path / "inner" / ".dpflow").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "inner")
    for create in (False, True):
        with pytest.raises(UsageError, match="holds no ledger and hides"):
            open_ledger(create=create)
    assert list((tmp_path / "inner" / ".dpflow").iterdir()) == []


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is not below the steward's."""
    return tmp_path_factory.mktemp("elsewhere")


def ledgers_used(
    workspace: Workspace, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> set[str]:
    """Call every verb that names a spec from several folders, and return the ledgers that they say they have used."""
    used = set()
    (workspace.folder / "specs" / "deep").mkdir(parents=True, exist_ok=True)
    for here in ("specs", "specs/deep", elsewhere, "."):
        monkeypatch.chdir(workspace.folder / here)
        spec = str(workspace.spec)
        for verb in (("check", spec), ("plan", spec), *([("run", spec)] if here == elsewhere else [])):
            capsys.readouterr()
            dpflow(*verb, "--json")
            used.add(json.loads(capsys.readouterr().out).get("ledger", {}).get("url", "none was opened"))
    return used


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    """A folder with its steward's folder, and a spec one folder below."""
    workspace.open_account(epsilon=100.0)
    below = workspace.folder / "specs"
    below.mkdir()
    for name in ("spec.yaml", "visits.csv"):
        (workspace.folder / name).rename(below / name)
    return Workspace(workspace.folder, below / "spec.yaml")


def test_a_spec_pays_from_the_same_ledger_whatever_folder_a_verb_is_called_in(
    project: Workspace, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ledgers_used(project, elsewhere, monkeypatch, capsys) == {f"{project.folder}/.dpflow/ledger.sqlite"}
    assert list(project.folder.rglob(".dpflow")) == [project.folder / ".dpflow"]
    assert list(elsewhere.iterdir()) == []


def test_a_search_that_begins_in_the_working_folder_would_be_noticed(
    project: Workspace, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cwd_relative = places_from
    monkeypatch.setattr(dpcore.places, "places_from", lambda _start, **more: cwd_relative(Path.cwd(), **more))
    assert len(ledgers_used(project, elsewhere, monkeypatch, capsys)) > 1


def test_verbs_without_a_spec_look_upwards_and_say_what_lies_further_up(
    project: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.spec.parent)
    terms = ("--epsilon", "1", "--delta", "0", "--unit", "row", "--neighbours", "add-remove")
    assert dpflow("ledger", "open", "more", *terms) == 0
    assert f"ledger {project.folder}/.dpflow/ledger.sqlite, identity " in capsys.readouterr().out
    inner = project.spec.parent / ".dpflow" / "ledger.sqlite"
    with open_ledger(f"sqlite:///{inner}", create=True):
        pass
    assert dpflow("ledger", "open", "inside", *terms) == 0
    said = capsys.readouterr().out
    assert f"ledger {inner}, identity " in said
    assert f"{project.folder}/.dpflow lies further up and was not used" in said


def test_a_spec_is_registered_where_its_ledger_is(project: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert dpflow("register", project.spec) == 0
    register(project.spec, name="again")
    assert sorted(path.name for path in (project.folder / ".dpflow" / "registry").iterdir()) == [
        "again.json",
        "spec.json",
    ]


def test_a_spec_without_a_steward_is_not_registered(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("register", workspace.spec) == 2
    assert "no .dpflow folder was found from " in capsys.readouterr().err
    assert not (workspace.folder / ".dpflow").exists()


def test_a_refusal_names_the_ledger_as_well(project: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    project.spec.write_text(
        project.spec.read_text(encoding="utf-8").replace("epsilon: 1.0", "epsilon: 99"), encoding="utf-8"
    )
    assert dpflow("run", project.spec) == 0
    assert dpflow("run", project.spec) == 3
    assert f"(ledger {project.folder}/.dpflow/ledger.sqlite, identity " in capsys.readouterr().err
    assert dpflow("ledger", "show", "nobody", "--json") == 2
    assert json.loads(capsys.readouterr().out)["ledger"]["url"] == f"{project.folder}/.dpflow/ledger.sqlite"


class Database:
    """A project whose ledger is in a database that `DPFLOW_LEDGER_URL` names, and another working folder."""

    def __init__(self, workspace: Workspace, server: PostgresServer, elsewhere: Path) -> None:
        self.project, self.elsewhere, self._server = workspace, elsewhere, server
        self.url = server.new_database()

    def restore(self, backup: str) -> None:
        """Put back an old copy under the ledger's name."""
        name, old = (conninfo_to_dict(url)["dbname"] for url in (self.url, backup))
        with self._server.admin() as connection:
            connection.execute(f"DROP DATABASE {name}")
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {old}")

    def backup(self) -> str:
        return self._server.new_database(template=self.url)


@pytest.fixture
def database(
    workspace: Workspace, postgres_server: PostgresServer, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> Database:
    made = Database(workspace, postgres_server, elsewhere)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DPFLOW_LEDGER_URL", made.url)
    assert dpflow("ledger", "open", "visits", *TERMS) == 0
    with open_ledger() as ledger:
        ledger.reserve("open", account="visits", amount=1, claim="c")
    assert [path.name for path in (workspace.folder / ".dpflow").iterdir()] == ["private"]
    for name in ("spec.yaml", "visits.csv"):
        (elsewhere / name).write_bytes((workspace.folder / name).read_bytes())
    monkeypatch.chdir(elsewhere)
    return made


TERMS = ("--epsilon", "10", "--delta", "1e-9", "--unit", "person", "--neighbours", "add-remove")
WHY = ("--reason", "more")
WRITING = [
    ("approval", "visits", "--above", "0.1"),
    ("approval", "visits", "--none"),
    ("ledger", "raise", "visits", "--epsilon", "12", *WHY),
    ("ledger", "allow", "visits", "--analyst", "a", "--epsilon", "1", *WHY),
    ("ledger", "close", "visits", *WHY),
    ("ledger", "block", "visits", "2026-01"),
    ("ledger", "seal", "visits", "2026-01"),
    ("ledger", "refund", "open"),
    ("ledger", "settle", "open"),
    ("register", "spec.yaml"),
    ("register", "spec", "--remove"),
    ("run", "spec.yaml"),
]
READING = [
    ("ledger", "show"),
    ("ledger", "history"),
    ("ledger", "verify"),
    ("ledger", "theorems", "visits"),
    ("plan", "spec.yaml"),
    ("check", "spec.yaml"),
    ("registered",),
]


def test_in_another_folder_a_ledger_in_a_database_can_be_read_but_nothing_is_written(
    database: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads and thresholds would be others in each working folder; and only `ledger open` creates a `.dpflow`."""
    before, head = sorted(database.elsewhere.iterdir()), open_ledger().head()
    for only in ((), ("DPFLOW_PRIVATE",), ("DPFLOW_REGISTRY",)):
        for name in only:
            monkeypatch.setenv(name, "/nowhere")
        refused = [verb for verb in WRITING if only != ("DPFLOW_PRIVATE",) or verb[0] in {"approval", "register"}]
        refused = [verb for verb in refused if only != ("DPFLOW_REGISTRY",) or verb[0] in {"ledger", "run"}]
        for verb in refused:
            capsys.readouterr()
            assert dpflow(*verb) == 2, verb
            (said,) = capsys.readouterr().err.splitlines()
            assert "work in the project's folder, or set DPFLOW_PRIVATE and DPFLOW_REGISTRY" in said, verb
        monkeypatch.delenv("DPFLOW_PRIVATE", raising=False)
        monkeypatch.delenv("DPFLOW_REGISTRY", raising=False)
    for verb in READING:
        capsys.readouterr()
        assert dpflow(*verb) == 0, verb
        said = capsys.readouterr().err
        assert said.count("no head of this ledger is remembered here") == (verb[0] in {"ledger", "plan"}), (verb, said)
    with pytest.raises(UsageError, match="work in the project's folder"):
        require_approval("visits", above=0.1, delta=1e-9, within_seconds=60)
    with pytest.raises(UsageError, match="work in the project's folder"):
        check_approved(load_spec("spec.yaml"), approved=True)
    for change in (register, unregister):
        with pytest.raises(UsageError, match="work in the project's folder"):
            change("spec.yaml")
    assert (sorted(database.elsewhere.iterdir()), open_ledger().head()) == (before, head)


def test_a_refused_account_creates_no_folder_and_an_opened_one_does(database: Database) -> None:
    assert dpflow("ledger", "open", "visits", *TERMS[2:], "--epsilon", "99") == 2
    assert not (database.elsewhere / ".dpflow").exists()
    assert dpflow("ledger", "open", "more", *TERMS) == 0
    assert (database.elsewhere / ".dpflow" / "private").exists()


def test_with_both_folders_named_every_working_folder_is_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = database.project.folder / ".dpflow"
    monkeypatch.setenv("DPFLOW_PRIVATE", str(own / "private"))
    monkeypatch.setenv("DPFLOW_REGISTRY", str(own / "registry"))
    assert dpflow("approval", "visits", "--above", "0.1") == 0
    assert f"registry  {own}/registry\n" in capsys.readouterr().out
    os.chdir(database.project.folder)
    monkeypatch.delenv("DPFLOW_REGISTRY")
    with pytest.raises(UsageError, match="needs the steward's approval"):
        check_approved(load_spec(database.project.spec), approved=False)


def restored_and_raised(database: Database) -> int:
    """Raise the budget in the project, restore an older copy, and raise it from elsewhere."""
    backup = database.backup()
    os.chdir(database.project.folder)
    assert dpflow("ledger", "raise", "visits", "--epsilon", "11", *WHY) == 0
    database.restore(backup)
    assert dpflow("ledger", "raise", "visits", "--epsilon", "12", *WHY) == 4
    os.chdir(database.elsewhere)
    return dpflow("ledger", "raise", "visits", "--epsilon", "12", *WHY)


def test_an_old_copy_is_refused_in_every_folder(database: Database) -> None:
    assert restored_and_raised(database) == 2


def test_folders_that_follow_from_the_working_folder_would_forget(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: a threshold that no run sees, and an old copy that is accepted, in folders that nobody asked for."""
    as_found = places_from
    monkeypatch.setattr(
        dpcore.places,
        "places_from",
        lambda start, **more: replace(as_found(start, **more), private_fixed=True, registry_fixed=True),
    )
    assert dpflow("approval", "visits", "--above", "0.1") == 0
    with using(dpcore.places.places_of_spec(database.project.spec)):
        check_approved(load_spec(database.project.spec), approved=False)
    assert restored_and_raised(database) == 0
    assert (database.elsewhere / ".dpflow").exists()
