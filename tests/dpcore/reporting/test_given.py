"""Which releases a release was given, by the claims of the runs in the ledger."""

from dpcore.ledger import Run, RunState
from dpcore.reporting.given import Given, bound_to, condition, given_claim, given_to, going_back_to
from dpcore.reporting.promises import session_release_claim

DIGEST, OTHER = 64 * "a", 64 * "b"


def run(name: str, claim: str = 64 * "0", *, release: str | None = None) -> Run:
    return Run(
        id=name,
        account="visits",
        reserved=1,
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
        first=1,
        last=2,
    )


def known(*runs: Run) -> dict[str, Run]:
    return {each.id: each for each in runs}


def test_a_claim_names_the_run_and_the_manifest() -> None:
    claim = given_claim("monthly/" + 64 * "0", run="an id with spaces of run x", manifest_sha256=DIGEST)
    assert bound_to(claim) == ("an id with spaces of run x", DIGEST)
    for other in (
        64 * "0",
        f"{64 * '0'} with prior {DIGEST}",
        f"session of {DIGEST} from run x",
        f"{64 * '0'} given x of run y",
    ):
        assert bound_to(other) is None


def test_a_run_is_given_the_release_that_its_claim_names() -> None:
    first = run("first", release="one")
    second = run("second", given_claim(64 * "0", run="first", manifest_sha256=DIGEST))
    assert given_to(second, known(first, second)) == (Given("first", "one", DIGEST),)
    assert given_to(first, known(first, second)) == ()


def test_a_release_of_a_session_was_given_what_its_first_run_was_given() -> None:
    earlier = run("earlier", release="zero")
    first = run("s-first", given_claim(64 * "0", run="earlier", manifest_sha256=DIGEST), release="one")
    session = run("s", f"session of {64 * '0'} from run s-first")
    made = run("s-release-0", session_release_claim(session="s", first="s-first", purchases=0))
    assert given_to(made, known(earlier, first, session, made)) == (Given("earlier", "zero", DIGEST),)


def test_a_release_that_starts_from_that_of_a_session_was_given_that_one_only() -> None:
    made = run("s-release-0", session_release_claim(session="s", first="s-first", purchases=0), release="two")
    later = run("later", given_claim(64 * "0", run="s-release-0", manifest_sha256=OTHER))
    assert given_to(later, known(made, later)) == (Given("s-release-0", "two", OTHER),)


def test_runs_go_back_to_a_release_over_any_number_of_others() -> None:
    first = run("first", release="one")
    second = run("second", given_claim(64 * "0", run="first", manifest_sha256=DIGEST), release="two")
    third = run("third", given_claim(64 * "0", run="second", manifest_sha256=OTHER), release="three")
    apart = run("apart", release="four")
    assert list(going_back_to("first", [first, second, third, apart])) == [(second, True), (third, False)]
    assert list(going_back_to("second", [first, second, third, apart])) == [(third, True)]
    assert list(going_back_to("third", [first, second, third, apart])) == []


def test_a_release_of_a_session_goes_back_to_what_its_first_run_was_given() -> None:
    earlier = run("earlier", release="zero")
    first = run("s-first", given_claim(64 * "0", run="earlier", manifest_sha256=DIGEST), release="one")
    session = run("s", f"session of {64 * '0'} from run s-first")
    made = run("s-release-0", session_release_claim(session="s", first="s-first", purchases=0), release="two")
    later = run("later", given_claim(64 * "0", run="s-release-0", manifest_sha256=OTHER), release="three")
    every = [earlier, session, first, made, later]
    assert list(going_back_to("earlier", every)) == [(first, True), (made, True), (later, False)]
    assert list(going_back_to("s-first", every)) == [(made, False), (later, False)]


def test_the_condition_names_the_release_and_the_account() -> None:
    said = condition((Given("first", "one", DIGEST),), account="visits")
    assert "made with release one" in said
    assert "the total of account visits" in said
