"""The fixed parts of the golden settings are as recorded, with rough fits; and small changes are seen.

If a change is meant, record it with `python -m tests.golden --update` and say in the commit what changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dpcore.answers import answer
from dpcore.ledger import Ledger
from dpcore.mechanisms import DiscreteLaplace
from dpcore.mechanisms.sampling import entropy
from tests.golden import SETTINGS, differing, hashes, played, recorded

SMALL = SETTINGS["a row by weight"]


@pytest.mark.parametrize("name", SETTINGS)
def test_what_depends_on_no_fit_is_as_recorded(name: str) -> None:
    texts = played(SETTINGS[name], roughly=True)
    parts = differing(recorded()["settings"][name]["fixed"], texts)
    assert parts == [], f"compare before and after: python -m tests.golden --show '{name}' {parts[0]}"


def test_every_setting_is_recorded_with_all_its_parts() -> None:
    settings = recorded()["settings"]
    assert list(settings) == list(SETTINGS)
    assert {len(kinds["fixed"] | kinds["fitted"]) for kinds in settings.values()} == {13}


def a_draw_more(patch: pytest.MonkeyPatch) -> None:
    draw = DiscreteLaplace.draw
    patch.setattr(DiscreteLaplace, "draw", lambda noise, counts: (entropy.random_words(1), draw(noise, counts))[1])


def a_unit_more(patch: pytest.MonkeyPatch) -> None:
    charge = Ledger.charge

    def dearer(ledger: Ledger, lease: Any, *, amount: int, step: str, **more: Any) -> Any:
        return charge(ledger, lease, amount=amount + step.endswith("select"), step=step, **more)

    patch.setattr(Ledger, "charge", dearer)


def wider_intervals(patch: pytest.MonkeyPatch) -> None:
    framed = answer.framed

    def wider(prepared: Any, found: Mapping[Any, Any], *more: Any) -> Any:
        ends = {number: replace(each, low=each.low - 0.01 * (each.value - each.low)) for number, each in found.items()}
        return framed(prepared, ends, *more)

    patch.setattr(answer, "framed", wider)


@pytest.fixture(scope="module")
def before() -> Mapping[str, str]:
    return hashes(played(SMALL, roughly=False))


@pytest.mark.parametrize(
    ("plant", "parts"),
    [
        (a_draw_more, {"measurements", "rows", "answers"}),
        (a_unit_more, {"charges", "events"}),
        (wider_intervals, {"answers"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_small_change_is_seen(
    before: Mapping[str, str],
    plant: Callable[[pytest.MonkeyPatch], None],
    parts: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    changed = differing(before, played(SMALL, roughly=False))
    assert parts <= set(changed) <= before.keys() - {"plan", "files"}
