"""Problems of a release: whatever is changed in it, in any file and at any byte, is named by everybody who checks it; an unchanged one passes."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore import synthesize
from dpcore.errors import LedgerDamaged, OutputError, UsageError
from dpcore.ledger import open_ledger
from dpcore.release import problems as module
from dpcore.release import published_before
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.release.problems import listed_files, problems, verify_release
from dpcore.release.signing import KEY_VARIABLE, SIGNATURE, new_key, read_public_key
from dpcore.release.statement import StatedPart, currency_of, misstated, promised
from dpcore.release.sums import SUMS, encode_sums
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits
from tests.dpcore.answers.releases import restate
from tests.dpcore.cli.ledgers import dpflow

pytestmark = pytest.mark.usefixtures("rough_models")

MANIFEST, ROWS, CARD = "manifest.json", "data/part-00000.parquet", "card.html"
FLIPS = 240


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger, two pairs of keys, an unsigned release, and a signed one of the same spec with a copy of it."""
    folder = tmp_path_factory.mktemp("signed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE"):
            patch.delenv(name, raising=False)
        visits(300, seed=1).to_csv("visits.csv", index=False)
        space = Workspace(folder, folder / "spec.yaml")
        space.write_spec(("rounds: 4", "rounds: 1"))
        space.open_account(epsilon=20)
        Path(synthesize(space.spec, run_id="plain").release).rename("unsigned")
        new_key(Path("steward"))
        new_key(Path("stranger"))
        patch.setenv(KEY_VARIABLE, "steward.key")
        shutil.copytree(synthesize(space.spec, run_id="signed").release, "signed")
        return folder


