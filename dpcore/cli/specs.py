"""The verbs that work on specs and run them: check, schema, run."""

import argparse
import json
import logging
import shlex
from collections.abc import Sequence
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from dpcore.cli.arguments import AS_OF, SPEC, Subparsers, add_verb, argument, day_of
from dpcore.cli.output import Answer, table
from dpcore.cli.verbs import VERBS
from dpcore.errors import RowsUnexpected, SourceBroken, SourceError, UsageError
from dpcore.mechanisms.pricing import currency_for
from dpcore.places import places_of_spec
from dpcore.privacy.accounting import Currency
from dpcore.reporting.formatting import BOOKED_PLACES, at_most, cells, down, figure, next_run, stated
from dpcore.reporting.outcome import Outcome
from dpcore.runs.losses import Losses, buy_losses
from dpcore.runs.paying import adopt_output, amount_to_reserve
from dpcore.runs.reading import check_source, remarks
from dpcore.runs.synthesis import noting_reserved
from dpcore.spec import Declaration, json_schema, load_spec
from dpcore.spec.advice import advice
from dpcore.spec.release import AUTO_LIMITS
from dpcore.spec.shares import Early
from dpcore.steward.registry import declared
from dpcore.strategies import strategy_for
from dpcore.tables.ingest import Source
from dpcore.universe import Attribute

progress = logging.getLogger("dpcore.progress")


class Runner(Protocol):
    """Makes a release from a spec, or resumes a run of it."""

    def __call__(self, spec: Path, resume: str | None, *, approved: bool, as_of: date | None) -> Outcome:
        """Make the release.

        Args:
            spec: The spec's path or registered name.
            resume: The id of the run to resume; None for a new run.
            approved: Whether the steward approves a run above the approval threshold.
            as_of: With `blocks`, read the blocks complete on this day; None: today.
        """


def add_verbs(verbs: Subparsers) -> None:
    """Add the verbs to the parser."""
    add_verb(
        verbs,
        "check",
        VERBS["check"].about,
        SPEC,
        argument(
            "--epsilon",
            type=float,
            help="also read the table, and buy for this epsilon how many rows a run would lose, and by which columns",
        ),
        run=_check,
    )

    add_verb(verbs, "schema", VERBS["schema"].about, run=_schema)

    add_verb(
        verbs,
        "run",
        VERBS["run"].about,
        argument("spec", metavar="SPEC", type=Path, help="a spec's file, or the name of a registered spec"),
        argument("--approve", action="store_true", help="approve, as steward, a run above the approval threshold"),
        argument(
            "--adopt",
            metavar="REASON",
            help="take over, as steward, an output folder that belongs to another ledger; the reason is recorded in the ledger",
        ),
        argument(
            "--resume",
            metavar="RUN",
            help="resume an interrupted run; finished measurements are neither charged nor drawn again",
        ),
        argument("--as-of", metavar="DAY", help=AS_OF),
        run=_run,
    )


