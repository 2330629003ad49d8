"""The commands that the documents quote, as a person would type them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.deployments.facts import ROOT

NOT_QUOTED = r'(?=(?:[^"]*"[^"]*")*[^"]*$)'
BY_COMPOSE = re.compile(r"docker compose run --rm (?:steward|auditor) |docker compose run --rm worker dpflow ")


@dataclass(frozen=True)
class Quoted:
    """A call of `dpflow`, as it is written in a document.

    Attributes:
        document: The file's name.
        text: What follows `dpflow`.
        whole: Whether it stands in a block of commands to copy; in a sentence it may lack what a reader knows to add.
    """

    document: str
    text: str
    whole: bool

    @property
    def words(self) -> list[str]:
        """The arguments; a placeholder such as SPEC or E stands for anything, also for a number."""
        return ["1" if re.fullmatch(r"[A-Z]+|\$\(.*", word) else word for word in shlex.split(self.text)]


def quoted(name: str) -> Iterator[Quoted]:
    """Go through all calls of `dpflow` in a document of the project."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for block in re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL):
        for line in re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE):
            yield from (Quoted(name, call, whole=True) for call in calls_in(line))
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", prose):
        yield from (Quoted(name, call, whole=False) for call in calls_in(code))


def calls_in(line: str) -> Iterator[str]:
    """Return the calls of `dpflow` in a line of a shell, without what a shell would take away.

    >>> list(calls_in('X=1 .venv/bin/dpflow ledger show | tail -n 1   # what is left'))
    ['ledger show']
    >>> list(calls_in('docker compose run --rm steward ledger show'))
    ['ledger show']
    >>> list(calls_in('dpflow answer R "select 1 where age > 3" > answer.txt'))
    ['answer R "select 1 where age > 3"']
    """
    bare = re.split(r"\s#\s", BY_COMPOSE.sub("dpflow ", line))[0]
    for part in re.split(r"\s*(?:\||;|&&|>)\s*" + NOT_QUOTED, re.sub(r"\$\([^)]*\)", "HASH", bare)):
        if found := re.match(r"(?:\w+=\S+ )*(?:\S*/)?dpflow (.+)", part):
            yield found[1].strip()


def drill(name: str) -> str:
    """Return the commands of a drill in docs/how-to/operate.md, as a script for a shell that stops at the first failure."""
    text = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"<!-- drill: {re.escape(name)} -->\n```console\n(.*?)```", text, flags=re.DOTALL)
    return "set -euo pipefail\n" + "\n".join(re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE)) + "\n"


def links(name: str) -> Iterator[tuple[Path, str]]:
    """Go through the links within the project: the file that each leads to, and the heading in it, if one is named."""
    path = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            file, _, heading = target.partition("#")
            yield (path.parent / file if file else path), heading


def headings(path: Path) -> set[str]:
    """Return the anchors of a Markdown file's headings."""
    found = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
