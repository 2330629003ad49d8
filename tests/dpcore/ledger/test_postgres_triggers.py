"""Statements sent past the protocol: the rules of the tables refuse each, and would let it through without the rule it meets."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256

import psycopg
import pytest
from psycopg import sql

from dpcore.ledger import AllowanceKind, open_ledger
from dpcore.ledger.chain import canonical, link
from dpcore.ledger.verification import verify
from dpcore.privacy.protection import Neighbours
from tests.dpcore.ledger.fixtures import MECHANISM, opened, opened_by_month
from tests.postgres import PostgresServer, postgres_folder

TOKEN = "ab" * 32
SETTLED = {"spent": 0, "returned": 40, "release": None, "manifest": None, "manifest_sha256": None}
AT = "2026-11-15T00:00:00+00:00"
REQUEST = {"amount": 100, "claim": "c", "blocks": None, "analyst": None, "purpose": None}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(postgres_folder(), durable=False) as server:
        yield server


@pytest.fixture(scope="module")
def prepared(server: PostgresServer) -> str:
    """Return a ledger with runs in every state, the last of which has just been settled."""
    url = server.new_database()
    with open_ledger(url, create=True) as ledger:
        opened(ledger)
        opened(ledger, "closed")
        terms = {"unit": "person", "across": 900, "across_epsilon": 1.0, "neighbours": Neighbours.REPLACE_ONE}
        opened_by_month(ledger, "2026-01", "2026-02", "2026-03", **terms)
        for analyst in ("ana", "bob"):
            ledger.allow("visits", kind=AllowanceKind.ANALYST, name=analyst, cap=500, epsilon=1.0, reason="r")
        ledger.reserve("january", account="visits", amount=40, claim="c", blocks=["2026-01"], analyst="ana")
        ledger.reserve("february", account="visits", amount=40, claim="c", blocks=["2026-02"], analyst="bob")
        ledger.reserve("open", account="clinic", amount=100, claim="c")
        ledger.reserve("refunded", account="clinic", amount=100, claim="c")
        ledger.refund("refunded", lease=None)
        ledger.close_account("closed", reason="r")
        lease = ledger.lease("open")
        ledger.commit(ledger.charge(lease, step="done", amount=10, mechanism=MECHANISM), b"noisy")
        ledger.charge(lease, step="begun", amount=10, mechanism=MECHANISM)
        ledger.open_blocks("visits", ["2026-04"])
        for release in ("older", "newer"):
            ledger.reserve(release, account="clinic", amount=10, claim="c")
            ledger.settle(release, release=release, lease=None, manifest="m", manifest_sha256=TOKEN)
        for analyst in ("ana", "bob"):
            ledger.share("open", analyst=analyst, cap=30, token=TOKEN)
        ledger.reserve("settled", account="clinic", amount=100, claim="c")
        ledger.settle("settled", release=None, lease=ledger.lease("settled"))
        verify(ledger, price=lambda _mechanism, _currency: 0, heads={})
    return url


@pytest.fixture(scope="module")
def connection(prepared: str) -> Iterator[psycopg.Connection]:
    with closing(psycopg.connect(prepared, autocommit=True)) as connection:
        yield connection


@dataclass(frozen=True)
class Forger:
    """Writes events and rows by hand; every event has its place in the chain and the right hash."""

    connection: psycopg.Connection

    def do(self, statement: str, *values: object) -> None:
        if not self.connection.execute(statement, values).rowcount:
            raise ValueError(f"changes nothing: {statement}")

    def tell(
        self,
        kind: str,
        run: str | None,
        *,
        account: str = "clinic",
        skip: int = 0,
        text: str | None = None,
        hashed: object = None,
        **body: object,
    ) -> int:
        """Append an event with this body, or with this text, and return its number. Its hash may be that of another body."""
        seq, previous = self.connection.execute(
            "SELECT seq, hash FROM dpflow.event ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        told = text or canonical(body)
        content = {"at": AT, "account": account, "run": run}
        event = link(previous, seq=seq + 1 + skip, kind=kind, body=canonical(hashed) if hashed else told, **content)
        values = vars(event) | {"body": told}
        self.do("INSERT INTO dpflow.event VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", *values.values())
        return event.seq

    def reserve(
        self,
        run: str,
        *,
        account: str = "clinic",
        paid: int = 0,
        allowed: int = 0,
        across: int = 0,
        later: int = 0,
        row_claim: str = "c",
        **changes: object,
    ) -> None:
        request = REQUEST | changes
        seq = self.tell("reserved", run, account=account, **request)
        if paid:
            self.do("UPDATE dpflow.block SET used = used + %s WHERE (account, name) IN "
                    "(('clinic', 'all'), ('closed', 'all'), ('visits', '2026-01')) AND account = %s", paid, account)  # fmt: skip
        if allowed:
            self.do("UPDATE dpflow.allowance SET used = used + %s WHERE name = %s", allowed, request["analyst"])
        if across:
            self.do("UPDATE dpflow.account SET across_used = across_used + %s WHERE name = %s", across, account)
        row = (seq + later, run, account, abs(request["amount"]), request["analyst"], request["purpose"], seq, seq)
        row += (row_claim, AT)
        self.do("INSERT INTO dpflow.run (number, id, account, reserved, analyst, purpose, first, last, spent, state, claim,"
                " opened_at, fence, lease_seconds) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 0, 'open', %s, %s, 0, 0)", *row)  # fmt: skip

    def end(self, run: str, kind: str, *, account: str = "clinic", state: str | None = None, **body: object) -> None:
        if kind == "settled":
            body |= {"release": None, "manifest": None, "manifest_sha256": None}
        seq = self.tell(kind, run, account=account, **body)
        self.do("UPDATE dpflow.run SET state = %s, last = %s WHERE id = %s", state or kind, seq, run)

    def charge(self, analyst: str | None = None, *, amount: int = 20, spent: int | None = None, **place: object) -> int:
        """Tell of a charge, change the run by `spent`, which is the amount unless told otherwise, and add the operation."""
        place = {"step": "s", "attempt": 1, "fence": 1} | place
        body = {**place, "amount": amount, "mechanism": MECHANISM, "analyst": analyst}
        seq = self.tell("charged", "open", **body)
        price = amount if spent is None else spent
        self.do("UPDATE dpflow.run SET spent = spent + %s, last = %s WHERE id = 'open'", price, seq)
        self.do("INSERT INTO dpflow.operation (run, step, attempt, state, amount, mechanism, fence, analyst, charged)"
                " VALUES ('open', %s, %s, 'charged', %s, %s, %s, %s, %s)", place["step"], place["attempt"], amount,
                canonical(MECHANISM), place["fence"], analyst, seq)  # fmt: skip
        return seq

    def commit(self, step: str, *, output: bytes = b"", told: bytes = b"") -> None:
        """Tell of the commit of a step's first attempt, and store its output."""
        digest = sha256(told).hexdigest()
        seq = self.tell("committed", "open", step=step, attempt=1, sha256=digest, size=len(told))
        self.do("UPDATE dpflow.run SET last = %s WHERE id = 'open'", seq)
        self.do("UPDATE dpflow.operation SET state = 'committed', committed = %s, sha256 = %s, output = %s"
                " WHERE step = %s AND attempt = 1", seq, digest, output, step)  # fmt: skip

    def lease(self, *, fence: int = 2, holder: str = "h", seconds: int = 5) -> None:
        seq = self.tell("leased", "open", fence=fence, holder="h", seconds=5)
        self.do("UPDATE dpflow.run SET fence = 2, holder = %s, lease_seconds = %s, last = %s WHERE id = 'open'",
                holder, seconds, seq)  # fmt: skip

    def release(self, kind: str, run: str, **changes: object) -> None:
        """Tell that retention removes a release, or that it was published again."""
        if kind == "removed":
            self.tell(kind, run, **({"release": run, "reason": "r", "keep": 1} | changes))
        else:
            body = {"run": run, "release": run, "manifest": "m", "manifest_sha256": "0" * 64}
            account = changes.pop("account", "clinic")
            self.tell(kind, None, account=account, text=canonical(body | changes))

    def end_transaction(self) -> None:
        """Check all that is checked at the end of a transaction."""
        self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        self.connection.execute("SET CONSTRAINTS ALL DEFERRED")

    def refund(self) -> None:
        """Refund the run for January to all that paid for it."""
        self.end("january", "refunded", account="visits", returned=40)
        self.do("UPDATE dpflow.block SET used = used - 80 WHERE name = '2026-01'")
        self.do("UPDATE dpflow.account SET across_used = across_used - 40 WHERE name = 'visits'")
        self.do("UPDATE dpflow.allowance SET used = used - 40 WHERE name = 'ana'")

    def reserve_again(self, **changes: object) -> None:
        """Reserve the refunded run once more."""
        seq = self.tell("reserved", "refunded", **(REQUEST | changes))
        self.do("UPDATE dpflow.block SET used = used + 100 WHERE account = 'clinic'")
        self.do("UPDATE dpflow.run SET state = 'open', first = %s, last = %s WHERE id = 'refunded'", seq, seq)

    def change_block(self, kind: str, name: str, *, account: str = "visits", told: str | None = None) -> None:
        """Tell that a block is opened or sealed, and do it."""
        self.tell(kind, None, account=account, blocks=[told or name])
        if kind == "blocks-opened":
            self.do("INSERT INTO dpflow.block VALUES (%s, %s, 'open', 1000, 0)", account, name)
        else:
            self.do("UPDATE dpflow.block SET state = 'sealed' WHERE name = %s AND state = 'open'", name)

    def spend(self, analyst: str, amount: int, *, last: int) -> None:
        self.do("UPDATE dpflow.share SET spent = spent + %s, last = %s WHERE analyst = %s", amount, last, analyst)


