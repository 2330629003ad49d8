"""Which runs a release is made from, by the claims of the runs in the ledger, and what they promise together."""

from itertools import count

import pytest

from dpcore.ledger import WHOLE, Run, RunState
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Cap, Currency
from dpcore.privacy.protection import Neighbours
from dpcore.reporting.lineage import (
    Part,
    bound_claim,
    bound_to,
    figures_claim,
    going_back_to,
    made_from,
    parts_of,
    session_release_claim,
)
from dpcore.reporting.promises import release_cap

DIGEST, OTHER = 64 * "a", 64 * "b"
_EVENTS = count(1)


def run(name: str, claim: str = 64 * "0", *, release: str | None = None) -> Run:
    """Return a run that was reserved after those that were made before."""
    event = next(_EVENTS)
    return Run(
        id=name,
        account="visits",
        reserved=AMOUNT_OF_ONE,
        spent=1,
        state=RunState.SETTLED,
        claim=claim,
        analyst=None,
        purpose=None,
        data_version=None,
        opened_at="2026-01-01T00:00:00+00:00",
        release=release,
        fence=1,
        holder=None,
        lease_seconds=60,
        first=event,
        last=event,
    )


def after(earlier: Run, name: str) -> Run:
    """Return a run that starts from the release of an earlier one."""
    return run(name, bound_claim(64 * "0", run=earlier.id, manifest_sha256=DIGEST), release=f"release of {name}")


def ids(last: Run, *runs: Run) -> list[str]:
    return [part.id for part in made_from(last, {each.id: each for each in (*runs, last)})]


def test_a_claim_names_the_run_and_the_manifest() -> None:
    claim = bound_claim("monthly/" + 64 * "0", run="an id with spaces of run x", manifest_sha256=DIGEST)
    assert bound_to(claim) == ("an id with spaces of run x", DIGEST)
    for other in (
        64 * "0",
        f"{64 * '0'} with prior {DIGEST}",
        f"session of {DIGEST} from run x",
        f"{64 * '0'} bound to x of run y",
    ):
        assert bound_to(other) is None


def test_a_chain_is_made_from_all_its_links_and_figures_also_from_the_release_that_they_are_about() -> None:
    first = run("first", release="one")
    second = after(first, "second")
    third = after(second, "third")
    figures = run("figures", figures_claim("one"))
    every = (first, second, third, figures)
    assert ids(first, *every) == ["first"]
    assert ids(third, *every) == ["first", "second", "third"]
    assert ids(figures, *every) == ["first", "figures"]


def session(epsilon: str) -> tuple[Run, ...]:
    """Return an earlier run, and a session with its first run, which goes on from that one, and its release."""
    earlier = run("earlier", release="zero")
    opened = run("s", f"session of {64 * '0'} from run s-first{epsilon}")
    first = after(earlier, "s-first")
    published = run("s-release-0", session_release_claim(session="s", first="s-first", purchases=0), release="two")
    return earlier, opened, first, published


def test_a_release_of_a_session_is_made_from_all_that_its_first_run_is_made_from() -> None:
    *others, published = session("")
    assert ids(published, *others) == ["earlier", "s", "s-first", "s-release-0"]
    later = after(published, "later")
    assert ids(later, *others, published) == ["earlier", "s", "s-first", "s-release-0", "later"]


def fixed(published: Run, *runs: Run) -> dict[str, int]:
    every = {each.id: each for each in (*runs, published)}
    return {part.run: part.fixed for part in parts_of(published, every, blocks=dict.fromkeys(every, (WHOLE,)))}


def test_a_session_that_buys_its_first_release_has_fixed_both_amounts_at_once() -> None:
    earlier, opened, first, published = session(" bought for epsilon 0x1p-1")
    found = fixed(published, earlier, opened, first)
    assert found == {"earlier": earlier.first, "s": opened.first, "s-first": opened.first, "s-release-0": opened.first}
    earlier, opened, first, published = session("")
    assert fixed(published, earlier, opened, first)["s-first"] == first.first


def test_runs_go_back_to_a_release_over_any_number_of_others() -> None:
    first = run("first", release="one")
    second = after(first, "second")
    third = after(second, "third")
    apart = run("apart", release="four")
    every = [first, second, third, apart]
    assert list(going_back_to("first", every)) == [(second, True), (third, False)]
    assert list(going_back_to("second", every)) == [(third, True)]
    assert list(going_back_to("third", every)) == []


def test_a_release_of_a_session_goes_back_to_what_its_first_run_has_started_from() -> None:
    earlier, opened, first, published = session("")
    later = after(published, "later")
    every = [earlier, opened, first, published, later]
    assert list(going_back_to("earlier", every)) == [(first, True), (published, False), (later, False)]
    assert list(going_back_to("s-first", every)) == [(published, False), (later, False)]


def part(name: str, amount: int, *blocks: str) -> Part:
    return Part(name, None, amount, fixed=next(_EVENTS), blocks=blocks or (WHOLE,))


ROW, PERSON = ("row", "person")
ADDED, REPLACED = Neighbours


@pytest.mark.parametrize(
    ("unit", "neighbours", "amount"),
    [(ROW, ADDED, 11), (ROW, REPLACED, 15), (PERSON, ADDED, 16), (PERSON, REPLACED, 16)],
)
def test_a_unit_loses_what_the_runs_that_read_its_blocks_have_reserved(
    unit: str, neighbours: Neighbours, amount: int
) -> None:
    # January was read twice, the second time with February.
    parts = [part("a", 3, "jan"), part("b", 8, "jan", "feb"), part("c", 4, "mar"), part("d", 1, "apr")]
    cap = release_cap(parts, currency=Currency.ZCDP, unit=unit, neighbours=neighbours)
    assert cap == Cap(Currency.ZCDP, amount, first=3)
    one = release_cap(parts, currency=Currency.ZCDP, unit=unit, neighbours=neighbours, in_one_block=True)
    assert one.amount == (11 if neighbours is ADDED else 15)


@pytest.mark.parametrize("unit", [ROW, PERSON])
@pytest.mark.parametrize("neighbours", Neighbours)
def test_without_blocks_every_unit_loses_the_sum_and_what_was_fixed_at_once_is_no_raise(
    unit: str, neighbours: Neighbours
) -> None:
    first, second = part("a", 3), part("b", 8)
    together = [first, Part("b", None, 8, fixed=first.fixed, blocks=(WHOLE,))]
    for parts, fixed_first in (([first, second], 3), (together, None)):
        cap = release_cap(parts, currency=Currency.GDP, unit=unit, neighbours=neighbours)
        assert cap == Cap(Currency.GDP, 11, first=fixed_first)
