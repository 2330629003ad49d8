"""What a check of a ledger tells: that it is whole, or the first thing that does not fit, in a sentence."""

import json
import shutil
import tracemalloc
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from dpcore.errors import LedgerDamaged
from dpcore.ledger import GENESIS, Lease, Ledger, open_ledger
from dpcore.ledger.chain import canonical, link
from dpcore.ledger.verification import Verified, verify
from dpcore.ledger.writing import WritingTransaction
from dpcore.mechanisms import from_description
from dpcore.privacy.accounting import Currency
from tests.dpcore.ledger.fixtures import opened
from tests.dpcore.ledger.story import NOISE, measure, price, reserve
from tests.dpcore.ledger.tampering import Books, SqliteBooks


@pytest.fixture(autouse=True)
def _only_rows_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """These books have their rules taken away, so that anything can be done to their rows."""
    for store in ("sqlite", "postgres"):
        monkeypatch.setattr(f"dpcore.ledger.{store}.store.rules_changed", lambda _: False)


def priced(mechanism: Mapping[str, Any], currency: Currency) -> int:
    return from_description(mechanism).price(currency)


def checked(url: str, **options: Any) -> Verified:
    with open_ledger(url) as ledger:
        return verify(ledger, **({"price": priced, "heads": {}} | options))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.sqlite"


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> SqliteBooks:
    return SqliteBooks(tmp_path_factory.mktemp("books"))


def rewrite(books: Books) -> None:
    """Give every event the hash that its content now has, as someone would who covers his tracks."""
    previous = GENESIS
    for row in books.rows("event"):
        content = {name: row[name] for name in ("seq", "at", "kind", "account", "run", "body")}
        event = link(previous, **content)
        books.change("event", row, previous=previous, hash=event.hash)
        previous = event.hash


def event_of(books: Books, kind: str, **details: Any) -> dict[str, Any]:
    """Return the first event of this kind that says this, with its body as a dictionary."""
    for row in books.rows("event"):
        body = json.loads(row["body"])
        if row["kind"] == kind and details.items() <= {**body, "run": row["run"]}.items():
            return {**row, "body": body}
    raise LookupError(kind)


def say(books: Books, event: Mapping[str, Any], **details: Any) -> None:
    """Let an event say something else."""
    books.change("event", event, body=canonical({**event["body"], **details}))


def test_an_empty_ledger_is_whole_and_has_the_constant_head(url: str) -> None:
    open_ledger(url, create=True).close()
    assert checked(url, heads={"m": GENESIS}) == Verified(0, 0, 0, 0, manifests=1, head=GENESIS)


def test_every_head_that_ever_was_is_met(books: SqliteBooks) -> None:
    heads = {str(row["seq"]): row["hash"] for row in books.rows("event")}
    assert checked(books.url, heads=heads, expected_head=heads["7"]).manifests == len(heads)
    with pytest.raises(LedgerDamaged, match=r"the head that was expected, abab"):
        checked(books.url, heads=heads, expected_head="ab" * 32)


class TestAnOlderBackup:
    def test_is_whole_in_itself_and_found_by_a_later_head(self, url: str, tmp_path: Path) -> None:
        path, backup = tmp_path / "ledger.sqlite", tmp_path / "backup.sqlite"
        with open_ledger(url, create=True) as ledger:
            opened(ledger, cap=10**12)
            reserve(ledger, "run", "clinic", steps=2)
            measure(ledger, ledger.lease("run"), "round-1", output=b"one")
        shutil.copyfile(path, backup)
        with open_ledger(url) as ledger:
            measure(ledger, Lease("run", 1), "round-2", output=b"two")
            head = ledger.head()
            ledger.settle("run", release="release", lease=Lease("run", 1))
        assert checked(url, heads={"manifest": head}).events == 8
        shutil.copyfile(backup, path)
        assert checked(url).events == 5
        for told in ({"heads": {"manifest": head}}, {"expected_head": head}):
            with pytest.raises(
                LedgerDamaged, match="chain of 5 events: events were dropped since, or the head is of another"
            ):
                checked(url, **told)

    def test_so_is_a_history_that_was_rewritten_from_some_event_on(self, books: SqliteBooks) -> None:
        head = checked(books.url).head
        with books.tampered():
            say(books, event_of(books, "cap-raised"), reason="because")
            rewrite(books)
            checked(books.url)
            with pytest.raises(LedgerDamaged, match="not in this chain"):
                checked(books.url, expected_head=head)


