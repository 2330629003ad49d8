"""Golden values: what about thirty small settings print, charge, promise and release, as hashes in `golden.json`.

    python -m tests.golden                     play all settings, and say which parts differ from the record
    python -m tests.golden --only pmw --update record them anew
    python -m tests.golden --show pmw rows     print the text behind a hash
    python -m tests.golden --texts FOLDER      write all texts, to compare two commits with `diff -r`

A change either leaves all of them equal, or its commit says what changed and why. Play before and after it on one machine.

Each setting is one of the tests' catalogue, played with seeded entropy: all noise, which rows of a person are kept, and all ids. Names of
releases, moments, hashes and versions of packages are left out of the texts, and floats have nine digits.

**What another machine may differ in.** A fit ends in other last digits with another processor or BLAS, these can turn a selection, and then all
that follows differs. So a part is *fixed* only if it stays equal when models are fitted roughly, by five evaluations; `--update` plays twice to
find out, and rows, answers and errors never count as fixed. The others are *fitted*. The test (`test_golden.py`) fits roughly and compares the
fixed parts. This program compares all parts if the record was made on the same kind of machine (`platform.machine()`), else the fixed ones.
"""

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256, shake_256
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tests.few_replicates  # noqa: F401  two replicates for each release
from dpcore.answers import merged
from dpcore.errors import DpflowError
from dpcore.ledger import Ledger
from dpcore.mechanisms.sampling import entropy
from dpcore.privacy.accounting import Currency
from tests.catalogue import BY_NAME, BY_ROW, GROUPED, Play, Setting, release, releases_of_blocks, two_releases
from tests.fixed_draws import FixedWords
from tests.power.neighbours import booked
from tests.rough_models import fit_roughly

RECORD = Path(__file__).with_suffix(".json")
Texts = dict[str, str]
"""The texts of a setting by part."""

DRAWS = (
    r"[\d,]+ (random )?draws"
    r'|"(draws|sampler_delta)": [\d.e-]+|adds? at most [\d.e-]+|additional delta of the samplers</th><td>[\d.e-]+'
)
"""How many draws a release took, which depends on the selected pairs, and what their samplers add to delta. In statements it is left out."""

NEVER_FIXED = {"rows", "answers", "errors", "texts"}


def months(play: Play) -> None:
    """Release each block, ask their sum, merge them, and withdraw the last one."""
    releases_of_blocks(play)
    play.call("answer", "releases/visits", GROUPED)
    play.call("answer", "releases/visits", "select day, count(*) as n from release group by day")
    play.call("merge", "releases/visits", "merged")
    newest = max(path.name for path in Path("releases/visits").glob("*Z-*"))
    play.call("withdraw", f"releases/visits/{newest}", "--reason", "tests")
    play.call("latest", "visits")


def replaced(play: Play) -> None:
    """Make two releases, withdraw the first, and draw more rows from the second."""
    two_releases(play)
    first = json.loads(Path("releases/visits/latest.json").read_text(encoding="utf-8"))["release"]
    play.call("sample", "releases/visits", "--rows", "4", "--seed", "1", "--where", "smoker")
    play.call("withdraw", f"releases/visits/{first}", "--reason", "tests")


def _of(name: str, *changes: tuple[str, str], **fields: Any) -> Setting:
    """Return a setting of the catalogue with changes; three rounds instead of one."""
    setting = replace(BY_NAME[name], **fields)
    rounds = (("rounds: 1}", "rounds: 3}"),) if "rounds: 1}" in setting.text else ()
    return replace(setting, changes=(*setting.changes, *rounds, *changes))


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        _of("mwem in pure epsilon"),
        _of("mwem in gdp, by weight"),
        _of("a person is replaced", drive=replaced),
        _of("a row is replaced", stored="arrow"),
        _of("a row by weight", stored="parquet", currency=Currency.PURE),
        _of("check of lost rows"),
        _of("charged look"),
        _of("pmw", BY_ROW),
        _of("adaptive"),
        _of("chosen limit, a person is replaced"),
        _of("persons", stored="files"),
        _of("persons with a chosen limit, replaced, expected rows"),
        _of("discovery", stored="sql"),
        _of("discovery, expected rows"),
        _of("full resolution"),
        _of("full resolution of moments"),
        _of("repaired order and sum"),
        _of("repaired order and sum at full resolution", drive=release),
        _of("dropped and repaired combinations"),
        _of("blocks"),
        _of("new blocks with late rows, a person is replaced", drive=months),
        _of(
            "the last blocks of a date column",
            ("window: last 2", "window: new, series: s, start: 2024-01-01"),
            drive=months,
        ),
        _of("public prior"),
        _of("latest release as prior"),
        _of("unchanged table"),
        _of("session", currency=Currency.GDP),
        _of("dashboard"),
        _of("service"),
        _of("online"),
        _of("online, a person is replaced"),
        _of("report, a person is replaced"),
        _of("questions by weight, a person is replaced"),
        _of("table in parquet, all kinds of columns"),
        _of("everything that is public"),
    )
}


