"""Charge equals noise: every draw of a whole run is the one that its ledger row describes and prices, and none is without a row.

A run's bytes of entropy are recorded. Each draw is then made again by the mechanism that the ledger row describes, from the same bytes, and
must come out the same: what was paid for is what was drawn, whatever the code between them looks like. What a person can move is measured
as well, by a second run without that person that is given the first run's answers. All other settings are in test 6, where one pass serves both.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from dpcore import synthesize
from dpcore.audit.whole_run import faults
from dpcore.ledger import Ledger, Operation
from dpcore.privacy.accounting import Currency
from dpcore.strategies import step_name
from tests.catalogue import ALONE, BY_NAME, NOBODY
from tests.power.neighbours import Watcher, problems, unpaid
from tests.power.planted import Fault
from tests.power.recording import DECLARED, ENTROPY, Recording
from tests.power.test_6_noninterference import caught, watcher  # noqa: F401  a fixture

pytestmark = [
    pytest.mark.system_entropy,  # the recording listens to the operating system
    pytest.mark.usefixtures("rough_models"),
]


@pytest.mark.parametrize(
    ("name", "currency"),
    [
        (name, currency)
        for name in ("pmw", "adaptive", "a person is replaced")
        for currency in Currency
        if BY_NAME[name].currency is not currency
    ],
)
def test_every_draw_of_a_run_is_paid_for(watcher: Watcher, name: str, currency: Currency) -> None:  # noqa: F811
    setting = replace(BY_NAME[name], currency=currency, units=BY_NAME[name].units[:2])
    assert problems(setting, list(watcher.plays(setting))) == set()


@pytest.mark.parametrize("plant", [faults.neighbours_ignored, faults.rows_of_a_person_forgotten])
def test_a_sensitivity_that_is_too_small_is_noticed(watcher: Watcher, plant: Fault) -> None:  # noqa: F811
    assert "by more than was paid for" in caught(watcher, BY_NAME["a person is replaced"], plant, "than was paid for")


def test_a_draw_that_a_crash_has_lost_is_drawn_anew_and_paid_for_anew(tmp_path: Path) -> None:
    lost, resumed, step, setting = Recording(), Recording(), step_name(1, "select"), BY_NAME["mwem"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        with setting.prepared(ALONE, patch):
            with lost.of_a_run(), pytest.MonkeyPatch.context() as deadly:
                commit = Ledger.commit

                def dies(self: Ledger, operation: Operation, output: bytes) -> Operation:
                    if operation.step == step:
                        raise KeyboardInterrupt
                    return commit(self, operation, output)

                deadly.setattr(Ledger, "commit", dies)
                with pytest.raises(KeyboardInterrupt):
                    synthesize("spec.yaml", run_id="r")
            with resumed.of_a_run():
                synthesize("spec.yaml", run_id="r", resume=True)
    assert unpaid(lost, setting.currency) | unpaid(resumed, setting.currency) == set()
    again = [lost.charged[-1], resumed.charged[0]]
    assert [(operation.step, operation.attempt) for operation in again] == [(step, 1), (step, 2)]
    assert lost.draws[-1].words != resumed.draws[0].words


def test_the_bytes_that_a_run_takes_are_those_of_its_draws_and_the_declared_ones(watcher: Watcher) -> None:  # noqa: F811
    _, recording = watcher.play(BY_NAME["mwem"], NOBODY)
    assert {taken.caller for taken in recording.taken} <= {ENTROPY, *DECLARED}
    within = [taken.content for taken in recording.taken if taken.operation is not None]
    assert within == [words for draw in recording.draws for words in draw.words]
