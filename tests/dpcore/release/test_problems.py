"""Problems of a release: whatever is changed in it, in any file and at any byte, is named by everybody who checks it; an unchanged one passes."""

import json
import shutil
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpcore.errors import LedgerDamaged, OutputError
from dpcore.ledger import open_ledger
from dpcore.release import published_before
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.release.problems import listed_files, problems, verify_release
from dpcore.release.signing import KEY_VARIABLE, SIGNATURE, SUMS, encode_sums, read_public_key
from dpcore.release.statement import StatedPart, currency_of, misstated, promised
from dpcore.steward.verify import verify_ledger
from tests.dpcore.answers.releases import restate
from tests.dpcore.cli.ledgers import dpflow
from tests.dpcore.release.conftest import Said, Site

pytestmark = pytest.mark.usefixtures("rough_models")

MANIFEST, ROWS, CARD = "manifest.json", "data/part-00000.parquet", "card.html"


@pytest.fixture
def signed(site: Site) -> Path:
    return site.release("second")


@pytest.fixture
def unsigned(site: Site) -> Path:
    return site.release("first")


def public(name: str = "steward") -> str:
    return read_public_key(Path(f"{name}.pub"))


def named(release: Path, key: str | None = None) -> set[str]:
    return {problem.file for problem in verify_release(release, key=key).problems}


def files(release: Path) -> list[str]:
    return sorted(path.relative_to(release).as_posix() for path in release.rglob("*") if path.is_file())


def found(release: Path) -> str:
    """Return what `verify` says of a damaged release; it names the release and a file of it."""
    with pytest.raises(LedgerDamaged, match=f"the (release|manifest) {release}") as damage:
        verify_ledger()
    assert damage.value.exit_code == 4
    return str(damage.value)


def written(release: Path, name: str) -> None:
    (release / name).parent.mkdir(exist_ok=True)
    (release / name).write_bytes(b"")


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "has "),
    "turned round": (lambda path: path.write_bytes(path.read_bytes()[::-1]), "is not what was published"),
    "deleted": (Path.unlink, "is missing"),
    "a link": (
        lambda path: (path.rename("aside"), path.symlink_to(Path("aside").absolute())),
        "is no longer a regular file",
    ),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "is no longer a regular file"),
}
OF_SUMS = {"deleted": "is missing"}
OF_MANIFEST = OF_SUMS | dict.fromkeys(("cut off", "turned round"), f"is not what {SUMS} lists")
OF_SIGNATURE = OF_SUMS | dict.fromkeys(("cut off", "turned round"), "is not a signature with")
OTHERS = {MANIFEST: OF_MANIFEST, SUMS: OF_SUMS, SIGNATURE: OF_SIGNATURE}
"""The manifest, the list of hashes and the signature cannot be compared with a size. Something else in their place is not what was published."""
ADDED = "is not listed in its manifest"


def expected_of(name: str, change: str) -> str:
    if name in OTHERS:
        return OTHERS[name].get(change, "is not a signature" if name == SIGNATURE else "is not what was published")
    return CHANGES[change][1]


DAMAGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    **{
        f"{name} {change}": (
            lambda at, name=name, do=do: do(at / name),
            {f"{name} {expected_of(name, change)}"} | ({f"{name}/ {ADDED}"} if change == "a folder" else set()),
        )
        for name in (CARD, ROWS, MANIFEST, SUMS, SIGNATURE)
        for change, (do, _) in CHANGES.items()
    },
    **{
        f"{name} added": (lambda at, name=name: written(at, name), {f"{name} {ADDED}"})
        for name in (".hidden", "data/part-00001.parquet", "manifest.json.old")
    },
    "a file in a new folder": (lambda at: written(at, "new/file"), {f"new/ {ADDED}", f"new/file {ADDED}"}),
    "an empty folder": (lambda at: (at / "empty").mkdir(), {f"empty/ {ADDED}"}),
    "a link to a folder": (lambda at: (at / "data" / "all").symlink_to(at), {f"data/all {ADDED}"}),
    "renamed": (
        lambda at: (at / CARD).rename(at / "card.old"),
        {f"{CARD} is missing", f"card.old {ADDED}"},
    ),
    "both lists": (
        lambda at: [(at / name).write_bytes(b"\xff\x00") for name in (MANIFEST, SUMS)],
        {f"{MANIFEST} is not what dpflow writes", f"{SUMS} is not what was published"},
    ),
    "lists that contradict each other": (
        lambda at: (at / SUMS).write_bytes(encode_sums({MANIFEST: sha256((at / MANIFEST).read_bytes()).hexdigest()})),
        {f"{SUMS} does not list the files of {MANIFEST}", f"{SIGNATURE} is not a signature with"},
    ),
    **{
        f"a list that leads to {path}": (
            lambda at, path=path: (at / SUMS).write_bytes(encode_sums({path: "ab" * 32})),
            {f"{SUMS} is not what was published"},
        )
        for path in ("data/../../steward.key", "/etc/hosts")
    },
}
"""What is done to a release, and each problem that it then has."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_by_everybody_who_checks_a_release(signed: Path, damage: str) -> None:
    change, expected = DAMAGES[damage]
    change(signed)
    said = [problem.sentence for problem in problems(signed)]
    assert len(said) == len(expected), said
    assert all(any(sentence.startswith(start) for sentence in said) for start in expected), said
    assert named(signed) == {problem.file for problem in problems(signed)}
    assert any(problem.file in found(signed) for problem in problems(signed))
    with open_ledger() as ledger, pytest.raises(OutputError, match="is not the release of run second: "):
        published_before(signed, recorded=ledger.manifests_of("second"), run="second")


def test_a_release_as_published_passes_and_all_its_files_are_compared(signed: Path, unsigned: Path, said: Said) -> None:
    for release in (signed, unsigned):
        found = verify_release(release)
        assert found.problems == ()
        assert found.files == len(files(release)) - (release == signed)  # a signature is not compared but verified
        assert found.manifest["release"] == release.name
        assert found.signed_by == (public() if release == signed else None)
    verified = verify_ledger()
    assert (verified.manifests, verified.files, verified.absent) == (2, len(files(signed)) + len(files(unsigned)), 0)
    assert "each file of these releases is as published" in said("ledger", "verify")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # what is changed is changed back
@given(data=st.data())
def test_whichever_byte_of_whichever_file_changes_that_file_and_no_other_is_named(
    signed: Path, unsigned: Path, data: st.DataObject
) -> None:
    release = data.draw(st.sampled_from([signed, unsigned]))
    file = release / data.draw(st.sampled_from(files(release)))
    written = file.read_bytes()
    at, other = data.draw(st.integers(0, len(written) - 1)), data.draw(st.integers(1, 255))
    key = data.draw(st.sampled_from([None, public()])) if release == signed else None
    changed = bytearray(written)
    changed[at] ^= other
    try:
        file.write_bytes(changed)
        assert named(release, key) == {file.relative_to(release).as_posix()}
    finally:
        file.write_bytes(written)


def test_a_manifest_that_was_made_to_fit_is_found(unsigned: Path) -> None:
    """Whoever changes a file and all lists of it has changed the manifest, whose hash is in the chain."""
    card = unsigned / CARD
    card.write_bytes(card.read_bytes()[::-1])
    told = json.loads((unsigned / MANIFEST).read_bytes())
    for file in told["files"]:
        file["sha256"] = sha256((unsigned / file["path"]).read_bytes()).hexdigest()
    restate(unsigned, told)
    assert named(unsigned) == set()
    assert "manifest.json is not what run" in found(unsigned)


@pytest.mark.parametrize("name", ["../ledger.sqlite", "/etc/hostname", ""])
def test_a_manifest_lists_files_of_its_release_only(tmp_path: Path, name: object) -> None:
    listed = {"files": [{"path": name, "bytes": 1, "sha256": "0" * 64}]}
    restate(tmp_path, listed)
    assert next(problems(tmp_path)).file in {"manifest.json", "SHA256SUMS"}
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says
        listed_files(listed)


def test_a_release_that_is_elsewhere_is_not_damaged(signed: Path, tmp_path: Path, said: Said) -> None:
    elsewhere = tmp_path / "elsewhere" / signed.name
    elsewhere.parent.mkdir()
    shutil.move(signed, elsewhere)
    assert "1   release was not found; name its folder with --releases" in said("ledger", "verify")
    assert "is missing; restore it from a backup" in said("ledger", "verify", "--releases", signed.parent, code=4)
    assert dpflow("ledger", "verify", "--releases", elsewhere.parent) == 0
    (elsewhere / CARD).write_bytes(b"")
    assert "card.html has 0 bytes" in said("ledger", "verify", "--releases", elsewhere.parent, code=4)


def test_a_release_whose_run_was_not_settled_is_compared_with_its_own_manifest(interrupted: Site) -> None:
    release = interrupted.releases / interrupted.newest
    assert verify_ledger().manifests == 2
    (release / CARD).write_bytes(b"")
    assert "card.html has 0 bytes" in found(release)
    with open_ledger() as ledger:
        assert ledger.run("second").state == "open"


def test_a_release_that_was_made_again_is_on_record(site: Site, unsigned: Path) -> None:
    before = (unsigned / MANIFEST).read_bytes()
    shutil.rmtree(unsigned)
    assert verify_ledger().absent == 1
    for _ in range(2):  # the second finds what the first has made
        assert site.make("first", resume=True) == unsigned
        assert (unsigned / MANIFEST).read_bytes() != before  # it names another head
        assert (verify_ledger().manifests, verify_ledger().absent) == (2, 0)
    assert [event.kind for event in site.events].count("republished") == 1
    (unsigned / MANIFEST).write_bytes(before)
    assert "manifest.json is not what SHA256SUMS lists" in found(unsigned)


def test_a_release_of_another_key_and_one_without_a_signature_are_refused(
    signed: Path, unsigned: Path, tmp_path: Path, said: Said
) -> None:
    assert named(signed, public("stranger")) == {SIGNATURE}
    assert named(unsigned, public()) == {SIGNATURE}
    forged = Path(shutil.copytree(signed, tmp_path / "forged"))
    with (forged / ROWS).open("rb") as rows:
        other = pq.read_table(rows).slice(0, 5)
    pq.write_table(other, forged / ROWS)
    told = json.loads((forged / MANIFEST).read_text(encoding="utf-8"))
    written = (forged / ROWS).read_bytes()
    told["files"][0] |= {"bytes": len(written), "sha256": sha256(written).hexdigest()}
    restate(forged, told)
    assert named(forged) == named(forged, public()) == {SIGNATURE}  # all else fits together
    assert "not with the given key" in said("verify-release", signed, "--key", "stranger.pub", code=1)
    assert "published without a signature" in said("verify-release", unsigned, "--key", "steward.pub", code=1)


def test_a_promise_that_was_lowered_consistently_contradicts_the_tables(unsigned: Path) -> None:
    manifest = json.loads((unsigned / MANIFEST).read_bytes())
    privacy = manifest["privacy"]
    for part in privacy["made_from"]:
        part["amount"] //= 4
    made_from = tuple(map(StatedPart.read, privacy["made_from"]))
    follows = promised(
        made_from, currency=currency_of(privacy["accounting"]), unit=privacy["unit"], neighbours=privacy["neighbours"]
    )
    restate(unsigned, manifest | {"privacy": privacy | follows})
    assert misstated(privacy | follows) is None
    assert named(unsigned) == {name for name in files(unsigned) if name.endswith(".parquet")}


def test_the_verb_says_what_was_compared_and_who_signed(
    signed: Path, unsigned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dpflow("verify-release", signed, "--key", "steward.pub") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("files are as published")
    assert said[1] == f"signed with the given key {public()}"
    assert "differentially private" in said[2]
    assert dpflow("verify-release", signed.parent) == 0  # of a dataset, the newest release
    assert "compare it with the publisher's by --key" in capsys.readouterr().out
    assert dpflow("verify-release", unsigned) == 0
    assert "not signed" in capsys.readouterr().out
    assert dpflow("verify-release", signed, "--json", "--key", "steward.pub") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["as_published"], told["key_checked"], told["problems"]) == (True, True, [])
    (signed / ROWS).write_bytes(b"other rows")
    assert dpflow("verify-release", signed.parent) == 1


def test_a_note_within_a_release_does_not_lead_away_from_its_altered_files(unsigned: Path) -> None:
    shutil.copytree(unsigned, unsigned / "genuine")
    (unsigned / "latest.json").write_bytes(encoded_pointer("genuine"))
    (unsigned / ROWS).write_bytes(b"other rows")
    assert dpflow("verify-release", unsigned) != 0
    (unsigned / MANIFEST).unlink()
    assert dpflow("verify-release", unsigned) != 0


def test_other_programs_verify_hashes_and_signature_too(site: Site, signed: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "--quiet", SUMS]
    assert subprocess.run(check, cwd=signed, check=False, capture_output=True).stdout == b""
    key = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(site.folder / "steward.pub"), "-rawin"]
    command = [*key, "-in", SUMS, "-sigfile", SIGNATURE]
    assert subprocess.run(command, cwd=signed, check=False, capture_output=True).returncode == 0


def test_a_key_that_cannot_sign_is_refused_before_anything_is_paid(paid: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "none.key")
    with pytest.raises(OutputError, match=r"none\.key cannot be read .*dpflow keys new"):
        paid.make("run")
    with open_ledger() as ledger:
        assert list(ledger.runs("visits")) == []
