"""Bugs planted in the product, each with the setting in which it must be caught, and by what. They are for the made-up tables of the catalogue."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpcore.curator.curator
import dpcore.mechanisms.bounded_rows
import dpcore.tables.cluster.work
import dpcore.tables.ingest.coding
import dpcore.tables.ingest.records
import dpcore.textbook.online.session
from dpcore.audit.planted import Variant
from dpcore.audit.whole_run import faults
from dpcore.comparison import figures
from dpcore.curator.curator import Curator
from dpcore.errors import SourceError
from dpcore.ledger import Ledger
from dpcore.mechanisms import CountsAbove, DiscreteGaussian, ExponentialMechanism, NoisyHistogram
from dpcore.mechanisms.sampling import entropy
from dpcore.mechanisms.sparse_vector import SparseVector
from dpcore.models.fitting import Transcript
from dpcore.runs.discovery import Discovery
from dpcore.runs.expected_rows import NoisyTotal
from dpcore.runs.reading import Reading
from dpcore.runs.rounds import Rounds
from dpcore.runs.synthesis import Synthesis
from dpcore.session.session import Session
from dpcore.session.table import SessionTable
from dpcore.strategies.earlier import Earlier
from dpcore.tables.ingest.bounding import bound
from dpcore.tables.ingest.coded import Coded
from dpcore.tables.ingest.coding import Coding
from dpcore.tables.ingest.fates import Fates
from dpcore.tables.ingest.violations import _Compared
from dpcore.tables.sources.query import Query
from dpcore.textbook.online import bounds
from dpcore.universe.sums import Sum
from tests.catalogue import everybody

Plant = Callable[[pytest.MonkeyPatch], None]
Fault = Callable[[], AbstractContextManager[None]]
RECORDS = dpcore.tables.ingest.records


@contextmanager
def planted(bug: Plant | Fault) -> Iterator[None]:
    """Let the product have a bug, one of ours or one that the audit of complete releases plants."""
    if bug.__module__ == faults.__name__:
        with bug():  # type: ignore[call-arg]
            yield
    else:
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)  # type: ignore[call-arg]
            yield


def true_rows() -> int:
    """Return how many rows the table in the working folder has, beyond those of all others."""
    texts = [path.read_text("utf-8") for path in Path().glob("visits.csv")]
    return sum(text.count("\n") for text in texts) - 1 - len(everybody())


# Charging and drawing


def selections_for_free(patch: pytest.MonkeyPatch) -> None:
    pay = Curator._charge_then

    def charge_measurements(self: Curator, step: str, statistic: Any, *, mechanism: Any, draw: Any) -> bytes:
        if not step.endswith("select"):
            return pay(self, step, statistic, mechanism=mechanism, draw=draw)
        assert self._received is not None
        self._paid[step] = 0
        output: bytes = draw(self._received[0])
        return output

    patch.setattr(Curator, "_charge_then", charge_measurements)


def drawn_before_it_is_paid(patch: pytest.MonkeyPatch) -> None:
    pay = Curator._charge_then

    def draw_then_charge(self: Curator, step: str, statistic: Any, *, mechanism: Any, draw: Any) -> bytes:
        assert self._received is not None
        drawn = draw(self._received[0])
        return pay(self, step, statistic, mechanism=mechanism, draw=lambda _histogram: drawn)

    patch.setattr(Curator, "_charge_then", draw_then_charge)


def best_of_two(patch: pytest.MonkeyPatch) -> None:
    pay = Curator._charge_then

    def charge_then_draw_twice(self: Curator, *step: Any, mechanism: Any, draw: Any) -> bytes:
        return pay(self, *step, mechanism=mechanism, draw=lambda histogram: max(draw(histogram), draw(histogram)))

    patch.setattr(Curator, "_charge_then", charge_then_draw_twice)


def half_the_price(patch: pytest.MonkeyPatch) -> None:
    charge = Ledger.charge

    def cheap(self: Ledger, *arguments: Any, amount: int, **named: Any) -> Any:
        return charge(self, *arguments, amount=amount // 2, **named)

    patch.setattr(Ledger, "charge", cheap)


def described_with_more_noise(patch: pytest.MonkeyPatch) -> None:
    describe = DiscreteGaussian.describe
    patch.setattr(DiscreteGaussian, "describe", lambda self: {**describe(self), "sigma": repr(self.scale * 1.03)})


def noise_of_numpy(patch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    patch.setattr(
        DiscreteGaussian,
        "draw",
        lambda self, counts: counts + np.rint(rng.normal(0, self.scale, counts.shape)).astype(np.int64),
    )


def selection_of_numpy(patch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)

    def draw(self: ExponentialMechanism, scores: Any) -> int:
        return int(np.argmax(scores * (self.epsilon / (2 * self.sensitivity)) + rng.gumbel(size=scores.size)))

    patch.setattr(ExponentialMechanism, "draw", draw)


def a_coin_between_the_steps(patch: pytest.MonkeyPatch) -> None:
    select = Rounds.select

    def tossed(self: Rounds, number: int) -> Any:
        entropy.random_words(1)
        return select(self, number)

    patch.setattr(Rounds, "select", tossed)


def gates_with_half_the_noise(patch: pytest.MonkeyPatch) -> None:
    begin = SparseVector.begin
    patch.setattr(
        SparseVector, "begin", lambda self, threshold: begin(replace(self, epsilon=self.epsilon * 2), threshold)
    )


def questions_with_half_the_noise(patch: pytest.MonkeyPatch) -> None:
    whole = NoisyHistogram.on_numbers.func
    less = property(lambda self: replace(whole(self), scale=self.scale / 2))
    patch.setattr(NoisyHistogram, "on_numbers", less)  # of many counts: a single one may be the same by chance


# Storing


def _in_discovery(patch: pytest.MonkeyPatch, drawn: Callable[[Any, Any], Any]) -> None:
    buy, noise = Discovery._buy, dpcore.curator.curator.marginal_noise

    def variant(*arguments: Any, **named: Any) -> Any:
        stated = noise(*arguments, **named)
        return Variant(stated=stated, drawn=lambda counts: drawn(stated, counts))

    def bought(self: Discovery, *arguments: Any, **named: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(dpcore.curator.curator, "marginal_noise", variant)
            buy(self, *arguments, **named)

    patch.setattr(Discovery, "_buy", bought)


def noise_drawn_for_candidates_with_rows(patch: pytest.MonkeyPatch) -> None:
    def drawn(stated: Any, counts: Any) -> Any:
        noisy = counts.copy()
        noisy[counts > 0] = stated.draw(counts[counts > 0])
        return noisy

    _in_discovery(patch, drawn)


def exact_counts_bought(patch: pytest.MonkeyPatch) -> None:
    measure = Curator.measure_grid

    def exact(self: Curator, step: str, axes: Any, *, mechanism: Any, keep: Any, weighing: Any = None) -> bytes:
        assert self._received is not None
        true = self._received[0].marginal(axes)
        sums = true.copy() if weighing is None else weighing.totals(true)
        return measure(self, step, axes, mechanism=mechanism, keep=lambda _noisy: keep(sums), weighing=weighing)

    patch.setattr(Curator, "measure_grid", exact)


def gates_recorded_with_true_counts(patch: pytest.MonkeyPatch) -> None:
    session = dpcore.textbook.online.session
    expected = session.expected_rows
    patch.setattr(session, "expected_rows", lambda weights, query: expected(weights, query) + true_rows())


def gates_recorded_with_the_parity_of_rows(patch: pytest.MonkeyPatch) -> None:
    session = dpcore.textbook.online.session
    expected = session.expected_rows
    patch.setattr(session, "expected_rows", lambda weights, query: expected(weights, query) + true_rows() % 2)


# Sensitivities


def errors_counted_twice(patch: pytest.MonkeyPatch) -> None:
    errors = dpcore.curator.curator._weighted_errors
    patch.setattr(dpcore.curator.curator, "_weighted_errors", lambda *given: (2 * each for each in errors(*given)))


def weights_of_marginals_not_paid_for(patch: pytest.MonkeyPatch) -> None:
    select = Curator._select
    make = ExponentialMechanism.for_amount

    def cheap(self: Curator, step: str, statistic: Any, **named: Any) -> Any:
        unweighted = statistic.moves(self._counted)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                ExponentialMechanism,
                "for_amount",
                lambda amount, **paid: make(amount, **paid | {"sensitivity": unweighted}),
            )
            return select(self, step, statistic, **named)

    patch.setattr(Curator, "_select", cheap)


def gates_for_values_that_move_one_way(patch: pytest.MonkeyPatch) -> None:
    vector = CountsAbove._sparse_vector.func  # type: ignore[attr-defined]
    patch.setattr(CountsAbove, "_sparse_vector", property(lambda self: replace(vector(self), monotone=True)))


def gates_for_one_row(patch: pytest.MonkeyPatch) -> None:
    gate = bounds._gate.__wrapped__
    patch.setattr(
        bounds, "_gate", lambda amount, currency, protection: gate(amount, currency, protection.of_one_answer)
    )


# Bounding and counting


def _keeping(rows: int) -> Callable[..., Coded]:
    return lambda coded, *, rows_per_unit: bound(coded, rows_per_unit=max(rows, rows_per_unit))


def chosen_limit_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RECORDS, "bound", _keeping(64))


def chosen_limit_not_kept_by_sessions(patch: pytest.MonkeyPatch) -> None:
    read = SessionTable.read

    def more(self: SessionTable, *given: Any, **named: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(RECORDS, "bound", _keeping(64))
            read(self, *given, **named)

    patch.setattr(SessionTable, "read", more)


def sessions_read_by_the_spec(patch: pytest.MonkeyPatch) -> None:
    coding = SessionTable._coding

    def by_the_spec(self: SessionTable, universe: Any) -> Any:
        return replace(coding(self, universe), protection=self._declaration.spec.privacy.protection)

    patch.setattr(SessionTable, "_coding", by_the_spec)


def figures_read_by_the_spec(patch: pytest.MonkeyPatch) -> None:
    class BySpec(Reading):
        def __init__(self, declaration: Any, **named: Any) -> None:
            limit = replace(declaration, protection=declaration.spec.privacy.protection)
            super().__init__(limit, **named)

    patch.setattr(figures, "Reading", BySpec)


def limit_ignored_after_it_was_chosen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reading, "limited", lambda reading, _declaration: reading)


def rows_counted_as_persons(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RECORDS, "tallied", lambda coded: coded)


def every_row_has_a_fate(patch: pytest.MonkeyPatch) -> None:
    """Count what becomes of all rows of a person, and not of one."""
    patch.setattr(Fates, "by_unit", property(lambda _: False))


def persons_agree_with_each_other(patch: pytest.MonkeyPatch) -> None:
    def agreed(coded: Coded, *, axes: Any) -> Coded:
        codes = list(coded.codes)
        for axis in axes:
            codes[axis] = np.full_like(codes[axis], codes[axis][-1])
        return Coded(codes, weights=coded.weights, ids=coded.ids, draws=coded.draws)

    patch.setattr(RECORDS, "BUCKETS", 1)  # all persons together
    patch.setattr(RECORDS, "agreed", agreed)


def workers_bound_their_own_pieces_only(patch: pytest.MonkeyPatch) -> None:
    def pieces_only(coded: Coded, coding: Coding) -> Coded:
        caller = sys._getframe(1).f_code.co_name
        return coded if caller == "finish_units" else RECORDS.reduced(coded, coding)

    patch.setattr(dpcore.tables.cluster.work, "reduced", pieces_only)


def questions_keep_all_rows(patch: pytest.MonkeyPatch) -> None:
    rows = dpcore.mechanisms.bounded_rows
    kept = rows.bounded_rows
    patch.setattr(
        rows,
        "bounded_rows",
        lambda *given, protection, **named: kept(*given, protection=replace(protection, rows_per_unit=9), **named),
    )


def sums_repaired_like_the_last_row(patch: pytest.MonkeyPatch) -> None:
    repaired = _Compared.repaired

    def like_the_last(self: Any, codes: Any, rows: Any) -> Any:
        cells = repaired(self, codes, rows)
        return np.full_like(cells, cells[-1]) if isinstance(self.constraint, Sum) else cells

    patch.setattr(_Compared, "repaired", like_the_last)


# Showing


def _before_ingest(act: Callable[[Synthesis], None]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        ingest = Synthesis.ingest

        def telling(self: Synthesis) -> Any:
            act(self)
            return ingest(self)

        patch.setattr(Synthesis, "ingest", telling)

    plant.__name__ = act.__name__
    return plant


def logs_the_rows(_run: Synthesis) -> None:
    logging.getLogger("dpcore.tables.ingest").debug("read %d rows", true_rows())


def names_a_file_by_the_rows(_run: Synthesis) -> None:
    Path(f".dpflow/part-{true_rows()}").touch()


def stops_by_the_rows(run: Synthesis) -> None:
    begin = run.strategy.begin

    def begun(curator: Curator) -> None:
        begin(curator)
        run.strategy.finished = true_rows() > 0

    run.strategy.begin = begun  # type: ignore[method-assign]


def refuses_a_value(_run: Synthesis) -> None:
    if true_rows():
        message = "visits.csv holds a person that nobody knows"
        raise SourceError(message)


def a_price_by_the_rows(patch: pytest.MonkeyPatch) -> None:
    amount = Curator._amount
    patch.setattr(Curator, "_amount", lambda self, share: amount(self, share) - (true_rows() > 0))


def expects_the_true_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NoisyTotal, "is_outside", lambda _self, _expected: true_rows() > 0)


def splits_nodes_by_true_counts(patch: pytest.MonkeyPatch) -> None:
    buy = Discovery._buy

    def exact(self: Discovery, curator: Curator, descent: Any, **named: Any) -> None:
        take = type(descent).take

        def peeking(own: Any, counts: Any, **known: Any) -> Any:
            assert curator._received is not None
            true = curator._received[0].marginal((named["axis"],))
            return take(own, np.where(true > 0, counts + 1000, 0), **known)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(descent), "take", peeking)
            buy(self, curator, descent, **named)

    patch.setattr(Discovery, "_buy", exact)


def earlier_counts_by_the_rows(patch: pytest.MonkeyPatch) -> None:
    make = Earlier.of

    def more(resolutions: Any, measured: Transcript, **named: Any) -> Earlier:
        first = tuple(replace(each, values=each.values + true_rows()) for each in measured.first)
        return make(resolutions, Transcript(first, measured.later), **named)

    patch.setattr(Earlier, "of", more)


def prices_by_the_rows(patch: pytest.MonkeyPatch) -> None:
    price = Session._price

    def dearer(self: Session, *arguments: Any) -> Any:
        known = price(self, *arguments)
        return replace(known, epsilon=known.epsilon + true_rows())

    patch.setattr(Session, "_price", dearer)


def queries_log_their_rows(patch: pytest.MonkeyPatch) -> None:
    batches = Query.batches

    def logged(self: Query, columns: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches(self, columns):
            logging.getLogger("dpcore.tables.sources").debug("fetched %d rows", batch.num_rows)
            yield batch

    patch.setattr(Query, "batches", logged)


MOVED = "by more than was paid for"
STORED = "is not what was drawn"
OTHERWISE = "a draw other than the one that was paid for"
FAILED = "a command has failed"
PLANTED: tuple[tuple[Plant | Fault, str, str], ...] = (
    (selections_for_free, "mwem", "a draw without a charged operation"),
    (drawn_before_it_is_paid, "mwem", "a draw without a charged operation"),
    (best_of_two, "mwem", "two draws for one charge"),
    (half_the_price, "mwem", "charged less than the ledger row describes"),
    (described_with_more_noise, "mwem", OTHERWISE),
    (faults.half_noise, "mwem", OTHERWISE),
    (noise_of_numpy, "mwem", "a draw that took no entropy"),
    (selection_of_numpy, "mwem", "a draw that took no entropy"),
    (a_coin_between_the_steps, "mwem", "entropy taken outside of a charged operation"),
    (gates_with_half_the_noise, "online", OTHERWISE),
    (questions_with_half_the_noise, "questions in zcdp", OTHERWISE),
    (faults.noise_for_what_is_there, "discovery", STORED),
    (noise_drawn_for_candidates_with_rows, "discovery", STORED),
    (exact_counts_bought, "session", STORED),
    (gates_recorded_with_true_counts, "online", "stored otherwise on the neighbour"),
    (gates_recorded_with_the_parity_of_rows, "online", "stored otherwise on the neighbour"),
    (faults.units_priced_as_added, "chosen limit, a person is replaced", f"rows-per-unit {MOVED}"),
    (errors_counted_twice, "report", f"error/workload {MOVED}"),
    (weights_of_marginals_not_paid_for, "everything that is public", f"select {MOVED}"),
    (gates_for_values_that_move_one_way, "questions by weight, a person is replaced", f"answer {MOVED}"),
    (gates_for_one_row, "online", FAILED),
    (chosen_limit_not_kept, "chosen limit", MOVED),
    (chosen_limit_not_kept_by_sessions, "session with a chosen limit", f"ask/N/N {MOVED}"),
    (sessions_read_by_the_spec, "session with a chosen limit", FAILED),
    (figures_read_by_the_spec, "report", FAILED),
    (limit_ignored_after_it_was_chosen, "chosen limit", FAILED),
    (rows_counted_as_persons, "persons", f"rows-of-persons/by-size {MOVED}"),
    (every_row_has_a_fate, "check of lost rows", f"rows-lost {MOVED}"),
    (persons_agree_with_each_other, "persons", "a person moves received counts"),
    (workers_bound_their_own_pieces_only, "table on dask", MOVED),
    (faults.weights_not_clipped, "mwem in gdp, by weight", MOVED),
    (questions_keep_all_rows, "questions in zcdp", f"answer {MOVED}"),
    (faults.orders_repaired_by_the_batch, "repaired order and sum", MOVED),
    (sums_repaired_like_the_last_row, "repaired order and sum at full resolution", MOVED),
    (faults.all_blocks_read, "blocks", "rows that were not paid for are counted"),
    (_before_ingest(logs_the_rows), "mwem", "differs in logs"),
    (_before_ingest(names_a_file_by_the_rows), "mwem", "differs in files"),
    (_before_ingest(stops_by_the_rows), "mwem", "differs in steps"),
    (_before_ingest(refuses_a_value), "mwem", "differs in exit"),
    (a_price_by_the_rows, "mwem", "differs in charges"),
    (expects_the_true_rows, "mwem in pure epsilon", "differs in exit"),
    (splits_nodes_by_true_counts, "full resolution", "on the neighbour"),
    (earlier_counts_by_the_rows, "unchanged table", "differs in rows"),
    (prices_by_the_rows, "service", "differs in shown"),
    (queries_log_their_rows, "table in sql", "differs in logs"),
)
"""The bug, the setting in which it is caught, and the problem that names it."""
