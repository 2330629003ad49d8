"""Damage at the place where a release was published is named whatever copies exist, and so is a release that no run published."""

import errno
import json
import os
import re
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import LedgerDamaged, LedgerError
from dpcore.ledger import Ledger, RunState, open_ledger
from dpcore.privacy.accounting import AMOUNT_OF_ONE
from dpcore.release.dataset_folder import encoded_pointer
from dpcore.steward import verify as module
from dpcore.steward.verify import verify_ledger
from tests.dpcore.ledger.fixtures import opened
from tests.dpcore.ledger.story import measure, recorded, reserve, state, write_manifest
from tests.dpcore.release.conftest import put_back, working_in

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

    @property
    def folder(self) -> Path:
        return self.release.parent


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with two releases on record and a run in each state, and a copy of it."""
    here = tmp_path_factory.mktemp("places")
    with working_in(here) as patch:
        patch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{here}/ledger.sqlite")
        with open_ledger(create=True) as ledger:
            publish_two(ledger, here / "releases" / "clinic")
            end_others(ledger)
    return here, Path(shutil.copytree(here, tmp_path_factory.mktemp("kept") / "places"))


def publish_two(ledger: Ledger, folder: Path) -> None:
    for account in ("clinic", "births"):
        opened(ledger, account, cap=AMOUNT_OF_ONE, epsilon=20.0)
    for number, run in enumerate(["first", "second"]):
        reserve(ledger, run, "clinic", steps=2)
        lease = ledger.lease(run)
        measure(ledger, lease, "round-1", output=b"")
        manifest = write_release(ledger, run, folder / f"release-{number}", rows=f"rows of {run}".encode())
        ledger.settle(run, release=manifest.parent.name, lease=lease, **recorded(manifest))


def end_others(ledger: Ledger) -> None:
    """Bring a run in each state that publishes nothing."""
    for run, account in (("open", "clinic"), ("ended", "clinic"), ("given-back", "clinic"), ("elsewhere", "births")):
        reserve(ledger, run, account, steps=1)
    measure(ledger, ledger.lease("open"), "round-1", output=b"")
    lease = ledger.lease("ended")
    measure(ledger, lease, "round-1", output=b"")
    ledger.settle("ended", release=None, lease=lease)
    ledger.refund("given-back", lease=None)
    reserve(ledger, "named-only", "clinic", steps=1)
    ledger.settle("named-only", release="forged", lease=ledger.lease("named-only"))


@pytest.fixture
def published(_made: tuple[Path, Path]) -> Iterator[Published]:
    """The two releases, in a folder as it was made."""
    here, kept = _made
    put_back(here, kept)
    with working_in(here) as patch:
        patch.setenv("DPFLOW_LEDGER_URL", f"sqlite:///{here}/ledger.sqlite")
        yield Published(here / "releases" / "clinic" / "release-0", here / "releases" / "clinic" / "release-1")


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
    "rows are a pipe": lambda it: as_pipe(it.release / PART),
    "manifest removed": lambda it: (it.release / "manifest.json").unlink(),
    "manifest removed, rows changed": lambda it: change_rows(it.release, and_also=lambda path: path.unlink()),
    "manifest names another ledger": lambda it: name_another_ledger(it.release / "manifest.json"),
    "manifest names another ledger, rows changed": lambda it: change_rows(it.release, and_also=name_another_ledger),
    "manifest is a pipe": lambda it: as_pipe(it.release / "manifest.json"),
    "manifest is a device": lambda it: as_link(it.release / "manifest.json", Path("/dev/zero")),
    "manifest is a link": lambda it: as_link(it.release / "manifest.json", it.other / "manifest.json"),
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


PLACES = [*((each, "beside") for each in TAMPERINGS), *(("manifest removed, rows changed", each) for each in COPIES)]


@pytest.mark.parametrize(("tampering", "copy"), PLACES)
def test_tampering_at_the_recorded_place_is_named_whatever_copies_exist(
    published: Published, tampering: str, copy: str
) -> None:
    told = COPIES[copy](published)
    assert verify_ledger(**told).manifests == (2 if copy == "none" else 3)
    TAMPERINGS[tampering](published)
    with pytest.raises(LedgerDamaged) as damage:
        verify_ledger(**told)
    assert str(published.release) in str(damage.value)


FORGED = {
    "settled without a release": "ended",
    "settled with the forged name but without a record": "named-only",
    "settled with another release": "first",
    "refunded": "given-back",
    "unknown": "nobody",
    "of another account": "elsewhere",
}
"""Runs that have not published what is forged, by what the ledger knows of them."""


def forge(run: str, folder: Path) -> None:
    """Write a release that agrees with the ledger as far as one can know it."""
    with open_ledger() as ledger:
        known = run if run != "nobody" else "first"
        manifest = write_release(ledger, known, folder, rows=b"forged")
    account = {"account": "clinic", "run": run}
    edit(manifest, lambda told: {**told, "privacy": {**told["privacy"], **account}})


@pytest.mark.parametrize("state", FORGED)
@pytest.mark.usefixtures("published")
def test_a_release_that_no_run_published_is_named(state: str) -> None:
    place = "releases/clinic/forged" if state == "refunded" else "elsewhere/forged"
    forge(FORGED[state], Path(place))
    with pytest.raises(LedgerDamaged, match=f"the (release|manifest) .*{place}"):
        verify_ledger(releases=[Path(place)])


def test_what_an_open_run_published_passes(published: Published) -> None:
    release = published.release.with_name("new")
    forge("open", release)
    assert verify_ledger().manifests == 3
    change_rows(release)
    with pytest.raises(LedgerDamaged, match=f"the release {release} was changed: {PART} has 7 bytes"):
        verify_ledger()


def test_a_run_that_is_settled_while_verify_reads_has_its_record(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = published.release.with_name("new")
    forge("open", release)
    read = module._read

    def settle_meanwhile(path: Path, *, identity: str) -> Any:
        with open_ledger() as ledger:
            if ledger.run("open").state is RunState.OPEN:
                ledger.settle("open", release="new", lease=ledger.lease("open"), **recorded(release / "manifest.json"))
        return read(path, identity=identity)

    monkeypatch.setattr(module, "_read", settle_meanwhile)
    assert verify_ledger().manifests == 3


@pytest.mark.parametrize(
    ("name", "folder"),
    [("a\x1b[2Jb", False), ("a\nthe ledger is sound", True), ("a\u202eb", False), ("a\udc80", True), ("a\\x1b", False)],
)
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


def write(path: Path, content: bytes = b"rows") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def link(path: Path, to: Path) -> None:
    """Link to a folder, which holds rows unless it exists."""
    if not to.exists():
        write(to / "rows.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to.absolute())


def own(folder: Path, **changes: object) -> None:
    """Write which ledger owns the folder, and something wrong in it."""
    with open_ledger() as ledger, ledger.reading() as rows:
        told = {"ledger": rows.hash_of(1), "account": folder.name, "seq": 2, "hash": rows.hash_of(2), **changes}
    write(folder / "ledger.json", json.dumps(told).encode())


def foreign(folder: Path, at: Path) -> None:
    """Write a manifest that names another ledger, and that this ledger owns the dataset's folder."""
    own(folder)
    write(at / "manifest.json", (folder / "release-0" / "manifest.json").read_bytes())
    name_another_ledger(at / "manifest.json")


