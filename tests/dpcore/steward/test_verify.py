"""A ledger held against its mechanisms' prices and against the releases that name it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import LedgerDamaged, UsageError
from dpcore.ledger import GENESIS, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency, epsilon_of
from dpcore.release.signing import SUMS
from dpcore.runs.steps import synthesize
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.dpcore.ledger.fixtures import opened
from tests.dpcore.ledger.story import measure, price, recorded, reserve, state, tell, write_manifest

pytestmark = pytest.mark.usefixtures("rough_models")


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The story's ledger, which the environment names; return its manifest."""
    url, manifest = f"sqlite:///{tmp_path}/ledger.sqlite", tmp_path / "releases" / "births-2026" / "manifest.json"
    monkeypatch.setenv("DPFLOW_LEDGER_URL", url)
    tell(url, manifest)
    return manifest


def edit(manifest: Path, **changes: Any) -> None:
    content = json.loads(manifest.read_text(encoding="utf-8"))
    content["privacy"] |= changes
    state(manifest, content)


@pytest.mark.parametrize("currency", Currency)
def test_a_real_release_agrees_with_its_ledger(workspace: Workspace, currency: Currency) -> None:
    delta = 0.0 if currency is Currency.PURE else 1e-9
    workspace.write_spec(("delta: 1e-9", f"delta: {delta}"), ("rounds: 4", "rounds: 1"))
    workspace.open_account(delta=delta, currency=currency)
    synthesize(workspace.spec)
    for releases in ([], [workspace.folder], [workspace.folder, workspace.folder / "releases"]):
        found = verify_ledger(releases=releases)
        assert (found.runs, found.manifests) == (1, 1)
    assert found.operations == found.outputs > 1
    assert found.head == verify_ledger(expected_head=found.head).head


def test_a_manifest_that_is_elsewhere_now_is_looked_at_when_it_is_named(books: Path, tmp_path: Path) -> None:
    shutil.move(books.parent, tmp_path / "elsewhere")
    assert (verify_ledger().manifests, verify_ledger().absent) == (0, 1)
    with pytest.raises(LedgerDamaged, match=r"births-2026 of run 'births-1' is missing; restore it"):
        verify_ledger(complete=[books.parents[1]])
    found = verify_ledger(complete=[tmp_path / "elsewhere"])
    assert (found.manifests, found.absent) == (1, 0)


def test_one_that_is_still_being_written_is_left_alone(books: Path) -> None:
    partial = books.parents[1] / ".partial-births-2027"
    (partial / "draft").mkdir(parents=True)
    (partial / "draft" / "manifest.json").write_text("{", encoding="utf-8")
    assert verify_ledger(releases=[books.parents[1]]).manifests == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"run": "births-7"}, "is not of run 'births-1', which recorded it"),
        ({"account": "clinic"}, "names another account than its run"),
        ({"epsilon": 0.05}, "states another epsilon than follows from its runs"),
        ({"epsilon": None}, "states no promise, or one that cannot be compared with the runs that it lists"),
        ({"delta": 1e-9}, "states another delta than follows from its runs"),
        ({"draws": 9}, "states another draws than follows from its runs"),
        ({"sampler_delta": 0.0}, "states another sampler_delta than follows from its runs"),
        ({"made_from": []}, "lists other runs, or other reservations of them, than the ledger has"),
        ({"made_from": [7]}, "lists other runs, or other reservations of them, than the ledger has"),
        ({"neighbours": "replace-one"}, "states other terms than its account has"),
        ({"bookkeeping": None}, "states another reservation than its run has"),
        ({"bookkeeping": {"reserved": 0.001, "spent": 0.001}}, "states another reservation than its run has"),
        ({"ledger_head": "ab" * 32}, r"abababababababab\.\.\., is not in this chain of 59 events"),
        ({"ledger_head": GENESIS}, r"0000000000000000\.\.\., is not in this chain of 59 events"),
        ({"ledger_head": "ab"}, "is unreadable"),
        ({"ledger_head": None}, "is unreadable"),
        ({"run": ["births-1"]}, "is unreadable"),
    ],
    ids=str,
)
def test_a_manifest_that_says_something_else_is_found(books: Path, changes: dict[str, Any], problem: str) -> None:
    edit(books, **changes)
    with pytest.raises(LedgerDamaged, match=problem) as damage:
        verify_ledger()
    assert str(books) in str(damage.value)
    assert damage.value.exit_code == 4


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"privacy": 7}', b'{"privacy": {}}', b"\xff", b"[" * 100_000])
def test_a_manifest_that_does_not_read_is_found(books: Path, content: bytes) -> None:
    books.write_bytes(content)
    with pytest.raises(LedgerDamaged, match=r"the manifest .*births-2026/manifest\.json is unreadable"):
        verify_ledger()


def test_a_manifest_of_an_unknown_run_is_found(books: Path, tmp_path: Path) -> None:
    other = Path(shutil.copy(books, tmp_path / "manifest.json"))
    edit(other, run="births-7")
    with pytest.raises(LedgerDamaged, match=r"is of a run that the ledger does not know"):
        verify_ledger(releases=[other])


