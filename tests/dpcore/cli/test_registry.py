"""The verbs about what others may run: each says what to do next, and a refused one changes nothing."""

import json
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpcore import Outcome, cli
from dpcore.cli.arguments import Subparsers, add_verb
from dpcore.cli.output import Answer
from dpcore.cli.verbs import Verb
from dpcore.steward.approvals import approval_of, check_approved
from dpcore.steward.registry import declared, registered, registered_names
from tests.conftest import Workspace

Tree = Callable[[Path], dict[str, bytes]]
Capture = pytest.CaptureFixture[str]

OUTCOME = Outcome(
    run="r1",
    release="releases/visits/1",
    rows=3,
    account="visits",
    currency="pure",
    epsilon=1.0,
    delta=0.0,
    sampler_delta=1e-27,
    reserved=1.0,
    spent=1.0,
    remaining=9.0,
    remaining_epsilon=9.0,
)


@pytest.fixture(autouse=True)
def _stewards_folder(workspace: Workspace) -> None:
    """The folder is the steward's already, as it is once an account was opened."""
    (workspace.folder / ".dpflow").mkdir()


def runner(spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
    """Refuse as a run would, and make no release."""
    check_approved(declared(str(spec), registered_only=False), approved=approved)
    return OUTCOME


def dpflow(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments], runner=runner)


def answer(capsys: Capture, *arguments: object) -> dict[str, object]:
    capsys.readouterr()
    assert dpflow(*arguments, "--json") == 0
    data: dict[str, object] = json.loads(capsys.readouterr().out)
    return data


def test_a_registered_spec_is_listed_and_run_by_its_name(workspace: Workspace, capsys: Capture) -> None:
    assert dpflow("registered") == 0
    assert "register one with: dpflow register SPEC" in capsys.readouterr().out
    assert dpflow("register", "spec.yaml", "--cron", "0 3 * * *", "--timezone", "Europe/Zurich") == 0
    said = capsys.readouterr().out
    assert "next: `dpflow serve`, or restart it" in said
    assert "0 3 * * * (Europe/Zurich)" in said
    assert dpflow("registered") == 0
    said = capsys.readouterr().out
    assert "ready" in said
    assert "0 3 * * * (Europe/Zurich)" in said
    assert dpflow("run", "spec") == 0
    assert dpflow("run", "spek") == 2
    assert "registered specs: spec" in capsys.readouterr().err


def test_all_answers_are_one_json_object(workspace: Workspace, capsys: Capture) -> None:
    workspace.open_account()
    assert answer(capsys, "registered")["registered"] == []
    entry = answer(capsys, "register", "spec.yaml", "--name", "mine")
    assert entry == registered("mine").to_json()
    approval = answer(capsys, "approval", "visits", "--above", "0.5", "--within", "7d")
    assert approval.pop("ledger")
    assert approval == {
        "account": "visits",
        "above": 0.5,
        "delta": 1e-9,
        "within_seconds": 7 * 86400,
        "registry": str(workspace.folder / ".dpflow" / "registry"),
    }
    (item,) = answer(capsys, "registered")["registered"]  # type: ignore[misc]
    assert item == entry | {"approval_above": 0.5, "problem": None}
    assert answer(capsys, "approval", "visits", "--none")["above"] is None
    assert answer(capsys, "register", "mine", "--remove") == {"removed": "mine"}
    assert dpflow("register", "gone.yaml", "--json") == 2
    assert json.loads(capsys.readouterr().out)["exit_code"] == 2


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["gone.yaml"], "no such file"),
        (["spec.yaml", "--name", "../x"], "letters, digits"),
        (["spec.yaml", "--name", ""], "letters, digits"),
        (["spec.yaml", "--name", "x.yaml"], "named like a file"),
        (["link.yaml"], "is a link"),
        (["other/spec.yaml"], "choose another with --name"),
        (["spec.yaml", "--cron", "0 0 3 * * *"], "5 fields"),
        (["spec.yaml", "--cron", "nonsense is this not cron"], 'is not a cron expression; --cron "0 3 * * *"'),
        (["spec.yaml", "--cron", ""], "5 fields"),
        (["spec.yaml", "--cron", "0 3 * * *", "--timezone", "Europe/Atlantis"], "such as Europe/Zurich"),
        (["spec.yaml", "--timezone", "UTC"], "--timezone needs --cron"),
        (["spec.yaml", "--timezone", ""], "--timezone needs --cron"),
        (["few.yaml"], "rounds"),
        (["spek", "--remove"], "registered specs: spec"),
        (["spec", "--remove", "--name", "../spec"], "registered specs: spec"),
        (["spec", "--remove", "--cron", "0 3 * * *"], "register again without --cron"),
    ],
)
def test_a_registration_that_cannot_work_changes_nothing(
    workspace: Workspace, capsys: Capture, tree_of: Tree, arguments: list[str], hint: str
) -> None:
    dpflow("register", "spec.yaml")
    text = workspace.spec.read_text(encoding="utf-8")
    (workspace.folder / "other").mkdir()
    (workspace.folder / "other" / "spec.yaml").write_text(text, encoding="utf-8")
    few = text.replace("name: mwem, rounds: 4", "name: pmw, rounds: 2")  # valid, but no strategy can do with it
    (workspace.folder / "few.yaml").write_text(few, encoding="utf-8")
    (workspace.folder / "link.yaml").symlink_to(workspace.spec)
    before = tree_of(workspace.folder)
    capsys.readouterr()
    assert dpflow("register", *arguments) == 2
    assert hint in capsys.readouterr().err
    assert tree_of(workspace.folder) == before