def misplaced(problem: str) -> None:
    """Check that the problem is named, and safe to print."""
    with pytest.raises(LedgerDamaged, match=problem) as damage:
        verify_ledger()
    assert str(damage.value).isprintable()


ROWS = {
    "stray/data/part-0.parquet": "stray/data",
    "a\x1b/data/part-0.parquet": r"'a\\x1b/data'",
    ".partial-7/data/part-0": r"\.partial-7/data",
    **{
        place: re.escape(place)
        for place in (
            "all.parq",
            ".x.PARQUET",
            "all.PQ.zst",
            ".sub/all.pq",
            "a/b/c/all.parquet.gz",
            ".partial-7/x.parquet",
            ".partial-7/x/draft/x.pq",
            "sub/.partial-7/draft/x.pq",
            "draft/x.pq",
        )
    },
}


@pytest.mark.parametrize("place", ROWS)
def test_rows_that_belong_to_no_release_are_named(published: Published, place: str) -> None:
    write(published.folder / place)
    misplaced(f"{ROWS[place]} lies beside the releases")


@pytest.mark.parametrize("place", ["x", "sub/.x", "a/b/c/x", ".partial-7", ".partial-7/draft"])
def test_a_link_to_a_folder_that_is_no_release_is_named(published: Published, place: str) -> None:
    to = {"x": published.folder, "sub/.x": published.release / "data"}.get(place, Path("aside"))
    link(published.folder / place, to)
    misplaced(f": {place} is a link to a folder that is not a release")


