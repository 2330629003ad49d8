"""Whatever is changed in a release, in any file and at any byte, is found and named by `verify`; an unchanged one passes."""

import random
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from dpcore.errors import LedgerDamaged
from dpcore.ledger import open_ledger
from dpcore.release import problems as module
from dpcore.release.problems import listed_files, problems
from dpcore.runs.steps import synthesize
from dpcore.runs.synthesis import Synthesis
from dpcore.spec import load_spec
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace, visits
from tests.dpcore.answers.releases import restate
from tests.dpcore.cli.ledgers import dpflow

pytestmark = pytest.mark.usefixtures("rough_models")

FLIPS = 240


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with a ledger, and a small release of a real run, which is on record there."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE"):
            patch.delenv(name, raising=False)
        visits(500, seed=1).to_csv("visits.csv", index=False)
        space = Workspace(folder, folder / "spec.yaml")
        space.write_spec()
        space.open_account()
        return folder, Path(synthesize(space.spec).release).resolve()


@pytest.fixture
def release(published: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same release for each test, put back after it."""
    folder, release = published
    monkeypatch.chdir(folder)
    for name in ("DPFLOW_LEDGER_URL", "DPFLOW_PRIVATE"):
        monkeypatch.delenv(name, raising=False)
    kept = shutil.copytree(release, tmp_path / "kept")
    yield release
    shutil.rmtree(release, ignore_errors=True)
    shutil.copytree(kept, release)


def files_of(release: Path) -> list[Path]:
    return sorted(path for path in release.rglob("*") if path.is_file())


def found(release: Path) -> str:
    """Return what `verify` says of a damaged release; it names the release and a file of it."""
    with pytest.raises(LedgerDamaged, match=f"the (release|manifest) {release}") as damage:
        verify_ledger()
    assert damage.value.exit_code == 4
    return str(damage.value)


def positions(files: list[Path]) -> Iterator[tuple[Path, int]]:
    """Go through the first and last byte of each file, and some between."""
    chosen = random.Random(14)  # noqa: S311  which bytes a test flips is no secret
    for path in files:
        size = path.stat().st_size
        places = {0, 1, size // 2, size - 1} | {chosen.randrange(size) for _ in range(FLIPS // len(files))}
        yield from ((path, place) for place in sorted(places))


def test_an_unchanged_release_passes(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verified = verify_ledger()
    assert (verified.manifests, verified.files, verified.absent) == (1, len(files_of(release)), 0)
    assert dpflow("ledger", "verify") == 0
    assert "each file of these releases is as published" in capsys.readouterr().out


def test_every_flipped_byte_of_every_file_is_found_and_named(release: Path) -> None:
    files = files_of(release)
    assert [path.relative_to(release).as_posix() for path in files] == [
        *("SHA256SUMS", "card.html", "croissant.json", "data/part-00000.parquet", "datapackage.json", "errors.parquet"),
        *("manifest.json", "measurements.parquet", "uncertainty.parquet"),
    ]
    flipped = 0
    for path, place in positions(files):
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        assert path.relative_to(release).as_posix() in found(release)
        path.write_bytes(whole)
        flipped += 1
    assert flipped >= 200
    verify_ledger()


def aside(path: Path) -> Path:
    return Path.cwd() / f"aside-{path.name}"


CHANGES: dict[str, Callable[[Path], None]] = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "emptied": lambda path: path.write_bytes(b""),
    "made longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "deleted": lambda path: path.unlink(),
    "renamed": lambda path: path.rename(path.with_name(f"{path.name}.old")),  # type: ignore[arg-type, return-value]
    "replaced by a link": lambda path: (path.rename(aside(path)), path.symlink_to(aside(path)))[1],
    "replaced by a folder": lambda path: (path.unlink(), path.mkdir())[1],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["card.html", "data/part-00000.parquet", "manifest.json", "measurements.parquet"])
def test_a_file_is_found_that_was(release: Path, name: str, change: str) -> None:
    CHANGES[change](release / name)
    assert name in found(release)


@pytest.mark.parametrize(
    "name", ["more", ".hidden", "data/part-00001.parquet", "data/.x", "new/file", "manifest.json.old"]
)
def test_a_file_that_was_added_is_found(release: Path, name: str) -> None:
    path = release / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    told = name.partition("/")[0] + "/" if name.startswith("new/") else name
    assert f"{told} is not listed in its manifest" in found(release)


def test_an_empty_folder_and_a_link_that_were_added_are_found(release: Path) -> None:
    (release / "empty").mkdir()
    assert "empty/ is not listed" in found(release)
    (release / "empty").rmdir()
    (release / "data" / "all").symlink_to(release)
    assert "data/all is not listed" in found(release)


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
    assert verify_ledger().absent == 1
    assert dpflow("ledger", "verify") == 0
    assert "1   release was not found; name its folder with --releases" in capsys.readouterr().out
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
    assert verify_ledger(releases=[release]).files == len(files_of(release))
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