@pytest.fixture
def copy(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    monkeypatch.chdir(place)
    return lambda name: shutil.copytree(place / name, tmp_path / name)


@pytest.fixture
def release(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The signed release in its place, put back after the test."""
    monkeypatch.chdir(place)
    for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE"):
        monkeypatch.delenv(name, raising=False)
    with open_ledger() as ledger:
        release = place / "releases" / "visits" / str(ledger.run("signed").release)
    yield release
    shutil.rmtree(release, ignore_errors=True)
    shutil.copytree(place / "signed", release)


def public(place: Path, name: str = "steward") -> str:
    return read_public_key(place / f"{name}.pub")


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
    "emptied": (lambda path: path.write_bytes(b""), "has 0 bytes, but was published with "),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"\n"), "has "),
    "turned round": (lambda path: path.write_bytes(path.read_bytes()[::-1]), "is not what was published"),
    "deleted": (Path.unlink, "is missing"),
    "a link": (
        lambda path: (path.rename("aside"), path.symlink_to(Path("aside").absolute())),
        "is no longer a regular file",
    ),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "is no longer a regular file"),
}
OF_SUMS = {"deleted": "is missing"}
OF_MANIFEST = OF_SUMS | dict.fromkeys(("cut off", "emptied", "longer", "turned round"), f"is not what {SUMS} lists")
OF_SIGNATURE = OF_SUMS | {
    "cut off": "is not a signature with",
    "emptied": "is not a signature with",
    "turned round": "is not a signature with",
}
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
        for name in (CARD, ROWS, "measurements.parquet", MANIFEST, SUMS, SIGNATURE)
        for change, (do, _) in CHANGES.items()
    },
    **{
        f"{name} added": (lambda at, name=name: written(at, name), {f"{name} {ADDED}"})
        for name in ("more", ".hidden", "data/part-00001.parquet", "data/.x", "manifest.json.old")
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
        for path in ("../steward.key", "data/../../steward.key", "/etc/hosts")
    },
}
"""What is done to a release, and each problem that it then has."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_by_everybody_who_checks_a_release(release: Path, damage: str) -> None:
    change, expected = DAMAGES[damage]
    change(release)
    said = [problem.sentence for problem in problems(release)]
    assert len(said) == len(expected), said
    assert all(any(sentence.startswith(start) for sentence in said) for start in expected), said
    assert named(release) == {problem.file for problem in problems(release)}
    assert any(problem.file in found(release) for problem in problems(release))
    with open_ledger() as ledger, pytest.raises(OutputError, match="is not the release of run signed: "):
        published_before(release, recorded=ledger.manifests_of("signed"), run="signed")
    Path("aside").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_a_release_as_published_passes_and_all_its_files_are_compared(place: Path, kind: str) -> None:
    found = verify_release(place / kind)
    assert found.problems == ()
    assert found.files == len(files(place / kind)) - (kind == "signed")  # a signature is not compared but verified
    assert found.manifest["release"]
    assert found.signed_by == (public(place) if kind == "signed" else None)


def test_an_unchanged_release_passes(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verified = verify_ledger()
    assert (verified.manifests, verified.files, verified.absent) == (
        1,
        len(files(release)),
        1,
    )  # the unsigned one was moved away
    assert dpflow("ledger", "verify") == 0
    assert "each file of these releases is as published" in capsys.readouterr().out


def positions(files: list[Path]) -> Iterator[tuple[Path, int]]:
    """Go through the first and last byte of each file, and some between."""
    chosen = random.Random(14)  # noqa: S311  which bytes a test flips is no secret
    for path in files:
        size = path.stat().st_size
        places = {0, 1, size // 2, size - 1} | {chosen.randrange(size) for _ in range(FLIPS // len(files))}
        yield from ((path, place) for place in sorted(places))


def test_every_flipped_byte_of_every_file_is_found_and_named(release: Path) -> None:
    flipped = 0
    for path, place in positions([release / name for name in files(release)]):
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert path.relative_to(release).as_posix() in found(release)
        path.write_bytes(whole)
        flipped += 1
    assert flipped >= 200
    verify_ledger()


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whichever_byte_of_whichever_file_changes_that_file_and_no_other_is_named(
    place: Path, data: st.DataObject
) -> None:
    release = place / data.draw(st.sampled_from(["signed", "unsigned"]))
    file = release / data.draw(st.sampled_from(files(release)))
    written = file.read_bytes()
    at, other = data.draw(st.integers(0, len(written) - 1)), data.draw(st.integers(1, 255))
    key = data.draw(st.sampled_from([None, public(place)])) if release.name == "signed" else None
    changed = bytearray(written)
    changed[at] ^= other
    try:
        file.write_bytes(changed)
        assert named(release, key) == {file.relative_to(release).as_posix()}
    finally:
        file.write_bytes(written)


def test_a_manifest_that_was_made_to_fit_is_found(release: Path) -> None:
    """Whoever changes a file and lists its new checksum has changed the manifest, whose hash is in the chain."""
    card, manifest = release / "card.html", release / "manifest.json"
    before = sha256(card.read_bytes()).hexdigest()
    card.write_bytes(card.read_bytes()[::-1])
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace(before, sha256(card.read_bytes()).hexdigest()), encoding="utf-8")
    assert "manifest.json is not what run" in found(release)


@pytest.mark.parametrize("name", ["../ledger.sqlite", "/etc/hostname", "", "manifest.json"])
def test_a_manifest_lists_files_of_its_release_only(tmp_path: Path, name: object) -> None:
    listed = {"files": [{"path": name, "bytes": 1, "sha256": "0" * 64}]}
    restate(tmp_path, listed)
    assert next(problems(tmp_path)).file in {"manifest.json", "SHA256SUMS"}
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says
        listed_files(listed)


def test_a_release_that_is_elsewhere_is_not_damaged(
    release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere" / release.name
    elsewhere.parent.mkdir()
    shutil.move(release, elsewhere)
    assert verify_ledger().absent == 2
    assert dpflow("ledger", "verify") == 0
    assert "2   releases were not found; name their folder with --releases" in capsys.readouterr().out
    assert dpflow("ledger", "verify", "--releases", release.parent) == 4
    assert "is missing; restore it from a backup" in capsys.readouterr().err
    assert dpflow("ledger", "verify", "--releases", elsewhere.parent) == 0
    (elsewhere / "card.html").write_bytes(b"")
    capsys.readouterr()
    assert dpflow("ledger", "verify", "--releases", elsewhere.parent) == 4
    assert "card.html has 0 bytes" in capsys.readouterr().err


def test_a_release_whose_run_was_not_settled_is_compared_with_its_own_manifest(workspace: Workspace) -> None:
    workspace.open_account()
    run = Synthesis(load_spec(workspace.spec), run_id="run", resume=False)
    run.reserve()
    run.ingest()
    run.histogram()
    run.begin()
    run.sample()
    release = run.publish()
    run.close()
    assert verify_ledger(releases=[release]).files == len(files(release))
    (release / "card.html").write_bytes(b"")
    with pytest.raises(LedgerDamaged, match=r"card\.html has 0 bytes"):
        verify_ledger(releases=[release])
    with open_ledger() as ledger:
        assert ledger.run("run").state == "open"


def test_a_release_that_was_made_again_is_on_record(workspace: Workspace) -> None:
    workspace.open_account()
    release = Path(synthesize(workspace.spec, run_id="run").release)
    before = (release / "manifest.json").read_bytes()
    shutil.rmtree(release)
    assert verify_ledger().absent == 1
    for _ in range(2):  # the second finds what the first has made
        assert Path(synthesize(workspace.spec, run_id="run", resume=True).release) == release
        assert (release / "manifest.json").read_bytes() != before  # it names another head
        assert (verify_ledger().manifests, verify_ledger().absent) == (1, 0)
    with open_ledger() as ledger:
        *_, settled, republished = ledger.history("visits")
        assert (settled.kind, republished.kind) == ("settled", "republished")
    (release / "manifest.json").write_bytes(before)
    assert "manifest.json is not what SHA256SUMS lists" in found(release.resolve())


def test_sizes_alone_would_not_do(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = release / "card.html"
    path.write_bytes(path.read_bytes()[::-1])
    found(release)
    monkeypatch.setattr(module, "_change", lambda path, expected: None if path.stat().st_size == expected.size else "x")
    verify_ledger()


def test_a_release_of_another_key_and_one_without_a_signature_are_refused(
    place: Path, copy: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert named(place / "signed", public(place, "stranger")) == {SIGNATURE}
    assert named(place / "unsigned", public(place)) == {SIGNATURE}
    forged = copy("signed")
    with (forged / ROWS).open("rb") as rows:
        other = pq.read_table(rows).slice(0, 5)
    pq.write_table(other, forged / ROWS)
    told = json.loads((forged / MANIFEST).read_text(encoding="utf-8"))
    written = (forged / ROWS).read_bytes()
    told["files"][0] |= {"bytes": len(written), "sha256": sha256(written).hexdigest()}
    (forged / MANIFEST).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    digest = sha256((forged / MANIFEST).read_bytes()).hexdigest()
    hashes = {MANIFEST: digest} | {each["path"]: each["sha256"] for each in told["files"]}
    (forged / SUMS).write_bytes(encode_sums(hashes))
    assert named(forged) == named(forged, public(place)) == {SIGNATURE}  # all else fits together
    assert dpflow("verify-release", place / "signed", "--key", place / "stranger.pub") == 1
    assert "not with the given key" in capsys.readouterr().out
    assert dpflow("verify-release", place / "unsigned", "--key", place / "steward.pub") == 1
    assert "published without a signature" in capsys.readouterr().out


def test_a_promise_that_was_lowered_consistently_contradicts_the_tables(copy: Callable[[str], Path]) -> None:
    release = copy("unsigned")
    manifest = json.loads((release / MANIFEST).read_text(encoding="utf-8"))
    privacy = manifest["privacy"]
    for part in privacy["made_from"]:
        part["amount"] //= 4
    made_from = tuple(map(StatedPart.read, privacy["made_from"]))
    follows = promised(
        made_from, currency=currency_of(privacy["accounting"]), unit=privacy["unit"], neighbours=privacy["neighbours"]
    )
    restate(release, manifest | {"privacy": privacy | follows})
    assert misstated(privacy | follows) is None
    assert named(release) == {name for name in files(release) if name.endswith(".parquet")}


def test_the_verb_says_what_was_compared_and_who_signed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dpflow("verify-release", place / "signed", "--key", place / "steward.pub") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("files are as published")
    assert said[1] == f"signed with the given key {public(place)}"
    assert "differentially private" in said[2]
    assert dpflow("verify-release", place / "signed") == 0
    assert "compare it with the publisher's by --key" in capsys.readouterr().out
    assert dpflow("verify-release", place / "unsigned") == 0
    assert "not signed" in capsys.readouterr().out
    assert dpflow("verify-release", place / "signed", "--json", "--key", place / "steward.pub") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["as_published"], told["key_checked"], told["problems"]) == (True, True, [])


def test_the_folder_of_a_dataset_stands_for_its_newest_release(
    copy: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release = copy("unsigned")
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    release.rename(dataset / "newest")
    (dataset / "latest.json").write_bytes(encoded_pointer("newest"))
    assert dpflow("verify-release", dataset) == 0
    assert "files are as published" in capsys.readouterr().out
    (dataset / "newest" / ROWS).write_bytes(b"other rows")
    assert dpflow("verify-release", dataset) != 0


def test_a_note_within_a_release_does_not_lead_away_from_its_altered_files(copy: Callable[[str], Path]) -> None:
    release = copy("unsigned")
    shutil.copytree(release, release / "genuine")
    (release / "latest.json").write_text(json.dumps({"release": "genuine"}), encoding="utf-8")
    (release / ROWS).write_bytes(b"other rows")
    assert dpflow("verify-release", release) != 0
    (release / "manifest.json").unlink()
    assert dpflow("verify-release", release) != 0


def test_other_programs_verify_hashes_and_signature_too(place: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "--quiet", SUMS]
    assert subprocess.run(check, cwd=place / "signed", check=False, capture_output=True).stdout == b""
    key = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(place / "steward.pub"), "-rawin"]
    command = [*key, "-in", SUMS, "-sigfile", SIGNATURE]
    assert subprocess.run(command, cwd=place / "signed", check=False, capture_output=True).returncode == 0


def test_a_key_that_cannot_sign_is_refused_before_anything_is_paid(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write_spec(("rounds: 4", "rounds: 1"))
    workspace.open_account()
    monkeypatch.setenv(KEY_VARIABLE, "none.key")
    with pytest.raises(OutputError, match=r"none\.key cannot be read .*dpflow keys new"):
        synthesize(workspace.spec)
    with open_ledger() as ledger:
        assert list(ledger.runs("visits")) == []


def test_a_withdrawn_release_gives_its_reason(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This withdraws the release in the folder of the dataset, so it stays the last test of this release."""
    monkeypatch.chdir(place)
    release = next(path for path in (place / "releases" / "visits").iterdir() if path.is_dir())
    assert dpflow("withdraw", release, "--reason", "a wrong column") == 0
    with pytest.raises(UsageError, match=r"was withdrawn on .*: a wrong column"):
        verify_release(release)
