"""The README is short, its commands work, its links lead somewhere, and its figures are those that were measured."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.deployments.documents import headings, links
from tests.docs.pages import ROOT, TUTORIAL, blocks, commands, run_page, shell, tutorial

README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
MOST_WORDS = 900
PEERS = {
    "**dpflow**": "**dpflow** (by size: `mwem`, `adaptive`)",
    "dpmm 0.1.9, AIM": "dpmm 0.1.9 AIM, 3-way workload; 4 MB on the large table",
    "dpmm 0.1.9, MST": "dpmm 0.1.9 MST",
}


def words(text: str) -> int:
    """How many words a text has: whatever stands between spaces and holds a letter or a figure, code and tables included."""
    return sum(1 for word in text.split() if re.search(r"\w", word))


def row(table: str, first: str) -> list[str]:
    """Return the other cells of the row that begins so."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip(" *") for cell in line.strip("|").split("|")[1:]]


def test_the_readme_is_at_most_900_words() -> None:
    assert words("one two, `dpflow run` | - |\n3") == 5
    assert words(README) <= MOST_WORDS


def test_the_first_screen_says_what_it_does_shows_a_release_and_how_to_run_it() -> None:
    start = README[: README.index("## How good is it")]
    assert start.count("\n") < 60
    for part in ("**dpflow turns", "docs/images/release-light.svg", "docs/images/release-dark.svg", "make demo"):
        assert part in start


def test_there_are_five_guarantees_of_one_line_each() -> None:
    section = README.split("## Guarantees\n")[1].split("## ")[0]
    assert re.findall(r"^(\d)\. \*\*", section, flags=re.MULTILINE) == list("12345")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tutorial, with what the README's commands need, and the environment of this test."""
    folder = tutorial(tmp_path_factory).folder
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").mkdir()
    for part in ("bin", "lib", "pyvenv.cfg"):
        (folder / ".venv" / part).symlink_to(Path(sys.prefix) / part)
    (folder / ".venv" / "runtime").touch()  # `make` need not install it again
    return folder


def test_the_demo_makes_the_release_of_the_tutorial(clone: Path) -> None:
    """So the README need not make one of its own, below."""
    (clone / "data" / "clinic-visits.csv").rename(clone / "table")
    made = shell("make --dry-run demo", clone)
    (clone / "table").rename(clone / "data" / "clinic-visits.csv")
    steps = [
        command.replace(" --epsilon 3 ", " --epsilon 10 ")
        for it in blocks(TUTORIAL, "console")
        for command in commands(it)
    ]
    places = [
        made.index(step)
        for step in steps
        if step.startswith(("python data", "dpflow ledger open", "dpflow run data/clinic"))
    ]
    assert len(places) == 3
    assert places == sorted(places)


def test_every_command_works_and_prints_what_the_readme_shows(
    clone: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert {"make demo", "dpflow plan visits.yaml"} <= {
        it for block in blocks("README.md", "console") for it in commands(block)
    }
    demo = "".join(it.printed for it in tutorial(tmp_path_factory).shown)
    assert [line for it in run_page("README.md", clone, done={"make demo": demo}) for line in it.missing] == []


def test_targets_that_are_only_mentioned_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    mentioned = set(re.findall(r"`make ([a-z-]+)`", README))
    assert {"ui", "docs"} <= mentioned <= targets


def test_the_figures_are_those_of_the_results() -> None:
    for here, there in PEERS.items():
        error, cpu, _, large_error, large_cpu, _ = row(RESULTS, there)
        assert row(README, here) == [error, cpu, large_error, large_cpu]
    assert row(README, "opendp 0.16, AIM")[:2] == row(RESULTS, "opendp 0.16 AIM (on mbi 1.1)")[:2]
    assert row(README, "smartnoise-synth 1.0.8, MWEM")[3] == row(RESULTS, "smartnoise-synth 1.0.8 MWEM")[4]
    independent, bootstrap = (
        row(README, f"*{name}*") for name in ("columns shuffled independently", "bootstrap of the real rows")
    )
    both = row(RESULTS, "*independent columns*, *bootstrap*")
    assert both[0] == f"{independent[0]}, {bootstrap[0]}"
    assert both[3] == f"{independent[2]}, {bootstrap[2]}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_lead_somewhere(name: str) -> None:
    found = list(links(name))
    assert found
    for path, heading in found:
        assert path.exists(), path
        assert not heading or heading in headings(path), heading
