"""Lineage: the runs that a release is made from, by the claims in the ledger.

A release of a session is made from the session's first release and its purchases. A run with `prior: latest` starts from the rows of an earlier
release or, if the table is unchanged, publishes its measurements again. Figures compare a release with the table. Whoever sees only the last
output sees a function of the answers of all these runs. Let y be the earlier output and M(D, y) the later one: for every fixed y, M(., y) keeps
the promise of its own reservation, so both together cost the sum (adaptive composition). The promise of an output therefore counts all its runs
(docs/decisions/0057).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dpcore.ledger import Ledger, Run, RunState
from dpcore.reporting.session_claims import Claim

_BOUND = re.compile(r"\S+ bound to ([0-9a-f]{64}) of run (.+)")
_FROM_SESSION = re.compile(r"release of session (\S+) from run (\S+) after \d+ purchases")
_FIGURES = re.compile(r"figures of release (\S+)")


@dataclass(frozen=True)
class Part:
    """A run that a release is made from, as the ledger has it.

    Attributes:
        run: Its id.
        release: The name of its own release; null for a session, and for the run of the very release that states this.
        amount: What it reserved, in 1e-12 of the account's currency.
        fixed: The number of the event in the ledger by which that amount was fixed.
        blocks: The blocks that it reserved.
    """

    run: str
    release: str | None
    amount: int
    fixed: int
    blocks: tuple[str, ...]


def bound_claim(claim: str, *, run: str, manifest_sha256: str) -> str:
    """Return the claim of a run that starts from the release of an earlier one.

    >>> bound_to(bound_claim("monthly/9f86d081", run="5f0c", manifest_sha256=64 * "0"))[0]
    '5f0c'
    """
    return f"{claim} bound to {manifest_sha256} of run {run}"


def bound_to(claim: str) -> tuple[str, str] | None:
    """Return the run of the release that a run starts from, and the hash of its manifest, by the claim in the ledger. Most runs have none."""
    match = _BOUND.fullmatch(claim)
    return (match[2], match[1]) if match else None


def session_release_claim(*, session: str, first: str, purchases: int) -> str:
    """Return the claim of a run that publishes what a session knows, by the session's run and the run of its first release.

    >>> published_by(session_release_claim(session="s", first="s-first", purchases=3))
    ('s-first', 's')
    """
    return f"release of session {session} from run {first} after {purchases} purchases"


def published_by(claim: str) -> tuple[str, str] | None:
    """Return the first run and the session that a run publishes the answers of, by its claim; None if it is not the release of a session."""
    match = _FROM_SESSION.fullmatch(claim)
    return (match[2], match[1]) if match else None


def figures_claim(release: str) -> str:
    """Return the claim of a run that buys figures of a release."""
    return f"figures of release {release}"


def needed_for(claim: str, runs: Mapping[str, Run]) -> tuple[str, ...]:
    """Return the runs whose answers a run takes directly, by its claim. Most runs have none."""
    if published := published_by(claim):
        return published
    if bound := bound_to(claim):
        return (bound[0],)
    if about := _FIGURES.fullmatch(claim):
        return tuple(run.id for run in runs.values() if run.release == about[1])
    return ()


def made_from(run: Run, runs: Mapping[str, Run]) -> tuple[Run, ...]:
    """Return the runs that a run's release is made from, in the order of their reservations. The run itself is the last.

    Args:
        run: The run.
        runs: All runs of its account, by their ids.
    """
    reached, ahead = {run.id: run}, [run]
    while ahead:
        for needed in needed_for(ahead.pop().claim, runs):
            if needed in runs and needed not in reached:
                reached[needed] = runs[needed]
                ahead.append(runs[needed])
    return tuple(sorted(reached.values(), key=lambda reached_run: reached_run.first))


def parts_of(run: Run, runs: Mapping[str, Run], *, blocks: Mapping[str, tuple[str, ...]]) -> tuple[Part, ...]:
    """Return the runs that a run's release is made from, with what each of them reserved.

    A session that buys its first release fixes the amount of both before the first draw, and publishing takes a constant amount.
    """
    lineage = made_from(run, runs)
    claims = {reserved.id: Claim.read(reserved.claim) for reserved in lineage}
    buyers = {claim.first: runs[session] for session, claim in claims.items() if claim}

    def fixed(part: Run) -> int:
        published = published_by(part.claim)
        session = runs.get(published[1]) if published else buyers.get(part.id)
        return part.first if session is None else session.first

    return tuple(
        Part(part.id, None if part.id == run.id else part.release, part.reserved, fixed(part), blocks[part.id])
        for part in lineage
    )


def ledger_parts(ledger: Ledger, run: Run) -> tuple[Part, ...]:
    """Return the runs that a run's release is made from, by the ledger."""
    runs = {reserved.id: reserved for reserved in ledger.runs(run.account)}
    return parts_of(run, runs, blocks={reserved.id: ledger.blocks_of(reserved.id) for reserved in made_from(run, runs)})


def going_back_to(earlier: str, runs: Iterable[Run]) -> Iterator[tuple[Run, bool]]:
    """Yield the other runs that are made from an earlier one, each with whether it has started from that very release.

    Args:
        earlier: The id of the earlier run.
        runs: All runs of its account, oldest first.
    """
    by_id = {run.id: run for run in runs}
    for run in by_id.values():
        if run.id != earlier and any(part.id == earlier for part in made_from(run, by_id)):
            bound = bound_to(run.claim)
            yield run, bound is not None and bound[0] == earlier


def needed_by_open_runs(ledger: Ledger, account: str) -> dict[str, str]:
    """Return the runs whose releases open runs start from, each with the newest such run. These cannot be resumed without them."""
    started = {run.id: bound_to(run.claim) for run in ledger.runs(account) if run.state is RunState.OPEN}
    return {bound[0]: run for run, bound in started.items() if bound is not None}