def test_a_release_of_another_ledger_is_found(books: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "manifest.json"
    with open_ledger(f"sqlite:///{tmp_path}/other.sqlite", create=True) as ledger:
        opened(ledger, "births", cap=AMOUNT_OF_ONE)
        reserve(ledger, "births-1", "births", steps=5)
        for number in range(4):
            measure(ledger, ledger.lease("births-1"), f"round-{number}", output=b"")
        write_manifest(ledger, "births-1", other)
    assert verify_ledger(releases=[other.parent]).others == 1
    with open_ledger() as ledger:
        edit(other, ledger=ledger.identity())
    with pytest.raises(
        LedgerDamaged, match="or the head is of another ledger; restore the newest backup, or check DPFLOW_"
    ):
        verify_ledger(releases=[other.parent])


def test_an_older_backup_is_found_through_a_release_that_it_does_not_know(books: Path, tmp_path: Path) -> None:
    path, backup = tmp_path / "ledger.sqlite", tmp_path / "backup.sqlite"
    shutil.copyfile(path, backup)
    later = books.parents[1] / "births-2027" / "manifest.json"
    with open_ledger() as ledger:
        lease = ledger.lease("births-2", holder="day-shift")
        measure(ledger, lease, "round-2", output=b"more")
        write_manifest(ledger, "births-2", later)
        ledger.settle("births-2", release="births-2027", lease=lease, **recorded(later))
        head = ledger.head()
    assert verify_ledger(expected_head=head).manifests == 2
    shutil.copyfile(backup, path)
    for told in ({}, {"releases": [books.parents[1]]}, {"expected_head": head}):
        with pytest.raises(LedgerDamaged, match="not in this chain of 59 events: events were dropped since"):
            verify_ledger(**told)
    later.unlink()
    assert verify_ledger().manifests == 1  # nothing in the file itself tells of what came after
    with pytest.raises(LedgerDamaged, match="not in this chain of 59 events: events were dropped since"):
        verify_ledger(expected_head=head)


def test_a_release_of_another_ledger_is_told_from_one_that_was_forgotten(books: Path) -> None:
    other = books.parents[1] / "another" / "manifest.json"
    other.parent.mkdir()
    manifest = json.loads(books.read_text(encoding="utf-8"))
    manifest["privacy"] |= {"ledger": "2" * 64, "ledger_head": "3" * 64}
    other.write_text(json.dumps(manifest), encoding="utf-8")
    found = verify_ledger(releases=[books.parents[1]])
    assert (found.manifests, found.others) == (1, 1)
    with open_ledger() as ledger:
        manifest["privacy"]["ledger"] = ledger.identity()
    other.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(LedgerDamaged, match="is not in this chain"):
        verify_ledger(releases=[books.parents[1]])


@pytest.mark.parametrize("currency", Currency)
def test_a_run_that_is_not_settled_may_have_spent_more_since_but_not_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, currency: Currency
) -> None:
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{tmp_path}/ledger.sqlite")
    manifest = tmp_path / "release" / "manifest.json"
    with open_ledger(create=True) as ledger:
        delta = 0.0 if currency is Currency.PURE else 1e-9
        opened(ledger, currency=currency, delta=delta, cap=AMOUNT_OF_ONE, epsilon=20.0)
        reserve(ledger, "run", "clinic", steps=3)
        reserved = ledger.run("run").reserved / AMOUNT_OF_ONE
        lease = ledger.lease("run")
        measure(ledger, lease, "round-1", output=b"")
        measure(ledger, lease, "round-2", output=b"")
        write_manifest(ledger, "run", manifest)

    def books(steps: int) -> dict[str, float]:
        return {"reserved": reserved, "spent": steps * price(currency) / AMOUNT_OF_ONE}

    for steps in (1, 2):
        edit(manifest, bookkeeping=books(steps))
        assert verify_ledger(releases=[manifest]).manifests == 1
    for wrong, problem in (
        ({"bookkeeping": books(3)}, "states another amount than its run has spent"),
        # The control: what manifests must not state.
        ({"epsilon": epsilon_of(2 * price(currency), currency=currency, delta=delta)}, "states another epsilon"),
    ):
        before = manifest.read_bytes(), manifest.with_name(SUMS).read_bytes()
        edit(manifest, **wrong)
        with pytest.raises(LedgerDamaged, match=problem):
            verify_ledger(releases=[manifest])
        manifest.write_bytes(before[0])
        manifest.with_name(SUMS).write_bytes(before[1])
    edit(manifest, bookkeeping=books(1))
    with open_ledger() as ledger:
        ledger.settle("run", release="release", lease=lease, **recorded(manifest))
    with pytest.raises(LedgerDamaged, match="states another amount than its run has spent"):
        verify_ledger()


@pytest.mark.parametrize("head", ["", "ab", "g" * 64, "AB" * 32])
def test_a_head_that_is_none_is_refused(books: Path, head: str) -> None:
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        verify_ledger(expected_head=head)


def test_a_folder_that_is_not_there_is_refused(books: Path) -> None:
    with pytest.raises(UsageError, match="there is nothing at nowhere"):
        verify_ledger(releases=[Path("nowhere")])
