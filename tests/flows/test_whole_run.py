"""A release through Prefect, from a CSV file to Parquet, lets no more canaries be guessed than it promises; exact counts show there too."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpcore.audit.whole_run import cases, faults
from dpcore.audit.whole_run.check import ReleaseCheck
from flows.synthesize import synthesize

pytestmark = pytest.mark.prefect

FEW = replace(cases.PERSONS, canaries=4000)


def by_flow(spec: Path) -> Any:
    return SimpleNamespace(**synthesize(str(spec)))


def test_a_release_of_the_flow_shows_no_more_than_it_promises_and_not_much_less() -> None:
    finding = ReleaseCheck(of=FEW, driver=by_flow).run(effort=1.0)
    assert finding.sound
    assert finding.measured > 0.25 * finding.charged


def test_rows_that_are_not_bounded_show_in_a_release_of_the_flow() -> None:
    finding = ReleaseCheck(of=FEW, driver=by_flow, fault=faults.not_bounded).run(effort=1.0)
    assert finding.measured > finding.charged
