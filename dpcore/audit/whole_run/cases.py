"""The releases that are audited, over units, neighbours, currencies and strategies, each with planted faults that must be caught."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from dpcore.audit.case import Bug, Case
from dpcore.audit.whole_run import faults
from dpcore.audit.whole_run.check import ReleaseCheck
from dpcore.audit.whole_run.settings import Setting
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

DELTA = 1e-6

ROWS = Setting(
    name="release-rows-pure",
    currency=Currency.PURE,
    epsilon=2.0,
    delta=0.0,
    strategy="{name: mwem, rounds: 1}",
    canaries=20_000,
    releases=1,
)
PERSONS = Setting(
    name="release-persons-pure",
    currency=Currency.PURE,
    epsilon=2.0,
    delta=0.0,
    strategy="{name: mwem, rounds: 1}",
    rows_per_unit=5,
    canaries=20_000,
    releases=1,
)
HOUSEHOLDS = Setting(
    name="release-households-pure",
    currency=Currency.PURE,
    epsilon=2.0,
    delta=0.0,
    strategy="{name: mwem, rounds: 1}",
    rows_per_unit=1,
    households=True,
    canaries=20_000,
    releases=1,
)
AUTO = Setting(
    name="release-limit-chosen-pure",
    currency=Currency.PURE,
    epsilon=2.0,
    delta=0.0,
    strategy="{name: mwem, rounds: 1}",
    rows_per_unit="auto",
    canaries=20_000,
    releases=1,
)
REPLACED = Setting(
    name="release-replace-one-pure",
    currency=Currency.PURE,
    epsilon=2.0,
    delta=0.0,
    strategy="{name: mwem, rounds: 1}",
    neighbours=Neighbours.REPLACE_ONE,
    canaries=40_000,
    releases=1,
)
PERSONS_ZCDP = Setting(
    name="release-persons-zcdp",
    currency=Currency.ZCDP,
    epsilon=4.0,
    delta=DELTA,
    strategy="{name: mwem, rounds: 1}",
    rows_per_unit=5,
    canaries=4_000,
    releases=16,
)
ADAPTIVE = Setting(
    name="release-adaptive-gdp",
    currency=Currency.GDP,
    epsilon=4.0,
    delta=DELTA,
    strategy="{name: adaptive}",
    canaries=4_000,
    releases=16,
)

_READING = (
    ("rows read twice", faults.rows_read_twice),
    ("quotes believed", faults.quotes_believed),
)
_BOUNDING = (
    ("not bounded", faults.not_bounded),
    ("bounded over all", faults.bounded_over_all),
    ("bounded part by part", faults.bounded_part_by_part),
    ("rows of a person forgotten", faults.rows_of_a_person_forgotten),
)
_CHARGING = (
    ("half noise", faults.half_noise),
    ("redrawn for one charge", faults.redrawn),
    ("underpriced", faults.underpriced),
)
_PUBLISHING = (
    ("exact counts published", faults.exact_counts_published),
    ("rows of the real table", faults.rows_of_the_real_table),
)
Fault = tuple[str, Callable[[], AbstractContextManager[None]]]


def _case(setting: Setting, *planted: Fault) -> Case:
    return Case(
        name=setting.name,
        theorem="The privacy loss of everything that a release publishes is at most the amount that its run reserved.",
        reference="docs/explanation/proof.md; Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2025",
        prices={setting.currency: "the sum of the prices of its steps, at most what it reserved"},
        checks=(ReleaseCheck(of=setting),),
        bugs=tuple(
            Bug(name=name, how=_sentence(fault), check=ReleaseCheck(of=setting, fault=fault)) for name, fault in planted
        ),
    )


def _sentence(fault: Callable[[], AbstractContextManager[None]]) -> str:
    """Return the first line of a fault's docstring, which says what the fault does."""
    first = (fault.__doc__ or "").splitlines()[0].removesuffix(".")
    return first[:1].lower() + first[1:]


RELEASES: Mapping[str, Callable[[], Case]] = {
    ROWS.name: lambda: _case(ROWS, *_READING, *_CHARGING, *_PUBLISHING),
    PERSONS.name: lambda: _case(PERSONS, *_BOUNDING),
    HOUSEHOLDS.name: lambda: _case(HOUSEHOLDS, ("ids folded", faults.ids_folded)),
    AUTO.name: lambda: _case(
        AUTO, ("chosen limit not kept", faults.limit_not_kept), ("chosen limit not paid", faults.limit_not_paid)
    ),
    REPLACED.name: lambda: _case(REPLACED, ("neighbours ignored", faults.neighbours_ignored)),
    PERSONS_ZCDP.name: lambda: _case(PERSONS_ZCDP, _BOUNDING[0], _BOUNDING[3], _PUBLISHING[0]),
    ADAPTIVE.name: lambda: _case(ADAPTIVE, _CHARGING[0], _CHARGING[2], _PUBLISHING[0]),
}
"""By name, in display order."""