@pytest.mark.parametrize(
    ("place", "shown"),
    [("", "manifest.json"), *((each, each) for each in (".x", "x/y/z", ".partial-7/x", "sub/.partial-7/draft"))],
)
def test_a_release_of_another_ledger_is_named(published: Published, place: str, shown: str) -> None:
    foreign(published.folder, published.folder / place)
    misplaced(f": {shown} is a release of another ledger")
    shutil.rmtree(published.folder / (place.partition("/")[0] or "nothing"), ignore_errors=True)
    foreign(published.folder, Path("aside", "x"))
    (published.folder / "manifest.json").unlink(missing_ok=True)
    link(published.folder / "linked", Path("aside", "x"))
    misplaced("linked is a release of another ledger")


NO_MANIFEST: dict[str, Callable[[Path], object]] = {
    ".x": Path.touch,
    "sub/.x": Path.mkdir,
    ".partial-7": os.mkfifo,
    ".y": lambda path: path.symlink_to("nowhere"),
    ".z": lambda path: path.symlink_to(Path("releases/clinic/release-0/manifest.json").absolute()),
}


@pytest.mark.parametrize("place", NO_MANIFEST)
def test_something_called_a_manifest_does_not_hide_rows(published: Published, place: str) -> None:
    write(published.folder / place / "rows.parquet")
    NO_MANIFEST[place](published.folder / place / "manifest.json")
    misplaced(f"{place}/manifest.json is unreadable")


@pytest.mark.parametrize("place", [".hidden", "linked"])
def test_a_forged_release_is_named_wherever_a_reader_finds_it(published: Published, place: str) -> None:
    forge("ended", Path("aside") if place == "linked" else published.folder / place)
    if place == "linked":
        link(published.folder / place, Path("aside"))
    misplaced(rf"/{'aside' if place == 'linked' else place} has no record")


NOT_WRITTEN = r"latest\.json is not what dpflow writes"
NOTES: dict[str, tuple[bytes, str]] = {
    "a name in two places": (encoded_pointer("release-1").replace(b"{", b'{"release": "stray", ', 1), NOT_WRITTEN),
    "other rows": (encoded_pointer("release-1").replace(b"release-1/data", b"../stray/data"), NOT_WRITTEN),
    **{
        f"name {name!r}": (encoded_pointer(name), NOT_WRITTEN)
        for name in ("", "/x", "a\\b", "../clinic/release-1", ".")
    },
    "nothing": (encoded_pointer("release-7"), "release-7, which does not exist"),
    "an older one": (encoded_pointer("release-0"), "release-0, but release-1 is newer"),
}


@pytest.mark.parametrize("note", NOTES)
def test_a_wrong_pointer_is_named(published: Published, note: str) -> None:
    content, problem = NOTES[note]
    write(published.folder / "latest.json", content)
    misplaced(problem)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"more": 1}, "ledger.json cannot be read"),
        ({"account": "births"}, "ledger.json cannot be read"),
        ({"hash": "0" * 64}, "ledger.json names event 2 with a hash"),
        ({"seq": 99}, "ledger.json names event 99 with a hash"),
    ],
)
def test_a_wrong_owner_is_named(published: Published, changes: dict[str, object], problem: str) -> None:
    own(published.folder, **changes)
    misplaced(problem)


