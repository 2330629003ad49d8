"""Damaged releases: whoever reads one gets the same answer as before, or an error. Nobody passes it over, and nobody trusts it."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpcore import answer, open_series
from dpcore.answers import merged as merging
from dpcore.answers import replicates
from dpcore.answers import series as listing_of_series
from dpcore.errors import DpflowError, ReleaseDamaged
from dpcore.ledger import open_ledger
from dpcore.release import manifest as manifests
from dpcore.release.listing import Listed, listed_in
from dpcore.release.manifest import SignedBy
from dpcore.release.problems import Contents, verify_release
from dpcore.release.signing import SigningKey
from dpcore.runs.earlier_release import find_prior
from dpcore.spec import load_spec
from dpcore.steward.releases import latest
from tests.campaign import often
from tests.dpcore.answers.releases import restate
from tests.dpcore.answers.test_series import EXACT, make_series
from tests.dpcore.cli.ledgers import dpflow

QUESTION = "select smoker, count(*) as n, avg(age) as a from release group by smoker"


@pytest.fixture(scope="module", autouse=True)
def _few_replicates() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replicates, "REPLICATES", 2)
        yield


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the releases of three months, and a spec that starts from the newest."""
    folder = tmp_path_factory.mktemp("three")
    make_series(folder, epsilon=EXACT, months=(1, 2, 3))
    spec = folder / "spec.yaml"
    spec.write_text(spec.read_text(encoding="utf-8") + "prior: latest\n", encoding="utf-8")
    return folder


@pytest.fixture
def project(three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(three, tmp_path / "project")
    monkeypatch.chdir(folder)
    return folder


def releases(project: Path) -> list[Path]:
    """Return the folders of the releases, oldest first. Their names do not say it: two may be of one second."""
    with chdir(project), open_ledger() as ledger:
        runs = sorted(ledger.runs("visits"), key=lambda run: run.first)
    return [project / "releases" / "visits" / str(run.release) for run in runs]


def answer_of_series(project: Path) -> Any:
    return answer(project / "releases" / "visits", QUESTION).select_dtypes("number").to_json()


def answer_of_newest(project: Path) -> Any:
    return answer(releases(project)[-1], QUESTION).select_dtypes("number").to_json()


def merged(project: Path) -> Any:
    series = open_series(project / "releases" / "visits")
    assert series is not None
    place = project / "merged"
    shutil.rmtree(place, ignore_errors=True)
    privacy = merging.merge(series, place).manifest["privacy"]
    return {name: privacy[name] for name in ("epsilon", "delta", "rho", "made_from", "draws")}


def newest(project: Path) -> Any:
    return latest(str(project / "releases" / "visits")).name


def listing(project: Path) -> Any:
    listed = listed_in(project / "releases" / "visits")
    assert dpflow("releases", str(project / "releases" / "visits")) == int(any(release.damage for release in listed))
    for release in listed:
        release.require_readable()
    return [release.name for release in listed]


def prior(project: Path) -> Any:
    declaration = load_spec(project / "spec.yaml", with_table=True)
    with open_ledger() as ledger:
        prior = find_prior(declaration, ledger=ledger, account=ledger.account("visits"), run_id="next")
    return prior and prior.stated["name"]


CONSUMERS = (answer_of_series, answer_of_newest, merged, newest, listing, prior)


def expected(project: Path) -> dict[str, Any]:
    return {consumer.__name__: consumer(project) for consumer in CONSUMERS}


@pytest.fixture(scope="module")
def undamaged(three: Path) -> dict[str, Any]:
    with chdir(three):
        answered = expected(three)
    shutil.rmtree(three / "merged")
    return answered


def refusals(project: Path, undamaged: dict[str, Any]) -> dict[str, str]:
    """Return the error of each consumer that has one. All others must answer as they did before the damage."""
    refused = {}
    for consumer in CONSUMERS:
        try:
            answered = consumer(project)
        except DpflowError as error:
            refused[consumer.__name__] = str(error)
        else:
            assert answered == undamaged[consumer.__name__], consumer.__name__
    return refused


def gone(release: Path) -> None:
    shutil.rmtree(release)


def without(name: str) -> Callable[[Path], None]:
    return lambda release: (release / name).unlink()


def truncated(release: Path) -> None:
    manifest = release / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:1000])


