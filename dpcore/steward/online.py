"""Open an online session, if it needs no approval of the steward or has it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpcore.errors import UsageError
from dpcore.places import places_of_spec, using
from dpcore.runs.online import RESTARTS, Online, open_declared
from dpcore.spec import Declaration, load_spec
from dpcore.steward.approvals import approval_for, request


@contextmanager
def open_online(  # noqa: PLR0913  the terms of the theorem, and the run
    spec: str | Path,
    *,
    alpha: float,
    beta: float,
    queries: int,
    rows: int,
    restarts: int = RESTARTS,
    resume: str | None = None,
    table: Any = None,
    approved: bool = False,
) -> Iterator[Online]:
    """Open a session that answers adaptive counting queries, all within a share of the rows.

    The whole budget of the spec, its `epsilon`, is reserved first. Parameters that cannot hold are refused before that. The number of rows
    is bought first; if it turns out too small for the promise, the session ends, and the rest is refunded. Leaving the context suspends the
    session, so that it can be resumed by its `run_id`; `end` ends it.

    The promise is about one table: the rows that count under the limit on rows per unit. If a unit may have more rows than that, each opening
    draws anew which of them count. The promise of alpha and beta then holds for the answers of one opening, and not for those of a session
    that was resumed. Privacy does not depend on this.

    Args:
        spec: The spec's path. Its universe must be declared in full, and its account must have no blocks.
        alpha: All answers are within this share of the noisy number of rows.
        beta: With at most this probability, some answer is not.
        queries: The most different queries that are answered.
        rows: About how many rows the table has: a public number, used only to refuse parameters that cannot hold.
        restarts: How often the session may be resumed.
        resume: The `run_id` of a session to resume, with the same spec and the same numbers.
        table: A pandas, polars or Arrow table to read instead of the spec's `source`.
        approved: Whether the steward approves an epsilon above the account's threshold. A session to resume was approved when it was opened.

    Raises:
        UsageError: If the epsilon needs approval, or if a parameter cannot hold. Nothing is reserved.
    """
    declaration = load_spec(spec, with_table=table is not None)
    if resume is None and not approved:
        _require_no_approval(declaration)
    with open_declared(
        declaration,
        alpha=alpha,
        beta=beta,
        queries=queries,
        rows=rows,
        restarts=restarts,
        resume=resume,
        table=table,
    ) as session:
        yield session


def _require_no_approval(declaration: Declaration) -> None:
    with using(places_of_spec(declaration.path)):
        approval = approval_for(declaration)
        if approval is not None:
            raise UsageError(
                f"{request(declaration, approval)}; as the steward, open the session with approved=True, or ask for less"
            )
