"""The releases that are audited, over units, neighbours, currencies and strategies, each with planted faults that must be caught."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from dpcore.audit.case import Bug, Case
from dpcore.audit.whole_run import drivers, faults
from dpcore.audit.whole_run.check import ReleaseCheck
from dpcore.audit.whole_run.features import features_of
from dpcore.audit.whole_run.settings import (
    CANARY,
    CELL,
    EXPORT,
    FILLERS,
    FLAG,
    LETTERS,
    OTHER,
    PUBLIC,
    Setting,
)
from dpcore.privacy.accounting import Currency
from dpcore.privacy.protection import Neighbours

DELTA = 1e-6

ROWS_PER_CANARY = 20
"""The number of rows of a canary person: far more than are kept."""

SAME = "abc;true;true;7;70;;5;70;01.02.1900;1901-01-01;;1900-05-05T10:00:00;01.02.1900 10"
"""The values of all other columns, in every row."""

FILLER = f"f,{{number}},{OTHER},-"
QUOTED: dict[str, Any] = {
    "canary": f'c,{{cell}},{CANARY},"',
    "others": (FILLER,) * (FILLERS - 1) + (f'f,{{number}},{OTHER},-"',),
}
"""Rows that are units. A canary's note begins with a quote, which means nothing in a file without quoting."""