class TestPrices:
    def run(self, url: str, *, amount: int, mechanism: Mapping[str, Any]) -> None:
        with open_ledger(url, create=True) as ledger:
            opened(ledger, cap=10**12)
            ledger.reserve("run", account="clinic", amount=10**12, claim="claim")
            ledger.charge(ledger.lease("run"), step="step", amount=amount, mechanism=mechanism)

    @pytest.mark.parametrize("more", [0, 1, 10**9])
    def test_a_mechanism_that_was_paid_for_passes(self, url: str, more: int) -> None:
        self.run(url, amount=price(Currency.PURE) + more, mechanism=NOISE[Currency.PURE].describe())
        assert checked(url).operations == 1

    def test_one_that_costs_more_than_was_charged_is_found(self, url: str) -> None:
        self.run(url, amount=price(Currency.PURE) - 1, mechanism=NOISE[Currency.PURE].describe())
        with pytest.raises(LedgerDamaged) as damage:
            checked(url)
        assert str(damage.value) == (
            "event 4 (charged, run 'run') was charged 0.049999999999 epsilon and costs 0.05 epsilon; "
            "count the difference as spent, and find out why"
        )

    @pytest.mark.parametrize(
        "mechanism",
        [
            {"name": "secret-sauce", "scale": "1.0"},
            {**NOISE[Currency.PURE].describe(), "cells": 7},
            {**NOISE[Currency.PURE].describe(), "scale": "nan"},
            {**NOISE[Currency.PURE].describe(), "l1": 10**400},
            NOISE[Currency.ZCDP].describe(),
        ],
        ids=str,
    )
    def test_one_that_has_no_price_is_found(self, url: str, mechanism: Mapping[str, Any]) -> None:
        self.run(url, amount=10**12, mechanism=mechanism)
        with pytest.raises(
            LedgerDamaged, match=r"event 4 \(charged, run 'run'\) has a mechanism that this version cannot price"
        ):
            checked(url)

    def test_each_mechanism_is_priced_once(self, books: SqliteBooks) -> None:
        asked = []

        def noted(mechanism: Mapping[str, Any], currency: Currency) -> int:
            asked.append((mechanism["name"], currency))
            return 1

        assert checked(books.url, price=noted).operations == 10
        assert len(asked) == len(set(asked)) == 3


class TestAForgedHistory:
    """Events that say what no ledger would have written, with rows that agree and hashes that fit."""

    def attempts(self, books: Books) -> list[dict[str, Any]]:
        rows = [row for row in books.rows("operation") if (row["run"], row["step"]) == ("births-1", "round-2")]
        assert [row["attempt"] for row in rows] == [1, 2, 3]
        return [dict(row) for row in rows]

    def forge(self, books: Books, row: Mapping[str, Any], **values: Any) -> None:
        (event,) = (each for each in books.rows("event") if each["seq"] == row["charged"])
        say(books, {**event, "body": json.loads(event["body"])}, **values)
        books.change("operation", row, **values)

    def test_an_attempt_too_many_is_found(self, books: SqliteBooks) -> None:
        with books.tampered():
            self.forge(books, self.attempts(books)[1], attempt=7)
            rewrite(books)
            with pytest.raises(
                LedgerDamaged, match="attempt 3 of step 'round-2' of run 'births-1' is not numbered next"
            ):
                checked(books.url)

    def test_attempts_in_another_order_are_found(self, books: SqliteBooks) -> None:
        with books.tampered():
            one, two, _ = self.attempts(books)
            for row, attempt in ((one, 9), (two, 1), (one, 2)):
                self.forge(books, row, attempt=attempt)
            rewrite(books)
            with pytest.raises(LedgerDamaged, match="attempt 2 of step 'round-2' of run 'births-1' was charged before"):
                checked(books.url)

    def test_a_charge_after_the_commit_is_found(self, books: SqliteBooks) -> None:
        with books.tampered():
            one, two, three = self.attempts(books)
            self.forge(books, one, step="round-1", attempt=2)
            self.forge(books, two, attempt=1)
            self.forge(books, three, attempt=2)
            commit = event_of(books, "committed", step="round-2")
            say(books, commit, attempt=2)
            rewrite(books)
            with pytest.raises(
                LedgerDamaged,
                match=r"attempt 2 of step 'round-1' of run 'births-1' was .* after its step was committed",
            ):
                checked(books.url)

    def test_a_commit_by_a_worker_that_had_lost_its_run_is_found(self, books: SqliteBooks) -> None:
        with books.tampered():
            _, _, three = self.attempts(books)
            self.forge(books, three, fence=1)
            rewrite(books)
            with pytest.raises(
                LedgerDamaged, match=r"\(charged, run 'births-1'\) comes from a worker whose run was taken"
            ):
                checked(books.url)