def test_registering_anew_says_what_became_of_the_schedule(workspace: Workspace, capsys: Capture) -> None:
    dpflow("register", "spec.yaml", "--cron", "0 3 * * *")
    capsys.readouterr()
    assert dpflow("register", "spec.yaml") == 0
    assert "it ran at 0 3 * * * (UTC) before" in capsys.readouterr().out
    assert registered("spec").cron is None


def test_a_spec_is_removed_by_its_name_or_its_file_even_if_that_is_gone(workspace: Workspace, capsys: Capture) -> None:
    for argument in ("spec", "spec.yaml", workspace.spec):
        dpflow("register", "spec.yaml")
        assert dpflow("register", argument, "--remove") == 0
        assert registered_names() == ()
    assert workspace.spec.exists()
    dpflow("register", "spec.yaml")
    dpflow("register", "spec.yaml", "--name", "other")
    workspace.spec.unlink()
    capsys.readouterr()
    assert dpflow("register", "spec.yaml", "--remove") == 2
    assert "choose one with --name" in capsys.readouterr().err
    assert dpflow("register", "spec.yaml", "--remove", "--name", "other") == 0
    assert registered_names() == ("spec",)
    assert dpflow("register", "spec.yaml", "--remove") == 0
    assert "so that the form no longer offers it" in capsys.readouterr().out
    assert registered_names() == ()


def test_the_listing_says_what_is_wrong_with_each(workspace: Workspace, capsys: Capture) -> None:
    for name in ("damaged", "spec"):
        dpflow("register", "spec.yaml", "--name", name)
    (workspace.folder / ".dpflow" / "registry" / "damaged.json").write_bytes(b"\xff")
    workspace.write_spec(("epsilon: 1.0", "epsilon: 2.0"))
    items = answer(capsys, "registered")["registered"]
    assert [("is unreadable" in item["problem"], item.get("account")) for item in items] == [  # type: ignore[attr-defined]
        (True, None),
        (False, "visits"),
    ]
    assert dpflow("registered") == 0
    said = capsys.readouterr().out
    assert "damaged: " in said
    assert "register it again: dpflow register" in said
    assert "ready" not in said
    assert dpflow("register", "damaged", "--remove") == 0
    assert dpflow("register", "spec.yaml") == 0
    assert [item["problem"] for item in answer(capsys, "registered")["registered"]] == [None]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("within", "seconds"), [((), 86400), ("90s", 90), ("30m", 1800), ("24h", 86400), ("7d", 604800)]
)
def test_the_time_to_approve_is_read_in_seconds_minutes_hours_or_days(
    workspace: Workspace, within: str | tuple[()], seconds: int
) -> None:
    workspace.open_account()
    assert dpflow("approval", "visits", "--above", "0.5", *(("--within", within) if within else ())) == 0
    approval = approval_of("visits")
    assert approval is not None
    assert approval.within_seconds == seconds


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["visits", "--above", "nan"], "--above must be"),
        (["visits", "--above", "inf"], "--above must be"),
        (["visits", "--above=-1"], "--above must be"),
        (["visits", "--above", "1", "--within", "24"], "such as 24h"),
        (["visits", "--above", "1", "--within", "1.5h"], "such as 24h"),
        (["visits", "--above", "1", "--within", "-5m"], "expected one argument"),
        (["visits", "--above", "1", "--within", ""], "such as 24h"),
        (["visits", "--above", "1", "--within", "1w"], "such as 24h"),
        (["visits", "--above", "1", "--within", "24H"], "such as 24h"),
        (["visits", "--above", "1", "--within", "0s"], "--within must be"),
        (["visits", "--above", "1", "--within", "400d"], "--within must be"),
        (["visitors", "--above", "1"], "no account 'visitors'"),
        (["../visits", "--above", "1"], "there is no account '../visits'"),
        (["visits"], "one of the arguments --above --none is required"),
        (["visits", "--none", "--above", "1"], "not allowed with"),
        (["visits", "--none", "--within", "24h"], "--within has no meaning with --none"),
    ],
)
def test_an_approval_that_makes_no_sense_changes_nothing(
    workspace: Workspace, capsys: Capture, tree_of: Tree, arguments: list[str], hint: str
) -> None:
    workspace.open_account()
    dpflow("approval", "visits", "--above", "0.5")
    registry = workspace.folder / ".dpflow" / "registry"
    before = tree_of(registry)
    capsys.readouterr()
    try:
        code = dpflow("approval", *arguments)
    except SystemExit as ended:  # argparse's own refusals
        code = int(str(ended.code))
    assert code == 2
    assert hint in capsys.readouterr().err
    assert tree_of(registry) == before
    assert before


def test_a_run_above_the_threshold_needs_approve(workspace: Workspace, capsys: Capture) -> None:
    workspace.open_account()
    assert dpflow("approval", "visits", "--above", "0.5") == 0
    assert "dpflow run --approve" in capsys.readouterr().out
    assert dpflow("run", "spec.yaml") == 2
    assert "run it again with --approve" in capsys.readouterr().err
    assert dpflow("run", "spec.yaml", "--approve") == 0
    assert dpflow("approval", "visits", "--none") == 0
    assert dpflow("run", "spec.yaml") == 0
    assert dpflow("approval", "visits", "--none") == 0
    assert "need no approval" in capsys.readouterr().out


def test_others_add_verbs_of_their_own(workspace: Workspace, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_verbs(verbs: Subparsers) -> None:
        add_verb(verbs, "greet", "say hello", run=lambda _: Answer({"word": "hello"}, "hello"))

    monkeypatch.setitem(sys.modules, "greetings", SimpleNamespace(add_verbs=add_verbs))
    assert cli.main(["greet", "--json"], runner=runner, more={"greet": Verb("greetings", "say hello")}) == 0
    assert json.loads(capsys.readouterr().out) == {"word": "hello"}
    with pytest.raises(SystemExit):
        cli.main(["greet"], runner=runner)
