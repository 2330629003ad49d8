"""Non-interference: on two tables that differ by one person, all that anybody but the steward sees is alike, but for what was bought.

Without Prefect, for every setting of the catalogue. Two comparisons: a neighbour that is given the same noisy answers must look the same to
the byte, and one that is given the same noise must look the same up to the figures that were bought. The first also counts again what every
mechanism was given, and what is stored of it (tests/power/neighbours.py). (tests/faults/flows/test_noninterference.py looks at what the
orchestrator sees.)
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from dpcore import load_spec
from dpcore.cli.main import parser
from dpcore.cli.verbs import VERBS
from dpcore.curator.charges import CHARGED_STEPS, ChargedStep
from dpcore.mechanisms import KINDS
from dpcore.spec.parts import SpecPart
from dpcore.tables.histogram import LocalHistogram
from tests.catalogue import ALONE, BY_NAME, NOBODY, SETTINGS, SPREAD, STORES, Setting
from tests.contracts.mechanism_catalogue import CATALOGUE
from tests.docs.test_proof import PAGE, STEP
from tests.power.neighbours import REACH, Watcher, differences, failed, problems, reach, without_what_was_bought
from tests.power.planted import PLANTED, Fault, Plant, names_a_file_by_the_rows, planted

pytestmark = [
    pytest.mark.system_entropy,  # a recorded stream stands for the operating system
    pytest.mark.usefixtures("rough_models"),
]


@pytest.fixture
def watcher(tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Watcher:
    return Watcher(tmp_path, caplog, capfd)


def caught(watcher: Watcher, setting: Setting, plant: Plant | Fault, problem: str) -> str:
    """Play a setting with a bug until a problem is found, and return the problems. The checks themselves run without the bug."""
    plays, found = watcher.plays(setting), []
    while True:
        with planted(plant):
            played = next(plays, None)
        if played is None:
            return ", ".join(problems(setting, found))
        found.append(played)
        if problem in (named := ", ".join(problems(setting, found))):
            return named


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_one_person_more_changes_nothing_if_the_noise_makes_up_for_it(watcher: Watcher, setting: Setting) -> None:
    plays = list(watcher.plays(setting))
    assert problems(setting, plays) == set()
    charged = {operation.step for operation in plays[0][1].charged}
    assert [
        kind.name for kind in proved_by(setting) if not any(re.fullmatch(kind.steps, step) for step in charged)
    ] == []


def proved_by(setting: Setting) -> list[ChargedStep]:
    """The kinds of charged steps whose row in the proof names a setting."""
    named = {name for name, _, settings, _ in STEP.findall(PAGE) if setting.name in settings.split("; ")}
    return [kind for kind in CHARGED_STEPS if kind.name in named]


@pytest.mark.parametrize(
    ("plant", "name", "problem"), PLANTED, ids=[f"{plant.__name__}, {name}" for plant, name, _ in PLANTED]
)
def test_a_bug_is_caught(watcher: Watcher, plant: Plant | Fault, name: str, problem: str) -> None:
    assert problem in caught(watcher, BY_NAME[name], plant, problem)


@pytest.mark.parametrize("name", ["mwem", "pmw", "adaptive"])
def test_one_person_more_changes_only_what_was_bought_if_the_noise_is_the_same(watcher: Watcher, name: str) -> None:
    here, there = (watcher.play(BY_NAME[name], rows)[0] for rows in (NOBODY, SPREAD))
    assert here["rows"] != there["rows"]
    assert differences(without_what_was_bought(here), without_what_was_bought(there)) == set()


def test_a_leak_is_found_behind_the_figures_too(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    leak = next(plant for plant, *_ in PLANTED if plant.__name__ == names_a_file_by_the_rows.__name__)
    leak(monkeypatch)
    here, there = (watcher.play(BY_NAME["mwem"], rows)[0] for rows in (NOBODY, ALONE))
    assert differences(without_what_was_bought(here), without_what_was_bought(there)) == {"files"}


def test_a_step_that_breaks_breaks_in_the_same_words(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_histogram: LocalHistogram, _axes: Any) -> Any:
        message = f"broken by {Path('visits.csv').read_text(encoding='utf-8')[-200:]}"
        raise ValueError(message)

    monkeypatch.setattr("tests.power.recording._counts_of", lambda _histogram: [])
    monkeypatch.setattr(LocalHistogram, "marginal", broken)
    (here, recording), (there, _) = (watcher.play(BY_NAME["mwem"], rows) for rows in (NOBODY, SPREAD))
    assert failed(here)
    assert not recording.draws
    assert differences(here, there) == set()


# The catalogue reaches all of the product


def written(part: BaseModel) -> Iterator[tuple[str, str]]:
    """Yield the keys that a spec has, each with the class that declares it."""
    for name in part.model_fields_set:
        yield (
            next(kind.__name__ for kind in type(part).__mro__ if name in vars(kind).get("__annotations__", ())),
            name,
        )
        yield from _within(getattr(part, name))


def _within(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, BaseModel):
        yield from written(value)
    elif isinstance(value, dict | tuple | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _within(each)


def declared(kind: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for below in kind.__subclasses__():
        yield from ((below.__name__, name) for name in below.__annotations__ if name in below.model_fields)
        yield from declared(below)


NEEDLESS = {
    ("EngineSpec", "workers"): "a cluster of processes takes seconds to start, and reads as one in this process"
}


def test_every_key_of_a_spec_is_in_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[tuple[str, str]] = set()
    for number, setting in enumerate(SETTINGS):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        with setting.prepared(NOBODY, monkeypatch):
            used |= set(written(load_spec("spec.yaml", with_table=True).spec))
    assert set(declared(SpecPart)) - used == NEEDLESS.keys()


SPENDING = {"check", "init", "run", "session open", "ask", "serve-answers", "report"}
FREE = {
    *(
        "analyst add",
        "analyst remove",
        "analyst show",
        "answer",
        "approval",
        "audit",
        "dashboard",
        "keys new",
    ),
    *(
        "latest",
        "merge",
        "plan",
        "register",
        "registered",
        "releases",
        "sample",
        "schema",
        "session close",
        "session release",
    ),
    *("session show", "verify-release", "withdraw"),
}


def verbs(parser: argparse.ArgumentParser, *before: str) -> Iterator[str]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield " ".join(before)
    for name, each in below[0].choices.items() if below else ():
        yield from verbs(each, *before, name)


def test_every_verb_that_spends_is_in_the_catalogue() -> None:
    known = {verb for verb in verbs(parser({}, loaded=VERBS)) if not verb.startswith("ledger ")}
    assert known == SPENDING | FREE  # a new verb must be put into one of the two
    assert {verb for setting in SETTINGS for verb in setting.verbs} >= SPENDING
    assert {setting.stored for setting in SETTINGS} == STORES.keys()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_how_far_the_input_of_a_mechanism_moved_is_known_for_every_mechanism(kind: Any) -> None:
    mechanism = next(entry.make() for entry in CATALOGUE.values() if entry.kind is kind)
    size = 2 if kind.name == "bounded-mean" else 8
    before = np.zeros(size, dtype=np.int64)
    assert reach(mechanism, before, before) == 0
    assert reach(mechanism, before, before + 10**6) > 1
    assert reach(mechanism, before, np.zeros(size + 1)) > 1
    assert len(REACH) == len(KINDS)