@pytest.mark.parametrize(
    ("table", "key", "values", "sentence"),
    [
        ("event", {"seq": 9}, {"body": "{}"}, "event 9 (charged, run 'births-1') does not match its hash"),
        ("event", {"seq": 9}, {"kind": "stopped"}, "event 9 (of no known kind, run 'births-1') does not match its hash"),
        ("event", {"seq": 9}, {"previous": GENESIS}, "event 9 (charged, run 'births-1') does not follow the event before it"),
        ("event", {"seq": 9}, {"seq": 900}, "event 9 is missing from the ledger"),
        ("account", {"name": "births"}, {"cap": 1, "unit": "row"}, "account 'births' differs from the events in: cap, unit"),
        ("block", {"account": "wards", "name": "west"}, {"used": 0}, "block 'wards', 'west' differs from the events in: used"),
        ("account", {"name": "births"}, {"name": "deaths"}, "account 'deaths' exists, but no event records it"),
        ("block", {"account": "wards", "name": "west"}, {"name": "\x1b[2J"}, "block 'wards', without a readable name exists"),
    ],
    ids=str,
)  # fmt: skip
def test_the_first_row_that_does_not_fit_is_named(
    books: SqliteBooks, table: str, key: dict[str, Any], values: dict[str, Any], sentence: str
) -> None:
    with books.tampered():
        books.change(table, key, **values)
        with pytest.raises(LedgerDamaged) as damage:
            checked(books.url)
    assert str(damage.value).startswith(sentence)
    assert str(damage.value).endswith("; restore the ledger from a backup")
    assert damage.value.exit_code == 4


def fill(ledger: Ledger, run_id: str, *, steps: int) -> None:
    ledger.reserve(run_id, account="clinic", amount=steps, claim="claim")
    lease = ledger.lease(run_id)
    for number in range(steps):
        operation = ledger.charge(lease, step=f"round-{number}", amount=1, mechanism={"number": f"{run_id}/{number}"})
        ledger.commit(operation, b"output")
    ledger.settle(run_id, release=None, lease=lease)


def test_memory_does_not_grow_with_the_history(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpcore.ledger.verification.check._PRICES_KEPT", 64)  # full before the shorter history ends
    with open_ledger(url, create=True) as ledger:
        opened(ledger, cap=10**12)
        writing, peaks = ledger._writing, []
        for events in (1_000, 4_000):
            with ledger._store.transaction(writing=True):  # all at once: one by one would take its time
                rows = WritingTransaction(ledger._store, now=None)
                ledger._writing = lambda rows=rows: nullcontext(rows)
                before = rows.head().seq
                fill(ledger, f"long-{events}", steps=(events - before) // 4)
                for number in range((events - before) // 2 // 23):
                    fill(ledger, f"short-{events}-{number}", steps=10)
            ledger._writing = writing
            taken = []
            for _ in range(3):  # the least counts: other threads of this process may take some memory meanwhile
                tracemalloc.start()
                assert events * 0.98 < verify(ledger, price=lambda *_: 1, heads={}).events < events * 1.02
                taken.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
            peaks.append(min(taken))
    assert peaks[1] - peaks[0] < 16 * 3_000  # bytes: less than one kept number for each of the 3,000 events more