Forgery = Callable[[Forger], object]
FORGERIES: list[tuple[str, tuple[str, ...], Forgery]] = [
    (
        "take back what was used, without an event",
        ("block_follows_chain",),
        lambda by: by.do("UPDATE dpflow.block SET used = used - 1 WHERE account = 'clinic'"),
    ),
    (
        "give back what the last event gave back already",
        ("block_follows_chain",),
        lambda by: by.do("UPDATE dpflow.block SET used = used - 100 WHERE account = 'clinic'"),
    ),
    (
        "give January's rest back to February",
        ("block_follows_chain", "event_has_effect"),
        lambda by: (
            by.end("january", "refunded", account="visits", returned=40),
            by.do("UPDATE dpflow.block SET used = used - 80 WHERE name = '2026-02'"),
        ),
    ),
    (
        "give one analyst's rest back to another",
        ("allowance_follows_chain", "event_has_effect"),
        lambda by: (
            by.end("january", "refunded", account="visits", returned=40),
            by.do("UPDATE dpflow.allowance SET used = used - 40 WHERE name = 'bob'"),
        ),
    ),
    (
        "give back more than was left",
        ("run_follows_chain", "event_has_effect"),
        lambda by: by.end("open", "settled", spent=0, returned=100),
    ),
    (
        "give back what is left, and keep it",
        ("run_follows_chain", "block_follows_chain"),
        lambda by: (
            by.end("open", "settled", state="open", spent=20, returned=80),
            by.do("UPDATE dpflow.block SET used = used - 80 WHERE account = 'clinic'"),
        ),
    ),
    (
        "tell of a kind of event that there is not",
        ("event_in_order", "event_has_effect"),
        lambda by: by.tell("foo", "open", spent=20, returned=80),
    ),
    (
        "settle what was settled",
        ("run_follows_chain", "run_stays_spent", "event_has_effect"),
        lambda by: by.end("settled", "settled", spent=0, returned=100),
    ),
    (
        "take up a run that was settled",
        ("run_follows_chain", "run_stays_spent"),
        lambda by: by.do("UPDATE dpflow.run SET state = 'open' WHERE id = 'settled'"),
    ),
    (
        "spend less than before",
        ("run_follows_chain", "run_stays_spent"),
        lambda by: by.do("UPDATE dpflow.run SET spent = 0 WHERE id = 'open'"),
    ),
    (
        "get a fence without a lease",
        ("run_follows_chain",),
        lambda by: by.do("UPDATE dpflow.run SET fence = fence + 1 WHERE id = 'open'"),
    ),
    ("reserve without paying", ("run_follows_chain",), lambda by: by.reserve("new")),
    (
        "give a run another place in the order than its event has",
        ("run_follows_chain",),
        lambda by: by.reserve("new", paid=100, later=1),
    ),
    ("pay less than was reserved", ("block_follows_chain", "run_follows_chain"), lambda by: by.reserve("new", paid=1)),
    (
        "reserve for a block of one and pay for none",
        ("run_follows_chain",),
        lambda by: by.reserve("new", account="visits", blocks=None, analyst="ana"),
    ),
    (
        "pay once where a step touches two blocks",
        ("block_follows_chain", "run_follows_chain"),
        lambda by: by.reserve("new", account="visits", blocks=["2026-01"], analyst="ana", paid=100),
    ),
    (
        "reserve without an allowance",
        ("run_follows_chain",),
        lambda by: by.reserve("new", account="visits", blocks=["2026-01"], analyst="eve", paid=200),
    ),
    (
        "take back what was used across blocks, without an event",
        ("account_follows_chain",),
        lambda by: by.do("UPDATE dpflow.account SET across_used = across_used - 1 WHERE name = 'visits'"),
    ),
    (
        "reserve without paying across blocks",
        ("run_follows_chain",),
        lambda by: by.reserve("new", account="visits", blocks=["2026-01"], analyst="ana", paid=200, allowed=100),
    ),
    (
        "pay less across blocks than was reserved",
        ("account_follows_chain", "run_follows_chain"),
        lambda by: by.reserve(
            "new", account="visits", blocks=["2026-01"], analyst="ana", paid=200, allowed=100, across=1
        ),
    ),
    (
        "give back across blocks what was given back already",
        ("account_follows_chain", "event_has_effect"),
        lambda by: (
            by.end("january", "refunded", account="visits", returned=40),
            by.do("UPDATE dpflow.account SET across_used = across_used - 40 WHERE name = 'visits'"),
            by.do("UPDATE dpflow.account SET across_used = across_used - 40 WHERE name = 'visits'"),
        ),
    ),
    (
        "open an account with something used",
        ("account_begins_unused",),
        lambda by: by.do(
            "INSERT INTO dpflow.account VALUES ('mine', 'pure', 9, 1, 0, 'person', 'add-remove', '', 'month', 'open', '',"
            " 5, 1, 1)"
        ),
    ),
    (
        "lower the cap across blocks",
        ("account_only_raised",),
        lambda by: by.do("UPDATE dpflow.account SET across = 899 WHERE name = 'visits'"),
    ),
    (
        "take the cap across blocks away",
        ("account_only_raised", "account_follows_chain"),
        lambda by: by.do(
            "UPDATE dpflow.account SET across = NULL, across_epsilon = NULL, across_used = 0 WHERE name = 'visits'"
        ),
    ),
    (
        "reserve in the name of somebody else than was told",
        ("run_follows_chain",),
        lambda by: (
            by.reserve("new", paid=100),
            by.do("UPDATE dpflow.run SET analyst = 'bob' WHERE id = 'new'"),
        ),
    ),
    ("reserve in a closed account", ("run_follows_chain",), lambda by: by.reserve("new", account="closed", paid=100)),
    (
        "reserve less than nothing",
        ("event_in_order", "run_follows_chain"),
        lambda by: by.reserve("new", paid=-100, amount=-100),
    ),
    (
        "reserve less than nothing for no run",
        ("event_in_order", "event_has_effect"),
        lambda by: (
            by.tell("reserved", "new", **(REQUEST | {"amount": -100})),
            by.do("UPDATE dpflow.block SET used = used - 100 WHERE account = 'clinic'"),
        ),
    ),
    (
        "begin a block with something used",
        ("block_begins_unused", "block_is_told"),
        lambda by: by.do("INSERT INTO dpflow.block VALUES ('visits', 'mine', 'sealed', 1000, 7)"),
    ),
    (
        "find a second block where there is one",
        ("block_has_the_cap", "block_is_told"),
        lambda by: by.do("INSERT INTO dpflow.block VALUES ('clinic', 'mine', 'sealed', 1000, 0)"),
    ),
    (
        "give a block a cap of its own",
        ("block_has_the_cap",),
        lambda by: by.do("UPDATE dpflow.block SET cap = cap + 1"),
    ),
    (
        "let a sealed block grow",
        ("block_kept_sealed", "block_follows_chain"),
        lambda by: by.do("UPDATE dpflow.block SET state = 'open' WHERE name = '2026-03'"),
    ),
    (
        "lower a cap",
        ("account_only_raised",),
        lambda by: by.do("UPDATE dpflow.account SET cap = 999 WHERE name = 'closed'"),
    ),
    (
        "spend less than was charged",
        ("run_follows_chain",),
        lambda by: by.charge(spent=1),
    ),
    (
        "tell of a charge that is not made",
        ("event_has_effect",),
        lambda by: by.tell(
            "charged", "open", step="s", attempt=1, amount=1, mechanism=MECHANISM, fence=1, analyst=None
        ),
    ),
    ("charge an analyst whose share pays nothing", ("event_has_effect",), lambda by: by.charge("ana")),
    (
        "charge one analyst and let another pay",
        ("share_follows_chain", "event_has_effect"),
        lambda by: by.spend("bob", 20, last=by.charge("ana")),
    ),
    (
        "let a share pay less than was charged",
        ("share_follows_chain",),
        lambda by: by.spend("ana", 1, last=by.charge("ana")),
    ),
    (
        "let a share pay less than nothing",
        ("share_follows_chain",),
        lambda by: (
            by.spend("ana", 20, last=by.charge("ana")),
            by.do("UPDATE dpflow.share SET spent = 0 WHERE analyst = 'ana'"),
        ),
    ),
    (
        "raise a share without an event",
        ("share_follows_chain",),
        lambda by: by.do("UPDATE dpflow.share SET cap = 99 WHERE analyst = 'ana'"),
    ),
    (
        "give oneself a share without an event",
        ("share_follows_chain",),
        lambda by: by.do("INSERT INTO dpflow.share VALUES ('open', 'eve', 99, %s, 0, 1)", TOKEN),
    ),
    ("delete a share", ("share_kept",), lambda by: by.do("DELETE FROM dpflow.share")),
    (
        "tell of a withdrawal of what was not released",
        ("event_has_effect",),
        lambda by: by.tell("withdrawn", "settled", release="r", reason="r"),
    ),
    (
        "tell something else than was hashed",
        ("event_in_order", "event_has_effect"),
        lambda by: by.tell("blocks-opened", None, account="visits", hashed={"blocks": ["b"]}, blocks=["a"]),
    ),
    (
        "tell something that is no JSON",
        ("event_in_order", "event_has_effect"),
        lambda by: by.tell("data-version", "open", text='{"version":'),
    ),
    (
        "tell something in another form",
        ("event_in_order", "event_has_effect"),
        lambda by: by.tell("blocks-opened", None, account="visits", text='{"blocks": ["b"]}'),
    ),
    (
        "change what an operation has cost",
        ("operation_follows_chain",),
        lambda by: by.do("UPDATE dpflow.operation SET amount = 1 WHERE step = 'begun'"),
    ),
    (
        "commit another output than was told",
        ("operation_follows_chain",),
        lambda by: by.commit("begun", output=b"exact"),
    ),
    (
        "change a committed output",
        ("operation_kept_as_committed", "operation_follows_chain"),
        lambda by: by.do("UPDATE dpflow.operation SET output = 'exact' WHERE step = 'done'"),
    ),
    (
        "leave a gap in the chain",
        ("event_in_order", "event_has_effect"),
        lambda by: by.tell("blocks-opened", None, skip=1, blocks=["b"]),
    ),
    ("change history", ("event_kept",), lambda by: by.do("UPDATE dpflow.event SET at = 'never' WHERE seq = 3")),
    ("delete history", ("event_kept",), lambda by: by.do("DELETE FROM dpflow.event WHERE kind = 'leased'")),
    ("delete a block", ("block_kept",), lambda by: by.do("DELETE FROM dpflow.block WHERE name = '2026-03'")),
    ("delete an allowance", ("allowance_kept",), lambda by: by.do("DELETE FROM dpflow.allowance")),
    ("delete a run", ("run_kept",), lambda by: by.do("DELETE FROM dpflow.run WHERE id = 'refunded'")),
    ("delete an operation", ("operation_kept",), lambda by: by.do("DELETE FROM dpflow.operation")),
    (
        "open a block without an event",
        ("block_is_told",),
        lambda by: by.do("INSERT INTO dpflow.block VALUES ('visits', 'mine', 'open', 1000, 0)"),
    ),
    (
        "open another block than was told",
        ("block_is_told", "event_has_effect"),
        lambda by: by.change_block("blocks-opened", "mine", told="yours"),
    ),
    (
        "open a block as sealed",
        ("block_is_told",),
        lambda by: (
            by.tell("blocks-opened", None, account="visits", blocks=["mine"]),
            by.do(
                "INSERT INTO dpflow.block (account, name, state, cap, used, moved) SELECT 'visits', 'mine', 'sealed', 1000, 0,"
                " max(seq) FROM dpflow.event"
            ),
        ),
    ),
    (
        "seal a block without an event",
        ("block_follows_chain",),
        lambda by: by.do("UPDATE dpflow.block SET state = 'sealed' WHERE name = '2026-04'"),
    ),
    (
        "seal another block than was told",
        ("block_follows_chain", "event_has_effect"),
        lambda by: by.change_block("blocks-sealed", "2026-04", told="2026-03"),
    ),
    *(
        (
            f"tell of {kind} of {name} in {account}, which has no effect",
            ("event_has_effect",),
            lambda by, kind=kind, name=name, account=account: by.tell(kind, None, account=account, blocks=[name]),
        )
        for kind, name, account in (
            ("blocks-opened", "mine", "visits"),
            ("blocks-opened", "2026-03", "visits"),
            ("blocks-opened", "mine", "nowhere"),
            ("blocks-sealed", "mine", "visits"),
            ("blocks-sealed", "2026-03", "visits"),
            ("blocks-sealed", "2026-04", "visits"),
        )
    ),
    (
        "name blocks in another order",
        ("event_in_order", "event_has_effect"),
        lambda by: by.tell("blocks-opened", None, account="visits", blocks=["b", "a"]),
    ),
    (
        "name the block of an account that has one",
        ("run_follows_chain",),
        lambda by: by.reserve("new", paid=100, blocks=["all"]),
    ),
    (
        "reserve with another claim than was told",
        ("run_follows_chain",),
        lambda by: by.reserve("new", paid=100, row_claim="mine"),
    ),
    (
        "reserve again what was refunded, for something else",
        ("run_follows_chain",),
        lambda by: by.reserve_again(claim="d"),
    ),
    (
        "charge with a fence that no lease has",
        ("operation_follows_chain", "run_follows_chain"),
        lambda by: by.charge(fence=9),
    ),
    ("charge an attempt before the one before it", ("operation_follows_chain",), lambda by: by.charge(attempt=7)),
    ("charge a step that is committed", ("operation_follows_chain",), lambda by: by.charge(step="done", attempt=2)),
    (
        "commit an attempt that was overtaken",
        ("operation_follows_chain",),
        lambda by: (by.charge(step="begun", attempt=2), by.end_transaction(), by.commit("begun")),
    ),
    (
        "commit what an earlier lease has charged",
        ("operation_follows_chain",),
        lambda by: (by.lease(), by.end_transaction(), by.commit("begun")),
    ),
    (
        "tell of a commit that is not made",
        ("event_has_effect",),
        lambda by: (
            seq := by.tell("committed", "open", step="begun", attempt=1, sha256=TOKEN, size=0),
            by.do("UPDATE dpflow.run SET last = %s WHERE id = 'open'", seq),
        ),
    ),
    ("lease for longer than was told", ("run_follows_chain",), lambda by: by.lease(seconds=9 * 10**18)),
    ("lease to another worker than was told", ("run_follows_chain",), lambda by: by.lease(holder="mine")),
    ("lease with another fence than was told", ("run_follows_chain",), lambda by: by.lease(fence=7)),
    (
        "bind a run to another version of the data than was told",
        ("run_follows_chain",),
        lambda by: by.do(
            "UPDATE dpflow.run SET data_version = 'mine', last = %s WHERE id = 'open'",
            by.tell("data-version", "open", version="v"),
        ),
    ),
    (
        "settle another release than was told",
        ("run_follows_chain", "event_has_effect"),
        lambda by: by.do(
            "UPDATE dpflow.run SET state = 'settled', release = 'mine', last = %s WHERE id = 'february'",
            by.tell("settled", "february", account="visits", **SETTLED),
        ),
    ),
    (
        "settle and give nothing back",
        ("event_has_effect",),
        lambda by: by.end("january", "settled", account="visits", spent=0, returned=40),
    ),
    (
        "settle and state another sum",
        ("run_follows_chain", "event_has_effect"),
        lambda by: by.end("january", "settled", account="visits", spent=7, returned=40),
    ),
    *(
        (
            f"publish again {words}",
            ("event_has_effect",),
            lambda by, run=run, change=change: by.release("republished", run, **change),
        )
        for words, run, change in (
            ("what no run has made", "mine", {}),
            ("what is not made yet", "open", {}),
            ("another release", "newer", {"release": "x"}),
            ("what another account has", "newer", {"account": "visits"}),
        )
    ),
    ("remove the newest release", ("event_has_effect",), lambda by: by.release("removed", "newer")),
    ("remove what is kept", ("event_has_effect",), lambda by: by.release("removed", "older", keep=2)),
    (
        "remove the newest that is left",
        ("event_has_effect",),
        lambda by: (by.tell("withdrawn", "newer", release="newer", reason="r"), by.release("removed", "older")),
    ),
]
WORDS = [words for words, _, _ in FORGERIES]