# Playing


def played(setting: Setting, *, roughly: bool) -> Texts:
    """Play a setting in a folder of its own, and return its texts."""
    day = datetime.now(UTC)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch, _seeded(setting.name):
        patch.chdir(folder)
        for variable in ("COLUMNS", "DPFLOW_SIGNING_KEY"):
            patch.delenv(variable, raising=False)
        patch.setattr(Ledger, "renew", lambda _, lease: lease)  # a busy machine renews more often
        if roughly:
            fit_roughly(patch)
        with setting.prepared(setting.units[-1], patch):
            texts = _contents(Play(setting, Path(folder)), roughly=roughly)
    days = {day.strftime("%Y-%m-%d"), datetime.now(UTC).strftime("%Y-%m-%d")}
    return {part: _normal(content, folder, days) for part, content in texts.items()}


def _contents(play: Play, *, roughly: bool) -> dict[str, Any]:
    with _said() as plan:
        units = () if "unit: row" in play.setting.text else ("--units", "200")
        day = ("--as-of", "2024-05-20") if play.setting.blocks_by else ()
        play.call("check", "spec.yaml")
        play.call("plan", "spec.yaml", "--all", "--rows", "300", *units, *day)
    with _said() as shown:
        try:
            play.setting.drive(play)
        except DpflowError as error:
            play.tell(error)
    shown.append(str(play.codes))
    with _said() as ledger:
        for words in (("show",), ("history", "visits"), ("theorems", "visits"), ("verify",)):
            play.call("ledger", *words)
        play.call("ledger", "export", "--to", "exported", "visits")
    exported = [Path("exported", name).read_text(encoding="utf-8") for name in ("statement.json", "statement.md")]
    contents = {
        "plan": plan,
        "printed": shown,
        "ledger": ledger,
        **booked(),
        "files": [str(path) for path in sorted(Path().rglob("*")) if path.suffix not in PASSING_FILES],
        "statements": [re.sub(DRAWS, "DRAWS", text) for text in (*exported, *_promises())],
    }
    if roughly:
        return contents
    tables = {path: pq.read_table(path) for path in _released("*.parquet") if "withdrawn" not in path.name}
    errors = {"uncertainty.parquet", "errors.parquet"}
    with _said() as listed:
        play.call("releases", "visits")
    return contents | {
        "texts": [listed, *(path.read_text(encoding="utf-8") for path in _released("*.json", "*.html"))],
        "rows": [
            [str(table.schema), *table.to_pylist()] for path, table in tables.items() if path.parent.name == "data"
        ],
        "measurements": [table.to_pylist() for path, table in tables.items() if path.name == "measurements.parquet"],
        "errors": [table.to_pylist() for path, table in tables.items() if path.name in errors],
        "answers": list(_answers(play)),
    }


def _released(*patterns: str) -> list[Path]:
    """Return files of releases, of published answers, and of the steward's reports."""
    folders = (Path("releases"), Path("merged"), Path("answers"), Path(".dpflow/private/comparisons"))
    return sorted(path for folder in folders for pattern in patterns for path in folder.rglob(pattern))


def _promises() -> Iterator[str]:
    """Yield what each release promises, in its manifest and on its card."""
    for path in _released("manifest.json"):
        yield json.dumps(json.loads(path.read_text(encoding="utf-8"))["privacy"], indent=1)
    for path in _released("card.html"):
        yield path.read_text(encoding="utf-8").partition("What is promised")[2].partition("</table>")[0]


def _answers(play: Play) -> Iterator[str]:
    """Yield answers about each release that has its data, as JSON with their intervals."""
    for folder in (path.parent for path in _released("manifest.json")):
        if list(folder.glob("data/part-*")):  # it was not withdrawn
            columns = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["columns"]
            for question in _questions(columns):
                with _said() as answer:
                    play.call("answer", str(folder), question, "--json")
                yield f"{question}: {answer}"


def _questions(columns: Mapping[str, str]) -> Iterator[str]:
    """Yield a question about all rows, about one column of each type, and about two together."""
    numbers = [f'"{name}"' for name, kind in columns.items() if kind in {"int64", "double"}]
    others = [f'"{name}"' for name, kind in columns.items() if kind.startswith("dictionary") or kind == "bool"]
    yield "select count(*) as n from release"
    for name in numbers[:1]:
        yield f"select avg({name}) as mean, median({name}) as middle from release"
        yield f"select sum({name}) as total from release where {name} >= 5"
    for names in dict.fromkeys([", ".join(others[:number]) for number in (1, 2)] if others else ()):
        yield f"select {names}, count(*) as n from release group by {names}"


@contextmanager
def _said() -> Iterator[list[str]]:
    """Collect what is printed."""
    said: list[str] = []
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        yield said
    said += [out.getvalue(), err.getvalue()]


