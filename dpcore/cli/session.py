"""The verbs of the interactive curator: ask, and session open, show, release and close."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcore.cli.answer import rows_of
from dpcore.cli.arguments import Subparsers, add_verb, argument
from dpcore.cli.output import Answer, table
from dpcore.cli.verbs import VERBS
from dpcore.release.integrity import one_line
from dpcore.reporting.formatting import at_most, down
from dpcore.reporting.plots import percent

if TYPE_CHECKING:
    from dpcore.session.price import Price

OF_SESSION = (
    argument("spec", metavar="SPEC", type=Path, help="a spec's file"),
    argument("--session", metavar="ID", help="the session; default: the newest open one of the spec"),
)
"""What verbs about a session of a spec take."""
MORE = (
    "; the answer is free if the session's model knows it accurately enough, or if the question was bought before. Otherwise the counts "
    "or sums that the question distinguishes are measured, for the least price that makes the answer accurate enough. The table is called "
    "`release`; the SQL is that of `dpflow answer`"
)


def add_verbs(verbs: Subparsers) -> None:
    """Add the verbs to the parser."""
    add_verb(
        verbs,
        "ask",
        VERBS["ask"].about,
        *OF_SESSION,
        argument("query", metavar="SQL", help='such as "select count(*) from release where age >= 65"'),
        argument(
            "--within",
            metavar="W",
            required=True,
            help="the wanted half width of each interval: rows, or units of a mean's column, such as 50; 2%% of each number; or '2 points' of a share",
        ),
        argument("--level", metavar="L", type=float, default=0.95, help="the level of the intervals; default: 0.95"),
        argument("--dry-run", action="store_true", help="only say what the answer would cost; reads no data"),
        run=_ask,
        more=MORE,
    )

    session = verbs.add_parser("session", help=VERBS["session"].about)
    actions = session.add_subparsers(required=True, metavar="ACTION")
    add_verb(
        actions,
        "open",
        "open a session: reserve its budget, and buy its first release for a share of it",
        argument("spec", metavar="SPEC", type=Path, help="a spec's file"),
        argument("--epsilon", metavar="E", type=float, help="the session's budget; default: the spec's epsilon"),
        argument(
            "--first-share",
            metavar="F",
            type=float,
            default=0.9,
            help="the share of the budget for the first release; default: 0.9",
        ),
        argument(
            "--unchanged",
            action="store_true",
            help="declare that the table is the same as for the dataset's newest release, as `prior` in a spec does: its measurements count, too; "
            "if noisy counts contradict that, nothing is opened",
        ),
        argument("--session", metavar="ID", help="an id for it; use the same one again if opening was interrupted"),
        argument("--approve", action="store_true", help="approve, as steward, a session above the approval threshold"),
        run=_open,
    )
    for name, run, about in (
        ("show", _show, "show the sessions of a spec, with what they have bought"),
        ("release", _release, "publish what a session knows as a release; costs nothing"),
        ("close", _close, "close a session: what it has not spent returns to the account"),
    ):
        add_verb(actions, name, about, *OF_SESSION, run=run)


def _ask(arguments: argparse.Namespace) -> Answer:
    from dpcore.session.session import Session  # noqa: PLC0415  other verbs start faster without it

    with Session.join(arguments.spec, session=arguments.session) as session:
        terms = {"within": arguments.within, "level": arguments.level}
        if arguments.dry_run:
            price = session.price(arguments.query, **terms)
            return Answer({"price": _plain(price), "session": session.id}, _sentence(price, dry=True))
        reply = session.ask(arguments.query, **terms)
        rows, text = rows_of(reply.table)
        left = session.run.remaining / 1e12
    data = {"rows": rows, "price": _plain(reply.price), "session": session.id, "remaining": left}
    return Answer(data, f"{text}\n\n{_sentence(reply.price, dry=False)}")


def _plain(price: "Price") -> dict[str, Any]:
    return {**price.to_json(), "remaining_before": price.remaining}


def _sentence(price: "Price", *, dry: bool) -> str:
    width = f"within {price.half_width:.4g}"
    if price.stored:
        return f"free, {width}: this question was bought before"
    if price.free:
        return f"free, {width}: the model knows this accurately enough"
    cost = f"epsilon {at_most(price.epsilon)} ({price.left_text})"
    return f"{'costs' if dry else 'paid'} {cost}, {width}"


def _open(arguments: argparse.Namespace) -> Answer:
    from dpcore.session.opening import with_epsilon  # noqa: PLC0415
    from dpcore.session.session import Session  # noqa: PLC0415
    from dpcore.spec import load_spec  # noqa: PLC0415
    from dpcore.steward.approvals import check_approved  # noqa: PLC0415

    declaration = load_spec(arguments.spec)
    if arguments.epsilon is not None:
        declaration = with_epsilon(declaration, arguments.epsilon)
    check_approved(declaration, approved=arguments.approve)
    with Session.open(
        arguments.spec,
        epsilon=arguments.epsilon,
        first_share=arguments.first_share,
        unchanged=arguments.unchanged,
        session=arguments.session,
    ) as session:
        described = session.described()
    following = (
        f'next: dpflow ask {shlex.quote(str(arguments.spec))} "select count(*) from release" --within 50 --dry-run'  # noqa: S608  a command for the reader
    )
    return Answer(described, f"{_text(described)}\n\n{following}")


def _show(arguments: argparse.Namespace) -> Answer:
    from dpcore.session.overview import listed, open_under_other_specs  # noqa: PLC0415

    sessions = listed(arguments.spec, session=arguments.session)
    others = [] if arguments.session else open_under_other_specs(arguments.spec)
    parts = [_text(session) for session in sessions] or ["no session of this spec was opened"]
    if others:
        parts.append(
            f"open, but of another spec or an earlier version of this one: {', '.join(others)}; end one with: dpflow ledger settle ID"
        )
    return Answer({"sessions": sessions, "others": others}, "\n\n".join(parts))


def _release(arguments: argparse.Namespace) -> Answer:
    from dpcore.session.session import Session  # noqa: PLC0415

    with Session.join(arguments.spec, session=arguments.session) as session:
        outcome = session.release()
    return Answer(outcome, f"{outcome['release']}: {outcome['rows']:,} rows; nothing was charged")


def _close(arguments: argparse.Namespace) -> Answer:
    from dpcore.session.overview import close  # noqa: PLC0415

    closed = close(arguments.spec, session=arguments.session)
    return Answer(closed, f"session {closed['session']} is closed; epsilon {down(closed['epsilon'])} returned")


def _text(session: dict[str, Any]) -> str:
    epsilon, bought, name = session["epsilon"], session["bought"], session["session"]
    share = f" ({percent(session['spent'] / session['reserved'])})" if session["reserved"] else ""
    begun = (
        f"was not opened to its end; finish that with: dpflow session open SPEC --session {name}"
        if session["state"] == "opening"
        else f"began with the release of run {session['first']}"
    )
    head = f"session {name}, {session['state']}: epsilon {at_most(epsilon['spent'])} of {at_most(epsilon['reserved'])} spent{share}; {begun}"
    if session["not_stored"] > 0:
        head += (
            f"\nepsilon {at_most(epsilon['not_stored'])} was charged for answers that were not stored: their process was killed, or is "
            "still at work"
        )
    if not bought:
        return f"{head}\nnothing was bought yet"
    rows = [
        ("bought", "epsilon", "within"),
        *(
            (one_line(answer["question"]), at_most(answer["epsilon"]), f"{answer['half_width']:.4g}")
            for answer in bought
        ),
    ]
    return f"{head}\n{table(rows, right=('epsilon', 'within'))}"