def _check(arguments: argparse.Namespace) -> Answer:
    declaration = load_spec(arguments.spec)
    strategy = strategy_for(declaration)
    universe, privacy, discovers = declaration.universe, declaration.spec.privacy, declaration.descents()
    usual = currency_for(privacy.epsilon, delta=privacy.delta, unit=privacy.unit, neighbours=privacy.neighbours)
    # It raises if the budget is too small for any run. Whether each measurement gets enough is left to the plan, as it takes long for many columns.
    amount_to_reserve(declaration, strategy, currency=usual, smallest=Fraction(1))
    where = places_of_spec(declaration.path).ledger_shown
    warnings = [*advice(declaration), *_source_warnings(declaration)]
    columns = [("column", "kind", "cells", "nulls", "outside")] + [
        (
            name,
            declaration.spec.universe[name].type,
            _discoverable_cells(attribute) if name in discovers else str(attribute.size),
            "a cell" if attribute.missing else "other" if attribute.outside == "other" else "dropped",
            str(attribute.outside),
        )
        for name, attribute in universe.attributes.items()
    ]
    data = {
        "valid": True,
        "dataset": declaration.spec.dataset,
        "columns": {name: attribute.size for name, attribute in universe.attributes.items()},
        "discovers": {name: float(descent.share) for name, descent in discovers.items()},
        "cells": universe.size,
        "marginals": len(declaration.workload.marginals),
        "largest_weight": max(declaration.workload.weights),
        "target": declaration.spec.workload.target,
        "ranges": list(declaration.spec.workload.ranges or ()),
        "strategy": declaration.strategy.name,
        "strategy_reason": declaration.strategy_reason,
        "rounds": strategy.rounds,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "blocks_by": declaration.calendar and declaration.calendar.words,
        "spec_sha256": declaration.digest,
        "warnings": warnings,
        "ledger": {"url": where},
    }
    for warning in warnings:
        progress.warning("warning: %s", warning)
    losses = None if arguments.epsilon is None else buy_losses(declaration, epsilon=arguments.epsilon)
    if losses is not None:
        if losses.exceed(declaration.tolerated):
            raise RowsUnexpected(
                f"{losses.sentence(universe, tolerated=declaration.tolerated)}; a run would be stopped; correct the spec"
            )
        for warning in losses.warnings(universe, tolerated=declaration.tolerated):
            progress.warning("warning: %s", warning)
        data["rows_kept"] = round(losses.whole.rows)
        data["rows_lost"] = {reason: round(count.rows) for reason, count in losses.lost.items()}
        data["rows_without_value"] = {name: round(count.rows) for name, count in losses.undeclared.items()}
    reason = f" (chosen: {declaration.strategy_reason})" if declaration.strategy_reason else ""
    text = (
        f"{arguments.spec} is valid\n\n{table(columns)}\n\n"
        f"universe   {cells(universe.size)} cells\n"
        f"{_discovery_line(declaration)}"
        f"{_depends_line(declaration)}"
        f"{_limit_line(declaration)}"
        f"{_persons_line(declaration)}"
        f"workload   {_workload_summary(declaration)}\n"
        f"strategy   {declaration.strategy.name}, at most {strategy.rounds} rounds{reason}\n"
        f"spends     epsilon {at_most(privacy.epsilon)}, delta {at_most(privacy.delta)}, from account {declaration.spec.dataset}{_blocks_option(declaration)}\n"
        f"{_losses_line(losses)}"
        f"ledger     {where}"
    )
    return Answer(data, text)


def _losses_line(losses: Losses | None) -> str:
    """Say how many rows are kept, and what becomes of the others, if that was bought."""
    if losses is None:
        return ""
    without_value = "".join(f"; about {count.rows:,.0f} have {name}" for name, count in losses.undeclared.items())
    return f"rows       about {losses.whole.rows:,.0f} are kept as they are; {losses.words}{without_value}\n"


def _source_warnings(declaration: Declaration) -> list[str]:
    """Warn if a run on this machine would not find the table or its declared columns, or would read them otherwise than expected.

    Remote files and databases are not asked.

    Only headers are read. Nothing is said about a failure that values may have caused: a run that meets it has paid for the knowledge.
    """
    source = declaration.spec.source
    if source is None or source.path is None or "://" in source.path:
        return []
    try:
        located = Source.locate(source, base=declaration.path.parent)
        check_source(declaration, located)
        return remarks(declaration, located)
    except SourceBroken:
        return []
    except SourceError as error:
        return [f"a run on this machine would be refused: {error}"]


def _limit_line(declaration: Declaration) -> str:
    """Say between which limits the run chooses, if the spec leaves the limit on rows per unit to it."""
    if not declaration.lacks_limit:
        return ""
    unit, share = declaration.protection.unit, at_most(float(100 * declaration.share(Early.LIMIT)))
    return f"limit      {AUTO_LIMITS[0]} to {AUTO_LIMITS[-1]} rows of each {unit}, chosen by the run for {share} % of the budget\n"


def _persons_line(declaration: Declaration) -> str:
    """Say that the rows of one synthetic person stay together, and what learning their number costs."""
    if declaration.spec.persons is None:
        return ""
    agree = f", and agree in {', '.join(declaration.constant)}" if declaration.constant else ""
    share = at_most(float(100 * declaration.share(Early.PERSONS)))
    return f"persons    the rows of one synthetic {declaration.protection.unit} stay together{agree}; {share} % of the budget\n"


def _discoverable_cells(attribute: Attribute) -> str:
    """Describe the cells of a column with discovery: the maximum number of them, and its declared extra cells."""
    besides = (("other", attribute.other_cell), ("missing", attribute.missing_cell))
    return " + ".join([f"up to {attribute.cells}", *(name for name, cell in besides if cell is not None)])