def forge(connection: psycopg.Connection, forgery: Forgery, *, without: tuple[str, ...]) -> None:
    """Try it without these rules, up to what would be checked at the end of the transaction, and leave nothing behind."""
    with connection.transaction(force_rollback=True):
        for rule in without:
            disable = sql.SQL("ALTER TABLE dpflow.{} DISABLE TRIGGER {}")
            connection.execute(disable.format(sql.Identifier(rule.split("_")[0]), sql.Identifier(rule)))
        forgery(Forger(connection))
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")


@pytest.mark.parametrize(("words", "rules", "forgery"), FORGERIES, ids=WORDS)
def test_the_database_refuses_to(
    words: str, rules: tuple[str, ...], forgery: Forgery, connection: psycopg.Connection
) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match="the ledger: "):
        forge(connection, forgery, without=())


@pytest.mark.parametrize(("words", "rules", "forgery"), FORGERIES, ids=WORDS)
def test_nothing_but_its_rule_stands_in_the_way_to(
    words: str, rules: tuple[str, ...], forgery: Forgery, connection: psycopg.Connection
) -> None:
    forge(connection, forgery, without=rules)


ALLOWED: dict[str, Forgery] = {
    "reserve": lambda by: by.reserve("new", paid=100),
    "reserve again": lambda by: by.reserve_again(),
    "charge": lambda by: by.charge(),
    "charge once more": lambda by: by.charge(step="begun", attempt=2),
    "commit": lambda by: by.commit("begun"),
    "lease": lambda by: by.lease(),
    "refund": lambda by: by.refund(),
    "open a block": lambda by: by.change_block("blocks-opened", "mine"),
    "seal a block": lambda by: by.change_block("blocks-sealed", "2026-04"),
    "publish again": lambda by: by.release("republished", "newer"),
    "remove an older release": lambda by: by.release("removed", "older"),
}


