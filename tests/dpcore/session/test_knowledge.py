"""What a session knows is a function of its transcript, whoever computes it."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpcore import Session, answer, open_release
from dpcore.models import FactoredModel
from dpcore.session.bought import Bought
from dpcore.session.knowledge import Knowledge, recalled
from dpcore.steward.verify import verify_ledger
from tests.conftest import Workspace
from tests.dpcore.session.conftest import EPSILON, FIRST_SHARE, GROUPED, narrower

OTHER = "select sex, count(*) as n from release group by sex"


def known(session: Session, query: str) -> list[float]:
    found = session.knowledge.intervals.of(session._parsed(query), level=0.95)[1]
    return [float(end) for each in found.values() for ends in (each.low, each.value, each.high) for end in ends]


def test_fits_from_disk_are_those_that_a_replay_makes(session: Session) -> None:
    for query in (GROUPED, OTHER):
        session.ask(query, within=narrower(session, query, 0.8))
    expected = known(session, GROUPED)
    folder = Path(".dpflow/private/sessions")
    (kept,) = folder.rglob("*.npz")  # only the newest
    with Session.join("spec.yaml") as recalled:
        assert known(recalled, GROUPED) == expected
    kept.write_bytes(b"damaged")
    with Session.join("spec.yaml") as replayed:
        assert known(replayed, GROUPED) == pytest.approx(expected, rel=1e-12)
    shutil.rmtree(folder)
    with Session.join("spec.yaml") as replayed:
        assert known(replayed, GROUPED) == pytest.approx(expected, rel=1e-12)


def test_fits_that_were_cut_off_are_ignored_and_whole_ones_reach_the_disk_first(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.ask(GROUPED, within=narrower(session, GROUPED, 0.8))
    synced: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
        stored = session.knowledge.bought  # this writes the fits
    folder = Path(".dpflow/private")
    (kept,) = folder.rglob("*.npz")
    first, whole = Knowledge(session.knowledge.first), kept.read_bytes()
    assert synced == [len(whole)]
    assert recalled(first, stored, session="s", folder=folder).fits is not None
    for length in (0, 1, 3, 4, 30, len(whole) // 2, len(whole) - 23, len(whole) - 1):
        kept.write_bytes(whole[:length])
        assert recalled(first, stored, session="s", folder=folder) is first


def test_what_was_bought_is_read_back_exactly(session: Session) -> None:
    session.ask(GROUPED, within=narrower(session, GROUPED))
    (bought,) = session.knowledge.bought
    again = Bought.from_bytes(bought.to_bytes(), step=bought.step)
    assert again.to_bytes() == bought.to_bytes()
    assert np.array_equal(again.counts, bought.counts)
    assert again.noise == bought.noise


def test_a_purchase_moves_the_model_towards_what_was_measured(session: Session) -> None:
    before = session.knowledge
    session.ask(GROUPED, within=narrower(session, GROUPED, 0.4))
    after = session.knowledge
    (bought,) = after.bought

    def distance(knowledge: Knowledge) -> float:
        expected = bought.grid.summed(knowledge.release.model.marginal(bought.grid.columns))
        return float(np.abs(expected - bought.counts).sum())

    assert distance(after) < distance(before)


@pytest.mark.parametrize("room", [True, False])
def test_a_factored_model_learns_what_it_has_room_for(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    workspace.open_account(epsilon=100)
    workspace.write_spec(("strategy: {name: mwem, rounds: 4}", "strategy: {name: adaptive, rounds: 2}"))
    if not room:
        monkeypatch.setattr(FactoredModel, "cells_with", lambda *_: 10**9)
    three = "select sex, smoker, city, count(*) as n from release group by sex, smoker, city"
    with Session.open("spec.yaml", epsilon=EPSILON, first_share=FIRST_SHARE, session="s") as session:
        reply = session.ask(three, within=narrower(session, three))
        assert session.knowledge.learned == ((0,) if room else ())
        assert session.ask(three, within=2 * reply.price.half_width).price.stored
        release = open_release(session.release()["release"])
        assert answer(release, three).n.to_list() == pytest.approx(known_values(session, three), abs=1.0)
    verify_ledger()


def known_values(session: Session, query: str) -> list[float]:
    (found,) = session.knowledge.intervals.of(session._parsed(query), level=0.95)[1].values()
    return found.value.tolist()