ROWS = Setting(name="release-rows-pure", canaries=20_000, **QUOTED)
PERSONS = Setting(name="release-persons-pure", canaries=20_000, rows_per_unit=5, copies=ROWS_PER_CANARY)
HOUSEHOLDS = Setting(
    name="release-households-pure",
    canaries=20_000,
    rows_per_unit=1,
    canary=f"{{number}}.10,{{cell}},{CANARY},-",
    others=(f"{{number}}.1,{{before}},{OTHER},-",),
    copies=ROWS_PER_CANARY,
    apart=2,
)
AUTO = Setting(name="release-limit-chosen-pure", canaries=20_000, rows_per_unit="auto", copies=ROWS_PER_CANARY)
REPLACED = Setting(
    name="release-replace-one-pure", canaries=20_000, neighbours=Neighbours.REPLACE_ONE, others=(FILLER,) * FILLERS
)
PERSONS_ZCDP = Setting(
    name="release-persons-zcdp",
    canaries=4_000,
    releases=16,
    currency=Currency.ZCDP,
    epsilon=4.0,
    delta=DELTA,
    rows_per_unit=5,
    copies=ROWS_PER_CANARY,
)
ADAPTIVE = Setting(
    name="release-adaptive-gdp",
    canaries=4_000,
    releases=16,
    currency=Currency.GDP,
    epsilon=4.0,
    delta=DELTA,
    strategy="{name: adaptive}",
    **QUOTED,
)
PMW = Setting(
    name="release-pmw",
    canaries=500,
    epsilon=0.05,
    columns=(CELL,),
    parts=("workload: {marginals: 1}",),
    strategy="{name: pmw, rounds: 60, alpha: 0.001}",
    others=(),
)
WEIGHT = Setting(
    name="release-weight",
    canaries=2_000,
    privacy=", weight: {column: weight, max: 2}, expect_rows: [1, 100000000]",
    source="{path: table.parquet, format: parquet}",
    header="person,cell,flag,weight",
    canary=f"c,{{cell}},{CANARY},1000",
    others=(f"f,{{number}},{OTHER},1",),
)
COLUMNS = Setting(
    name="release-columns",
    canaries=1_000,
    source="{path: table.csv, format: csv, delimiter: ';', encoding: utf-8}",
    columns=(
        "cell: {type: integer, min: 0, max: $last, width: 1, missing: true, outside: drop}",
        "kind: {type: categorical, values: [a, b], match: prefix, missing: ['?'], outside: drop}",
        "old: {type: boolean, missing: true, outside: drop}",
        "new: {type: boolean, outside: other}",
        "age: {type: integer, min: 0, max: 99, discover: {share: 0.02, bins: 2, finest: 10}, outside: other}",
        "size: {type: integer, min: 0, max: 999, share: 0.02}",
        "wage: {type: number, edges: [0, 10, 20], missing: true, outside: other}",
        "debt: {type: number, min: 0, max: 20, bins: 2, outside: drop}",
        "rent: {type: number, min: 0, max: 99, discover: {share: 0.02, bins: 2, finest: 10}}",
        "born: {type: date, min: 1900-01-01, max: 1901-12-31, every: year, format: '%d.%m.%Y', missing: true, outside: other}",
        "left: {type: date, min: 1900-01-01, max: 1901-12-31, every: year, outside: drop}",
        "seen: {type: datetime, min: 1900-01-01T00:00:00, max: 1901-12-31T00:00:00, every: year, missing: true, outside: other}",
        "gone: {type: datetime, min: 1900-01-01T00:00:00, max: 1901-12-31T00:00:00, every: year, outside: drop}",
        "paid: {type: datetime, min: 1900-01-01T00:00:00, max: 1901-12-31T00:00:00, step: hour, share: 0.02, format: '%d.%m.%Y %H'}",
    ),
    parts=("workload: {marginals: [[cell], {columns: [kind, old], weight: 2}], target: kind, ranges: [debt]}",),
    strategy="{name: adaptive, rounds: 1}",
    header="cell;kind;old;new;age;size;wage;debt;rent;born;left;seen;gone;paid",
    canary=f"{{cell}};{SAME}",
    others=(f";{SAME}",) * 12,
)
VALUES = Setting(
    name="release-discovered-values",
    canaries=2_000,
    columns=(
        f"cell: {{type: categorical, discover: {{share: 0.9, most: 2000, length: 4, alphabet: {LETTERS}}}}}",
        FLAG,
    ),
    canary=f"c,{{text}},{CANARY},-",
    others=(),
    listed=rf'"([{LETTERS}]{{1,4}})"',
)
NUMBERS = Setting(
    name="release-tree-of-numbers",
    canaries=1_500,
    columns=("cell: {type: number, min: 0, max: $last, step: 1, share: 0.9}", FLAG),
    others=(f"f,{{before}},{OTHER},-",) * 16,
    apart=2,
)
DAYS = Setting(
    name="release-tree-of-days",
    canaries=1_500,
    columns=("cell: {type: date, min: 2001-01-01, max: $last_day, share: 0.9}", FLAG),
    canary=f"c,{{day}},{CANARY},-",
    others=(f"f,{{day_before}},{OTHER},-",) * 16,
    apart=2,
)
ORDER = Setting(
    name="release-order",
    canaries=40,
    releases=6,
    epsilon=1.5,
    source="{path: table.arrow, format: arrow}",
    columns=(CELL, "low: {type: integer, min: 0, max: $last, width: 1}"),
    parts=('constraints: [{order: "low <= cell", violations: repair}]', "workload: {marginals: 1}"),
    header="cell,low",
    canary="0,{cell}",
    others=("0,{before}",) * 12,
    apart=2,
)
SUM = replace(
    ORDER,
    name="release-sum",
    columns=(CELL, "some: {type: integer, min: 0, max: $last, width: 1}", "more: {type: integer, min: 0, max: 1}"),
    parts=('constraints: [{sum: "cell = some + more", violations: repair}]', "workload: {marginals: 1}"),
    header="cell,some,more",
    canary="0,{before},1",
    others=("1,{before},0",) * 12,
)
IMPOSSIBLE = Setting(
    name="release-impossible",
    canaries=500,
    epsilon=1.5,
    privacy=", lose: 100 %",
    source="{path: table.arrow, format: arrow}",
    columns=(
        CELL,
        FLAG,
        "kind: {type: categorical, values: [a, b], match: exact}",
        "stage: {type: categorical, values: [a, b]}",
        "grade: {type: categorical, values: [a, b]}",
    ),
    parts=(
        "constraints:",
        f"- {{impossible: {{flag: {CANARY}, kind: b}}, violations: repair}}",
        f"- {{if: {{flag: {CANARY}}}, then: {{stage: a}}, violations: repair}}",
        "- {possible: {columns: [flag, grade], rows: [[n, [a, b]], [y, a]]}, violations: repair}",
        "- {impossible: {kind: b, stage: b, grade: b}, violations: drop}",
        "workload: {marginals: 1}",
    ),
    header="cell,flag,kind,stage,grade",
    canary=f"{{cell}},{CANARY},b,b,b",
    others=(f"{{number}},{OTHER},a,b,a",) * 12,
)
DEPENDS = Setting(
    name="release-depends",
    canaries=2_000,
    parts=('constraints: [{depends: "cell -> flag", share: 0.8}]', "workload: {marginals: 2}"),
    others=(),
    listed=r'\[\s*"(\d+)",\s*"y"\s*\]',
)
SIZES = Setting(
    name="release-sizes-of-persons",
    canaries=128,
    releases=12,
    epsilon=4.0,
    neighbours=Neighbours.REPLACE_ONE,
    rows_per_unit=256,
    columns=("cell: {type: integer, min: 0, max: 9, width: 1}", FLAG),
    parts=("persons: {rows_of: person, share: 0.9, constant: [flag]}", "workload: {marginals: 1}"),
    canary=f"canary-{{number}},0,{CANARY},-",
    others=(),
    copies=0,
    only="rows-of-persons/by-size",
)
CONSTANT = Setting(
    name="release-constant-columns",
    canaries=2_000,
    rows_per_unit=3,
    parts=("persons: {rows_of: person, share: 0.05, constant: [cell]}", "workload: {marginals: 2}"),
    copies=ROWS_PER_CANARY,
)
BLOCKS = Setting(
    name="release-blocks",
    canaries=1_000,
    epsilon=1.0,
    parts=(
        "blocks: {column: day, every: month, start: 2001-01-01, window: new, series: monthly, arrived: arrived, format: '%Y-%m-%d'}",
        "workload: {marginals: 1}",
    ),
    header="day,arrived,cell,flag",
    canary=f"2001-0{{turn}}-15,2001-0{{turn}}-16,{{cell}},{CANARY}",
    others=(),
    always=tuple(f"2001-0{month - 1}-10,2001-0{month - 1}-11,0,{OTHER}" for month in drivers.MONTHS),
    driver=drivers.run_each_month,
)
BLOCKS_REPLACED = replace(
    BLOCKS,
    name="release-blocks-replace-one",
    canaries=2_000,
    paid=2,
    neighbours=Neighbours.REPLACE_ONE,
)
PRIOR = Setting(
    name="release-prior-table",
    canaries=1_000,
    rows_per_unit=8,
    columns=("cell: {type: integer, min: 0, max: 1039, width: 1}", FLAG),
    parts=(f"prior: {{path: {PUBLIC}}}", "workload: {marginals: 2}"),
    # what a prior tells must be worth it, or it is not used
    always=tuple(
        f"always-{cell}-{number},{cell},{(OTHER, CANARY)[cell % 2]},-"
        for cell in range(1000, 1040)
        for number in range(600)
    ),
    copies=8,
)
LATEST = replace(
    PRIOR,
    name="release-prior-latest",
    epsilon=1.0,
    paid=2,
    parts=("prior: latest", "workload: {marginals: 2}"),
    driver=partial(drivers.run, times=2),
)
UNCHANGED = replace(
    LATEST,
    name="release-prior-unchanged",
    parts=("prior: {release: latest, unchanged: true}", "workload: {marginals: 1}"),
)
CHAIN = Setting(
    name="release-chain",
    canaries=3_000,
    epsilon=1.0,
    paid=3,
    parts=("prior: {release: latest, unchanged: true}", "workload: {marginals: 2}"),
    driver=partial(drivers.run, times=3),
    stated=True,
    **QUOTED,
)
SESSION = Setting(
    name="session-limit-chosen",
    canaries=400,
    epsilon=1.0,
    rows_per_unit="auto",
    copies=ROWS_PER_CANARY,
    driver=drivers.hold_session,
)
ONLINE = Setting(
    name="session-online",
    canaries=drivers.ASKED,
    releases=30,
    epsilon=0.7,
    columns=(f"cell: {{type: integer, min: 0, max: {len(drivers.ROWS_ONLINE) - 1}, width: 1}}",),
    parts=(),
    header="cell",
    canary="{cell}",
    others=(),
    always=tuple(str(cell) for cell, rows in enumerate(drivers.ROWS_ONLINE) for _ in range(rows)),
    driver=drivers.answer_online,
)
ASK = Setting(
    name="ask-histogram",
    canaries=2_000,
    columns=(CELL,),
    parts=("workload: {marginals: 1}",),
    others=(),
    driver=drivers.ask_once,
)
SQL = Setting(
    name="release-sql",
    canaries=4_000,
    source="{sql: 'select cell, flag from canaries', url_env: DPFLOW_AUDIT_DATABASE}",
)
DASK = Setting(
    name="release-dask",
    canaries=1_000,
    rows_per_unit=5,
    source="{path: parts, quote: none}",
    parts=("engine: {name: dask}", "workload: {marginals: 2}"),
    copies=ROWS_PER_CANARY,
    driver=drivers.run_on_threads,
)
EXPORTED = Setting(name="ledger-export", canaries=1_000, only=EXPORT)