@pytest.mark.parametrize("words", ALLOWED)
def test_the_database_accepts_the_same_hand_if_it_follows_the_protocol(
    words: str, connection: psycopg.Connection
) -> None:
    forge(connection, ALLOWED[words], without=())


def test_every_rule_is_met_by_one_of_them(connection: psycopg.Connection) -> None:
    found = connection.execute("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal").fetchall()
    known = {rule for _, rules, _ in FORGERIES for rule in rules}
    # An account's row cannot be deleted while others refer to it, rule or not; the other only notes.
    assert {name for (name,) in found} - known == {"account_kept", "block_notes_move"}


def test_every_function_looks_names_up_in_the_ledger_alone(connection: psycopg.Connection) -> None:
    functions = connection.execute(
        "SELECT proname, proconfig[1], prosecdef FROM pg_proc WHERE pronamespace = 'dpflow'::regnamespace"
    ).fetchall()
    assert functions
    assert {(path, definer) for _, path, definer in functions} == {("search_path=dpflow, pg_temp", False)}


def test_one_event_pays_each_of_a_thousand_blocks(server: PostgresServer) -> None:
    months = [f"month {number}" for number in range(1_000)]
    with open_ledger(server.new_database(), create=True) as ledger:
        opened_by_month(ledger, *months, neighbours=Neighbours.REPLACE_ONE)
        ledger.reserve("r", account="visits", amount=40, claim="c", blocks=months)
        assert {block.used for block, _ in ledger.blocks("visits")} == {80}
        ledger.refund("r", lease=None)
        assert {block.used for block, _ in ledger.blocks("visits")} == {0}