def _workload_summary(declaration: Declaration) -> str:
    """Summarize the workload: the number of marginals, and their weights, target and ranges if declared."""
    workload, spec = declaration.workload, declaration.spec.workload
    parts = [f"{len(workload.marginals)} marginals"]
    if spec.weighted:
        parts.append(f"weights from {min(workload.weights)} to {max(workload.weights)}")
    if spec.target is not None:
        parts.append(f"pairs with {spec.target} first")
    if spec.ranges is not None:
        parts.append(f"ranges of {', '.join(spec.ranges)}")
    return "; ".join(parts)


def _discovery_line(declaration: Declaration) -> str:
    discovers = declaration.descents()
    if not discovers:
        return ""
    prior = declaration.spec.prior
    first = "; a later run takes over what the first one has found" if prior is not None and prior.unchanged else ""
    return f"finds      {', '.join(discovers)}: in the data, for {float(100 * declaration.share(Early.DISCOVERY)):.3g} % of the budget{first}\n"


def _depends_line(declaration: Declaration) -> str:
    """Say which columns determine others, and what learning their functions costs."""
    if not declaration.dependencies:
        return ""
    named = "; ".join(dependency.words for dependency in declaration.dependencies)
    return f"depends    {named}: learned from the table, for {float(100 * declaration.share(Early.DEPENDENCIES)):.3g} % of the budget\n"


def _blocks_option(declaration: Declaration) -> str:
    """Name the --blocks option that the account needs, if the spec declares blocks."""
    calendar = declaration.calendar
    return "" if calendar is None else f", opened with --blocks {shlex.quote(calendar.words)}"


def _schema(_arguments: argparse.Namespace) -> Answer:
    schema = json_schema()
    return Answer(schema, json.dumps(schema, indent=2))


def _run(arguments: argparse.Namespace) -> Answer:
    if arguments.resume == "":
        raise UsageError("--resume needs a run id; `dpflow ledger show` lists them")
    if arguments.adopt is not None:
        adopt_output(declared(str(arguments.spec), registered_only=False), reason=arguments.adopt)
    runner: Runner = arguments.runner
    with noting_reserved() as reserved:
        try:
            outcome = runner(arguments.spec, arguments.resume, approved=arguments.approve, as_of=_day(arguments))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_resuming(arguments, reserved)) from None
    symbol = Currency(outcome.currency).symbol
    blocks = "" if not outcome.blocks else f"blocks     {_span(outcome.blocks)}\n"
    where = f"account {outcome.account}" + (", in the most used of these blocks" if outcome.blocks else "")
    text = (
        f"release    {outcome.release}\n"
        f"rows       {outcome.rows:,}\n"
        f"{blocks}"
        f"run        {outcome.run}\n"
        f"promise    {stated(outcome.epsilon, outcome.delta)}; the samplers add at most {at_most(outcome.sampler_delta)} to delta\n"
        f"spent      {symbol} {figure(outcome.spent)} of {figure(outcome.reserved)} reserved (bookkeeping)\n"
        f"remaining  {symbol} {down(outcome.remaining, places=BOOKED_PLACES)} in {where}: "
        f"{next_run(outcome.remaining_epsilon, new_blocks=outcome.new_block_epsilon)}"
        + "".join(f"\nwarning    {warning}" for warning in outcome.warnings)
    )
    return Answer(outcome.to_json(), text)


def _day(arguments: argparse.Namespace) -> date | None:
    if arguments.as_of is not None and arguments.resume is not None:
        raise UsageError("a resumed run keeps the blocks that it reserved; leave --as-of out")
    return day_of(arguments.as_of)


def _span(blocks: Sequence[str]) -> str:
    return blocks[0] if len(blocks) == 1 else f"{len(blocks):,}, {blocks[0]} to {blocks[-1]}"


def _resuming(arguments: argparse.Namespace, reserved: Sequence[str]) -> str:
    """Say how an interrupted run is resumed, or ended."""
    run = arguments.resume or next(iter(reserved), None)
    if run is None:  # perhaps it was interrupted while it reserved
        return "; the run has measured nothing; if it has reserved its budget, `dpflow ledger show` lists it as open"
    spec, run = shlex.quote(str(arguments.spec)), shlex.quote(run)
    return (
        f"; finished measurements are kept: resume with dpflow run {spec} --resume {run}, or end the run and get back what it has not "
        f"spent: dpflow ledger settle {run}"
    )
