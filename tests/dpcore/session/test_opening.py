"""What a session begins with: the release that the ledger recorded, and nothing that was put in its place."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpcore import Session
from dpcore.errors import UsageError
from dpcore.ledger import open_ledger
from dpcore.release.withdrawal import withdraw
from dpcore.session.opening import newest_release
from dpcore.spec import load_spec


def first_folder() -> Path:
    with open_ledger() as ledger:
        return Path("releases/visits", str(ledger.run("s-first").release))


def plant(release: Path) -> None:
    """Put a changed copy into a release, and a note that points to it."""
    copy = release / "x"
    shutil.copytree(release, copy)
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    manifest["privacy"]["run"] = "s"
    (copy / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (release / "latest.json").write_text(json.dumps({"release": "x"}), encoding="utf-8")


def test_a_note_in_the_first_release_leads_to_no_other_release(copied: Callable[[], Path]) -> None:
    copied()
    plant(first_folder())
    with Session.join("spec.yaml") as session:
        assert session.knowledge.first.folder.name == first_folder().name
        assert session.knowledge.first.manifest["privacy"]["run"] == "s-first"
    with Session.open("spec.yaml", epsilon=0.5, session="second") as second:
        assert second.knowledge.first.manifest["privacy"]["run"] == "s-first"


def test_a_release_of_another_run_is_not_what_a_session_began_with(session: Session) -> None:
    session.knowledge.first.manifest["privacy"]["run"] = "s"  # type: ignore[index]
    with pytest.raises(UsageError, match="is not the release that session s began with"):
        session.release()
    with open_ledger() as ledger:
        assert {run.id for run in ledger.runs("visits")} == {"s", "s-first"}


@pytest.mark.parametrize("problem", ["withdrawn", "manifest", "measurements.parquet", "uncertainty.parquet", "gone"])
def test_a_release_that_cannot_be_used_is_no_beginning(copied: Callable[[], Path], problem: str) -> None:
    copied()
    release, declaration = first_folder(), load_spec("spec.yaml")
    with open_ledger() as ledger:

        def found() -> str | None:
            return newest_release(ledger, declaration, account=ledger.account("visits"), table=None)

        assert found() == "s-first"
        match problem:
            case "withdrawn":
                withdraw(ledger, "s-first", release, reason="wrong codes")
                (release / "withdrawn.json").unlink()  # the ledger still knows
            case "manifest":
                manifest = release / "manifest.json"
                manifest.write_bytes(manifest.read_bytes() + b"\n")
            case "gone":
                shutil.rmtree(release)
            case file:
                (release / file).write_bytes(b"damaged")
        assert found() is None
