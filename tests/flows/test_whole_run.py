"""A release through Prefect, from a CSV file to Parquet, lets no more canaries be guessed than it promises; exact counts show there too."""

from dataclasses import replace
from pathlib import Path

import pytest

from dpcore.audit.whole_run import cases, faults
from dpcore.audit.whole_run.check import ReleaseCheck
from flows.synthesize import synthesize

pytestmark = pytest.mark.prefect


def by_flow(spec: Path) -> None:
    synthesize(str(spec))


FEW = replace(cases.PERSONS, canaries=4000, driver=by_flow)


def test_a_release_of_the_flow_shows_no_more_than_it_promises_and_not_much_less() -> None:
    finding = ReleaseCheck(of=FEW).run(effort=1.0)
    assert finding.sound
    assert finding.measured > 0.25 * finding.charged


def test_rows_that_are_not_bounded_show_in_a_release_of_the_flow() -> None:
    finding = ReleaseCheck(of=FEW, fault=faults.not_bounded).run(effort=1.0)
    assert finding.measured > finding.charged