def noisy(name: str) -> Callable[[Path], None]:
    def change(release: Path) -> None:
        content = bytearray((release / name).read_bytes())
        content[len(content) // 2] ^= 1
        (release / name).write_bytes(content)

    return change


def swapped(release: Path) -> None:
    """Put another release in its place."""
    (copied,) = [path for path in release.parent.iterdir() if path.is_dir() and path != release][:1]
    shutil.rmtree(release)
    shutil.copytree(copied, release)


def beside(change: Callable[[Path], object]) -> Callable[[Path], None]:
    return lambda release: (change(release.parent / "latest.json"), None)[1]


ALL = frozenset(consumer.__name__ for consumer in CONSUMERS)
OF_SERIES = frozenset({"answer_of_series", "merged", "listing"})
BY_NOTE = ALL - {"answer_of_newest", "prior"}
RESTORE = "restore it from a backup or copy it again, or let its run write it again"
DAMAGES: dict[str, tuple[Callable[[Path], None], int, frozenset[str], str]] = {
    "newest gone": (gone, -1, ALL - {"answer_of_newest"}, "it is missing; "),
    "middle gone": (gone, 1, OF_SERIES, "it is missing; "),
    "oldest gone": (gone, 0, OF_SERIES, "it is missing; "),
    "newest without manifest": (without("manifest.json"), -1, ALL, "manifest.json is missing; "),
    "middle without manifest": (without("manifest.json"), 1, OF_SERIES, "manifest.json is missing; "),
    "newest truncated": (truncated, -1, ALL, "manifest.json is not what "),
    "middle truncated": (truncated, 1, OF_SERIES, "manifest.json is not what SHA256SUMS lists; "),
    "newest with another bit": (noisy("manifest.json"), -1, ALL, "manifest.json is not what "),
    "middle with another bit": (noisy("manifest.json"), 1, OF_SERIES, "manifest.json is not what SHA256SUMS lists; "),
    "newest without sums": (without("SHA256SUMS"), -1, ALL - {"prior"}, "SHA256SUMS is missing; "),
    "middle with other sums": (noisy("SHA256SUMS"), 1, OF_SERIES, "SHA256SUMS is not what was published; "),
    "middle swapped": (swapped, 1, OF_SERIES, "manifest.json is that of release "),
    "measurements": (
        noisy("measurements.parquet"),
        -1,
        ALL - {"newest", "listing", "prior"},
        "measurements.parquet is missing, or",
    ),
    "middle measurements": (
        noisy("measurements.parquet"),
        1,
        OF_SERIES - {"listing"},
        "measurements.parquet is missing, or",
    ),
    "no note": (beside(Path.unlink), -1, BY_NOTE, "latest.json is damaged: it is missing or not what dpflow writes; "),
    "empty note": (beside(lambda note: note.write_text("")), -1, BY_NOTE, "latest.json is damaged: "),
    "other note": (beside(lambda note: note.write_text('{"release": "x"}')), -1, BY_NOTE, "latest.json is damaged: "),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_every_reader_of_a_damaged_release_says_so(project: Path, undamaged: dict[str, Any], name: str) -> None:
    damage, which, who, sentence = DAMAGES[name]
    damage(releases(project)[which])
    outcomes = refusals(project, undamaged)
    if name == "newest gone":
        assert "name the folder of a release" in outcomes.pop("answer_of_newest")  # nothing else names it
    assert set(outcomes) == who
    for text in outcomes.values():
        assert sentence in text
        assert RESTORE in text


def silent(project: Path, place: Path, undamaged: dict[str, Any], *, flips: int) -> int:
    """Flip bits of a file, one at a time, and return after how many the sum of the series was another one, and nobody said so."""
    content, rng, different = place.read_bytes(), random.Random(5), 0
    for _ in range(flips):
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        place.write_bytes(flipped)
        try:
            different += answer_of_series(project) != undamaged["answer_of_series"]
        except DpflowError:
            continue
    place.write_bytes(content)
    return different


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("file", "flips"),
    [
        ("manifest.json", often(15, campaign=60)),
        ("SHA256SUMS", often(15, campaign=60)),
        ("../latest.json", often(15, campaign=60)),
        ("uncertainty.parquet", often(1, campaign=3)),
    ],  # the last is fitted
)
def test_a_flipped_bit_never_changes_an_answer(project: Path, undamaged: dict[str, Any], file: str, flips: int) -> None:
    for release in releases(project)[1:]:
        assert silent(project, release / file, undamaged, flips=flips) == 0


def test_a_reader_that_skips_what_it_cannot_read_is_caught(
    project: Path, undamaged: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def skipping(folder: Path) -> tuple[Listed, ...]:
        return tuple(release for release in listed_in(folder) if release.damage is None)

    monkeypatch.setattr(listing_of_series, "listed_in", skipping)
    assert silent(project, releases(project)[-1] / "manifest.json", undamaged, flips=2) == 2
    gone(releases(project)[1])
    with pytest.raises(AssertionError, match="answer_of_series"):
        refusals(project, undamaged)


def cheapened(release: Path) -> dict[str, Any]:
    """Return a manifest with a promise that its run has not kept."""
    manifest: dict[str, Any] = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    manifest["privacy"] |= {"epsilon": 0.1, "rho": manifest["privacy"]["rho"] / 1000}
    for part in manifest["privacy"]["made_from"]:
        part["amount"] //= 1000
    return manifest


def test_a_promise_that_contradicts_the_sums_is_not_merged(
    project: Path, undamaged: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for release in releases(project):
        (release / "manifest.json").write_text(json.dumps(cheapened(release)), encoding="utf-8")
    with pytest.raises(ReleaseDamaged, match=r"manifest\.json is not what SHA256SUMS lists"):
        merged(project)
    monkeypatch.setattr(Contents, "problems_of_lists", lambda *_, **__: iter(()))  # the defect: sums are not compared
    assert merged(project)["epsilon"] < undamaged["merged"]["epsilon"] / 10
    assert verify_release(project / "merged").problems == ()


def test_a_signed_promise_that_somebody_has_edited_is_not_merged(project: Path, undamaged: dict[str, Any]) -> None:
    release, key = releases(project)[1], SigningKey(Ed25519PrivateKey.generate())
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    restate(release, manifest | {"signed_by": SignedBy(key.public).to_json()})
    (release / "SHA256SUMS.sig").write_bytes(key.sign((release / "SHA256SUMS").read_bytes()))
    assert merged(project) == undamaged["merged"]
    restate(release, cheapened(release))
    with pytest.raises(ReleaseDamaged, match=r"SHA256SUMS\.sig is not a signature with the key"):
        merged(project)


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field of JSON data. Of a list, the first item is looked at."""
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, part in inner:
        yield (*above, key)
        yield from places(part, (*above, key))


def edited(manifest: Any, place: tuple[Any, ...], change: Any) -> Any:
    """Return a manifest without the field at a place, or with a value of another type there."""
    copy = json.loads(json.dumps(manifest))
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    if change is None:
        del holder[place[-1]]
    elif type(change) is not type(holder[place[-1]]):
        holder[place[-1]] = change
    return copy


CHANGES = (None, True, "x", [1], {"a": 1}, "3.5")


MADE_FROM = ("privacy", "made_from"), None


def wrong(project: Path, undamaged: dict[str, Any], *, cases: int) -> list[str]:
    """Edit a manifest, with the sums that belong to it, and return each field whose edit changed a result or ended unexpectedly."""
    release, differing = releases(project)[1], []
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))
    every = [(place, change) for place in places(manifest) for change in CHANGES]
    for place, change in [MADE_FROM, *random.Random(3).sample(every, cases)]:
        if (changed := edited(manifest, place, change)) == manifest:
            continue
        restate(release, changed)
        for consumer in (answer_of_series, merged, listing):
            try:
                if consumer(project) == undamaged[consumer.__name__]:
                    continue
            except DpflowError:
                continue
            except Exception as error:  # noqa: BLE001  whatever it is
                differing.append(f"{place} {type(error).__name__}")
                continue
            differing.append(f"{place} {consumer.__name__}")
    return differing


@pytest.mark.campaign
def test_any_field_of_a_manifest_can_be_missing_or_of_another_type(project: Path, undamaged: dict[str, Any]) -> None:
    assert wrong(project, undamaged, cases=often(20, campaign=60)) == []


def test_a_reader_that_believes_any_manifest_is_caught(
    project: Path, undamaged: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "parsed_manifest", lambda written, _: json.loads(written))
    assert "('privacy', 'made_from') ValidationError" in wrong(project, undamaged, cases=0)