@contextmanager
def _seeded(name: str) -> Iterator[None]:
    """Draw noise from one stream, and all else from streams by its size: an id more changes no noise, and no choice of rows."""
    asked = Counter[int]()

    def stream(size: int) -> bytes:
        asked[size] += 1
        return shake_256(f"{name} {asked[size]}".encode()).digest(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "random_words", FixedWords(name))
        patch.setattr(os, "urandom", stream)
        patch.setattr(merged, "_seed", lambda _: 1)  # of manifests, which name the moment of a release
        yield


PASSING_FILES = {".sqlite-wal", ".sqlite-shm", ".sqlite-journal"}

# What differs from one run to the next: names of releases, hashes, versions, sizes, and how long things took.
PASSING = (
    (r"\d{8}T\d{4}Z-[0-9a-f]{12}", "RELEASE"),
    (r"\b[0-9a-f]{64}\b|\b[0-9a-f]{16}`?…", "HASH"),
    (r"\bidentity [0-9a-f]{12}\.\.\.", "IDENTITY"),
    (r"about \d+ s left", "SECONDS"),
    (r"process \d+ on \S+,", "PROCESS,"),
    (r"leased until \d{2}:\d{2}:\d{2} UTC", "LEASED"),
    (r"(data-version +[\w -]+ +)[0-9a-f]{16}", r"\1VERSION"),
    (r'"(dpflow|mpmath|numpy|pyarrow)": "[\d.]+"', r'"\1": "VERSION"'),
    (r'"bytes": \d+', '"bytes": SIZE'),
)


def _normal(content: Any, folder: str, days: set[str]) -> str:
    """Return content as text, without what differs from one run to the next, and floats with nine digits."""
    text = json.dumps(content, indent=1, default=str, ensure_ascii=False).replace('\\"', '"').replace("\\n", "\n")
    text = text.replace(folder, "FOLDER")
    text = re.sub(rf"({'|'.join(days)})([T ]\d\d:\d\d(:\d\d)?)?( UTC|Z|\+00:00)?", "MOMENT", text)
    for pattern, word in PASSING:
        text = re.sub(pattern, word, text)
    return re.sub(r"\b\d+\.\d+(e[+-]?\d+)?\b", lambda found: f"{float(found[0]):.9g}", text)


# The record


def hashes(texts: Texts) -> dict[str, str]:
    """Return the short hash of each part."""
    return {part: sha256(text.encode()).hexdigest()[:12] for part, text in texts.items()}


def recorded() -> dict[str, Any]:
    """Return the record: the machine, and the hashes of each setting's fixed and fitted parts."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8")))


def differing(before: Mapping[str, str], texts: Texts) -> list[str]:
    """Return the parts of a record that differ from these texts, or that these lack."""
    now = hashes(texts)
    return [part for part, value in before.items() if now.get(part) != value]


def _measure(setting: Setting) -> dict[str, dict[str, str]]:
    """Play a setting with full and with rough fits, and return the hashes of its fixed and its fitted parts."""
    full, rough = (hashes(played(setting, roughly=roughly)) for roughly in (False, True))
    fixed = {part for part in full.keys() & rough.keys() - NEVER_FIXED if full[part] == rough[part]}
    return {
        "fixed": {part: value for part, value in full.items() if part in fixed},
        "fitted": {part: value for part, value in full.items() if part not in fixed},
    }


def main(words: Sequence[str] | None = None) -> int:
    """Compare settings with the record, record them, or show their texts."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--update", action="store_true", help="record the hashes")
    parser.add_argument("--show", nargs=2, metavar=("NAME", "PART"), help="print the text of a part")
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="write the texts of all parts into a folder")
    arguments = parser.parse_args(words)
    if arguments.show:
        name, part = arguments.show
        print(played(SETTINGS[name], roughly=False)[part])
        return 0
    if arguments.update:
        return _update(arguments.only)
    return max(_compare(name, arguments.texts) for name in arguments.only)


def _update(names: Sequence[str]) -> int:
    before = recorded()["settings"] if RECORD.exists() else {}
    now = before | {name: _measure(SETTINGS[name]) for name in names}
    record = {"machine": platform.machine(), "settings": {name: now[name] for name in SETTINGS if name in now}}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


def _compare(name: str, folder: Path | None) -> int:
    record, texts = recorded(), played(SETTINGS[name], roughly=False)
    same_machine = record["machine"] == platform.machine()
    before = record["settings"][name]
    parts = differing(before["fixed"] | (before["fitted"] if same_machine else {}), texts)
    print(f"{'differs' if parts else 'equal  '} {name}{': ' if parts else ''}{', '.join(parts)}")
    for part, text in texts.items() if folder else ():
        path = folder / name / f"{part}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return int(bool(parts))


if __name__ == "__main__":
    sys.exit(main())
