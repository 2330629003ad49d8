"""Damage at the place where a release was published is named whatever copies exist, and so is a release that no run published."""

import errno
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger import Ledger, RunState, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.release import dataset_folder, folder_problems, integrity, ownership, problems
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.release.integrity import NotRegularFileError, open_regular
from dpcore.steward import verify as module
from dpcore.steward.verify import verify_ledger
from tests.dpcore.ledger.fixtures import opened
from tests.dpcore.ledger.story import measure, recorded, reserve, state, write_manifest

PART = "data/part-00000.parquet"


def write_release(ledger: Ledger, run: str, folder: Path, *, rows: bytes) -> Path:
    """Write a small release with one file of rows, and return its manifest."""
    manifest, part = folder / "manifest.json", folder / PART
    part.parent.mkdir(parents=True)
    part.write_bytes(rows)
    write_manifest(ledger, run, manifest)
    listed = [{"path": PART, "bytes": len(rows), "sha256": sha256(rows).hexdigest()}]
    edit(manifest, lambda content: {**content, "files": listed})
    return manifest


def edit(manifest: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    state(manifest, change(json.loads(manifest.read_text(encoding="utf-8"))))


@dataclass(frozen=True)
class Published:
    """Two releases on record, side by side."""

    release: Path
    other: Path


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{tmp_path}/ledger.sqlite")
    folder = tmp_path / "releases" / "clinic"
    with open_ledger(create=True) as ledger:
        opened(ledger, cap=AMOUNT_OF_ONE, epsilon=20.0)
        opened(ledger, "births", cap=AMOUNT_OF_ONE, epsilon=20.0)
        for number, run in enumerate(["first", "second"]):
            reserve(ledger, run, "clinic", steps=2)
            lease = ledger.lease(run)
            measure(ledger, lease, "round-1", output=b"")
            manifest = write_release(ledger, run, folder / f"release-{number}", rows=f"rows of {run}".encode())
            ledger.settle(run, release=manifest.parent.name, lease=lease, **recorded(manifest))
    return Published(folder / "release-0", folder / "release-1")


def replaced(release: Path, make: Callable[[Path], object]) -> None:
    shutil.rmtree(release)
    make(release)


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_link(path: Path, target: Path) -> None:
    path.unlink()
    path.symlink_to(target)


def change_rows(release: Path, *, and_also: Callable[[Path], None] | None = None) -> None:
    """Change the file of rows, and do something to the manifest, too."""
    with (release / PART).open("ab") as file:
        file.write(b"x")
    if and_also:
        and_also(release / "manifest.json")


def name_another_ledger(manifest: Path) -> None:
    edit(manifest, lambda told: {**told, "privacy": {**told["privacy"], "ledger": "f" * 64}})


TAMPERINGS: dict[str, Callable[[Published], object]] = {
    "rows changed": lambda it: change_rows(it.release),
    "rows removed": lambda it: (it.release / PART).unlink(),
    "rows are a pipe": lambda it: as_pipe(it.release / PART),
    "rows are a link": lambda it: as_link(it.release / PART, it.other / PART),
    "file added": lambda it: (it.release / "data" / "more.parquet").write_bytes(b""),
    "manifest removed": lambda it: (it.release / "manifest.json").unlink(),
    "manifest removed, rows changed": lambda it: change_rows(it.release, and_also=lambda path: path.unlink()),
    "manifest names another ledger": lambda it: name_another_ledger(it.release / "manifest.json"),
    "manifest names another ledger, rows changed": lambda it: change_rows(it.release, and_also=name_another_ledger),
    "manifest says more": lambda it: edit(it.release / "manifest.json", lambda told: {**told, "title": "mine"}),
    "manifest is a pipe": lambda it: as_pipe(it.release / "manifest.json"),
    "manifest is a device": lambda it: as_link(it.release / "manifest.json", Path("/dev/zero")),
    "manifest is a link": lambda it: as_link(it.release / "manifest.json", it.other / "manifest.json"),
    "manifest is a link that leads nowhere": lambda it: as_link(it.release / "manifest.json", Path("nowhere")),
    "folder emptied": lambda it: replaced(it.release, Path.mkdir),
    "folder is a file": lambda it: replaced(it.release, Path.touch),
    "folder is a link that leads nowhere": lambda it: replaced(it.release, lambda at: at.symlink_to("nowhere")),
    "folder is a link to itself": lambda it: replaced(it.release, lambda at: at.symlink_to(at)),
    "folder is a link to another release": lambda it: replaced(it.release, lambda at: at.symlink_to(it.other)),
    "another release": lambda it: replaced(it.release, lambda at: shutil.copytree(it.other, at)),
    "another release without its manifest": lambda it: replaced(
        it.release, lambda at: shutil.copytree(it.other, at, ignore=shutil.ignore_patterns("manifest.json"))
    ),
}


def copied(release: Path, to: Path) -> Path:
    return Path(shutil.copytree(release, to))


def copied_beside_unnamed(it: Published) -> dict[str, Any]:
    copied(it.release, it.release.with_name("copy"))
    return {}


COPIES: dict[str, Callable[[Published], dict[str, Any]]] = {
    "none": lambda it: {},
    "beside": copied_beside_unnamed,
    "in a folder": lambda it: {"releases": [copied(it.release, Path("elsewhere", "copy"))]},
    "in a complete folder": lambda it: {"complete": [copied(it.release, Path("elsewhere", "copy"))]},
    "beside, and all complete": lambda it: {"complete": [copied(it.release, it.release.with_name("copy")).parent]},
}


@pytest.mark.parametrize("copy", COPIES)
def test_an_untouched_release_passes_with_any_copy(published: Published, copy: str) -> None:
    assert verify_ledger(**COPIES[copy](published)).manifests == (2 if copy == "none" else 3)


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_tampering_at_the_recorded_place_is_named_whatever_copies_exist(
    published: Published, tampering: str, copy: str
) -> None:
    told = COPIES[copy](published)
    TAMPERINGS[tampering](published)
    with pytest.raises(LedgerDamaged) as damage:
        verify_ledger(**told)
    assert str(published.release) in str(damage.value)


def _only_if_found_nowhere(recorded: Iterable[Any], read: Mapping[Path, Any]) -> None:
    """The planted defect: do not look at the recorded place of a run of which some manifest was found."""
    own = {path: manifest for path, manifest in read.items() if manifest is not None}
    runs = {manifest.run for manifest in own.values()}
    _require_in_place([each for each in recorded if each.run not in runs], own)


_require_in_place = module._require_in_place


def no_problems(_folder: Any, **_: object) -> Iterator[str]:
    return iter(())


def test_looking_for_a_run_anywhere_would_not_do(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_require_in_place", _only_if_found_nowhere)
    monkeypatch.setattr(module.RecordedFolder, "problems", no_problems)
    told = COPIES["beside"](published)
    kept = shutil.copytree(published.release, "kept")
    missed = []
    for tampering, tamper in TAMPERINGS.items():
        tamper(published)
        try:
            verify_ledger(**told)
        except LedgerDamaged:
            pass
        else:
            missed.append(tampering)
        if published.release.is_dir() and not published.release.is_symlink():
            shutil.rmtree(published.release)
        else:
            published.release.unlink()
        shutil.copytree(kept, published.release)
    assert {
        "manifest removed, rows changed",
        "manifest names another ledger, rows changed",
        "another release without its manifest",
    } <= set(missed)


@pytest.fixture
def runs(published: Published) -> dict[str, str]:
    """A run in each state, by what the ledger knows of it; none of them has published anything."""
    with open_ledger() as ledger:
        for run, account in (
            ("open", "clinic"),
            ("ended", "clinic"),
            ("given-back", "clinic"),
            ("elsewhere", "births"),
        ):
            reserve(ledger, run, account, steps=1)
        measure(ledger, ledger.lease("open"), "round-1", output=b"")
        lease = ledger.lease("ended")
        measure(ledger, lease, "round-1", output=b"")
        ledger.settle("ended", release=None, lease=lease)
        ledger.refund("given-back", lease=None)
        reserve(ledger, "named-only", "clinic", steps=1)
        ledger.settle("named-only", release="forged", lease=ledger.lease("named-only"))
    return {
        "open": "open",
        "settled without a release": "ended",
        "settled with the forged name but without a record": "named-only",
        "settled with another release": "first",
        "refunded": "given-back",
        "unknown": "nobody",
        "of another account": "elsewhere",
    }


FORGED = [
    "settled without a release",
    "settled with the forged name but without a record",
    "settled with another release",
    "refunded",
    "unknown",
    "of another account",
]


def forge(run: str, folder: Path) -> None:
    """Write a release that agrees with the ledger as far as one can know it."""
    with open_ledger() as ledger:
        known = run if run != "nobody" else "first"
        manifest = write_release(ledger, known, folder, rows=b"forged")
    account = {"account": "clinic", "run": run}
    edit(manifest, lambda told: {**told, "privacy": {**told["privacy"], **account}})


@pytest.mark.parametrize("place", ["releases/clinic/forged", "elsewhere/forged"])
@pytest.mark.parametrize("state", FORGED)
def test_a_release_that_no_run_published_is_named(runs: dict[str, str], state: str, place: str) -> None:
    forge(runs[state], Path(place))
    with pytest.raises(LedgerDamaged, match=f"the (release|manifest) .*{place}"):
        verify_ledger(releases=[Path(place)])


def test_what_an_open_run_published_passes(published: Published, runs: dict[str, str]) -> None:
    release = published.release.with_name("new")
    forge(runs["open"], release)
    assert verify_ledger().manifests == 3
    change_rows(release)
    with pytest.raises(LedgerDamaged, match=f"the release {release} was changed: {PART} has 7 bytes"):
        verify_ledger()


def test_a_run_that_is_settled_while_verify_reads_has_its_record(
    published: Published, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = published.release.with_name("new")
    forge(runs["open"], release)
    read = module._read

    def settle_meanwhile(path: Path, *, identity: str) -> Any:
        with open_ledger() as ledger:
            if ledger.run("open").state is RunState.OPEN:
                ledger.settle("open", release="new", lease=ledger.lease("open"), **recorded(release / "manifest.json"))
        return read(path, identity=identity)

    monkeypatch.setattr(module, "_read", settle_meanwhile)
    assert verify_ledger().manifests == 3


def test_comparing_only_with_what_is_on_record_would_not_do(
    published: Published, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: a run without any record may have published anything."""

    def if_any(manifest: Any, run: Any, hashes: set[str]) -> None:
        _require_recorded(manifest, replace(run, state=RunState.SETTLED if hashes else RunState.OPEN), hashes)

    _require_recorded = module._require_recorded
    monkeypatch.setattr(module, "_require_recorded", if_any)
    missed = []
    for which in FORGED:
        forge(runs[which], published.release.with_name("forged"))
        try:
            verify_ledger()
        except LedgerDamaged:
            pass
        else:
            missed.append(which)
        shutil.rmtree(published.release.with_name("forged"))
    assert missed == [
        "settled without a release",
        "settled with the forged name but without a record",
        "refunded",
    ]


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\nthe ledger is sound", "a\u202eb", "a\udc80", "a\\x1b"])
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_a_name_is_shown_on_one_line(published: Published, name: str, folder: bool) -> None:
    if folder:
        shutil.copytree(published.release, published.release.with_name(name))
        change_rows(published.release.with_name(name))
    else:
        (published.release / name).touch()
    with pytest.raises(LedgerDamaged) as damage:
        verify_ledger()
    assert str(damage.value).isprintable()
    assert name not in str(damage.value)
    assert repr(name)[1:-1] in str(damage.value)


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        with pytest.raises(NotRegularFileError):
            open_regular(path)


def pointer(name: str) -> dict[str, str]:
    return dict(json.loads(encoded_pointer(name)))


def point(folder: Path, **told: str) -> None:
    (folder / "latest.json").write_text(json.dumps(told) + "\n", encoding="utf-8")


def stray(folder: Path, *, at: Path | None = None) -> Path:
    """Write rows that no manifest lists, where a reader of all releases finds them."""
    part = (at or folder / "stray") / PART
    part.parent.mkdir(parents=True)
    part.write_bytes(b"rows")
    return part.parents[1]


def link_stray(folder: Path, to: Path) -> None:
    (folder / "linked").symlink_to(to.absolute())


def own(folder: Path, **changes: object) -> None:
    """Write which ledger owns the folder, and something wrong in it."""
    with open_ledger() as ledger, ledger.reading() as rows:
        told = {"ledger": rows.hash_of(1), "account": folder.name, "seq": 2, "hash": rows.hash_of(2), **changes}
    (folder / "ledger.json").write_text(json.dumps(told), encoding="utf-8")


def foreign(folder: Path, at: Path, **changes: object) -> None:
    """Write a manifest that names another ledger, and that this ledger owns the dataset's folder."""
    own(folder)
    at.mkdir(parents=True, exist_ok=True)
    (at / "manifest.json").write_bytes((folder / "release-0" / "manifest.json").read_bytes())
    name_another_ledger(at / "manifest.json")
    edit(at / "manifest.json", lambda told: {**told, **changes})


FOREIGN = {"": "manifest.json", "x": "x", "x/y": "x/y", "x/y/z": "x/y/z"}
"""Where another ledger's manifest may lie below a dataset's folder, and how it is named."""


def rows_at(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")


def manifest_and_rows(folder: Path, place: str, make: Callable[[Path], object]) -> None:
    """Write rows into a folder that is no release, and put something called `manifest.json` beside them."""
    rows_at(folder / place / "rows.parquet")
    make(folder / place / "manifest.json")


NO_MANIFEST: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("1", encoding="utf-8"),
    "nothing": Path.touch,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a broken link": lambda path: path.symlink_to("nowhere"),
    "a link to a manifest": lambda path: path.symlink_to(Path("releases/clinic/release-0/manifest.json").absolute()),
}


def link_at(path: Path, to: Path) -> None:
    """Link to a folder, which holds rows unless it exists."""
    if not to.exists():
        rows_at(to / "rows.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to.absolute())


NOT_WRITTEN = r"latest\.json is not what dpflow writes"
NOT_A_RELEASE = "is a link to a folder that is not a release"
HIDDEN: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"rows in {place} beside a manifest.json that is {kind}": (
            lambda at, place=place, make=make: manifest_and_rows(at, place, make),
            f"{place}/manifest.json is unreadable",
        )
        for place, (kind, make) in product((".x", "sub/.x", ".partial-7"), NO_MANIFEST.items())
    },
    **{
        f"foreign manifest in {place}": (
            lambda at, place=place: (rows_at(at / place / "rows.parquet"), foreign(at, at / place)),
            f": {place} is a release of another ledger",
        )
        for place in (".x", "sub/.x", ".x/deep", ".partial-7", ".partial-7/x", "sub/.partial-7/draft")
    },
    **{
        f"rows in {place}": (
            lambda at, place=place: rows_at(at / place / "rows.parquet"),
            f"{place}/rows.parquet lies beside the releases",
        )
        for place in (".partial-7", ".partial-7/x", ".partial-7/x/draft", "sub/.partial-7/draft", "draft")
    },
    **{
        f"link {place} to a folder": (
            lambda at, place=place: link_at(at / place, Path("aside")),
            f": {place} {NOT_A_RELEASE}",
        )
        for place in ("x", ".x", "sub/x", "sub/.x", "a/b/c/x", ".partial-7", ".partial-7/draft", ".partial-7/x")
    },
    "link to the rows of a release": (lambda at: link_at(at / "sub" / "x", at / "release-0" / "data"), NOT_A_RELEASE),
    "link to all releases": (lambda at: link_at(at / "sub" / "x", at), NOT_A_RELEASE),
}
"""What lies in hidden folders and in those of drafts, and what links lead to."""


def forge_and_link(folder: Path) -> None:
    forge("ended", Path("aside"))
    link_stray(folder, Path("aside"))


MISPLACED: dict[str, tuple[Callable[[Path], object], str]] = {
    "rows": (stray, "stray/data lies beside"),
    "rows with a bad name": (lambda at: stray(at, at=at / "a\x1b"), r"'a\\x1b/data' lies beside"),
    "link to rows": (lambda at: link_stray(at, stray(at, at=Path("aside"))), f"linked {NOT_A_RELEASE}"),
    "rows in a folder with a dot": (
        lambda at: stray(at, at=at / ".partial-7"),
        r"\.partial-7/data lies beside",
    ),
    "a forged release in a folder with a dot": (lambda at: forge("ended", at / ".hidden"), r"\.hidden has no record"),
    "rows beside the releases": (lambda at: (at / "all.parquet").write_bytes(b"rows"), "all.parquet lies beside"),
    "rows beside the releases, with a dot": (lambda at: (at / ".x.PARQUET").touch(), r"\.x\.PARQUET lies beside"),
    **{
        f"rows beside the releases, {name}": (lambda at, name=name: rows_at(at / name), f"{name} lies beside")
        for name in (
            "all.parquet.gz",
            "all.parq",
            "all.PQ.zst",
            "sub/all.parquet",
            ".sub/all.pq",
            "a/b/c/all.parquet.gz",
        )
    },
    **{
        f"foreign manifest {name}": (
            lambda at, name=name: foreign(at, at / name),
            f": {shown} is a release of another ledger",
        )
        for name, shown in FOREIGN.items()
    },
    "foreign manifest in a link": (
        lambda at: (foreign(at, Path("aside", "x")), link_stray(at, Path("aside", "x"))),
        "linked is a release of another ledger",
    ),
    "pointer to the root": (
        lambda at: (foreign(at, at, release=""), own(at, ledger="f" * 64), point(at, **pointer(""))),
        NOT_WRITTEN,
    ),
    "pointer to an absolute path": (lambda at: point(at, **pointer("/x")), NOT_WRITTEN),
    "pointer with a separator": (lambda at: point(at, **pointer("a\\b")), NOT_WRITTEN),
    "link to a forged release": (forge_and_link, "aside has no record"),
    "no owner": (lambda at: (at / "ledger.json").write_bytes(b"{"), "ledger.json cannot be read"),
    "the owner of another dataset": (lambda at: own(at, account="births"), "ledger.json cannot be read"),
    "an event that never was": (lambda at: own(at, hash="0" * 64), "ledger.json names event 2 with a hash"),
    "an event to come": (lambda at: own(at, seq=99), "ledger.json names event 99 with a hash"),
    "no pointer": (lambda at: (at / "latest.json").write_bytes(b"{"), NOT_WRITTEN),
    "pointer is a pipe": (lambda at: os.mkfifo(at / "latest.json"), NOT_WRITTEN),
    "pointer with two names": (
        lambda at: (at / "latest.json").write_text(
            '{"release": "stray",' + json.dumps(pointer("release-1"))[1:], encoding="utf-8"
        ),
        NOT_WRITTEN,
    ),
    "pointer without a name": (lambda at: point(at, data="release-1/data"), NOT_WRITTEN),
    "pointer to other rows": (
        lambda at: point(at, **{**pointer("release-1"), "data": "../stray/data"}),
        NOT_WRITTEN,
    ),
    "pointer outside": (lambda at: point(at, **pointer("../clinic/release-1")), NOT_WRITTEN),
    "pointer to nothing": (lambda at: point(at, **pointer("release-7")), "release-7, which does not exist"),
    "pointer to an older one": (lambda at: point(at, **pointer("release-0")), "release-0, but release-1 is newer"),
    **HIDDEN,
}


@pytest.mark.parametrize("case", MISPLACED)
@pytest.mark.usefixtures("runs")
def test_what_could_be_taken_for_a_release_is_named(published: Published, case: str) -> None:
    change, problem = MISPLACED[case]
    change(published.release.parent)
    with pytest.raises(LedgerDamaged, match=problem) as damage:
        verify_ledger()
    assert str(damage.value).isprintable()


def test_a_folder_of_releases_may_hold_other_things_and_lack_releases(published: Published) -> None:
    folder = published.release.parent
    point(folder, **pointer("release-1"))
    own(folder)
    (folder / "notes").mkdir()
    rows_at(folder / ".partial-release-2" / "draft" / PART)
    (folder / ".partial-release-2" / "draft" / "manifest.json").write_bytes(b"{")
    (folder / ".notes").mkdir()
    (folder / "notes.txt").touch()
    link_stray(folder, published.other)
    link_at(folder / "notes" / "newest", published.other)
    assert (verify_ledger().manifests, verify_ledger().absent) == (2, 0)
    (folder / "notes" / "newest").unlink()
    (folder / "linked").unlink()
    shutil.rmtree(published.other)
    own(folder, ledger="f" * 64)  # which may have adopted the folder
    assert (verify_ledger().manifests, verify_ledger().absent) == (1, 1)


def test_looking_for_foreign_manifests_one_folder_deep_would_not_do(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defects: other depths pass, and an empty name is one."""
    folder = published.release.parent
    foreign(folder, folder, release="")
    foreign(folder, folder / "x" / "y")
    checked = module._require_releases_only

    def one_deep(ledger: Ledger, recorded: Any, *, read: Any, foreign: dict[Path, list[Path]]) -> None:
        near = {at: [path for path in paths if path.parent.parent == at] for at, paths in foreign.items()}
        checked(ledger, recorded, read=read, foreign=near)

    monkeypatch.setattr(module, "_require_releases_only", one_deep)
    assert verify_ledger().others == 2
    shutil.rmtree(published.release)
    shutil.rmtree(published.other)
    point(folder, **pointer(""))  # so that the newest rows are those in /data
    with pytest.raises(LedgerDamaged, match=NOT_WRITTEN):
        verify_ledger()
    monkeypatch.setattr(dataset_folder, "is_name", lambda text: Path(text).name == text)
    verify_ledger()


class Everything(set[Path]):
    """All files that there are."""

    def __contains__(self, path: object) -> bool:
        return os.path.lexists(str(path))


class AnyName(str):
    """A name that all others are."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


SKIPPING: dict[str, tuple[Callable[[pytest.MonkeyPatch], object], set[str]]] = {
    "hidden folders, and any with a manifest.json": (
        lambda patch: (
            patch.setattr(module, "_found_beside", lambda folder: module._found([folder])),
            patch.setattr(module.RecordedFolder, "_strays", lambda place, _: strays(place, Everything())),
        ),
        {name for name in HIDDEN if "manifest.json that is" in name or name.startswith("foreign")},
    ),
    "all in a folder of a draft": (
        lambda patch: patch.setattr(folder_problems, "DRAFT", AnyName()),
        {"foreign manifest in .partial-7/x", "rows in .partial-7/x", "rows in .partial-7/x/draft"},
    ),
    "links": (
        lambda patch: patch.setattr(folder_problems, "is_folder", lambda path: False),
        {name for name in HIDDEN if name.startswith("link ")},
    ),
}
"""Planted defects: what is skipped, and the cases that then pass."""
strays = folder_problems.RecordedFolder._strays


@pytest.mark.parametrize("skipped", SKIPPING)
def test_skipping_folders_by_their_names_or_content_would_not_do(
    published: Published, monkeypatch: pytest.MonkeyPatch, skipped: str
) -> None:
    plant, expected = SKIPPING[skipped]
    plant(monkeypatch)
    folder, kept, missed = published.release.parent, Path("kept"), set()
    shutil.copytree(folder, kept)
    for case, (change, _) in HIDDEN.items():
        change(folder)
        with suppress(LedgerDamaged):
            verify_ledger()
            missed.add(case)
        shutil.rmtree(folder)
        shutil.rmtree("aside", ignore_errors=True)
        shutil.copytree(kept, folder)
    assert expected
    assert missed == expected


def test_a_release_that_is_published_while_verify_reads_is_no_damage(
    published: Published, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = module._require_published

    def publish_meanwhile(*told: Any, **more: Any) -> tuple[int, int]:
        forge(runs["open"], published.release.with_name("new"))
        return files(*told, **more)

    monkeypatch.setattr(module, "_require_published", publish_meanwhile)
    assert verify_ledger().manifests == 2
    shutil.rmtree(published.release.with_name("new"))
    found = iter([tuple(module._found_beside(published.release.parent)), ()])
    monkeypatch.setattr(module, "_found_beside", lambda folder: next(found))  # planted: without looking again
    with pytest.raises(LedgerDamaged, match=r"new/data lies beside the releases"):
        verify_ledger()


def test_manifests_of_other_ledgers_do_not_fill_the_memory(published: Published) -> None:
    def peak(*, others: int) -> int:
        for at in (published.release.with_name(f"more-{number}") for number in range(others)):
            at.mkdir(exist_ok=True)
            (at / "manifest.json").write_bytes((published.release / "manifest.json").read_bytes())
            name_another_ledger(at / "manifest.json")
            edit(at / "manifest.json", lambda told: {**told, "more": [{"a": 1}] * 20_000})
        tracemalloc.start()
        try:
            assert verify_ledger().others == others
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    one = peak(others=1)
    assert peak(others=4) < 1.5 * one


def test_looking_at_manifests_only_would_not_do(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    stray(published.release.parent)
    own(published.release.parent, seq=99)
    monkeypatch.setattr(module.RecordedFolder, "problems", no_problems)
    verify_ledger()


CLOSED, LISTED_ONLY, ENTERED_ONLY = 0o700, 0o744, 0o711
FILES: dict[str, Callable[[Published], Path]] = {
    "its manifest": lambda it: it.release / "manifest.json",
    "its rows": lambda it: it.release / PART,
    "latest.json": lambda it: it.release.with_name("latest.json"),
    "ledger.json": lambda it: it.release.with_name("ledger.json"),
}
FOLDERS: dict[str, Callable[[Published], Path]] = {
    "the folder of all datasets": lambda it: it.release.parents[1],
    "the folder of the dataset": lambda it: it.release.parent,
    "the release": lambda it: it.release,
    "the folder of its rows": lambda it: it.release / "data",
    "another folder": lambda it: it.release.with_name("stray"),
    "another folder with a dot": lambda it: it.release.with_name(".stray"),
}
WITHHELD = {
    **{(what, mode): place for what, place in FOLDERS.items() for mode in (CLOSED, LISTED_ONLY, ENTERED_ONLY)},
    **{(what, 0o600): place for what, place in FILES.items()},
}
# To follow a path, one only needs to enter its folders.
ENOUGH = {("the folder of all datasets", ENTERED_ONLY, "nothing named")}
NAMED: dict[str, dict[str, Any]] = {"nothing named": {}, "all complete": {"complete": [Path("releases")]}}


@pytest.fixture
def as_nobody(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Act as another user than the one who published."""
    superuser = os.geteuid() == 0

    def act() -> None:
        tmp_path.chmod(0o755)
        for file in tmp_path.glob("ledger.sqlite*"):
            file.chmod(0o644)
        if superuser:
            os.seteuid(65534)

    for path in (tmp_path, *tmp_path.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    yield act
    if superuser:
        os.seteuid(0)


@contextmanager
def withheld(path: Path, mode: int, act: Callable[[], None]) -> Iterator[None]:
    """Let another user meet a file or folder with this mode, which is for its owner and, in its last digit, for others."""
    before = path.stat().st_mode
    path.chmod(mode if os.geteuid() == 0 else (mode & 0o007) << 6)
    act()
    try:
        yield
    finally:
        if os.geteuid() == 65534:
            os.seteuid(0)
        path.chmod(before)


def prepared(published: Published) -> None:
    """Add the other files of a dataset's folder, and folders that a user might keep there."""
    folder = published.release.parent
    point(folder, **pointer("release-1"))
    own(folder)
    for name in ("stray", ".stray"):
        (folder / name / "notes").mkdir(parents=True)


@pytest.mark.parametrize("named", NAMED)
@pytest.mark.parametrize(("what", "mode"), WITHHELD, ids=lambda each: f"{each:o}" if isinstance(each, int) else each)
def test_what_this_user_may_not_read_is_not_called_missing_or_changed(
    published: Published, as_nobody: Callable[[], None], what: str, mode: int, named: str
) -> None:
    """As after a run with umask 077, whose release another user verifies."""
    prepared(published)
    closed = WITHHELD[what, mode](published)
    with withheld(closed, mode, as_nobody):
        if (what, mode, named) in ENOUGH:
            assert verify_ledger(**NAMED[named]).absent == 0
        else:
            with pytest.raises(
                LedgerError,
                match=r"cannot be read \(Permission denied\), so the releases were not verified; run verify as a user",
            ) as refused:
                verify_ledger(**NAMED[named])
            assert str(closed.relative_to(Path.cwd())) in str(refused.value)
            assert refused.value.exit_code == 1
    assert verify_ledger(**NAMED[named]).manifests == 2


def test_taking_what_one_may_not_see_for_absent_would_not_do(
    published: Published, as_nobody: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defects: a path that may not be looked at does not exist, and a folder that may not be listed is empty."""

    def seen(path: Path, *, follow: bool = False) -> bool:
        return path.exists() if follow else os.path.lexists(path)

    for each in (module, folder_problems, ownership, problems):
        monkeypatch.setattr(each, "is_there", seen)
    monkeypatch.setattr(integrity, "raise_unless_gone", lambda error: None)
    for each in (module, folder_problems):
        monkeypatch.setattr(each, "is_folder", os.path.isdir)
    prepared(published)
    said = set()
    for ((what, mode), place), told in product(WITHHELD.items(), NAMED.values()):
        with withheld(place(published), mode, as_nobody):
            try:
                verify_ledger(**told)
            except LedgerDamaged:
                said.add((what, "damaged"))
            except LedgerError:
                pass
            else:
                said.add((what, "sound"))
    called_sound = {"the folder of all datasets", "the release", "the folder of its rows", "another folder"}
    assert {(what, "sound") for what in called_sound} | {("the folder of all datasets", "damaged")} <= said


def test_a_disk_that_fails_is_not_called_damage(published: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: Path, **_: object) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(module, "is_there", lambda path, **_: failing(path))
        with pytest.raises(LedgerError, match=r"release-0/manifest\.json cannot be read") as refused:
            verify_ledger()
        assert refused.value.exit_code == 1
    assert verify_ledger().manifests == 2


def test_what_is_really_missing_stays_damage_to_another_user(
    published: Published, as_nobody: Callable[[], None]
) -> None:
    (published.release / "manifest.json").unlink()
    as_nobody()
    with pytest.raises(LedgerDamaged, match=r"manifest\.json is missing"):
        verify_ledger()


def test_a_release_that_was_archived_with_a_link_left_behind_does_not_make_the_archive_a_folder_of_releases(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Path("archive").absolute()
    stray(archive)
    (archive / "all.parquet").touch()
    published.release.rename(archive / "release-0")
    published.release.symlink_to(archive / "release-0")
    assert (verify_ledger().manifests, verify_ledger().absent) == (2, 0)
    with (archive / "release-0" / PART).open("ab") as file:
        file.write(b"x")
    with pytest.raises(LedgerDamaged, match="was changed"):
        verify_ledger()
    shutil.rmtree(archive / "release-0")
    published.release.unlink()
    copied(published.other, archive / "release-0")
    monkeypatch.setattr(module._Recorded, "beside", property(lambda each: archive))  # planted: where a link leads
    with pytest.raises(LedgerDamaged, match=r"the folder of releases .*archive was changed"):
        verify_ledger()
