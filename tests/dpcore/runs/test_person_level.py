"""One person, with however many rows, moves no marginal by more than is charged for."""

import pickle
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest

from dpcore.audit import least_amount
from dpcore.curator.curator import Curator
from dpcore.ledger import open_ledger
from dpcore.mechanisms import DiscreteGaussian, DiscreteLaplace, from_description
from dpcore.privacy.accounting import AMOUNT_OF_ONE, Currency
from dpcore.privacy.protection import Neighbours, Protection
from dpcore.runs.steps import synthesize
from dpcore.tables.histogram import Histogram, LocalHistogram
from dpcore.tables.ingest import Coding, Draws, Source, bounding, ingest, records
from dpcore.tables.ingest.coded import Coded
from dpcore.universe import Integer, Universe
from tests.campaign import often
from tests.conftest import Workspace
from tests.dpcore.models.row_draws import Layout, counted
from tests.dpcore.runs.releases import privacy_of, transcript_of

SHAPE = (3, 2, 4)
UNIVERSE = Universe({name: Integer(minimum=0, maximum=size - 1) for name, size in zip("abc", SHAPE, strict=True)})
AXES = [axes for size in range(4) for axes in combinations(range(3), size)]
WORDS = 1 << 64


def protection(k: int, *, most: int | None = None) -> Protection:
    weight = {} if most is None else {"weight": "w", "row_weight": most}
    return Protection(unit="who", rows_per_unit=k, neighbours=Neighbours.ADD_REMOVE, **weight)  # type: ignore[arg-type]


def random_table(rng: np.random.Generator, *, rows: int) -> pa.Table:
    """Few people with many rows each, some rows of nobody, some outside the universe."""
    who = rng.integers(0, 1 + rng.integers(1, 9), rows)
    columns = {name: rng.integers(0, size, rows) for name, size in zip("abc", SHAPE, strict=True)}
    return pa.table(
        {
            "who": pa.array([None if one == 0 else f"p{one}" for one in who.tolist()], pa.string()),
            "w": rng.integers(-1, 9, rows),
            **columns,
            "a": pa.array(
                [
                    None if lost else value
                    for lost, value in zip(rng.random(rows) < 0.1, columns["a"].tolist(), strict=True)
                ]
            ),
        }
    )


def random_layout(rng: np.random.Generator) -> Layout:
    pieces, buckets, batch = (int(rng.integers(low, high)) for low, high in ((1, 4), (1, 5), (9, 60)))
    return Layout(pieces=pieces, batch_rows=batch, buckets=buckets, bucketed_rows=int(rng.choice([1, 20, 1 << 19])))


def excess(seed: int) -> int:
    """Remove one person, with the draws for its rows, from a random table; return by how much any marginal moves beyond the sensitivity."""
    rng = np.random.default_rng(seed)
    table = random_table(rng, rows=int(rng.integers(0, 60)))
    words = rng.integers(0, WORDS, table.num_rows, dtype=np.uint64)
    k, most = int(rng.integers(1, 6)), rng.choice([None, 1, 5])
    coding = Coding(universe=UNIVERSE, protection=protection(k, most=most), window=None)
    others = np.array([who != "p1" for who in table["who"].to_pylist()], dtype=bool)
    whole = counted(table, words, coding=coding, layout=random_layout(rng))
    rest = counted(table.filter(pa.array(others)), words[others], coding=coding, layout=random_layout(rng))
    moved = [np.abs(whole.marginal(axes) - rest.marginal(axes)).sum() for axes in AXES]
    return int(max(moved)) - coding.protection.sensitivity.l1


@pytest.mark.campaign
def test_removing_one_person_moves_no_marginal_by_more_than_the_sensitivity() -> None:
    assert max(excess(seed) for seed in range(often(100, campaign=1000))) <= 0


def first_rows_overall(coded: Coded, *, rows_per_unit: int) -> Coded:
    """Keep as many rows as would be right, but of whomever they are."""
    units = len({tuple(unit) for unit in coded.ids.tolist()})
    return coded.take(np.argsort(coded.draws, kind="stable")[: rows_per_unit * units])