def test_a_folder_of_releases_may_hold_other_things_and_lack_releases(published: Published) -> None:
    folder = published.folder
    write(folder / "latest.json", encoded_pointer("release-1"))
    own(folder)
    for place in ("notes.txt", "notes/text", ".notes/text", ".partial-release-2/draft/data/part-0.parquet"):
        write(folder / place)
    write(folder / ".partial-release-2/draft/manifest.json", b"{")
    link(folder / "linked", published.other)
    link(folder / "notes" / "newest", published.other)
    assert (verify_ledger().manifests, verify_ledger().absent) == (2, 0)
    (folder / "notes" / "newest").unlink()
    (folder / "linked").unlink()
    shutil.rmtree(published.other)
    own(folder, ledger="f" * 64)  # which may have adopted the folder
    assert (verify_ledger().manifests, verify_ledger().absent) == (1, 1)


def test_a_release_that_is_published_while_verify_reads_is_no_damage(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = module._changes

    def publish_meanwhile(*arguments: Any) -> Iterator[str]:
        forge("open", published.release.with_name("new"))
        yield from changes(*arguments)

    monkeypatch.setattr(module, "_changes", publish_meanwhile)
    assert verify_ledger().manifests == 2


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

    def least(*, others: int) -> int:
        return min(
            peak(others=others) for _ in range(3)
        )  # other threads of this process may take some memory meanwhile

    one = least(others=1)
    assert least(others=4) < 1.5 * one


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


@pytest.fixture
def as_nobody(_made: tuple[Path, Path]) -> Iterator[Callable[[], None]]:
    """Act as another user than the one who published."""
    here, superuser = _made[0], os.geteuid() == 0

    def act() -> None:
        here.chmod(0o755)
        for file in here.glob("ledger.sqlite*"):
            file.chmod(0o644)
        if superuser:
            os.seteuid(65534)

    for path in (here, *here.parents):
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
    write(folder / "latest.json", encoded_pointer("release-1"))
    own(folder)
    for name in ("stray", ".stray"):
        (folder / name / "notes").mkdir(parents=True)


@pytest.mark.parametrize(("what", "mode"), WITHHELD, ids=lambda each: f"{each:o}" if isinstance(each, int) else each)
def test_what_this_user_may_not_read_is_not_called_missing_or_changed(
    published: Published, as_nobody: Callable[[], None], what: str, mode: int
) -> None:
    """As after a run with umask 077, whose release another user verifies."""
    prepared(published)
    closed = WITHHELD[what, mode](published)
    with withheld(closed, mode, as_nobody):
        questions: list[dict[str, Any]] = [{"complete": [Path("releases")]}, {}]
        if (what, mode) == ("the folder of all datasets", ENTERED_ONLY):  # to follow a path, this is enough
            assert verify_ledger(**questions.pop()).absent == 0
        for told in questions:
            with pytest.raises(
                LedgerError,
                match=r"cannot be read \(Permission denied\), so the releases were not verified; run verify as a user",
            ) as refused:
                verify_ledger(**told)
            assert str(closed.relative_to(Path.cwd())) in str(refused.value)
            assert refused.value.exit_code == 1
    assert verify_ledger().manifests == 2


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
    published: Published,
) -> None:
    archive = Path("archive").absolute()
    write(archive / "all.parquet")
    published.release.rename(archive / "release-0")
    published.release.symlink_to(archive / "release-0")
    assert (verify_ledger().manifests, verify_ledger().absent) == (2, 0)
    with (archive / "release-0" / PART).open("ab") as file:
        file.write(b"x")
    with pytest.raises(LedgerDamaged, match="was changed"):
        verify_ledger()
