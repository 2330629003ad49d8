"""The draft of a release: everything that is written, computed from noisy values and the ledger."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pyarrow as pa

from dpcore.answers.judging import judge
from dpcore.answers.release import Release
from dpcore.answers.replicates import make_uncertainty, replicates_for
from dpcore.answers.uncertainty import Fit, Uncertainty, restored, uncertainty_table
from dpcore.curator.curator import Curator
from dpcore.release import (
    Draft,
    Judgement,
    SyntheticRows,
    public_seed,
    release_id,
    state,
)
from dpcore.runs.beginning import Beginning
from dpcore.runs.empty_columns import empty_column_warnings
from dpcore.runs.expected_rows import NoisyTotal, small_total_warning
from dpcore.runs.rounds import Rounds
from dpcore.runs.stages import Stage

progress = logging.getLogger("dpcore.progress")


def draft_of(stage: Stage, rounds: Rounds, rows: SyntheticRows, *, beginning: Beginning, curator: Curator) -> Draft:
    """Assemble the draft of a release.

    Args:
        stage: The last stage of the run.
        rounds: Its model and rounds.
        rows: The synthetic rows.
        beginning: What the run has begun with.
        curator: Knows the number of draws.
    """
    declaration, strategy, ledger = stage.declaration, stage.strategy, stage.paid_by.ledger
    run = stage.run if stage.lease is None else ledger.leased(stage.lease)
    statement = state(
        declaration,
        ledger=ledger,
        run=run,
        draws={run.id: curator.draws},
        earlier=beginning.earlier_parts,
        chosen_limit=stage.chosen_limit,
    )
    # The release before it is in a folder, with as much of its manifest as answers need.
    public = {
        "strategy": declaration.strategy.name,
        "spec": declaration.spec.model_dump(mode="json", include={"privacy", "strategy"}),
        "discovered": [asdict(finding) for finding in stage.findings],
        "privacy": statement.to_json(),
    }
    measured = tuple(strategy.measurements)
    unwritten = Release(Path(), public, declaration.universe, strategy.resolutions, measured, begun=strategy.start)

    def judged(table: pa.Table) -> Judgement:
        """Judge the release by its replicates as they are written, so that `dpflow answer` gives the same figures."""
        rounds.countdown.begin("errors", "computing the errors of counts, and the pictures of the card")
        return judge(replace(unwritten, unwritten_uncertainty=restored(table, unwritten.measurements)))

    return Draft(
        declaration=declaration,
        rows=rows,
        measurements=[*stage.total, *strategy.measurements],
        resolutions=strategy.resolutions,
        rounds=rounds.done,
        statement=statement,
        name=release_id(run.id, opened_at=run.opened_at),
        seed=public_seed("values", run.id),
        findings=stage.findings,
        functions=stage.functions,
        warnings=(*_warnings(stage), *beginning.warnings(strategy), *_guesses(stage)),
        uncertainty=_uncertainty(unwritten, stage, rounds),
        judge=judged,
        prior=beginning.described(strategy),
        start=strategy.start,
    )


def _warnings(stage: Stage) -> Iterator[str]:
    """Yield warnings for readers of the release, from noisy values and the spec alone."""
    universe, measurements = stage.declaration.universe, stage.strategy.measurements
    total = NoisyTotal.of(measurements)
    if warning := small_total_warning(stage.declaration, total):
        yield warning
    discovered = [finding.column for finding in stage.findings]
    empty = empty_column_warnings(universe, measurements, total=total, discovered=discovered)
    for finding in stage.findings:
        if not finding.found:
            empty.pop(finding.column, None)  # this has a reason of its own
            yield (
                f"no value of `{finding.column}` stood out of the noise, so all of them are `other`; give its `discover` a larger "
                "`share`, or list the values"
            )
    yield from empty.values()


def _guesses(stage: Stage) -> Iterator[str]:
    """Yield a warning for each function that is partly a guess."""
    for function in stage.functions:
        if guessed := len(function.rows) - function.clear:
            yield (
                f"for {guessed:,} of {len(function.rows):,} values of {', '.join(function.given)}, no `{function.determined}` stood out of the "
                "noise clearly, so it may be a guess; give the dependency a larger `share`, or list the pairs with `possible`"
            )


def _uncertainty(unwritten: Release, stage: Stage, rounds: Rounds) -> Callable[[int], pa.Table]:
    """Return a function that makes the release's replicates, keeps them, and returns their table.

    The lease is renewed again and again while replicates are fitted, which may take longer than a lease.
    """

    @cache
    def fits() -> Uncertainty:
        strategy, replicates = stage.strategy, replicates_for(unwritten)
        released = None if strategy.functions is None else Fit(strategy.total, strategy.functions)
        rounds.countdown.begin(
            "replicates", f"fitting {replicates} replicates of the model, for the intervals of answers"
        )

        def fitted() -> None:
            stage.renew_lease()
            rounds.countdown.part("fit", parts=replicates + 1 + (released is None))

        return make_uncertainty(unwritten, released=released, pause=fitted)

    return lambda most_bytes: uncertainty_table(fits(), unwritten.measurements, most_bytes=most_bytes)