def ranks_over_all(coded: Coded, *, rows_per_unit: int) -> Coded:
    """Bound each unit, with draws that depend on how many rows all the others have."""
    draws = coded.draws * np.uint64(2 * coded.rows + 1)
    kept = bounding.smallest_draws(coded.ids, draws, rows_per_unit=rows_per_unit, ties=())
    return coded.take(kept)


def nobody_bounded(coded: Coded, *, rows_per_unit: int) -> Coded:
    return coded


@pytest.mark.parametrize("broken", [first_rows_overall, ranks_over_all, nobody_bounded])
def test_the_same_check_catches_a_bounding_that_looks_at_others_or_at_nobody(
    broken: Callable[..., Coded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "bound", broken)
    assert any(excess(seed) > 0 for seed in range(100))


@pytest.mark.parametrize("seed", range(4))
def test_the_counts_are_the_same_however_the_table_is_cut_up(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = random_table(rng, rows=200)
    words = rng.integers(0, WORDS, 200, dtype=np.uint64)
    coding = Coding(universe=UNIVERSE, protection=protection(3, most=4), window=None)
    whole = counted(table, words, coding=coding).marginal((0, 1, 2))
    assert whole.sum() > 0
    for _ in range(5):
        assert np.array_equal(
            counted(table, words, coding=coding, layout=random_layout(rng)).marginal((0, 1, 2)), whole
        )


def test_equal_draws_are_settled_within_the_unit_and_not_by_the_order_of_rows() -> None:
    rng = np.random.default_rng(3)
    table = random_table(rng, rows=120)
    words = rng.integers(0, 3, 120, dtype=np.uint64)
    coding = Coding(universe=UNIVERSE, protection=protection(2, most=4), window=None)
    whole = counted(table, words, coding=coding).marginal((0, 1, 2))
    for _ in range(10):
        order = rng.permutation(120)
        shuffled = counted(table.take(order), words[order], coding=coding, layout=random_layout(rng))
        assert np.array_equal(shuffled.marginal((0, 1, 2)), whole)


CANARIES, ROWS, K = 4000, 20, 5
SURE = 1 - 1e-7
BY_CANARY = Universe({"cell": Integer(minimum=0, maximum=CANARIES - 1)})


def audited(workspace: Workspace, *, epsilon: float) -> Callable[[float], float]:
    """Return, for any confidence, what epsilon the measuring of a marginal must have had, by guesses about persons.

    Each canary is a person with many rows in a cell of its own, in the table or not by a fair coin.
    """
    coins = np.random.default_rng().random(CANARIES) < 0.5
    who = np.repeat(np.flatnonzero(coins), ROWS)
    source = Source.of(pa.table({"who": who, "cell": who}))
    rows = ingest(source, coding=Coding(universe=BY_CANARY, protection=protection(K), window=None), draws=Draws.fresh())
    values = measured(workspace, LocalHistogram.count(rows, BY_CANARY), epsilon=epsilon)
    # beyond what a canary can move a count by, a larger or smaller value tells no more
    said_in, said_out = values >= K, values <= 0
    right = np.count_nonzero(said_in & coins) + np.count_nonzero(said_out & ~coins)
    guesses = np.count_nonzero(said_in | said_out)
    return lambda confidence: least_amount(
        currency=Currency.PURE, canaries=CANARIES, guesses=guesses, correct=right, miss=1 - confidence
    )


def measured(workspace: Workspace, histogram: Histogram, *, epsilon: float) -> npt.NDArray[np.int64]:
    """Measure the marginal as a run does: reserved, charged, drawn, stored."""
    workspace.open_account(delta=0.0, currency=Currency.PURE, epsilon=10)
    with open_ledger() as ledger:
        ledger.reserve("r", account="visits", amount=int(epsilon * AMOUNT_OF_ONE), claim="c")
        curator = Curator(ledger=ledger, run_id="r", protection=protection(K), currency=Currency.PURE)
        curator.receive(histogram, lease=ledger.lease("r"))
        values = curator.measure_marginal("one-way/m", (0,), share=Fraction(1)).values
        assert ledger.run("r").spent <= epsilon * AMOUNT_OF_ONE
        return values


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_an_audit_of_persons_finds_no_more_than_was_charged_and_not_much_less(
    workspace: Workspace, epsilon: float
) -> None:
    at_least = audited(workspace, epsilon=epsilon)
    assert at_least(SURE) <= epsilon
    assert epsilon - 0.4 < at_least(0.95) < epsilon + 0.25  # with 95 %, one sound run in twenty is above by a little


def test_the_audit_catches_rows_that_are_not_bounded(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "bound", nobody_bounded)
    assert audited(workspace, epsilon=1.0)(SURE) > 1.5


def test_the_audit_catches_the_sensitivity_of_one_row_where_five_are_kept(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Protection, "most", 1)
    assert audited(workspace, epsilon=1.0)(SURE) > 1.5


@pytest.mark.usefixtures("rough")
def test_a_release_by_weight_is_charged_for_it_says_so_and_counts_the_weight(workspace: Workspace) -> None:
    table = pd.read_csv(workspace.folder / "visits.csv").assign(days=3)
    table.to_csv(workspace.folder / "visits.csv", index=False)
    privacy = "unit: person, max_rows_per_unit: 2"
    workspace.write_spec((privacy, f"{privacy}, weight: {{column: days, max: 4}}"), ("epsilon: 1.0", "epsilon: 9.0"))
    workspace.open_account()
    outcome = synthesize(workspace.spec)
    stated = privacy_of(outcome)
    assert (stated["weight"], stated["max_row_weight"]) == ("days", 4)
    assert "at most 2 count, each as often as days says, at most 4 times" in stated["guarantee"]
    bought = [each for each in transcript_of(outcome.run) if each.step != "rows-lost"]  # counts one row of each person
    used = [from_description(operation.mechanism) for operation in bought]
    assert {noise.sensitivity.linf for noise in used if isinstance(noise, DiscreteGaussian | DiscreteLaplace)} == {8}
    rows = table[table["person"].groupby(table["person"]).cumcount() < 2]
    assert outcome.rows == pytest.approx(3 * len(rows), rel=0.2)


SECRET = "Jane-Doe-1970-" + "x" * 20


def test_nothing_that_leaves_the_coding_holds_an_id() -> None:
    table = pa.table({"who": [SECRET] * 5 + [None], "w": [SECRET] * 6, "a": [0] * 6, "b": [1] * 6, "c": [SECRET] * 6})
    universe = Universe({**UNIVERSE.attributes, "c": Integer(minimum=0, maximum=3, missing=True)})
    coding, draws = Coding(universe=universe, protection=protection(2), window=None), Draws.fresh()
    coded = coding.code(table.to_batches()[0], draws=draws, piece=0, start=0)
    kept = ingest(Source.of(table), coding=coding, draws=draws)
    assert coded.rows == 5
    moved = pickle.dumps((coding, draws, coded, *(coded.split(3))))
    stored = b"".join(column.tobytes() for codes, _ in kept.chunks() for column in codes)
    for form in (SECRET.encode(), SECRET.encode("utf-16-le"), SECRET[:8].encode()):
        assert form not in moved
        assert form not in stored
    assert SECRET not in repr((coding, draws, coded, kept))


def test_two_runs_hash_one_id_differently_and_one_run_alike() -> None:
    batch = pa.table({"who": [SECRET], "a": [0], "b": [0], "c": [0]}).to_batches()[0]
    coding = Coding(universe=UNIVERSE, protection=protection(1), window=None)
    draws = Draws.fresh()
    one, again, other = (
        coding.code(batch, draws=each, piece=0, start=0).ids.tolist()
        for each in (draws, pickle.loads(pickle.dumps(draws)), Draws.fresh())  # noqa: S301  our own
    )
    assert one == again != other