Fault = Callable[[], AbstractContextManager[None]]


def _case(setting: Setting, *planted: Fault) -> Case:
    return Case(
        name=setting.name,
        theorem="The privacy loss of everything that a release publishes is at most the amount that its run reserved.",
        reference="docs/explanation/proof.md; Steinke, Nasr and Jagielski 2023; Mahloujifar, Melis and Chaudhuri 2025",
        prices={setting.currency: "the sum of the prices of its steps, at most what it reserved"},
        features=features_of(setting),
        checks=(ReleaseCheck(of=setting),),
        bugs=tuple(
            Bug(
                name=fault.__name__.replace("_", " "),
                how=_sentence(fault),
                check=ReleaseCheck(of=setting, fault=fault),
            )
            for fault in planted
        ),
    )


def _sentence(fault: Fault) -> str:
    """Return the first line of a fault's docstring, which says what the fault does."""
    first = (fault.__doc__ or "").splitlines()[0].removesuffix(".")
    return first[:1].lower() + first[1:]


PLANTED: Mapping[Setting, tuple[Fault, ...]] = {
    ROWS: (
        faults.rows_read_twice,
        faults.quotes_believed,
        faults.half_noise,
        faults.redrawn,
        faults.underpriced,
        faults.exact_counts_published,
        faults.rows_of_the_real_table,
    ),
    PERSONS: (
        faults.not_bounded,
        faults.bounded_over_all,
        faults.bounded_part_by_part,
        faults.rows_of_a_person_forgotten,
    ),
    HOUSEHOLDS: (faults.ids_folded,),
    AUTO: (
        faults.limit_not_kept,
        faults.limit_not_paid,
    ),
    REPLACED: (faults.neighbours_ignored,),
    PERSONS_ZCDP: (
        faults.not_bounded,
        faults.rows_of_a_person_forgotten,
        faults.exact_counts_published,
    ),
    ADAPTIVE: (
        faults.half_noise,
        faults.underpriced,
        faults.exact_counts_published,
    ),
    PMW: (faults.exact_counts_published,),
    WEIGHT: (faults.weights_not_clipped,),
    COLUMNS: (faults.nulls_filled_forward,),
    VALUES: (
        faults.noise_for_what_is_there,
        faults.found_by_exact_counts,
    ),
    NUMBERS: (faults.noise_for_what_is_there,),
    DAYS: (faults.noise_for_what_is_there,),
    ORDER: (faults.orders_repaired_by_the_batch,),
    SUM: (faults.sums_repaired_by_the_batch,),
    IMPOSSIBLE: (faults.batches_dropped,),
    DEPENDS: (faults.functions_of_exact_counts,),
    SIZES: (
        faults.units_priced_as_added,
        faults.units_without_noise,
    ),
    CONSTANT: (faults.rows_added_by_agreement,),
    BLOCKS: (faults.all_blocks_read,),
    BLOCKS_REPLACED: (faults.blocks_and_neighbours_ignored,),
    PRIOR: (faults.prior_from_the_real_table,),
    LATEST: (faults.prior_from_the_real_table,),
    UNCHANGED: (faults.checked_for_nothing,),
    CHAIN: (faults.own_run_stated,),
    SESSION: (
        faults.limit_not_kept,
        faults.exact_the_second_time,
    ),
    ONLINE: (faults.compared_without_noise,),
    ASK: (faults.asked_without_noise,),
    SQL: (faults.rows_read_twice,),
    DASK: (faults.partitions_bounded_one_by_one,),
    EXPORTED: (faults.counts_described,),
}
"""The settings in display order, with the faults that must be caught in each."""

RELEASES: Mapping[str, Callable[[], Case]] = {
    setting.name: partial(_case, setting, *planted) for setting, planted in PLANTED.items()
}
"""The cases by name."""
