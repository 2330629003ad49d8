"""Releases that a later release was given: it starts from their published rows, and promises what it adds to them.

Let M be the mechanism of a run that starts from an earlier release, and y that release. For every fixed y, M(., y) keeps the promise of the
run's own reservation: it takes y as it would take any public table. Adaptive composition is about such mechanisms, so y and M(., y) together
cost the sum of both reservations, which the account has charged (docs/decisions/0064).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dpcore.ledger import Ledger, Run, RunState
from dpcore.reporting.promises import made_from

_GIVEN = re.compile(r"\S+ given ([0-9a-f]{64}) of run (.+)")


@dataclass(frozen=True)
class Given:
    """An earlier release that a release was made with.

    Attributes:
        run: The run that made it.
        release: Its name.
        manifest_sha256: The SHA-256 of its manifest when the later run was reserved.
    """

    run: str
    release: str | None
    manifest_sha256: str


def given_claim(claim: str, *, run: str, manifest_sha256: str) -> str:
    """Return the claim of a run that starts from the release of an earlier one.

    >>> bound_to(given_claim("monthly/9f86d081", run="5f0c", manifest_sha256=64 * "0"))[0]
    '5f0c'
    """
    return f"{claim} given {manifest_sha256} of run {run}"


def bound_to(claim: str) -> tuple[str, str] | None:
    """Return the run of the release that a run starts from, and the hash of its manifest, by the claim in the ledger. Most runs have none."""
    found = _GIVEN.fullmatch(claim)
    return (found[2], found[1]) if found else None


def given_to(run: Run, runs: Mapping[str, Run]) -> tuple[Given, ...]:
    """Return the releases that a run's release was given, by the claims in the ledger.

    A release of a session was also made from the answers of other runs. What these were given counts, except for one another.

    Args:
        run: The run.
        runs: All runs of its account, by their ids.
    """
    others = made_from(run.claim)
    claims = [run.claim, *(runs[each].claim for each in others if each in runs)]
    bound = dict.fromkeys(each for each in map(bound_to, claims) if each is not None and each[0] not in others)
    return tuple(Given(each, runs[each].release if each in runs else None, digest) for each, digest in bound)


def going_back_to(earlier: str, runs: Iterable[Run]) -> Iterator[tuple[Run, bool]]:
    """Yield the runs that go back to the release of an earlier run, each with whether it was given that very release.

    Others were given a release that goes back to it, or are releases of a session that are made from the answers of such a run.

    Args:
        earlier: The id of the earlier run.
        runs: All runs of its account, oldest first.
    """
    known = {run.id: run for run in runs}
    reached = {earlier}
    for run in known.values():  # a run is reserved after the release that it starts from was published
        given = {each.run for each in given_to(run, known)}
        if not reached.isdisjoint({*given, *made_from(run.claim)}):
            reached.add(run.id)
            yield run, earlier in given


def needed_by_open_runs(ledger: Ledger, account: str) -> dict[str, str]:
    """Return the runs whose releases open runs start from, each with the newest such run. These cannot be resumed without them."""
    started = {run.id: bound_to(run.claim) for run in ledger.runs(account) if run.state is RunState.OPEN}
    return {bound[0]: run for run, bound in started.items() if bound is not None}


def condition(given: Sequence[Given], *, account: str) -> str:
    """Say what a promise does not count; nothing without earlier releases.

    >>> condition((), account="visits")
    ''
    """
    if not given:
        return ""
    names = ", ".join(str(each.release) for each in given)
    which = f"release {names}" if len(given) == 1 else f"the releases {names}"
    them = "that release" if len(given) == 1 else "those releases"
    return (
        f"It was made with {which}, which {'was' if len(given) == 1 else 'were'} published before. The promise is about what it adds to {them}; "
        f"what all releases reveal together is the total of account {account}, which its ledger states."
    )
